"""The words that queries are made of: people, places, topics, times."""

from __future__ import annotations

import re
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
WEEKDAYS = split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = split(
    "January February March April May June July August September October November December"
)


def person(rng: Random) -> str:
    """A name, with a surname more often than not."""
    first = FIRST[int(rng.random() * len(FIRST))]
    if rng.random() < 0.35:
        return first
    return f"{first} {LAST[int(rng.random() * len(LAST))]}"


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


_POOLS = [
    {name.lower(): (place, names) for place, name in enumerate(names)}
    for names in (FIRST, LAST, CITIES, TOPICS, WEEKDAYS)
]
_WORD = re.compile(r"[^\W_]+")
_VERSION = re.compile(r"v\d\d?")
_YEAR = re.compile(r"20[12]\d")


class Renaming:
    """Names of people and towns, topics, weekdays and numbers: each gives way to another.

    Two different names stay different.
    """

    def __init__(self, rng: Random) -> None:
        self._shifts = [(pool, int(rng.random() * len(pool))) for pool in _POOLS]
        self._shift = int(rng.random() * 120)

    def apply(self, text: str) -> str:
        """The text with the other names in it, in small letters where it has them so."""
        return _WORD.sub(self._other, text)

    def _other(self, match: re.Match[str]) -> str:
        word = match[0]
        if _VERSION.fullmatch(word):
            return f"v{(int(word[1:]) + self._shift) % 40 + 1}"
        if _YEAR.fullmatch(word):
            return str((int(word) + self._shift) % 12 + 2015)
        if len(word) > 2 and word.isdigit():
            return "".join(
                digit if digit == "0" else str((int(digit) + self._shift) % 9 + 1) for digit in word
            )
        for pool, shift in self._shifts:
            known = pool.get(word.lower())
            if known is not None:
                place, names = known
                name = names[(place + shift) % len(names)]
                return name.lower() if word.islower() else name
        return word
