import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from dtdr.data.calls import END
from dtdr.errors import DtdrError, InputError
from dtdr.evaluate.datasets.synthetic import generate, tools
from dtdr.evaluate.lab.kinds import peer
from dtdr.evaluate.lab.train_test import TrainTest
from tests.runs import make_log

DEMONSTRATIONS = list(generate(12))
DATA = TrainTest(DEMONSTRATIONS[:8], DEMONSTRATIONS[8:], tools())
ADAPTERS = peer.ADAPTERS / "adapters.py"


def test_every_peer_has_an_adapter_and_says_how_it_is_used():
    text = ADAPTERS.read_text("utf-8")
    for name, about in peer.known_peers().items():
        assert f"def {name.replace('-', '_')}(task: Task)" in text
        assert all("==" in requirement for requirement in about["install"])
        assert about["how"]


def test_an_adapter_ranks_every_held_out_step():
    task = peer.task_of(DATA)
    assert [item["tools"][-1] for item in task["train"]] == [END] * 8
    steps = [(item.query, step.history) for item in DATA.test for step in item.plan.steps()]
    assert [(step["query"], tuple(step["history"])) for step in task["test"]] == steps
    command = [sys.executable, str(ADAPTERS), "bm25s"]
    output = subprocess.run(command, input=json.dumps(task).encode(), capture_output=True)
    answer = json.loads(output.stdout)
    names = sorted(tool["name"] for tool in task["tools"])
    assert [sorted(ranking) for ranking in answer["rankings"]] == [names] * len(steps)
    assert answer["step_seconds"] > 0


def test_tools_that_a_peer_does_not_rank_come_last():
    names = [tool.name for tool in peer._tools(DATA)]
    count = sum(len(item.plan) + 1 for item in DATA.test)
    rankings = [["no such tool", names[4], names[2], names[4]]] * count
    log = make_log([], tools=names)
    log = peer._log_rankings(DATA, names, rankings).build(log.header)
    assert len(log) == count
    assert log.head[:, :3].tolist() == [[4, 2, 0]] * count
    order = [names[4], names[2], *(name for n, name in enumerate(names) if n not in (2, 4))]
    for step in log.records():
        assert step["ranks"] == [order.index(name) + 1 for name in step["acceptable"]]


def test_adapters_are_in_the_installed_package():
    folder = resources.files("dtdr.evaluate.lab").joinpath("peer-adapters")
    assert Path(str(folder)) == peer.ADAPTERS
    assert folder.joinpath("adapters.py").is_file()


def test_an_unknown_peer_names_the_choices():
    with pytest.raises(InputError) as caught:
        peer.adapter_sha256("toolshed")
    assert "agent-tool-router, bm25s" in str(caught.value)


def test_a_peer_that_fails_says_its_last_line():
    with pytest.raises(DtdrError) as caught:
        peer._call([sys.executable, "-c", "raise ValueError('no such index')"], "bm25s")
    assert "'bm25s' failed: ValueError: no such index" in str(caught.value)
