"""A list of names is a sequence; calls with arguments come in any order unless something says."""

import json

import pytest

import dtdr
from dtdr import Demonstration
from dtdr.cli import run
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from dtdr.data.demonstrations import as_demonstrations, count_orders
from dtdr.data.plan import Plan
from tests.helpers import RANKER_ONLY

NAMES = ["refund", "close_refund"]
QUERY = {"id": "0", "query": "handle case 7"}


@pytest.mark.parametrize(
    ("record", "first"),
    [
        (("handle case 7", NAMES), {"refund"}),
        ({"calls": NAMES}, {"refund"}),
        ({"calls": [{"tool": name} for name in NAMES]}, {"refund"}),
        ({"calls": [{"id": name, "tool": name} for name in NAMES]}, {"refund"}),
        ({"calls": [{"tool": name, "arguments": {}} for name in NAMES]}, {*NAMES}),
        ({"calls": [{"tool": "refund", "arguments": {"n": 1}}, {"tool": "b"}]}, {"refund", "b"}),
    ],
)
def test_a_list_of_names_is_in_order_and_calls_with_arguments_in_any(record, first, tmp_path):
    given = record if isinstance(record, tuple) else {**QUERY, **record}
    (found,) = as_demonstrations([given])
    assert found.plan.next_calls(()) == first
    if len(first) == 1:
        assert found.plan.next_calls((0,)) == {"close_refund"}
    for name in ("d.jsonl", "d.parquet"):
        save_demonstrations(tmp_path / name, [found])
        assert list(read_demonstrations(tmp_path / name)) == [found]


def test_links_and_steps_say_the_order_by_themselves():
    names = [{"id": name, "tool": name} for name in "abc"]
    linked = Demonstration.from_dict({**QUERY, "calls": names, "links": [["a", "c"]]})
    assert linked.plan.next_calls(()) == {"a", "b"}
    found = Demonstration.from_dict({**QUERY, "calls": [{**call, "step": 1} for call in names]})
    assert found.plan.next_calls(()) == {"a", "b", "c"}


def test_pairs_begin_with_their_first_tool():
    pairs = [(f"please handle case {number}", NAMES) for number in range(150)]
    model = dtdr.fit(pairs, **RANKER_ONLY)
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
