import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, TextBlock
from llama_index.core.base.llms.types import ToolCallBlock as CallBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata
from llama_index.core.workflow import Context

from dtdr.errors import InputError
from dtdr.integrations.llama_index import ToolMaskAgent, ToolMaskRetriever, transcript
from tests.integrations.tools import (
    NAMES,
    NEW,
    QUERY,
    best,
    broken_mask,
    check_two_turns,
    mask,
    record_mask,
    told,
)
from tests.mask_strategies import outline

# LlamaIndex's own workflows inspect deprecated attributes of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]
SECOND = "Text Bob what the weather in Rome is"


class Script(FunctionCallingLLM):
    """Calls the tools of its script one answer after another; notes what it was shown."""

    steps: list
    seen: list = []  # noqa: RUF012  # a pydantic field, given for each model

    @property
    def metadata(self):
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True)

    def _answer(self, tools):
        self.seen.append({tool.metadata.name for tool in tools})
        step = len(self.seen) - 1
        calls = self.steps[step] if step < len(self.steps) else ()
        blocks = [
            CallBlock(tool_call_id=f"c{step}-{number}", tool_name=name, tool_kwargs=arguments)
            for number, call in enumerate(calls)
            for name, arguments in [(call, {}) if isinstance(call, str) else call]
        ]
        message = ChatMessage(role="assistant", blocks=blocks or [TextBlock(text="There you are.")])
        return ChatResponse(message=message)

    async def achat_with_tools(self, tools, **keywords):  # type: ignore[override]
        return self._answer(tools)

    async def astream_chat_with_tools(self, tools, **keywords):  # type: ignore[override]
        async def stream():
            yield self._answer(tools)

        return stream()

    def get_tool_calls_from_response(self, response, error_on_no_tool_call=True, **keywords):
        return [
            ToolSelection(
                tool_id=str(block.tool_call_id),
                tool_name=block.tool_name,
                tool_kwargs=block.tool_kwargs,  # type: ignore[arg-type]
            )
            for block in response.message.blocks
            if isinstance(block, CallBlock)
        ]

    def _prepare_chat_with_tools(self, tools, **keywords):  # type: ignore[override]
        raise NotImplementedError

    def chat(self, messages, **keywords):
        raise NotImplementedError

    async def achat(self, messages, **keywords):
        raise NotImplementedError

    def complete(self, prompt, formatted=False, **keywords):
        raise NotImplementedError

    async def acomplete(self, prompt, formatted=False, **keywords):
        raise NotImplementedError

    def stream_chat(self, messages, **keywords):
        raise NotImplementedError

    async def astream_chat(self, messages, **keywords):
        raise NotImplementedError

    def stream_complete(self, prompt, formatted=False, **keywords):
        raise NotImplementedError

    async def astream_complete(self, prompt, formatted=False, **keywords):
        raise NotImplementedError


def tools(names=(*NAMES, NEW)):
    def use() -> str:
        return "fine"

    return [FunctionTool.from_defaults(use, name=name, description=f"Use {name}") for name in names]


def agent(script, found, **options):
    return ToolMaskAgent(mask=found, tools=tools(), llm=script, **options)


def run(found, query=QUERY, **options):
    async def started():
        return await found.run(query, **options)

    return asyncio.run(started())


def check(script, script_steps=SCRIPT):
    history: list[str] = []
    for step, shown in enumerate(script.seen):
        assert shown == best(history) | set(history) | {NEW}
        history += script_steps[step] if step < len(script_steps) else ()
    assert len(script.seen) == len(script_steps) + 1


# -- the agent -----------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
def test_an_agent_sees_the_tools_that_come_next_and_those_it_called(streaming):
    script = Script(steps=SCRIPT, seen=[])
    result = run(agent(script, mask(), streaming=streaming))
    assert str(result) == "There you are."
    check(script)


def test_an_agent_with_a_state_is_ranked_by_the_users_own_words():
    script = Script(steps=SCRIPT, seen=[])
    run(agent(script, mask(), initial_state={"mood": "good, and the weather in Rome is too"}))
    check(script)


def test_each_turn_of_the_user_is_ranked_for_itself():
    script = Script(steps=[*SCRIPT, ()], seen=[])
    found = agent(script, mask())

    memory = ChatMemoryBuffer.from_defaults(token_limit=10_000)
    run(found, memory=memory)
    run(found, SECOND, memory=memory)
    called = {name for step in SCRIPT for name in step}
    assert script.seen[4] == best([], query=SECOND) | called | {NEW}


def test_a_failing_retriever_shows_all_tools_and_says_why(caplog):
    script = Script(steps=SCRIPT, seen=[])
    assert str(run(agent(script, broken_mask()))) == "There you are."
    assert script.seen[0] == {*NAMES, NEW}
    assert "the disk is on fire" in caplog.text


def test_a_hidden_tool_that_is_called_is_executed():
    assert "send_text" not in best([])
    script = Script(steps=[("send_text",)], seen=[])
    run(agent(script, mask()))
    assert "send_text" in script.seen[1]


def test_a_token_budget_is_counted_in_definitions():
    tight, loose = Script(steps=[], seen=[]), Script(steps=[], seen=[])
    run(agent(tight, mask(token_budget=1)))
    run(agent(loose, mask(token_budget=10_000)))
    assert tight.seen[0] == best([], 1) | {NEW}
    assert loose.seen[0] == {*NAMES, NEW}


