"""The words that queries are made of: people, places, documents, times, sums of money."""

from __future__ import annotations

from random import Random


def split(text: str) -> tuple[str, ...]:
    """The words of a text, or the phrases between its bars."""
    return tuple(text.split("|" if "|" in text else None))


FIRST = split(
    "Ann Omar Zoë Priya Lucas Mei Ingrid Tomás Fatima Jonas Chloé Ravi Elena Kwame Sofia Hiro "
    "Marta Diego Aisha Noah Lena Viktor Amara Pavel Julia Samir Nadia Oscar Yuki Clara Hamid Ida "
    "Bruno Leila Mikko Rosa Anton Farah Emil Greta Kofi Laura Milan Nina Otto Petra Quinn Renée "
    "Stefan Tara Uma Vera Walid Ximena Yara Łukasz Björn Dóra Søren Ana"
)
LAST = split(
    "Petrov Okafor Lindqvist Sharma Moreau Tanaka Haddad Novak Costa Berger Mbeki Rossi Ferrari "
    "Kowalski Silva Jensen Nakamura Aziz Keller Dubois Ortiz Walsh Ivanova Fischer Mensah Larsen "
    "Papadakis Romero Svensson Weber Abdi Bianchi Castillo Demir Eriksen Fontaine Grant Horvat "
    "Ito Jovanović Kaya Lopez Meyer Nguyen O'Brien Park Qureshi Rahman Schmidt Torres"
)
CITIES = split(
    "Oslo|Lisbon|Zürich|Kraków|São Paulo|Nairobi|Kyoto|Montréal|Dublin|Valencia|Tallinn|Ghent|Porto"
    "|Seattle|Denver|Lyon|Graz|Malmö|Bergen|Tbilisi|Accra|Lima|Hanoi|Bristol|Leipzig|Turin|Aarhus"
    "|Bilbao|Vilnius|Zagreb|Split|Sofia|Athens|Cork|Utrecht|Basel|Nantes|Seville|Riga|Helsinki"
    "|Boston|Chicago|Austin|Toronto|Osaka|Taipei|Seoul|Singapore|Jakarta|Mumbai|Pune|Cairo|Tunis"
    "|Rabat|Dakar|Lagos|Quito|Bogotá|Santiago|Montevideo|Perth|Hobart|Auckland|Wellington"
)
STREETS = split(
    "Harbour Road|Mill Lane|Station Street|Oak Avenue|Market Square|River Walk|Castle Hill"
    "|Garden Row|Bridge Street|Chapel Lane|Queen Street|Park View|North Quay|Abbey Road"
)
TOPICS = split(
    "budget|roadmap|audit|onboarding|pricing|hiring|launch|warehouse|survey|training|insurance"
    "|marketing|safety|energy|procurement|research|festival|renovation|website|payroll|inventory"
    "|compliance|customer feedback|board meeting|tax|exhibition|translation|fundraising|travel"
    "|product design|quality|supplier|logistics|climate|partnership|newsletter"
)
KINDS = split(
    "report|draft|proposal|contract|minutes|plan|brief|slides|checklist|manual|overview|review"
    "|notes|schedule|letter|statement|analysis|agenda"
)
LANGUAGES = split(
    "French German Spanish Japanese Polish Portuguese Italian Swahili Korean Dutch Greek "
    "Turkish Arabic Finnish Hindi"
)
CURRENCIES = (
    ("dollars", "USD"),
    ("yen", "JPY"),
    ("pounds", "GBP"),
    ("Swiss francs", "CHF"),
    ("kronor", "SEK"),
    ("rupees", "INR"),
    ("złoty", "PLN"),
    ("pesos", "MXN"),
    ("rand", "ZAR"),
    ("lira", "TRY"),
)
CATEGORIES = split("meals|taxi rides|office supplies|parking|books|client gifts|phone|fuel")
CUISINES = split(
    "Thai Georgian vegan Lebanese Mexican Korean tapas ramen seafood pizza Ethiopian Greek"
)
PLACES = split(
    "pharmacy|printing shop|bike repair|post office|bakery|gym|bookshop|coffee place|flower shop"
    "|charging station|coworking space|dentist"
)
EVENTS = split(
    "stand-up|design review|budget meeting|interview|retrospective|kick-off|workshop|demo"
    "|one-on-one|training|planning session|status call|lunch|rehearsal"
)
CHORES = split(
    "water the plants|call the bank|renew my passport|pay the rent|pick up the parcel"
    "|submit the timesheet|charge the camera|return the library books|book the dentist"
    "|order new toner|back up the laptop|sign the lease|feed the cat|send the invoice"
)
WEEKDAYS = split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = split(
    "January February March April May June July August September October November December"
)
MESSAGES = split(
    "I am running late|the meeting room has changed|the delivery has arrived|we are on for lunch"
    "|the draft is ready|I will call back tonight|the client said yes|we need two more chairs"
    "|the keys are at the front desk|the build is green again|I found the missing invoice"
    "|dinner is at eight|the train was cancelled|the numbers look good"
)
AIRLINES = split("LH AF KL SK IB TP BA AY LX OS")


