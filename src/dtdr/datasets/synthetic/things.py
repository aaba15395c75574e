"""What can be handed on: each function adds the calls that produce it and says how to name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtdr.datasets.synthetic import words
from dtdr.datasets.synthetic.scene import Scene, Thing

TEXTS = ("pdf", "docx", "txt", "odt")
SHEETS = ("xlsx", "csv", "ods")


def file(scene: Scene, extensions: tuple[str, ...] = TEXTS) -> tuple[str, Any]:
    """A file by its name, which must be found first, or by its path, which need not."""
    name = words.document(scene.rng, extensions)
    if scene.chance(0.2):
        path = f"/home/{scene.pick(('docs', 'shared', 'archive', 'inbox'))}/{name}"
        return path, path
    return name, scene.call("find_file", name=name)


def summary(scene: Scene) -> Thing:
    """A document's summary."""
    name, path = file(scene)
    text = scene.pick(
        (
            "a summary of {}",
            "the key points of {}",
            "the gist of {}",
            "{} boiled down to a few lines",
            "the main findings in {}",
            "a digest of {}",
        )
    )
    return Thing(text.format(name), scene.call("summarize_document", document=path))


def whole_file(scene: Scene) -> Thing:
    """A file as it is."""
    name, path = file(scene, (*TEXTS, *SHEETS))
    return Thing(
        scene.pick(("{}", "the file {}", "my copy of {}", "{} itself")).format(name), path, True
    )


def pdf_version(scene: Scene) -> Thing:
    """A document turned into a PDF."""
    name, path = file(scene, ("docx", "odt", "txt"))
    text = scene.pick(("{} as a PDF", "a PDF version of {}", "{}, converted to PDF"))
    return Thing(text.format(name), scene.call("convert_to_pdf", file=path), True)


def merged(scene: Scene) -> Thing:
    """Two PDF files in one."""
    one, first = file(scene, ("pdf",))
    two, second = file(scene, ("pdf",))
    text = scene.pick(
        ("{} and {} merged into one file", "{} and {} as a single PDF", "{} combined with {}")
    )
    return Thing(text.format(one, two), scene.call("merge_pdfs", files=[first, second]), True)


def figures(scene: Scene) -> Thing:
    """What stands in a spreadsheet."""
    name, path = file(scene, SHEETS)
    text = scene.pick(
        ("the totals from {}", "the figures in {}", "the numbers in {}", "what {} adds up to")
    )
    return Thing(text.format(name), scene.call("read_spreadsheet", file=path))


def chart(scene: Scene) -> Thing:
    """A chart of what stands in a spreadsheet."""
    name, path = file(scene, SHEETS)
    data = scene.call("read_spreadsheet", file=path)
    text = scene.pick(
        (
            "a chart of the figures in {}",
            "{} as a graph",
            "a plot of {}",
            "the numbers in {} drawn as bars",
        )
    )
    return Thing(text.format(name), scene.call("make_chart", data=data), True)


def weather(scene: Scene) -> Thing:
    """A forecast."""
    return scene.thing(
        "get_weather",
        (
            "the forecast for {0} on {1}",
            "what the weather in {0} will be like {1}",
            "whether it will rain in {0} {1}",
            "how warm {0} gets {1}",
        ),
        place=scene.pick(words.CITIES),
        day=words.day(scene.rng),
    )


def directions(scene: Scene) -> Thing:
    """The way to a place."""
    return scene.thing(
        "get_directions",
        (
            "the way from {} to {}",
            "directions from {} to {}",
            "how to get from {} to {}",
            "the route between {} and {}",
        ),
        origin=words.street_address(scene.rng),
        destination=words.street_address(scene.rng),
    )


def journey(scene: Scene) -> Thing:
    """How long a way takes."""
    return scene.thing(
        "estimate_travel_time",
        (
            "how long it takes from {} to {}",
            "the travel time between {} and {}",
            "how many minutes it is from {} to {}",
        ),
        origin=words.street_address(scene.rng),
        destination=words.street_address(scene.rng),
    )


def exchange(scene: Scene) -> Thing:
    """A sum in another currency."""
    (name, code), amount = scene.pick(words.CURRENCIES), scene.rng.randrange(15, 9000)
    text = scene.pick(
        ("what {} {} are in euros", "{} {} converted to euros", "the euro value of {} {}")
    )
    value = scene.call("convert_currency", amount=amount, currency=code, to="EUR")
    return Thing(text.format(amount, name), value)


