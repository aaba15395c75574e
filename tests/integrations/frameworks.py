"""Agents of every framework, led by the same script, for the one battery of tests of them all."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dtdr.agents import ToolMask, Transcript
from tests.integrations.openai_server import OPENAI, openai_server
from tests.integrations.tools import NAMES, NEW, QUERY

ALL = (*NAMES, NEW)


@dataclass
class Script:
    """A model that calls the tools of its steps, one answer after another.

    Attributes:
        steps: names of the tools that each answer calls; afterwards it answers in words.
        seen: what the model was offered at each request.
        heard: the conversation that it was sent at each request.
        executed: the tools that were executed, in their order.
    """

    steps: list[Any] = field(default_factory=list)
    seen: list[set[Any]] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)

    def next_calls(self, offered: Any, conversation: Any = None) -> list[tuple[str, str, dict]]:
        """``(id, tool, arguments)`` of the next answer's calls; empty where it answers in words."""
        number = len(self.seen)
        self.seen.append(set(offered))
        self.heard.append(conversation)
        calls = self.steps[number] if number < len(self.steps) else ()
        return [
            (f"c{number}-{place}", *((call, {}) if isinstance(call, str) else call))
            for place, call in enumerate(calls)
        ]


@dataclass
class Outcome:
    """How a conversation with an agent ended: its last words, and its messages."""

    said: str
    messages: list[Any]
    read: Callable[[], Transcript]


@dataclass(frozen=True)
class Framework:
    """A way to run a masked agent: ``run(script, mask, turns, **options)``."""

    package: str
    run: Callable[..., Outcome]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, script, mask: ToolMask | None, turns=(QUERY,), **options) -> Outcome:
        """Ask an agent one thing after another; without a mask, it is shown all tools."""
        pytest.importorskip(self.package, reason=f"{self.package} is not installed")
        return self.run(script, mask, turns, **self.options, **options)


def captured_client(package, status, answer):
    """An HTTP client of a provider's package that reaches no network, and what it was to send."""
    # Which httpx a package is built on depends on its version.
    client = next(kind for kind in package.DefaultHttpxClient.__mro__ if kind.__name__ == "Client")
    httpx = sys.modules[client.__module__.partition(".")[0]]
    sent: list[dict] = []

    def handle(request):
        sent.append(json.loads(request.content))
        return httpx.Response(status, json=answer)

    return httpx.Client(transport=httpx.MockTransport(handle)), sent


def run_langchain(script, mask, turns, *, asynchronous=False, guarded=False, extra=(), **options):
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage

    from dtdr.agents.langchain import GuardedToolMaskMiddleware, ToolMaskMiddleware
    from dtdr.agents.requests import transcript_of
    from tests.integrations.scripted_chat_model import ScriptedModel, tools

    kind = GuardedToolMaskMiddleware if guarded else ToolMaskMiddleware
    agent = create_agent(
        ScriptedModel(script=script),
        tools=[*tools(script), *extra],
        middleware=[kind(mask, **options)] if mask else [],
    )
    state: Any = {"messages": []}
    for text in turns:
        state = {"messages": [*state["messages"], HumanMessage(text)]}
        state = asyncio.run(agent.ainvoke(state)) if asynchronous else agent.invoke(state)
    messages = state["messages"]
    return Outcome(messages[-1].content, messages, lambda: transcript_of(messages))


def pydantic_ai_model(script):
    """A model of Pydantic AI that is led by a script."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages, info):
        # What a model without native tool search is sent: deferred tools are not.
        calls = script.next_calls([tool.name for tool in info.function_tools], messages)
        if not calls:
            return ModelResponse(parts=[TextPart("There you are.")])
        return ModelResponse(parts=[ToolCallPart(name, arguments) for _, name, arguments in calls])

    return FunctionModel(answer)


def pydantic_ai_tools(script):
    """Tools of Pydantic AI that note in the script that they were executed."""
    from pydantic_ai import Tool

    def tool(name):
        def use() -> str:
            """Use it."""
            script.executed.append(name)
            return "fine"

        return Tool(use, name=name)

    return [tool(name) for name in ALL]


def run_pydantic_ai(script, mask, turns, *, model=None, tools=(), capabilities=(), **options):
    from pydantic_ai import Agent

    from dtdr.agents.pydantic_ai import ToolMaskCapability, transcript

    masks = [ToolMaskCapability(mask, **options)] if mask else []
    agent = Agent(
        model or pydantic_ai_model(script),
        tools=[*pydantic_ai_tools(script), *tools],
        capabilities=[*capabilities, *masks],
        retries=5,
    )
    history: Any = None
    for text in turns:
        result = agent.run_sync(text, message_history=history)
        history = result.all_messages()
    return Outcome(result.output, history, lambda: transcript(history))


def run_pydantic_ai_with_openai(
    script, mask, turns, *, api="chat", address=OPENAI, requests=None, **options
):
    """With Pydantic AI's own models of OpenAI, over HTTP; the bodies are added to ``requests``."""
    pytest.importorskip("openai", reason="openai is not installed")
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    kind: Any = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[api]
    with openai_server(script) as server, pytest.MonkeyPatch.context() as patch:
        for name in ("no_proxy", "NO_PROXY"):
            patch.delenv(name, raising=False)
        patch.setenv("http_proxy", server.address)
        client = AsyncOpenAI(api_key="none", base_url=address, max_retries=0)
        model = kind("gpt-5.4", provider=OpenAIProvider(openai_client=client))
        outcome = run_pydantic_ai(script, mask, turns, model=model, **options)
        if requests is not None:
            requests += server.requests
    return outcome


