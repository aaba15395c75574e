"""The example logs: what the generator writes, and that every format tells the same runs."""

import json

import pytest
from examples.hotel.generate import FORMATS, RUNS, write
from examples.hotel.tools import TOOLS

from dtdr.logs import CutOptions, open_demonstrations
from tests.conftest import PROJECT

LOG = PROJECT / "examples" / "hotel" / "openai-chat.jsonl"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return {
        path.name.partition(".")[0]: path
        for path in write(tmp_path_factory.mktemp("logs"), list(FORMATS))
    }


def test_the_log_that_is_kept_is_the_generators(logs):
    assert LOG.read_bytes() == logs["openai-chat"].read_bytes()


def told(stream):
    return sorted((item.query, item.plan.tools, item.outcome) for item in stream)


@pytest.fixture(scope="module")
def expected():
    return told(open_demonstrations([LOG]))


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_tells_the_same_runs(fmt, logs, expected):
    stream = open_demonstrations([logs[fmt]])
    assert stream.format == fmt
    read = told(stream)
    assert read == expected
    assert len(read) == RUNS
    if fmt not in ("claude-code", "mcp"):  # which record no definitions of tools
        assert {tool.name for tool in stream.tools} == {tool["function"]["name"] for tool in TOOLS}


@pytest.mark.parametrize("path", [LOG, str(LOG), [str(LOG)]])
def test_a_single_path_is_a_list_of_one(path):
    assert sum(1 for _ in open_demonstrations(path)) == RUNS


def test_the_runs_are_as_untidy_as_real_ones():
    runs = list(open_demonstrations([LOG], "openai-chat", CutOptions(empty=True)))
    called = {name for item in runs for name in item.plan.tools}
    assert len(called) >= 28
    assert any(call.status == "error" for item in runs for call in item.plan.calls)
    assert any(not item.plan.calls for item in runs)
    assert any(item.before for item in runs)
    assert any(len({call.step for call in item.plan.calls}) < len(item.plan) for item in runs)
    assert "system-reminder" in LOG.read_text(encoding="utf-8")
    assert not any("system-reminder" in item.query for item in runs)
    assert len(json.loads(LOG.read_text(encoding="utf-8").splitlines()[0])["tools"]) == 30
