"""Demonstrations whose arguments can be learned: from the query, from outputs, and constant."""

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool

NAMES = ["Ann", "Bo", "Cem", "Dora", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jana"]
NAMES += ["Kim", "Lea", "Max", "Nora", "Otto", "Pia", "Quin", "Rosa", "Sam", "Tess"]
ADJECTIVES = ("Annual", "Big", "Calm", "Daily", "Early", "Final", "Green", "Happy", "Inner")
NOUNS = ("Review", "Lunch", "Sync", "Meeting", "Yoga", "Call", "Quiz", "Demo", "Party", "Audit")


def demonstration(number):
    """Find somebody and mail them; or create an event with somebody."""
    name, other = NAMES[number % 20], NAMES[(7 * number + 3) % 20]
    title = f"{ADJECTIVES[number % 9]} {NOUNS[number % 10]}"
    if number % 2:
        user = {"id": 900 + number, "mail": f"{name}@x.org"}
        mail = {"to": {"$ref": "1", "path": "/mail"}, "subject": title, "folder": "Outbox"}
        calls = [ToolCall("1", "find_user", {"name": name}, user), ToolCall("2", "send_mail", mail)]
        query = f'Look up {name} and send them a mail with the subject "{title}"'
    else:
        event = {"title": title, "guests": [{"$ref": "1"}, {"$ref": "2"}]}
        calls = [
            ToolCall("1", "get_contact", {"name": name}),
            ToolCall("2", "get_contact", {"name": other}),
            ToolCall("3", "create_event", event),
        ]
        query = f'Create an event "{title}" with {name} and {other}'
    return Demonstration(str(number), query, Plan(tuple(calls)), group=f"g{number % 7}")


DEMONSTRATIONS = tuple(map(demonstration, range(80)))
TOOLS = (
    Tool("find_user", "Find somebody", (Parameter("name", "string"),)),
    Tool("never_called", "Nobody called it", (Parameter("name", "string"), Parameter("count"))),
)


def demonstrations(make, count=60):
    """Runs of which ``make(number)`` gives the query and the calls, in seven groups."""
    return [
        Demonstration(str(number), query, Plan(tuple(calls)), group=f"g{number % 7}")
        for number, (query, *calls) in enumerate(map(make, range(count)))
    ]


def pick(values, number, step=1):
    """One of some values, another for each number."""
    return values[(step * number + number // len(values)) % len(values)]
