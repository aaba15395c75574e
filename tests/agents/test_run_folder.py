"""A folder of runs: what is recorded, when it is learned, and which model is taken."""

import json
import logging
from typing import Any

import pytest

import dtdr
from dtdr.agents.run_folder import RunFolder, default_folder
from dtdr.agents.trial import Trial, compare
from dtdr.cli import run
from dtdr.conversation.events import LoggedCall
from dtdr.data.tools import Tool
from dtdr.errors import OutputError

WORK = {"mail": ("zeta", "kappa"), "files": ("omega", "sigma")}
TOOLS = [Tool(name, f"Turns wheel {name}.") for pair in WORK.values() for name in pair]


def run_of(number, kind=None):
    """The words of a user, and the calls for them."""
    kind = kind or list(WORK)[number % 2]
    calls = [
        LoggedCall(tool, {"day": number}, place, place + 0.5, output="done")
        for place, tool in enumerate(WORK[kind])
    ]
    return [f"Please do the {kind} work of day {number}"], calls


@pytest.fixture
def runs(tmp_path):
    return RunFolder(tmp_path / "runs", TOOLS, ranker="markov-1")


def add(runs, count, begin=0):
    for number in range(begin, begin + count):
        runs.add(*run_of(number))
        runs.wait()


def test_a_model_is_learned_at_3_10_and_30_runs_and_used_if_it_is_no_worse(runs):
    taken: list[Any] = []
    runs.learned = taken.append
    add(runs, 2)
    assert runs.load() is None
    assert runs.history() == []
    add(runs, 10, 2)
    first, second = runs.history()
    assert (first.runs, second.runs) == (3, 10)
    assert {first.outcome, second.outcome} <= {"published", "kept"}
    published = [item for item in (first, second) if item.outcome == "published"]
    assert len(taken) == len(published) > 0
    assert all(item.after >= item.before for item in published)
    model = RunFolder(runs.folder).load()
    assert model is not None
    assert model.rank("Please do the mail work", ["zeta"]).top(1)[0][0] == "kappa"
    assert {tool.name for tool in model.tools_} >= {tool.name for tool in TOOLS}


def test_a_worse_model_is_not_taken(runs, monkeypatch):
    worse = Trial(judged=3, before=0.5, after=0.4)
    monkeypatch.setattr("dtdr.agents.run_folder.compare", lambda *_: worse)
    add(runs, 3)
    assert [item.outcome for item in runs.history()] == ["kept"]
    assert runs.load() is None
    assert "a new model was worse: MRR 0.400 instead of 0.500" in runs.status()


def test_a_tool_that_comes_first_everywhere_waits_for_a_person(runs):
    """Runs that were made up by a client, among those of others."""
    demonstrations = [
        {"query": run_of(number)[0][0], "calls": [{"tool": tool} for tool in WORK[kind]]}
        for number in range(30)
        for kind in [list(WORK)[number % 2]]
    ]
    items = [
        dtdr.Demonstration.from_dict({"id": str(n), **d}) for n, d in enumerate(demonstrations)
    ]
    served = dtdr.fit(items, TOOLS, ranker="markov-1", arguments=False, plans=False)
    evil = [{"query": item.query, "calls": [{"tool": "evil"}]} for item in items] * 20
    made_up = [dtdr.Demonstration.from_dict({"id": f"e{n}", **d}) for n, d in enumerate(evil)]

    def learn(runs):
        return dtdr.fit([*runs, *made_up], TOOLS, ranker="markov-1", arguments=False, plans=False)

    verdict = compare(served, items, items, learn)
    assert list(verdict.gains) == ["evil"]
    assert "evil" in verdict.reason


def test_a_person_accepts_a_model_that_was_held_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    runs = RunFolder(default_folder("agent"), TOOLS)
    rising = Trial(judged=3, before=0.5, after=0.6, gains={"kappa": 0.4})
    monkeypatch.setattr("dtdr.agents.run_folder.compare", lambda *_: rising)
    add(runs, 3)
    assert [item.outcome for item in runs.history()] == ["held"]
    assert "kappa much higher" in runs.status()
    assert "dtdr mcp --accept --name agent" in runs.status()
    assert runs.load() is None
    assert run(["mcp", "--accept", "--name", "agent"]) == 0
    assert "agent: learned from 3 runs, MRR 0.600, 0.500 before" in capsys.readouterr().out
    assert runs.load_newer() is not None
    assert "kappa" not in runs.status()
    worse = Trial(judged=3, before=0.5, after=0.4)
    monkeypatch.setattr("dtdr.agents.run_folder.compare", lambda *_: worse)
    assert run(["mcp", "--accept"]) == 0
    assert "agent: a new model was worse" in capsys.readouterr().out
    assert run(["mcp", "--accept", "--name", "other"]) == 2
    assert "there are no runs in" in capsys.readouterr().err


def test_two_processes_share_a_folder_and_one_of_them_learns(runs):
    other = RunFolder(runs.folder, TOOLS, ranker="markov-1")
    for number in range(10):
        (runs, other)[number % 2].add(*run_of(number))
    for item in (runs, other):
        item.wait()
    runs.learn_if_due()
    runs.wait()
    assert runs.count_runs() == 10
    assert [item.runs for item in runs.history()][-1] == 10
    if any(item.outcome == "published" for item in runs.history()):
        assert any(item.load_newer() or item.load() for item in (runs, other))


def test_many_runs_in_an_hour_and_a_full_file_are_not_recorded(runs, monkeypatch, caplog):
    monkeypatch.setattr("dtdr.agents.run_folder.MOST_BYTES", 400)
    runs._times = type(runs._times)(maxlen=5)
    add(runs, 7)
    assert runs.count_runs() < 5
    assert "its largest size" in caplog.text
    assert "in an hour" in caplog.text


def test_what_goes_wrong_while_it_learns_is_a_warning(runs, monkeypatch, caplog):
    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr("dtdr.agents.run_folder.compare", fail)
    with caplog.at_level(logging.WARNING):
        add(runs, 3)
    assert "nothing was learned" in caplog.text


def test_counts_of_use_add_up(runs):
    for item in (runs, RunFolder(runs.folder)):
        item.usage.update({"lists": 2, "listed": 20, "listed_tokens": 100, "all_tokens": 1_000})
        item.save_usage()
    assert json.loads((runs.folder / "usage.json").read_text())["lists"] == 4
    assert "1,800 tokens of definitions in 4 lists (90%)" in runs.status()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        RunFolder(tmp_path / "file" / "runs")
