"""Masks without a model: by descriptions at first, and better with each run."""

import threading
from unittest.mock import Mock

import pytest

import dtdr
from dtdr.agents import ToolMask, ToolPolicy, Transcript, anthropic, observer, openai
from dtdr.agents.run_folder import RunFolder
from dtdr.errors import InputError

NAMES = {
    "zeta": "Opens a socket.",
    "kappa": "Paints a fence.",
    "omega": "Feeds a goldfish.",
    "sigma": "Waters a flower.",
    **{f"tool_{number}": f"Turns the wheel of machine {number}." for number in range(8)},
}
WORK = {"mail": ("zeta", "kappa"), "files": ("omega", "sigma")}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": text}}
    for name, text in NAMES.items()
]
FEW = ToolPolicy(top_k=3, fallback=False)


def messages_of(query, calls=()):
    """A conversation after these calls."""
    messages = [{"role": "user", "content": query}]
    for number, tool in enumerate(calls):
        call = {
            "id": str(number),
            "type": "function",
            "function": {"name": tool, "arguments": "{}"},
        }
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": str(number), "content": "password=hunter2222"},
        ]
    return messages


def shown(mask, query, calls=()):
    """The tools of a masked request."""
    body = {"model": "m", "messages": messages_of(query, calls), "tools": TOOLS}
    return [
        tool["function"]["name"] for tool in openai.mask_request(body, mask, "filtered")["tools"]
    ]


def run_agent(mask, number):
    """A run of two calls, with a request before each and after the last."""
    kind = list(WORK)[number % 2]
    for done in range(3):
        shown(mask, f"Please do the {kind} work of day {number}", WORK[kind][:done])


@pytest.fixture
def runs(tmp_path):
    return RunFolder(tmp_path / "runs", ranker="markov-1", source="dtdr mask")


@pytest.mark.parametrize("given", [{}, {"tools": TOOLS}, {"tools": [dtdr.Tool("zeta")]}])
def test_without_a_model_tools_are_ranked_by_their_descriptions(given, tmp_path):
    for more in ({}, {"learn": tmp_path / "runs"}):
        mask = ToolMask(policy=FEW, **given, **more)
        assert "omega" in shown(mask, "Feed the goldfish")
        assert len(shown(mask, "Feed the goldfish")) == 3
        assert "tool_7" in mask.search("machine 7", TOOLS, Transcript.of("Help"))[:3]
        assert "kappa" in mask.run("Paint the fence").select(list(NAMES)).shown


def test_a_mask_without_any_tool_shows_everything():
    mask = ToolMask(policy=FEW)
    with pytest.raises(InputError, match="no tool is described yet"):
        mask.model  # noqa: B018
    assert mask.select([], Transcript.of("Feed the goldfish")).shown == ()


def test_a_mask_learns_from_its_runs_and_the_next_begins_with_that(runs):
    mask = ToolMask(policy=FEW, learn=runs)
    for number in range(12):
        run_agent(mask, number)
    mask.flush()
    assert runs.count_runs() == 12
    assert "published" in [item.outcome for item in runs.history()]
    assert b"hunter2222" not in runs.path.read_bytes()
    items = list(dtdr.read_demonstrations(runs.path))
    assert {item.plan.tools for item in items} == set(WORK.values())
    assert {item.source for item in items} == {"dtdr mask"}
    later = ToolMask(policy=FEW, learn=runs.folder)
    for each in (mask, later):
        assert "kappa" in shown(each, "Please do the mail work of day 99", ["zeta"])
        assert each.model.name == "markov-1"


def test_the_turns_of_a_conversation_are_runs_and_no_run_is_recorded_twice(runs):
    mask = ToolMask(policy=FEW, learn=runs)
    first = messages_of("Open it", ["zeta", "omega"])
    second = [
        *first,
        {"role": "assistant", "content": "Done."},
        *messages_of("Paint it", ["kappa"]),
    ]
    for messages in (first[:1], first[:3], first[:3], first, second[:7], second):
        body = {"model": "m", "messages": messages, "tools": TOOLS}
        openai.mask_request(body, mask)
    openai.mask_request({"model": "m", "messages": first[:3], "tools": TOOLS}, mask)  # asked again
    mask.flush()
    mask.flush()
    items = list(dtdr.read_demonstrations(runs.path))
    tools = [item.plan.tools for item in items]
    assert tools.count(("zeta", "omega")) == 1
    assert tools.count(("kappa",)) == 1
    (paint,) = [item for item in items if item.query == "Paint it"]
    assert [item.tool for item in paint.before if hasattr(item, "tool")] == ["zeta", "omega"]


@pytest.mark.parametrize("form", [None, "filtered"])
def test_requests_of_anthropic_need_no_model_either(runs, form):
    mask = ToolMask(policy=FEW, learn=runs)
    tools = [
        {"name": name, "description": text, "input_schema": {}} for name, text in NAMES.items()
    ]
    use = {"type": "tool_use", "id": "1", "name": "omega", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "done"}
    messages = [
        {"role": "user", "content": "Feed the goldfish"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    for count in (1, 3):
        body = {"model": "m", "messages": messages[:count], "tools": tools}
        masked = anthropic.mask_request(body, mask, form)
        assert "omega" in str(masked)
    mask.flush()
    (item,) = dtdr.read_demonstrations(runs.path)
    assert item.plan.tools == ("omega",)
    search = ToolMask(policy=FEW).search("machine 7", tools, Transcript.of("Paint"))
    assert "tool_7" in search


def test_a_run_that_is_idle_has_ended(runs, monkeypatch):
    timers = []

    def timer(seconds, act):
        timers.append((seconds, act))
        return Mock()

    monkeypatch.setattr(threading, "Timer", timer)
    mask = ToolMask(policy=FEW, learn=runs)
    run_agent(mask, 1)
    runs.wait()
    assert runs.count_runs() == 0
    ((seconds, act),) = timers
    assert seconds == observer.IDLE_SECONDS
    monkeypatch.setattr(observer, "IDLE_SECONDS", 0.0)  # as if they had passed
    act()
    runs.wait()
    assert runs.count_runs() == 1


def test_a_disk_that_is_full_stops_no_agent(runs, caplog):
    mask = ToolMask(policy=FEW, learn=runs)
    runs.path.unlink()
    runs.path.mkdir()
    run_agent(mask, 1)
    mask.flush()
    assert "omega" in shown(mask, "Feed the goldfish")
    assert "could not record a run" in caplog.text


def test_a_model_comes_without_tools_and_folder(runs):
    model = dtdr.fit([("Mail Ann", ["a"])], ranker="dr", arguments=False, plans=False)
    for more in ({"tools": TOOLS}, {"learn": runs}):
        with pytest.raises(InputError, match="give a model, or tools"):
            ToolMask(model, **more)


@pytest.mark.parametrize("number", [0, 1, 5_000])
def test_any_number_of_tools_in_any_language_works(number):
    words = ["天気", "погода", "ürün", "fetch"]
    tools = [{"name": f"t{n}", "description": words[n % 4] if n % 3 else ""} for n in range(number)]
    mask = ToolMask(policy=FEW, tools=tools)
    names = [tool["name"] for tool in tools]
    selection = mask.select(names, Transcript.of("погода"))
    assert len(selection.shown) <= 3
    assert not selection.failure or not number
