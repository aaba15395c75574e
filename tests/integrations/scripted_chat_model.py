"""A chat model of LangChain that follows a script, and tools for it."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool

from dtdr.agents.langchain import tool_name
from tests.integrations.frameworks import ALL


class ScriptedModel(BaseChatModel):
    """Answers as its script says, which notes what it was shown."""

    script: Any
    shown: tuple = ()

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.model_copy(update={"shown": tuple(map(tool_name, tools))})

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        calls = [
            {"id": identifier, "name": name, "args": arguments}
            for identifier, name, arguments in self.script.next_calls(self.shown, messages)
        ]
        message = AIMessage("" if calls else "There you are.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def tools(script, names=ALL):
    """Tools that note in the script that they were executed."""

    def tool(name):
        return StructuredTool.from_function(
            lambda: script.executed.append(name) or "fine", name=name, description=f"Use {name}"
        )

    return [tool(name) for name in names]
