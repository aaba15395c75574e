"""As a new user: from a raw log, by the page's own commands, to an agent that is masked."""

import pytest

from dtdr.data.calls import END
from dtdr.logs import open_demonstrations
from dtdr.rankers import DEFAULT
from tests.conftest import PROJECT
from tests.integrations.documentation import run_python, run_shell
from tests.integrations.frameworks import Script

HELD_OUT = 20


@pytest.mark.slow
def test_a_raw_log_becomes_an_agent_that_sees_masked_tools(tmp_path, monkeypatch, capsys):
    pytest.importorskip("langchain", reason="langchain is not installed")
    from tests.integrations.scripted_chat_model import ScriptedModel, tools

    monkeypatch.chdir(tmp_path)
    log = PROJECT / "examples" / "hotel" / "openai-chat.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "requests.jsonl").write_text("".join(lines[:-HELD_OUT]), encoding="utf-8")
    (tmp_path / "held_out.jsonl").write_text("".join(lines[-HELD_OUT:]), encoding="utf-8")
    _, fitted, advised = run_shell("from-log-shell", capsys)
    assert f"fitted {DEFAULT}" in fitted
    assert "defer_loading" in advised

    names = sorted({call for item in open_demonstrations([log]) for call in item.plan.tools})
    script = Script()
    model = ScriptedModel(script=script)
    written = run_python("from-log-python", model=model, tools=tools(script, names))
    shown: list[set[str]] = []
    wanted: list[frozenset[str]] = []
    for demonstration in open_demonstrations([tmp_path / "held_out.jsonl"]):
        script.steps, script.seen = [(call.tool,) for call in demonstration.plan.calls], []
        written["agent"].invoke({"messages": [("user", demonstration.query)]})
        assert script.executed == list(demonstration.plan.tools)
        script.executed.clear()
        shown += script.seen
        wanted += (step.acceptable for step in demonstration.plan.steps())
    steps = [pair for pair in zip(shown, wanted, strict=True) if pair[1] != {END}]
    # The mask must be of use, not only small: the random floor is 5 tools of 30.
    assert sum(bool(tools & right) for tools, right in steps) > 0.8 * len(steps)
    assert sum(map(len, shown)) < len(names) * len(shown) / 2
