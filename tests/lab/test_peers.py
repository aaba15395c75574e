import io
import json
import sys
from importlib import util

import pytest

from dtdr.datasets.synthetic import generate, tools
from dtdr.errors import DtdrError, InputError
from dtdr.lab.kinds import peer
from dtdr.lab.shifts import Sides
from dtdr.plan import END

DEMONSTRATIONS = list(generate(12))
SIDES = Sides(DEMONSTRATIONS[:8], DEMONSTRATIONS[8:], tools())


def load_protocol():
    spec = util.spec_from_file_location("peer_protocol", peer.ADAPTERS / "protocol.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_peer_has_an_adapter_and_says_how_it_is_used():
    for name, about in peer.known_peers().items():
        assert peer._adapter(name).is_file()
        assert all("==" in requirement for requirement in about["install"])
        assert about["how"]


def test_an_adapter_is_given_the_demonstrations_and_every_held_out_step(monkeypatch, capsys):
    task = peer.task_of(SIDES)
    assert [item["tools"][-1] for item in task["train"]] == [END] * 8
    assert len(task["test"]) == sum(len(item.plan) + 1 for item in SIDES.test)
    given = []

    def make(task):
        names = sorted(tool["name"] for tool in task["tools"])

        def rank(query, history):
            given.append((query, tuple(history)))
            return names[:3]

        return rank

    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(task)))
    load_protocol().serve(make)
    answer = json.loads(capsys.readouterr().out)
    steps = [(item.query, step.history) for item in SIDES.test for step in item.plan.steps()]
    assert given == steps
    assert len(answer["rankings"]) == len(steps)
    assert answer["step_seconds"] >= 0


def test_tools_that_a_peer_does_not_rank_come_last():
    names = peer._vocabulary(SIDES)
    count = sum(len(item.plan) + 1 for item in SIDES.test)
    steps = peer._steps(SIDES, names, [["no such tool", names[4], names[2], names[4]]] * count)
    assert len(steps) == count
    for step in steps:
        assert step.ranking[:2].tolist() == [4, 2]
        assert sorted(step.ranking.tolist()) == list(range(len(names)))


def test_an_unknown_peer_names_the_choices():
    with pytest.raises(InputError) as caught:
        peer.adapter_sha256("toolshed")
    assert "agent-tool-router, bm25s" in str(caught.value)


def test_a_peer_that_fails_says_its_last_line():
    with pytest.raises(DtdrError) as caught:
        peer._call([sys.executable, "-c", "raise ValueError('no such index')"], "bm25s")
    assert "'bm25s' failed: ValueError: no such index" in str(caught.value)
