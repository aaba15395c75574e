import asyncio

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    ModelSettings,
    Runner,
    Usage,
    WebSearchTool,
)
from agents.run import RunConfig
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from dtdr.errors import InputError
from dtdr.integrations.openai_agents import ToolMaskModel
from tests.integrations.tools import (
    NAMES,
    NEW,
    QUERY,
    best,
    broken_mask,
    check_two_turns,
    mask,
    record_mask,
)

SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]


class Script(Model):
    """Calls the tools of its script one answer after another; notes what it was shown."""

    def __init__(self, steps):
        self.steps = steps
        self.seen = []
        self.heard = []
        self.closed = False

    def answer(self, items, tools):
        self.seen.append({tool.name for tool in tools})
        self.heard.append(items)
        step = len(self.seen) - 1
        calls = self.steps[step] if step < len(self.steps) else ()
        if calls:
            return [
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"c{step}-{number}", name=name, arguments="{}"
                )
                for number, name in enumerate(calls)
            ]
        text = ResponseOutputText(type="output_text", text="There you are.", annotations=[])
        return [
            ResponseOutputMessage(
                id=f"m{step}", type="message", role="assistant", status="completed", content=[text]
            )
        ]

    async def get_response(  # type: ignore[override]
        self, system, items, settings, tools, *rest, **more
    ):
        return ModelResponse(self.answer(items, tools), Usage(), None)

    async def stream_response(  # type: ignore[override]
        self, system, items, settings, tools, *rest, **more
    ):
        response = Response(
            id="r",
            created_at=0,
            model="scripted",
            object="response",
            output=self.answer(items, tools),
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=0
        )

    async def close(self):
        self.closed = True


async def use(context, arguments):
    return "fine"


def agent(script, found, *, form="filtered", extra=(), **options):
    tools = [
        FunctionTool(name, f"Use {name}", {"type": "object", "properties": {}}, use)
        for name in (*NAMES, NEW)
    ]
    model = ToolMaskModel(script, found, form=form)
    return Agent("tester", model=model, tools=[*tools, *extra], **options)


QUIET = RunConfig(tracing_disabled=True)


async def streamed(found, items):
    result = Runner.run_streamed(found, items, run_config=QUIET)
    async for _ in result.stream_events():
        pass
    return result


def run(found, *, how="sync", turns=(QUERY,)):
    items: list = []
    for text in turns:
        items = [*items, {"role": "user", "content": text}]
        if how == "sync":
            result = Runner.run_sync(found, items, run_config=QUIET)
        elif how == "async":
            result = asyncio.run(Runner.run(found, items, run_config=QUIET))
        else:
            result = asyncio.run(streamed(found, items))
        items = result.to_input_list()
    return result


@pytest.mark.parametrize("how", ["sync", "async", "streamed"])
def test_an_agent_sees_the_tools_that_come_next_and_those_it_called(how):
    script = Script(SCRIPT)
    assert run(agent(script, mask()), how=how).final_output == "There you are."

    history: list[str] = []
    for step, shown in enumerate(script.seen):
        assert shown == best(history) | set(history) | {NEW}
        history += SCRIPT[step] if step < len(SCRIPT) else ()
    assert len(script.seen) == 4


def test_a_question_in_plain_text_is_read():
    script = Script([])
    Runner.run_sync(agent(script, mask()), QUERY, run_config=QUIET)
    assert script.seen == [best([]) | {NEW}]


def test_hosted_tools_pass_untouched():
    script = Script([])
    run(agent(script, mask(), extra=[WebSearchTool()]))
    assert script.seen[0] == best([]) | {NEW, WebSearchTool().name}


def test_each_turn_of_the_user_is_ranked_for_itself():
    second = "Text Bob what the weather in Rome is"
    script = Script([*SCRIPT, ()])
    run(agent(script, mask()), turns=(QUERY, second))

    called = {name for step in SCRIPT for name in step}
    assert script.seen[4] == best([], query=second) | called | {NEW}


def test_a_failing_retriever_shows_all_tools_and_says_why(caplog):
    script = Script(SCRIPT)
    assert run(agent(script, broken_mask())).final_output == "There you are."
    assert script.seen[0] == {*NAMES, NEW}
    assert "the disk is on fire" in caplog.text


@pytest.mark.parametrize("form", ["hint", "hint-weighted"])
def test_a_hint_keeps_every_tool_and_the_conversation(form):
    script = Script(SCRIPT)
    result = run(agent(script, mask(), form=form))

    assert script.seen[0] == {*NAMES, NEW}
    for heard in script.heard:
        assert "prefer them" in heard[-1]["content"]
        assert "prefer them" not in str(heard[:-1])
    assert "prefer them" not in str(result.to_input_list())


def test_a_tool_that_the_settings_force_is_not_taken_away():
    assert "send_text" not in best([])
    script = Script([])
    run(agent(script, mask(), model_settings=ModelSettings(tool_choice="send_text")))
    assert "send_text" in script.seen[0]


def test_a_token_budget_is_counted_in_definitions():
    tight, loose = Script([]), Script([])
    run(agent(tight, mask(token_budget=1)))
    run(agent(loose, mask(token_budget=10_000)))
    assert tight.seen[0] == best([], 1) | {NEW}
    assert loose.seen[0] == {*NAMES, NEW}


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match="unknown form 'allowed'"):
        ToolMaskModel(Script([]), mask(), form="allowed")  # type: ignore[arg-type]


def test_a_model_is_found_by_name_and_closed_with_its_wrapper(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert ToolMaskModel("gpt-5.4", mask()).model.model == "gpt-5.4"  # type: ignore[attr-defined]

    script = Script([])
    asyncio.run(ToolMaskModel(script, mask()).close())
    assert script.closed


def test_what_calls_returned_and_what_was_said_before_is_told():
    second = "Text Bob what the weather in Rome is"
    noting = record_mask()
    run(agent(Script([*SCRIPT, ()]), noting), turns=(QUERY, second))
    check_two_turns(noting.retriever.runs, SCRIPT, second)
