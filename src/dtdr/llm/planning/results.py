"""The steps of the planner, and the plan that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dtdr.data.calls import ToolCall
from dtdr.data.plan import Plan
from dtdr.llm.planning.filling import FilledParameters
from dtdr.llm.planning.selector import Selected
from dtdr.rankers.ranking import Ranking

Stopped = Literal["end", "step limit", "loop", "cancelled", "no usable answer", "prompt too long"]


@dataclass(frozen=True)
class PlannedStep:
    """One step of the planner.

    Attributes:
        ranking: every tool with its probability.
        shown: names of the tools retrieved for the prompt.
        selected: the selection, and how it came about.
        call: added to the plan; None at the end, or without a usable answer.
        filled: how its parameters were filled.
        seconds: ``rank``, ``select`` and ``fill``.
    """

    ranking: Ranking
    shown: tuple[str, ...]
    selected: Selected
    call: ToolCall | None
    filled: FilledParameters
    seconds: dict[str, float]

    @property
    def llm_calls(self) -> int:
        """Requests for selection and filling together."""
        return self.selected.llm_calls + self.filled.llm_calls

    def to_dict(self, top_k: int = 5) -> dict[str, Any]:
        """A JSON object; the ranking is cut to its best tools."""
        return {
            "selected": self.selected.tool,
            "outcome": self.selected.outcome,
            "arguments": None if self.call is None else dict(self.call.arguments),
            "problems": list(self.filled.problems),
            "confidence": round(self.ranking.confidence, 6),
            "shown": list(self.shown),
            **self.ranking.to_dict(top_k),
            "prompt_tokens": self.selected.prompt_tokens,
            "llm_calls": self.llm_calls,
            "fill": self.filled.to_dict(),
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
        }


@dataclass(frozen=True)
class PlanResult:
    """A finished plan, how it came about, and why it ended there."""

    query: str
    plan: Plan
    steps: tuple[PlannedStep, ...]
    stopped: Stopped

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with the calls as ``demonstrations.jsonl`` writes them."""
        return {
            "query": self.query,
            "calls": [
                {"id": call.id, "tool": call.tool, "arguments": dict(call.arguments)}
                for call in self.plan.calls
            ],
            "stopped": self.stopped,
            "steps": [step.to_dict() for step in self.steps],
        }
