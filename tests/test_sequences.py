"""A list of names is a sequence; calls with arguments come in any order unless something says."""

import json
from typing import Any

import pytest

import dtdr
from dtdr import Demonstration
from dtdr.cli import run
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from dtdr.data.demonstrations import as_demonstrations, count_orders
from dtdr.data.plan import Plan

NAMES = ["refund", "close_refund"]
CALLS: dict[str, Any] = {
    "names": NAMES,
    "objects of names": [{"tool": name} for name in NAMES],
    "objects with ids": [{"id": name, "tool": name} for name in NAMES],
}
FORMS: dict[str, Any] = {"a pair": ("handle case 7", NAMES)}
FORMS |= {form: {"id": "0", "query": "handle case 7", "calls": CALLS[form]} for form in CALLS}


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_names_is_in_order_and_stays_so_in_every_file(form, tmp_path):
    (found,) = as_demonstrations([FORMS[form]])
    assert found.plan.next_calls(()) == {"refund"}
    assert found.plan.next_calls((0,)) == {"close_refund"}
    if isinstance(FORMS[form], dict):
        assert Demonstration.from_dict(FORMS[form]) == found
    for name in ("d.jsonl", "d.parquet"):
        save_demonstrations(tmp_path / name, [found])
        assert list(read_demonstrations(tmp_path / name)) == [found]


@pytest.mark.parametrize(
    "calls",
    [
        [{"tool": "a", "arguments": {}}, {"tool": "b", "arguments": {}}],
        [{"tool": "a", "arguments": {"n": 1}}, {"tool": "b"}],
    ],
)
def test_calls_that_say_their_arguments_come_in_any_order(calls, tmp_path):
    found = Demonstration.from_dict({"id": "1", "query": "go", "calls": calls})
    assert found.plan.next_calls(()) == {"a", "b"}
    save_demonstrations(tmp_path / "d.jsonl", [found])
    assert list(read_demonstrations(tmp_path / "d.jsonl")) == [found]


def test_links_and_steps_say_the_order_by_themselves():
    names = [{"id": name, "tool": name} for name in "abc"]
    linked = {"id": "1", "query": "go", "calls": names, "links": [["a", "c"]]}
    assert Demonstration.from_dict(linked).plan.next_calls(()) == {"a", "b"}
    stepped = [{**call, "step": 1} for call in names]
    found = Demonstration.from_dict({"id": "1", "query": "go", "calls": stepped})
    assert found.plan.next_calls(()) == {"a", "b", "c"}


def test_pairs_begin_with_their_first_tool():
    pairs = [(f"please handle case {number}", NAMES) for number in range(150)]
    model = dtdr.fit(pairs)
    assert model.rank("please handle case 7")[0][0] == "refund"
    assert model.rank("please handle case 7", ["refund"])[0][0] == "close_refund"


def test_fit_says_in_one_line_which_rule_it_used(tmp_path, capsys):
    names = [{"id": f"n{n}", "query": f"go {n}", "calls": NAMES} for n in range(3)]
    free = [{"tool": name, "arguments": {"n": 1}} for name in NAMES]
    both = [*names, {"id": "f", "query": "go on", "calls": free}]
    for records, said in (
        (names, "calls are learned in the order they were made (3 of 3 plans)\n"),
        (both, "(3 of 4 plans); in any order, since nothing says which comes first (1 of 4 plans)"),
    ):
        path = tmp_path / "d.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        command = ["fit", str(path), "-o", str(tmp_path / "model"), "--retriever", "dr", "--force"]
        assert run(command) == 0
        assert said in capsys.readouterr().out


def test_a_plan_made_of_calls_keeps_the_papers_rule():
    plan = Plan((dtdr.ToolCall("1", "a"), dtdr.ToolCall("2", "b")))
    assert plan.order_rule == "any"
    assert count_orders([Demonstration("1", "go", plan)]) == {"any": 1}
