import io
import json
import sys
from importlib import resources, util
from pathlib import Path

import pytest

from dtdr.calls import END
from dtdr.datasets.synthetic import generate, tools
from dtdr.errors import DtdrError, InputError
from dtdr.lab.kinds import peer
from dtdr.lab.train_test import TrainTest
from tests.runs import make_log

DEMONSTRATIONS = list(generate(12))
DATA = TrainTest(DEMONSTRATIONS[:8], DEMONSTRATIONS[8:], tools())


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
    task = peer.task_of(DATA)
    assert [item["tools"][-1] for item in task["train"]] == [END] * 8
    assert len(task["test"]) == sum(len(item.plan) + 1 for item in DATA.test)
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
    steps = [(item.query, step.history) for item in DATA.test for step in item.plan.steps()]
    assert given == steps
    assert len(answer["rankings"]) == len(steps)
    assert answer["step_seconds"] >= 0


def test_tools_that_a_peer_does_not_rank_come_last():
    names = peer._vocabulary(DATA)
    count = sum(len(item.plan) + 1 for item in DATA.test)
    rankings = [["no such tool", names[4], names[2], names[4]]] * count
    log = make_log([], tools=names)
    log = peer._ranked_steps(DATA, names, rankings).build(log.header)
    assert len(log) == count
    assert log.head[:, :3].tolist() == [[4, 2, 0]] * count
    order = [names[4], names[2], *(name for n, name in enumerate(names) if n not in (2, 4))]
    for step in log.records():
        assert step["ranks"] == [order.index(name) + 1 for name in step["acceptable"]]


def test_adapters_are_in_the_installed_package():
    folder = resources.files("dtdr.lab").joinpath("peer-adapters")
    assert Path(str(folder)) == peer.ADAPTERS
    assert folder.joinpath("protocol.py").is_file()


def test_an_unknown_peer_names_the_choices():
    with pytest.raises(InputError) as caught:
        peer.adapter_sha256("toolshed")
    assert "agent-tool-router, bm25s" in str(caught.value)


def test_a_peer_that_fails_says_its_last_line():
    with pytest.raises(DtdrError) as caught:
        peer._call([sys.executable, "-c", "raise ValueError('no such index')"], "bm25s")
    assert "'bm25s' failed: ValueError: no such index" in str(caught.value)
