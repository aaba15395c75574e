"""As a new user: from a raw log, by the page's own commands, to an agent that is masked."""

import json

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")

from dtdr.data.calls import END
from dtdr.data.run import Run
from dtdr.rankers import DEFAULT
from synthetic_runs import generate
from tests.integrations.documentation import run_python, run_shell
from tests.integrations.scripted_chat_model import ScriptedModel, tools
from tests.trace_logs import Call, Turn, number, openai_chat, write_lines


def raw_log(path, runs=120):
    """A log of chat-completions requests and responses, as a proxy would write it."""
    records = []
    called: set[str] = set()
    for run, demonstration in enumerate(generate(runs, seed=3)):
        batches = [
            [Call(call.tool, {"input": f"value {run}"}, output="fine")]
            for call in demonstration.plan.calls
        ]
        called.update(demonstration.plan.tools)
        records += openai_chat(number([Turn(demonstration.query, batches)], prefix=f"run{run}"))
    definitions = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"Use {name}",
                "parameters": {"type": "object", "properties": {"input": {"type": "string"}}},
            },
        }
        for name in sorted(called)
    ]
    for record in records:
        record["request"]["tools"] = definitions
    return write_lines(path, records), sorted(called)


@pytest.mark.slow
def test_a_raw_log_becomes_an_agent_that_sees_masked_tools(tmp_path, monkeypatch, capsys):
    _, names = raw_log(tmp_path / "requests.jsonl")
    monkeypatch.chdir(tmp_path)
    imported, fitted, advised = run_shell("from-log-shell", capsys)
    assert "120" in imported
    assert f"fitted {DEFAULT}" in fitted
    assert "defer_loading" in advised
    described = json.loads((tmp_path / "tools.json").read_text(encoding="utf-8"))
    assert [tool["name"] for tool in described] == names

    model = ScriptedModel(script=[], seen=[], heard=[])
    written = run_python("from-log-python", model=model, tools=tools(names))
    agent, retriever = written["agent"], written["mask"].retriever
    right = steps = 0
    narrowed = 0
    for demonstration in generate(20, seed=4):
        script = [(call.tool,) for call in demonstration.plan.calls]
        if not {name for (name,) in script} <= set(names):
            continue
        model.script, model.seen, model.heard = script, [], []
        state = agent.invoke({"messages": [("user", demonstration.query)]})

        assert [message.name for message in state["messages"] if message.type == "tool"] == [
            name for (name,) in script
        ]
        run = Run(demonstration.query)
        for shown, step in zip(model.seen, demonstration.plan.steps(), strict=True):
            # The model is told what the tools answered, as it was in the log it is learned from.
            ranking = retriever.rank(run)
            if ranking.is_familiar:  # for other queries the mask shows more
                narrowed += 1
                best = [name for name in ranking.tools if name != END][:5]
                assert set(shown) == set(best) | set(run.history)
                assert len(shown) < len(names)
            if step.acceptable != {END}:
                steps += 1
                right += bool(step.acceptable & set(shown))
                done = len(run.calls)
                run.call(script[done][0], {}, output="fine", status="ok", step=done + 1)
    assert steps > 40
    assert narrowed > 0
    # The mask must be of use, not only small: the random floor is 5 tools of more than 20.
    assert right / steps > 0.8
