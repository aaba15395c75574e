"""Which demonstrated call a filling prompt shows."""

import pytest

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.llm.prompting import Examples, FillingPrompts


def demonstration(name: str, query: str, *calls: tuple[str, dict]) -> Demonstration:
    made = [ToolCall(str(place), tool, given) for place, (tool, given) in enumerate(calls, 1)]
    return Demonstration(name, query, Plan(tuple(made)))


def ref(number: int) -> dict:
    return {"$ref": str(number)}


FIND, READ = ("find", {"name": "Ann"}), ("read", {"file": "q3.pdf"})
MAILS = [
    demonstration("1", "mail it", ("mail", {"to": "a@b.c", "cc": [], "text": "Hello"})),
    demonstration("2", "find her", FIND, ("mail", {"to": ref(1), "cc": [], "text": "Hi"})),
    demonstration("3", "read", READ, FIND, ("mail", {"to": ref(2), "cc": [], "text": ref(1)})),
    demonstration("4", "read it", FIND, READ, ("mail", {"to": ref(1), "cc": [], "text": ref(2)})),
    demonstration("5", "both", FIND, FIND, ("mail", {"to": [ref(1), ref(2)], "cc": ["x"]})),
]


@pytest.mark.parametrize(
    ("before", "query", "expected"),
    [
        ((), "", "mail it"),
        (("find",), "", "find her"),
        (("read", "find"), "", "read"),
        (("find", "read"), "", "read it"),
        (("find", "find"), "", "both"),
        (("other", "read"), "", "read it"),
    ],
)
def test_the_example_has_the_same_tools_at_the_same_places(before, query, expected):
    for seed in range(4):
        found = Examples(MAILS, seed=seed).example_for("mail", query=query, before=before)
        assert found is not None
        assert found.query == expected


def test_of_examples_that_are_alike_one_shares_words_with_the_query():
    items = [demonstration(str(n), f"word{n} for all", FIND) for n in range(9)]
    for number in range(9):
        found = Examples(items).example_for("find", query=f"For me WORD{number}")
        assert found is not None
        assert found.query == f"word{number} for all"


def test_a_call_with_arguments_is_preferred_to_a_more_alike_one_without():
    items = [demonstration("1", "a", READ, FIND), demonstration("2", "b", ("find", {}))]
    found = Examples(items).example_for("find")
    assert found is not None
    assert found.query == "a"
    assert Examples(items[1:]).example_for("find") is not None
    assert Examples(items).example_for("unknown") is None


def test_the_filling_prompt_shows_the_most_alike_call():
    tool = Tool("mail", "", (Parameter("to", "str"), Parameter("text", "str")))
    calls = (ToolCall("x", *FIND), ToolCall("y", *READ))
    prompts = FillingPrompts([tool], examples=Examples(MAILS))
    assert "to=out_1, cc=[], text=out_2" in prompts.prompt("q", calls, tool).text
    assert "to=out_2, cc=[], text=out_1" in prompts.prompt("q", calls[::-1], tool).text
