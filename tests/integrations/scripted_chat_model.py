"""A chat model that follows a script, and tools for it."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from dtdr.agents.langchain import tool_name
from tests.integrations.tools import NAMES, NEW


class ScriptedModel(BaseChatModel):
    """Calls the tools of its script one answer after another; notes what it was shown."""

    script: list
    seen: list = []  # noqa: RUF012  # a pydantic field, copied for each model
    heard: list = []  # noqa: RUF012
    shown: tuple = ()

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        copy = self.model_copy(update={"shown": tuple(tool_name(tool) for tool in tools)})
        copy.seen, copy.heard = self.seen, self.heard
        return copy

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append(self.shown)
        self.heard.append(messages)
        step = len(self.seen) - 1
        calls = self.script[step] if step < len(self.script) else ()
        message = AIMessage(
            "" if calls else "There you are.",
            tool_calls=[
                {"name": name, "args": {}, "id": f"c{step}-{number}"}
                for number, name in enumerate(calls)
            ],
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools(names=(*NAMES, NEW)):
    return [
        StructuredTool.from_function(lambda: "fine", name=name, description=f"Use {name}")
        for name in names
    ]
