"""A prompt: what stays the same from step to step first, then what varies."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to an LLM.

    Attributes:
        constant: the same for every step of every query, so that a server keeps it cached.
        variable: what belongs to this step.
        cue: the last line, which the answer follows, as it does in the example.
        example: another task of this kind and its answer: an exchange of its own in a chat, where
            small models follow its form far better than inside one message.
    """

    constant: str
    variable: str
    cue: str
    example: tuple[str, str] | None = None

    @property
    def varying(self) -> str:
        """Everything after the constant part, as one plain text."""
        if self.example is None:
            return f"{self.variable}\n\n{self.cue}"
        task, answer = self.example
        return (
            f"Here is an example.\n\n{task}\n\n{self.cue} {answer}\n\n"
            f"Now the call to fill in.\n\n{self.variable}\n\n{self.cue}"
        )

    @property
    def text(self) -> str:
        """One plain text, for models that complete text."""
        return f"{self.constant}\n\n{self.varying}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """Chat messages: the constant part is the system's, the rest the user's."""
        found = [{"role": "system", "content": self.constant}]
        if self.example is not None:
            task, answer = self.example
            found.append({"role": "user", "content": f"{task}\n\n{self.cue}"})
            found.append({"role": "assistant", "content": answer})
        return [*found, {"role": "user", "content": f"{self.variable}\n\n{self.cue}"}]

    def followed_by(self, answer: str, remark: str) -> Prompt:
        """The prompt for another try, after an answer that could not be used."""
        return replace(self, variable=f"{self.variable}\n\nYour answer was: {answer}\n{remark}")
