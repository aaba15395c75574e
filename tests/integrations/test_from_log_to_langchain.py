"""As a new user: from a raw log, by the page's own commands, to an agent that is masked."""

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")

from dtdr.data.calls import END
from dtdr.data.run import Run
from dtdr.logs import open_demonstrations
from dtdr.rankers import DEFAULT
from tests.conftest import PROJECT
from tests.integrations.documentation import run_python, run_shell
from tests.integrations.frameworks import Script
from tests.integrations.scripted_chat_model import ScriptedModel, tools

HELD_OUT = 20


@pytest.mark.slow
def test_a_raw_log_becomes_an_agent_that_sees_masked_tools(tmp_path, monkeypatch, capsys):
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
    agent, retriever = written["agent"], written["mask"].retriever
    right = steps = narrowed = 0
    for demonstration in open_demonstrations([tmp_path / "held_out.jsonl"]):
        script.steps, script.seen = [(call.tool,) for call in demonstration.plan.calls], []
        state = agent.invoke({"messages": [("user", demonstration.query)]})
        called = [message.name for message in state["messages"] if message.type == "tool"]
        assert called == list(demonstration.plan.tools)
        run = Run(demonstration.query)
        run.offered = frozenset(names)
        for shown, step in zip(script.seen, demonstration.plan.steps(), strict=True):
            # The model is told what the tools answered, as it was in the log it is learned from.
            ranking = retriever.rank(run)
            if ranking.is_familiar:  # for other queries the mask shows more
                narrowed += 1
                best = [name for name in ranking.tools if name != END][:5]
                assert shown == set(best) | set(run.history)
                assert len(shown) < len(names)
            if step.acceptable != {END}:
                steps += 1
                right += bool(step.acceptable & shown)
                done = len(run.calls)
                run.call(script.steps[done][0], {}, output="fine", status="ok", step=done + 1)
    assert narrowed > 0
    # The mask must be of use, not only small: the random floor is 5 tools of 30.
    assert right / steps > 0.8
