import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.data.calls import ToolCall
from dtdr.data.tools import Parameter, Tool
from dtdr.llm.prompting.arguments import read_arguments
from dtdr.llm.prompting.render import answer_line, output_names

TOOL = Tool(
    "create_event",
    "Create an event",
    (
        Parameter("title", "str"),
        Parameter("invitees", "list[str]", required=False),
        Parameter("minutes", "int", required=False),
        Parameter("price", "number", required=False),
        Parameter("all_day", "bool", required=False),
        Parameter("notes", "str", required=False),
    ),
)
CALLS = (ToolCall("a", "find", {}), ToolCall("b", "find", {}))


def read(answer: str):
    found = read_arguments(answer, TOOL, CALLS)
    assert found.problems == ()
    return dict(found.arguments)


def problems(answer: str, tool: Tool = TOOL) -> str:
    return "; ".join(read_arguments(answer, tool, CALLS).problems)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("title='Lunch'", {"title": "Lunch"}),
        ('title="Lunch, then cake", minutes=30', {"title": "Lunch, then cake", "minutes": 30}),
        ("title=Lunch, then cake, minutes=30", {"title": "Lunch, then cake", "minutes": 30}),
        ("title='Bob's party', notes=''", {"title": "Bob's party"}),
        ("title='It\\'s \\\\ here'", {"title": "It's \\ here"}),
        ("title='a=b, c', price=2.5", {"title": "a=b, c", "price": 2.5}),
        ("title=out_2", {"title": {"$ref": "b"}}),
        ("title='out_1'", {"title": {"$ref": "a"}}),
        ("title=out_1/rooms/0/id", {"title": {"$ref": "a", "path": "/rooms/0/id"}}),
        (
            "title='No. {out_2/id}', invitees=[out_1/who/0]",
            {
                "title": {"$join": ["No. ", {"$ref": "b", "path": "/id"}]},
                "invitees": [{"$ref": "a", "path": "/who/0"}],
            },
        ),
        (
            "title='Notes: {out_1} and {out_2}'",
            {"title": {"$join": ["Notes: ", {"$ref": "a"}, " and ", {"$ref": "b"}]}},
        ),
        (
            "title=x, invitees=[out_1, 'Ann, Bob', out_2]",
            {"title": "x", "invitees": [{"$ref": "a"}, "Ann, Bob", {"$ref": "b"}]},
        ),
        ("title=x, invitees=[]", {"title": "x", "invitees": []}),
        ("title=x, invitees=out_1", {"title": "x", "invitees": {"$ref": "a"}}),
        ("title=x, all_day=true", {"title": "x", "all_day": True}),
        ("title=x, all_day='False'", {"title": "x", "all_day": False}),
        ("title=12, minutes='45'", {"title": "12", "minutes": 45}),
        ("title=x, notes=None", {"title": "x", "notes": None}),
        ("title=007, notes=+15551234567", {"title": "007", "notes": "+15551234567"}),
        ("title=1.10, notes=true", {"title": "1.10", "notes": "true"}),
        ("title=x, invitees=[0041, 1.50]", {"title": "x", "invitees": ["0041", "1.50"]}),
        ("title=12345678901234567890", {"title": "12345678901234567890"}),
        ("title=x, price=1e3, minutes=5.0", {"title": "x", "price": 1000.0, "minutes": 5}),
        ("create_event(title='x', minutes=5)", {"title": "x", "minutes": 5}),
        ("out_3 = create_event(title='x')", {"title": "x"}),
        ('```json\n{"title": "x", "all_day": false}\n```', {"title": "x", "all_day": False}),
        ("Parameters: title='x'", {"title": "x"}),
        ("title='Zoë — 東京', ", {"title": "Zoë — 東京"}),
        ("title='x'\nminutes=5", {"title": "x", "minutes": 5}),
    ],
)
def test_answers_in_many_styles_are_read(answer, expected):
    assert read(answer) == expected


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "'title' is missing"),
        ("title='x', colour='red'", "'colour' is not a parameter"),
        ("title='x', title='y'", "'title' is given twice"),
        ("title='x', minutes=soon", "expected a value of type int"),
        ("title='x', minutes=2.5", "expected a value of type int"),
        ("title='x', all_day=maybe", "expected a value of type bool"),
        ("title='x', invitees=Ann", "expected a value of type list[str]"),
        ("title=out_7", "out_7 does not exist; there are 2 outputs"),
        ("title=out_7/id", "out_7 does not exist; there are 2 outputs"),
        ("title='never closed", "no closing quote"),
        ("title=x, invitees=[['a'", "a list has no closing"),
        ("I would call it Lunch", "expected name=value"),
        ("title='x', invitees=" + "[" * 5000, "nested too deeply"),
    ],
)
def test_answers_that_cannot_be_used_say_why(answer, said):
    assert said in problems(answer)


def test_a_bad_value_does_not_lose_the_good_ones():
    found = read_arguments("title='x', minutes=soon", TOOL, CALLS)
    assert dict(found.arguments) == {"title": "x"}


def test_parameter_names_with_spaces_and_dots_are_read():
    tool = Tool("t", "", (Parameter("due date", "str"), Parameter("user.name", "str")))
    found = read_arguments("due date='May 1', user.name=Ann", tool, ())
    assert found.problems == ()
    assert dict(found.arguments) == {"due date": "May 1", "user.name": "Ann"}


def test_an_unknown_type_takes_any_value():
    tool = Tool("t", "", (Parameter("image", "image"), Parameter("options")))
    found = read_arguments("image='a.png', options={'k': [1, out_1]}", tool, CALLS)
    assert dict(found.arguments) == {"image": "a.png", "options": {"k": [1, {"$ref": "a"}]}}


TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf")), max_size=30
).filter(lambda text: "out_" not in text and "<" not in text and "[" not in text)


@given(TEXT, st.lists(TEXT, max_size=3), st.integers(-(10**9), 10**9), st.booleans())
def test_what_a_plan_shows_is_read_back(title, invitees, minutes, all_day):
    arguments = {
        "title": title,
        "invitees": [*invitees, {"$ref": "b"}],
        "minutes": minutes,
        "all_day": all_day,
    }
    line = answer_line(arguments, output_names(CALLS))
    assert read(line) == arguments


@given(st.text(max_size=80))
def test_no_answer_whatever_raises(answer):
    found = read_arguments(answer, TOOL, CALLS)
    assert found.problems or "title" in found.arguments