def person(rng: Random) -> str:
    """A name, with a surname more often than not."""
    first = FIRST[int(rng.random() * len(FIRST))]
    if rng.random() < 0.35:
        return first
    return f"{first} {LAST[int(rng.random() * len(LAST))]}"


def address(rng: Random) -> str:
    """A mail address."""
    first = FIRST[int(rng.random() * len(FIRST))].lower()
    last = LAST[int(rng.random() * len(LAST))].lower().replace("'", "")
    return f"{first}.{last}{int(rng.random() * 90) + 10}@example.com"


def phone(rng: Random) -> str:
    """A telephone number."""
    return f"+{int(rng.random() * 89) + 10} 555 {int(rng.random() * 900000) + 100000}"


def document(rng: Random, extensions: tuple[str, ...]) -> str:
    """A file name, such as ``audit draft 2024.pdf`` or ``pricing-review-v3.docx``."""
    topic = TOPICS[int(rng.random() * len(TOPICS))]
    kind = KINDS[int(rng.random() * len(KINDS))]
    draw = rng.random()
    if draw < 0.35:
        version = str(2015 + int(rng.random() * 12))
    elif draw < 0.7:
        version = f"v{1 + int(rng.random() * 40)}"
    else:
        version = f"{MONTHS[int(rng.random() * 12)]} {2015 + int(rng.random() * 12)}"
    extension = extensions[int(rng.random() * len(extensions))]
    joint = " -_"[int(rng.random() * 3)]
    return f"{joint.join((topic, kind, version)).replace(' ', joint)}.{extension}"


def day(rng: Random) -> str:
    """A day, as people say it."""
    draw = rng.random()
    if draw < 0.2:
        return "tomorrow"
    if draw < 0.5:
        return WEEKDAYS[int(rng.random() * 7)]
    if draw < 0.65:
        return f"next {WEEKDAYS[int(rng.random() * 7)]}"
    return f"{int(rng.random() * 28) + 1} {MONTHS[int(rng.random() * 12)]}"


def clock(rng: Random) -> str:
    """A time of day."""
    hour, quarter = int(rng.random() * 12) + 7, int(rng.random() * 12) * 5
    if rng.random() < 0.5:
        return f"{hour}:{quarter:02d}"
    return (
        f"{(hour - 1) % 12 + 1}{f':{quarter:02d}' if quarter else ''} {'am' if hour < 12 else 'pm'}"
    )


def street_address(rng: Random) -> str:
    """A street with a number."""
    return f"{int(rng.random() * 240) + 1} {STREETS[int(rng.random() * len(STREETS))]}"


def flight_number(rng: Random) -> str:
    """An airline's code and a number."""
    return f"{AIRLINES[int(rng.random() * len(AIRLINES))]}{int(rng.random() * 8900) + 100}"


def join_items(items: list[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