def openai_agents_tools(script):
    """Tools of the SDK that note in the script that they were executed."""
    from agents import FunctionTool

    def tool(name):
        async def use(context, arguments):
            script.executed.append(name)
            return "fine"

        schema = {"type": "object", "properties": {}}
        return FunctionTool(name, f"Use {name}", schema, use)

    return [tool(name) for name in ALL]


def openai_agents_model(script):
    """A model of the SDK that is led by a script."""
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    def answer(items, tools):
        calls = script.next_calls([tool.name for tool in tools], items)
        if calls:
            return [
                ResponseFunctionToolCall(
                    type="function_call", call_id=id_, name=name, arguments=json.dumps(arguments)
                )
                for id_, name, arguments in calls
            ]
        text = ResponseOutputText(type="output_text", text="There you are.", annotations=[])
        return [
            ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
        ]

    class Scripted(Model):
        async def get_response(
            self, system_instructions, input, model_settings, tools, *rest, **more
        ):
            return ModelResponse(answer(input, tools), Usage(), None)

        async def stream_response(
            self, system_instructions, input, model_settings, tools, *rest, **more
        ):
            response = Response(
                id="r",
                created_at=0,
                model="scripted",
                object="response",
                output=answer(input, tools),
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
            )
            yield ResponseCompletedEvent(
                type="response.completed", response=response, sequence_number=0
            )

    return Scripted()


def run_openai_agents(script, mask, turns, *, streamed=False, extra=(), **options):
    from agents import Agent, Runner
    from agents.run import RunConfig

    from dtdr.agents.openai_agents import ToolMaskModel, transcript

    model = openai_agents_model(script)
    if mask:
        model = ToolMaskModel(model, mask)
    agent = Agent("tester", model=model, tools=[*openai_agents_tools(script), *extra], **options)
    quiet = RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model")

    async def stream(items):
        result = Runner.run_streamed(agent, items, run_config=quiet)
        async for _ in result.stream_events():
            pass
        return result

    items: list[Any] = []
    for text in turns:
        items = [*items, {"role": "user", "content": text}]
        if streamed:
            result: Any = asyncio.run(stream(items))
        else:
            result = Runner.run_sync(agent, items, run_config=quiet)
        items = result.to_input_list()
    return Outcome(result.final_output, items, lambda: transcript(items))


def llama_index_model(script):
    """A model of LlamaIndex that is led by a script."""
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    def answer(messages, tools=(), **keywords):
        calls = script.next_calls([tool.metadata.name for tool in tools])
        blocks: list[Any] = [
            ToolCallBlock(tool_call_id=identifier, tool_name=name, tool_kwargs=arguments)
            for identifier, name, arguments in calls
        ] or [TextBlock(text="There you are.")]
        return ChatMessage(role="assistant", blocks=blocks)

    return MockFunctionCallingLLM(response_generator=answer, is_chat_model=True)


def llama_index_tools(script, names=ALL):
    """Tools of LlamaIndex that note in the script that they were executed."""
    from llama_index.core.tools import FunctionTool

    def tool(name):
        def use() -> str:
            script.executed.append(name)
            return "fine"

        return FunctionTool.from_defaults(use, name=name, description=f"Use {name}")

    return [tool(name) for name in names]


def run_llama_index(script, mask, turns, *, workflow=False, **options):
    """Run an agent of our own class, alone or in a workflow."""
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
    from llama_index.core.memory import ChatMemoryBuffer

    from dtdr.agents.llama_index import ToolMaskAgent, transcript

    options |= {"tools": llama_index_tools(script), "llm": llama_index_model(script)}
    if mask is None:
        agent: Any = FunctionAgent(**options)
    else:
        named = {"name": "tester", "description": "tests", "can_handoff_to": []}
        agent = ToolMaskAgent(mask=mask, **options, **named)
    if workflow:
        agent = AgentWorkflow(agents=[agent], root_agent="tester")
    memory = ChatMemoryBuffer.from_defaults(token_limit=10_000)

    async def ask(text):
        return await agent.run(text, memory=memory)

    for text in turns:
        result = asyncio.run(ask(text))
    messages = memory.get_all()
    return Outcome(str(result), messages, lambda: transcript(messages))


FRAMEWORKS = {
    "langchain": Framework("langchain", run_langchain),
    "langchain-async": Framework("langchain", run_langchain, {"asynchronous": True}),
    "pydantic-ai": Framework("pydantic_ai", run_pydantic_ai),
    "pydantic-ai-chat": Framework("pydantic_ai", run_pydantic_ai_with_openai),
    "pydantic-ai-responses": Framework(
        "pydantic_ai", run_pydantic_ai_with_openai, {"api": "responses"}
    ),
    "openai-agents": Framework("agents", run_openai_agents),
    "openai-agents-streamed": Framework("agents", run_openai_agents, {"streamed": True}),
    "llama-index": Framework("llama_index.core", run_llama_index, {"streaming": False}),
    "llama-index-streamed": Framework("llama_index.core", run_llama_index, {"streaming": True}),
    "llama-index-workflow": Framework("llama_index.core", run_llama_index, {"workflow": True}),
}
