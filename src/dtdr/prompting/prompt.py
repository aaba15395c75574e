"""A prompt: what stays the same from step to step first, then what varies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent to an LLM.

    Attributes:
        constant: the same for every step of every query, so that a server keeps it cached.
        variable: what belongs to this step.
        cue: the last line, which the answer follows, as it does in the example.
    """

    constant: str
    variable: str
    cue: str

    @property
    def text(self) -> str:
        """One plain text, for models that complete text."""
        return f"{self.constant}\n\n{self.variable}\n\n{self.cue}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """Chat messages: the constant part is the system's, the rest the user's."""
        return [
            {"role": "system", "content": self.constant},
            {"role": "user", "content": f"{self.variable}\n\n{self.cue}"},
        ]

    def followed_by(self, answer: str, remark: str) -> Prompt:
        """The prompt for another try, after an answer that could not be used."""
        return Prompt(
            self.constant, f"{self.variable}\n\nYour answer was: {answer}\n{remark}", self.cue
        )
