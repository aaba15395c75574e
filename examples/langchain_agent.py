"""From a log to a LangChain agent that sees five tools instead of thirty.

    python examples/langchain_agent.py

The LLM is a scripted model, so you need no key. Replace it with ``ChatOpenAI(…)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool

import dtdr
from dtdr.agents import ToolMask, ToolPolicy
from dtdr.agents.langchain import ToolMaskMiddleware

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"


class ScriptedModel(BaseChatModel):
    """Calls three tools and prints what it was shown each time."""

    script: tuple[str, ...] = ("find_guest", "search_bookings", "get_invoice")
    shown: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> ScriptedModel:
        """The model with these tools."""
        return self.model_copy(update={"shown": tuple(tool.name for tool in tools)})

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        step = sum(isinstance(message, AIMessage) for message in messages)
        print(f"step {step + 1}: {len(self.shown)} tools: {', '.join(self.shown)}")
        calls = [{"name": name, "args": {}, "id": str(step)} for name in self.script[step:][:1]]
        message = AIMessage("" if calls else "Here is the invoice.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools_of(model: dtdr.predict.model.Model) -> list[BaseTool]:
    """The hotel's tools; each says that it is done."""
    return [
        StructuredTool.from_function(
            lambda: "done", name=tool.name, description=tool.description or tool.name
        )
        for tool in model.tools_[:-1]
    ]


def main() -> None:
    """Learn from the log, then let the agent answer one request."""
    model = dtdr.fit(LOG)
    mask = ToolMask(model, ToolPolicy(top_k=5))
    agent = create_agent(
        ScriptedModel(), tools=tools_of(model), middleware=[ToolMaskMiddleware(mask)]
    )
    asked = {"role": "user", "content": "Emi Patel is checking out, send the invoice."}
    answer = agent.invoke({"messages": [asked]})
    print(answer["messages"][-1].content)


if __name__ == "__main__":
    main()