def test_calls_in_the_keywords_of_a_message_are_read():
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        ChatMessage(role="user", content=QUERY),
        ChatMessage(role="assistant", additional_kwargs={"tool_calls": [call]}),
    ]
    assert outline(transcript(messages)) == [(QUERY, [("weather",)])]


# -- the object retriever ------------------------------------------------------------------------


def test_a_retriever_knows_the_calls_of_its_session():
    script = Script(steps=SCRIPT, seen=[])
    retriever = ToolMaskRetriever(mask(), tools())
    found = FunctionAgent(tool_retriever=retriever, llm=script)

    async def started():
        with retriever.session():
            return await found.run(QUERY)

    assert str(asyncio.run(started())) == "There you are."
    check(script)


def test_runs_at_the_same_time_do_not_share_a_session():
    retriever = ToolMaskRetriever(mask(), tools())
    scripts = [Script(steps=SCRIPT, seen=[]) for _ in range(4)]

    async def started(script):
        with retriever.session():
            await FunctionAgent(tool_retriever=retriever, llm=script).run(QUERY)

    async def together():
        await asyncio.gather(*map(started, scripts))

    asyncio.run(together())
    for script in scripts:
        check(script)


def test_a_workflow_of_agents_takes_the_retriever_too():
    script = Script(steps=SCRIPT, seen=[])
    retriever = ToolMaskRetriever(mask(), tools())
    found = FunctionAgent(
        name="tester", description="tests", tool_retriever=retriever, llm=script, can_handoff_to=[]
    )

    async def started():
        with retriever.session():
            await AgentWorkflow(agents=[found], root_agent="tester").run(QUERY)

    asyncio.run(started())
    check(script)


def test_without_a_session_the_text_alone_ranks():
    retriever = ToolMaskRetriever(mask(), tools())
    for query in (QUERY, QueryBundle(QUERY)):
        assert {tool.metadata.name for tool in retriever.retrieve(query)} == best([]) | {NEW}
    assert [tool.metadata.name for tool in retriever.retrieve("weather")] == ["weather"]


def test_a_message_that_is_the_name_of_a_tool_is_a_message():
    retriever = ToolMaskRetriever(mask(top_k=2, fallback=False), tools())
    with retriever.session():
        shown = {tool.metadata.name for tool in retriever.retrieve("weather")}
        assert shown == best([], query="weather") | {NEW}


def test_two_tools_of_one_name_are_an_error():
    with pytest.raises(InputError, match="two tools are named 'weather'"):
        ToolMaskRetriever(mask(), tools(["weather", "weather"]))


def test_what_calls_returned_and_what_was_said_before_is_told():
    noting = record_mask()
    found = agent(Script(steps=[*SCRIPT, ()], seen=[]), noting)
    memory = ChatMemoryBuffer.from_defaults()
    for query in (QUERY, SECOND):
        run(found, query, memory=memory)
    check_two_turns(noting.retriever.runs, SCRIPT, SECOND)


def test_a_session_is_told_what_calls_returned_and_what_the_memory_holds():
    noting = record_mask()
    retriever = ToolMaskRetriever(noting, tools())
    memory = ChatMemoryBuffer.from_defaults()
    found = FunctionAgent(tool_retriever=retriever, llm=Script(steps=[*SCRIPT, ()], seen=[]))

    async def started(query):
        with retriever.session(await memory.aget_all()):
            await found.run(query, memory=memory)

    for query in (QUERY, SECOND):
        asyncio.run(started(query))
    check_two_turns(noting.retriever.runs, SCRIPT, SECOND)


def test_a_session_of_several_questions_remembers_them():
    noting = record_mask()
    retriever = ToolMaskRetriever(noting, tools())
    found = FunctionAgent(tool_retriever=retriever, llm=Script(steps=[*SCRIPT, ()], seen=[]))

    async def started():
        with retriever.session():
            await found.run(QUERY)
            await found.run(SECOND)

    asyncio.run(started())
    last = noting.retriever.runs[-1]
    assert last.query == SECOND
    assert last.before[0].content == QUERY
    assert [(item.tool, item.output) for item in last.before[1:]] == [
        (name, "fine") for step in SCRIPT for name in step
    ]


class Refuses(BaseTool):
    """A tool of somebody's own class, without asyncio, that fails."""

    @property
    def metadata(self):
        return ToolMetadata("It refuses", name="weather")

    def __call__(self, input):
        raise ValueError("closed today")


def test_a_session_is_told_which_calls_failed_and_with_which_arguments():
    noting = record_mask()

    def find(name: str, ctx: Context) -> str:
        assert isinstance(ctx, Context)
        return f'{{"name": "{name}", "phone": []}}'

    async def text(to: list) -> str:
        raise TimeoutError("no answer")

    given = [
        FunctionTool.from_defaults(find, name="find_contact"),
        FunctionTool.from_defaults(async_fn=text, name="send_text"),
        Refuses(),
    ]
    steps: list = [
        [("find_contact", {"name": "Ann"})],
        [("send_text", {"to": [1]}), ("weather", {"input": "Rome"})],
    ]
    script = Script(steps=steps, seen=[])
    retriever = ToolMaskRetriever(noting, given)

    async def started():
        with retriever.session():
            await FunctionAgent(tool_retriever=retriever, llm=script).run(QUERY)

    asyncio.run(started())
    assert sorted(told(noting.retriever.runs[-1])) == [
        ("find_contact", {"name": "Ann"}, {"name": "Ann", "phone": []}, "ok", 1),
        ("send_text", {"to": [1]}, "no answer", "error", 2),
        ("weather", {"input": "Rome"}, "closed today", "error", 2),
    ]
