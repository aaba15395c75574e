"""Tools and demonstrations are taken in every form in which people have them."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

import dtdr
from dtdr import Demonstration, Tool
from dtdr.agents import ToolMask, ToolPolicy
from dtdr.agents.advice import advise, unused_tools
from dtdr.agents.transcript import Transcript
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.data.tools import Parameter, as_tool, as_tools, unique_tools
from dtdr.errors import InputError
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.statistics import measure
from dtdr.evaluate.drift import compare_runs
from dtdr.evaluate.harness import rank_steps, score_model
from dtdr.evaluate.planning.harness import choose_plans, choose_steps
from dtdr.llm.planning import Planner
from tests.small_data import TOOLS, demonstration

SCHEMA = {
    "type": "object",
    "properties": {"door": {"type": "string", "description": "Which door"}},
    "required": ["door"],
}
LOCK = Tool("lock_door", "Locks a door", (Parameter("door", "string", "Which door"),))
TEXTS = {"name": "lock_door", "description": "Locks a door"}
RUNS = [demonstration(number) for number in range(30)]
RECORDS = [run.to_dict() for run in RUNS]


@cache
def model():
    return dtdr.fit(RUNS, TOOLS, ranker="dr", arguments=False, plans=False)


@dataclass
class Dumped:
    """An object of a provider's package, which are all Pydantic models."""

    record: dict[str, Any]

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        return {key: value for key, value in self.record.items() if value is not None}


FORMS: dict[str, Any] = {
    "tool": LOCK,
    "json": LOCK.to_dict(),
    "openai chat": {"type": "function", "function": {**TEXTS, "parameters": SCHEMA}},
    "openai responses": {"type": "function", **TEXTS, "parameters": SCHEMA, "strict": True},
    "openai custom": {"type": "custom", "custom": {**TEXTS, "parameters": SCHEMA}},
    "anthropic": {**TEXTS, "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    "anthropic custom": {"type": "custom", **TEXTS, "input_schema": SCHEMA},
    "mcp": {**TEXTS, "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    "mcp object": Dumped({**TEXTS, "title": None, "inputSchema": SCHEMA}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_tool_is_read_from_every_form(form):
    assert as_tool(FORMS[form]) == LOCK


@pytest.mark.parametrize("form", FORMS)
def test_every_function_that_takes_tools_takes_every_form(form, tmp_path):
    tool = FORMS[form]
    fitted = dtdr.fit(RUNS, [tool], ranker="dtdr-c", arguments=False, plans=False)
    assert LOCK in fitted.tools_
    if fitted.can_change_tools:
        fitted.remove_tools(["lock_door"])
        fitted.add_tools([tool])
        fitted.rename_tool("lock_door", {**LOCK.to_dict(), "name": "bolt_door"})
        assert "bolt_door" in fitted.vocabulary
    save_tools(tmp_path / "tools.json", [tool])
    assert dtdr.read_tools(tmp_path / "tools.json") == (LOCK,)
    mask = ToolMask(model(), ToolPolicy(top_k=1))
    assert mask.search("lock the door", [tool, *TOOLS], Transcript(()))[0] == "lock_door"
    assert advise(model(), RUNS[:2], [tool]) == advise(model(), RUNS[:2], [LOCK])
    assert "lock_door" in unused_tools(model(), RUNS[:2], [tool])
    assert Dataset("a", "A", RUNS, (tool,), True, "", "").tools == (LOCK,)
    assert measure(RUNS, [tool]) == measure(RUNS, [LOCK])


def test_every_function_that_takes_demonstrations_takes_their_json_objects(tmp_path):
    first, second = (
        [Demonstration.from_dict(record) for record in RECORDS],
        json.loads(json.dumps(RECORDS)),
    )
    for items, name in ((first, "objects"), (second, "records")):
        save_demonstrations(tmp_path / name, items)
    assert (tmp_path / "objects").read_bytes() == (tmp_path / "records").read_bytes()
    assert Dataset("a", "A", second, TOOLS, True, "", "").demonstrations == first
    assert advise(model(), second[:3]) == advise(model(), first[:3])
    assert unused_tools(model(), second) == unused_tools(model(), first)
    assert measure(second) == measure(first)
    assert compare_runs(second[:9], second[9:], permutations=9) == compare_runs(
        first[:9], first[9:], permutations=9
    )
    assert choose_plans(second, 4) == choose_plans(first, 4)
    assert choose_steps(second, 4) == choose_steps(first, 4)
    assert [item[0] for item in rank_steps(model(), second)] == [
        item[0] for item in rank_steps(model(), first)
    ]
    dataset = Dataset("a", "A", second, TOOLS, True, "", "")
    assert score_model(model(), dataset, train=second).header.split["train"] == len(first)
    assert (
        Planner(model(), demonstrations=second).examples.sha256
        == Planner(model(), demonstrations=first).examples.sha256
    )
    updated = dtdr.fit(second, TOOLS, ranker="dtdr-c", arguments=False, plans=False)
    if updated.can_update:
        assert updated.update([{**second[0], "id": "new"}]) == 1


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([{"description": "x"}], "tool 0: a tool has no 'name'"),
        ([LOCK, "lock"], "tool 1: a tool must be a JSON object, not str"),
        ("lock", "give a list of tools, not str"),
        (LOCK, "give a list of tools, not Tool"),
        (LOCK.to_dict(), "give a list of tools, not dict"),
        (7, "give a list of tools, not int"),
        ([{"type": "web_search_20260209"}], "tool 0: a tool has no 'name'"),
    ],
)
def test_what_is_not_a_tool_is_named_with_its_position(tools, reason):
    with pytest.raises(InputError, match=reason):
        list(as_tools(tools))
    with pytest.raises(InputError, match=reason):
        unique_tools(tools)
