"""A prompt: first the part that is the same at every step, then the part that varies."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Prompt:
    """The input of an LLM.

    Attributes:
        guidelines: what to do; the system message in a chat.
        variable: the part of this step.
        cue: the last line, which the answer follows, as it does in the example.
        example: another task of this kind and its answer: a separate exchange in a chat, where
            small models follow its form far better than inside one message.
        listing: the start of the task at every step, such as all functions.
        example_varies: whether the example is chosen for the step, and so is not constant.
        is_one_message: in a chat, everything is one message of the user, as in the paper.
    """

    guidelines: str
    variable: str
    cue: str
    example: tuple[str, str] | None = None
    listing: str = ""
    example_varies: bool = False
    is_one_message: bool = False

    @property
    def constant(self) -> str:
        """The start of every step as one plain text, which a server keeps cached."""
        if self.example_varies:
            return self.guidelines
        return _paragraphs(self.guidelines, self._example_text, self.listing)

    @property
    def varying(self) -> str:
        """Everything after the constant part, as one plain text."""
        if self.example_varies:
            return _paragraphs(self._example_text, self.listing, self.variable, self.cue)
        return _paragraphs(self.variable, self.cue)

    @property
    def text(self) -> str:
        """One plain text, for models that complete text."""
        return f"{self.constant}\n\n{self.varying}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """Chat messages: guidelines, the example as an exchange, then the task."""
        if self.is_one_message:
            return [{"role": "user", "content": self.text}]
        messages = [{"role": "system", "content": self.guidelines}]
        if self.example is not None:
            task, answer = self.example
            messages.append({"role": "user", "content": _paragraphs(task, self.cue)})
            messages.append({"role": "assistant", "content": answer})
        task = _paragraphs(self.listing, self.variable, self.cue)
        return [*messages, {"role": "user", "content": task}]

    def add_remark(self, answer: str, remark: str) -> Prompt:
        """The prompt for another try after an unusable answer."""
        return replace(self, variable=f"{self.variable}\n\nYour answer was: {answer}\n{remark}")

    @property
    def _example_text(self) -> str:
        if self.example is None:
            return ""
        task, answer = self.example
        return _paragraphs(
            "Here is an example.", task, f"{self.cue} {answer}", "Now the request to answer."
        )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