def report(scene: Scene) -> Thing:
    """A month's expenses."""
    return scene.thing(
        "expense_report",
        ("my expense report for {}", "what I spent in {}", "the {} expenses put together"),
        month=f"{scene.pick(words.MONTHS)} {scene.rng.randrange(2015, 2027)}",
    )


def old_note(scene: Scene) -> Thing:
    """What a note says."""
    return scene.thing(
        "search_notes",
        ("what I wrote down about the {}", "my notes on the {}", "what my note on the {} says"),
        words=f"{scene.pick(words.TOPICS)} {scene.pick(words.KINDS)}",
    )


def flights(scene: Scene) -> Thing:
    """Flights to choose from."""
    return scene.thing(
        "search_flights",
        (
            "the flights from {} to {} on {}",
            "what flies from {} to {} on {}",
            "flight options {} to {} for {}",
        ),
        origin=scene.pick(words.CITIES),
        destination=scene.pick(words.CITIES),
        day=words.day(scene.rng),
    )


def connections(scene: Scene) -> Thing:
    """Trains to choose from."""
    return scene.thing(
        "search_trains",
        (
            "the trains from {} to {} on {}",
            "rail connections {} to {} for {}",
            "when trains leave {} for {} on {}",
        ),
        origin=scene.pick(words.CITIES),
        destination=scene.pick(words.CITIES),
        day=words.day(scene.rng),
    )


def flight_status(scene: Scene) -> Thing:
    """Whether a flight is on time."""
    return scene.thing(
        "get_flight_status",
        ("whether {} is on time", "the status of flight {}", "if {} is delayed", "when {} lands"),
        flight=words.flight_number(scene.rng),
    )


def boarding_pass(scene: Scene) -> Thing:
    """The boarding pass of a booked flight."""
    return scene.thing(
        "check_in_flight",
        ("my boarding pass for {}", "the boarding card for flight {}"),
        is_file=True,
        flight=words.flight_number(scene.rng),
    )


def meeting_link(scene: Scene) -> Thing:
    """The link of a video call."""
    return scene.thing(
        "create_meeting_link",
        ("a link for the {} call", "a video room for the {}", "an online meeting link for the {}"),
        title=f"{scene.pick(words.TOPICS)} {scene.pick(words.EVENTS)}",
    )


def places(scene: Scene) -> Thing:
    """Places of a kind."""
    return scene.thing(
        "search_places",
        ("where the nearest {} to {} is", "a {} close to {}", "which {} near {} is open"),
        what=scene.pick(words.PLACES),
        near=words.street_address(scene.rng),
    )


def finding(scene: Scene) -> Thing:
    """What a search of the web returns."""
    aspect = scene.pick(("templates", "rules", "examples", "prices", "standards", "trends"))
    topic, kind, city = map(scene.pick, (words.TOPICS, words.KINDS, words.CITIES))
    return scene.thing(
        "web_search",
        ("what the web says about {}", "the latest on {}", "some background on {}"),
        words=f"{topic} {kind} {aspect} in {city}",
    )


def message(scene: Scene) -> Thing:
    """A message in the mailbox."""
    sender, topic = words.person(scene.rng), scene.pick(words.TOPICS)
    text = scene.pick(
        ("what {} wrote about the {}", "the mail from {} on the {}", "{}'s message about the {}")
    )
    return Thing(text.format(sender, topic), scene.call("search_mail", words=f"{sender} {topic}"))


def translate(scene: Scene, thing: Thing) -> Thing:
    """The same, in another language."""
    language = scene.pick(words.LANGUAGES)
    text = scene.pick(("{}, in {}", "{}, translated into {}", "{} (put it into {})"))
    value = scene.call("translate_text", text=thing.value, language=language)
    return Thing(text.format(thing.text, language), value)


THINGS: tuple[Callable[[Scene], Thing], ...] = (
    summary,
    summary,
    whole_file,
    pdf_version,
    merged,
    figures,
    figures,
    chart,
    weather,
    weather,
    directions,
    journey,
    exchange,
    report,
    old_note,
    flights,
    connections,
    flight_status,
    boarding_pass,
    meeting_link,
    places,
    finding,
    message,
)
"""Everything that a clause may hand on; what stands twice comes twice as often."""
