"""An LLM whose answers a test writes."""

from collections.abc import Sequence
from typing import ClassVar

from dtdr.llm.backends import LLM, Completion, Decoding, PromptTooLongError
from dtdr.llm.prompting import Prompt


class ScriptedLLM(LLM):
    """Answers function selections from ``names`` in turn, fillings from ``arguments`` in turn.

    A prompt of more than ``context`` words is too long.
    """

    kind: ClassVar[str] = "scripted"
    name = "scripted:test"

    def __init__(
        self,
        names: Sequence[str] = (),
        arguments: Sequence[str] = (),
        *,
        context: int = 10**6,
    ) -> None:
        self.names, self.arguments = list(names), list(arguments)
        self.context = context
        self.prompts: list[Prompt] = []
        self.calls: list[dict] = []

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        self._see(prompt)
        self.calls.append(
            {
                "max_tokens": decoding.max_tokens,
                "choices": decoding.choices,
                "stop": decoding.stop,
                "form": decoding.form,
            }
        )
        answers = self.names if prompt.cue == "Next function:" else self.arguments
        text = answers.pop(0) if answers else ""
        return Completion(text, len(prompt.text.split()), 0)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def _see(self, prompt: Prompt) -> None:
        if len(prompt.text.split()) > self.context:
            raise PromptTooLongError("prompt too long")
        self.prompts.append(prompt)
