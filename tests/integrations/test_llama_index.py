import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata
from llama_index.core.workflow import Context

from dtdr.agents.llama_index import ToolMaskRetriever, transcript
from dtdr.errors import InputError
from tests.integrations.frameworks import (
    FRAMEWORKS,
    Script,
    llama_index_model,
    llama_index_tools,
)
from tests.integrations.tools import NEW, QUERY, best, mask, record_mask, told
from tests.mask_strategies import outline

# LlamaIndex's own workflows inspect deprecated attributes of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SCRIPT = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]
SECOND = "Text Bob what the weather in Rome is"

run = FRAMEWORKS["llama-index"]


def tools(script=None, **options):
    return llama_index_tools(script or Script(), **options)


async def ask(retriever, script, *questions):
    """Put questions to an agent with a retriever, in one session."""
    agent = FunctionAgent(tool_retriever=retriever, llm=llama_index_model(script))
    with retriever.session():
        for question in questions:
            await agent.run(question)


def check(script):
    history: list[str] = []
    for step, shown in enumerate(script.seen):
        assert shown == best(history) | set(history) | {NEW}
        history += SCRIPT[step] if step < len(SCRIPT) else ()
    assert len(script.seen) == len(SCRIPT) + 1


def test_an_agent_with_a_state_is_ranked_by_the_users_own_words():
    script = Script(SCRIPT)
    run(script, mask(), initial_state={"mood": "good, and the weather in Rome is too"})
    check(script)


def test_a_hidden_tool_that_is_called_is_executed():
    assert "send_text" not in best([])
    script = Script([("send_text",)])
    run(script, mask())
    assert script.executed == ["send_text"]
    assert "send_text" in script.seen[1]


def test_calls_in_the_keywords_of_a_message_are_read():
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        ChatMessage(role="user", content=QUERY),
        ChatMessage(role="assistant", additional_kwargs={"tool_calls": [call]}),
    ]
    assert outline(transcript(messages)) == [(QUERY, [("weather",)])]


# -- the object retriever ------------------------------------------------------------------------


def test_runs_at_the_same_time_do_not_share_a_session():
    retriever = ToolMaskRetriever(mask(), tools())
    scripts = [Script(SCRIPT) for _ in range(4)]

    async def together():
        await asyncio.gather(*(ask(retriever, script, QUERY) for script in scripts))

    asyncio.run(together())
    for script in scripts:
        check(script)


def test_the_name_of_a_tool_that_is_not_there_is_no_message_of_the_user():
    script = Script([("read_file",), ("no_such_tool",), ("no_such_tool",)])
    noting = record_mask()
    asyncio.run(ask(ToolMaskRetriever(noting, tools(script)), script, QUERY))
    runs = noting.retriever.runs
    assert [run.query for run in runs if run.query != "no_such_tool"] == [QUERY] * 4
    assert told(runs[-1]) == [("read_file", {}, "fine", "ok", 1)]


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
        ToolMaskRetriever(mask(), tools(names=["weather", "weather"]))


def test_a_session_of_several_questions_remembers_them():
    noting = record_mask()
    asyncio.run(ask(ToolMaskRetriever(noting, tools()), Script([*SCRIPT, ()]), QUERY, SECOND))
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
        return "Error: so the file begins"

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
    asyncio.run(ask(ToolMaskRetriever(noting, given), Script(steps), QUERY))
    assert sorted(told(noting.retriever.runs[-1])) == [
        ("find_contact", {"name": "Ann"}, "Error: so the file begins", "ok", 1),
        ("send_text", {"to": [1]}, "no answer", "error", 2),
        ("weather", {"input": "Rome"}, "closed today", "error", 2),
    ]
