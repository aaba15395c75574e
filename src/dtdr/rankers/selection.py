"""Choosing what is shown: the bounds, the default rule, and what showing a tool costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.rankers.calibration import Calibration, Floats

Positions = npt.NDArray[np.intp]

COVERAGE = 0.95
"""Default where the ranker was calibrated: one step in twenty may lack every acceptable tool,
an error that no LLM can correct, so it must stay well below the LLM's own."""

TOP_K = 5
"""Default where the ranker has neither calibration nor threshold."""

BYTES_PER_TOKEN = 4
"""Nearest of three counts to three tokenizers in ten languages; see docs/decisions.md."""

OpenAIForm = Literal["filtered", "allowed-tools", "hint"]
AnthropicForm = Literal["filtered", "deferred", "hint"]


class Bounds(TypedDict, total=False):
    """The fields of a ``Selection``, given one by one."""

    top_k: int | None
    threshold: float | None
    coverage: float | None
    token_budget: int | None
    fallback: bool


class Scored(Protocol):
    """The part of a ``Ranking`` that a selection reads."""

    calibration: Calibration
    threshold: float | None
    scores: Floats

    @property
    def is_familiar(self) -> bool:
        """Whether the query is like the demonstrations."""
        ...

    @property
    def order(self) -> Positions:
        """Positions of all tools, best first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tools of a ranking are shown, best first; at least one.

    >>> from dtdr import Ranking
    >>> ranking = Ranking(["mail", "open", "end"], np.array([0.2, 0.7, 0.1]))
    >>> ranking.select(Selection(top_k=2)).tools
    ('open', 'mail')

    Without ``top_k``, ``threshold``, ``coverage`` or ``token_budget``, the ranker decides: a
    coverage of 95 % if it is calibrated, else its own threshold (the paper's α), else five tools.

    Attributes:
        top_k: at most this many tools. From 2 on, the last place is kept for the tool that the
            query's words name best, of those with fewer than ten calls in the demonstrations.
        threshold: only tools above this probability, in [0, 1).
        coverage: as many tools as needed to show a right one at this share of the steps, in (0, 1).
        token_budget: as many tools as fit into this many prompt tokens.
        fallback: for a query unlike the demonstrations, ignore ``threshold`` and ``coverage`` and
            show all tools (paper, Limitations); ``top_k`` and ``token_budget`` still apply.

    Raises:
        InputError: a value is out of its range.
    """

    top_k: int | None = None
    threshold: float | None = None
    coverage: float | None = None
    token_budget: int | None = None
    fallback: bool = True

    DEFAULT_LEAST: ClassVar[int] = 1
    """How many tools the default rule shows at least."""

    UNFAMILIAR_TOP_K: ClassVar[int | None] = None
    """``top_k`` for a query unlike the demonstrations, if that is more; None: no other."""

    def __post_init__(self) -> None:
        for name, value in (("top_k", self.top_k), ("token_budget", self.token_budget)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise InputError(f"threshold is {self.threshold}; it must be in [0, 1)")
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise InputError(f"coverage is {self.coverage}; it must be between 0 and 1")

    @staticmethod
    def of(selection: Selection | None, bounds: Bounds) -> Selection:
        """The selection, or the one of these bounds.

        Raises:
            InputError: both are given, or a value is out of its range.
        """
        if selection is not None and bounds:
            raise InputError(f"give a selection or its bounds ({', '.join(bounds)}), not both")
        return Selection(**bounds) if selection is None else selection

    @property
    def bounds(self) -> dict[str, Any]:
        """The bounds that are set, by name."""
        names = ("top_k", "threshold", "coverage", "token_budget")
        bounds = {name: getattr(self, name) for name in names}
        return {name: value for name, value in bounds.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """A JSON object of what differs from the defaults."""
        return self.bounds | ({} if self.fallback else {"fallback": False})

    def check(self, calibration: Calibration) -> None:
        """Raise before the first step what a ranker could not serve at any.

        Raises:
            InputError: coverage is asked of a ranker that is not calibrated.
        """
        if self.coverage is not None:
            calibration.probability_for(self.coverage)

    def positions(
        self,
        ranking: Scored,
        *,
        allowed: npt.NDArray[np.bool_] | None = None,
        tokens: npt.NDArray[np.int64] | None = None,
        spent: int = 0,
    ) -> Positions:
        """Positions of the chosen tools in the vocabulary, best first.

        Args:
            ranking: n tools with their probabilities.
            allowed: shape (n,): which tools can be chosen; all by default.
            tokens: shape (n,): what each tool costs; by default what the ranker knows.
            spent: tokens of the budget that are used up already.

        Raises:
            InputError: the ranker was not calibrated for what is asked.
        """
        top_k, threshold, coverage = self.top_k, self.threshold, self.coverage
        calibration, least = ranking.calibration, 1
        if not self.bounds:
            least = self.DEFAULT_LEAST
            if calibration.has_coverage:
                coverage = COVERAGE
            elif ranking.threshold is not None:
                threshold = ranking.threshold
            else:
                top_k = TOP_K
        has_cut = threshold is not None or coverage is not None
        if allowed is None and not has_cut and self.token_budget is None:
            return ranking.order[:top_k]
        cut = None if coverage is None else calibration.probability_for(coverage)
        candidates = ranking.order
        if allowed is not None:
            candidates = candidates[allowed[candidates]]
        is_open = self.fallback and not ranking.is_familiar
        if has_cut and not is_open:
            scores = ranking.scores[candidates]  # falling, so what passes a cut is a beginning
            passes = np.ones(len(scores), np.bool_)
            if threshold is not None:
                passes &= scores > threshold
            if cut is not None:
                passes &= scores >= cut
            candidates = candidates[: max(least, int(passes.sum()))]
        if self.token_budget is not None:
            tokens = calibration.tokens if tokens is None else tokens
            if tokens is None:
                raise InputError("this ranker does not know what tools cost; use top_k instead")
            affordable = int((spent + np.cumsum(tokens[candidates]) <= self.token_budget).sum())
            candidates = candidates[: max(1, affordable)]
        if is_open and self.UNFAMILIAR_TOP_K is not None:
            top_k = max(top_k or 0, self.UNFAMILIAR_TOP_K)
        return candidates[:top_k]


def token_costs(tools: Sequence[Tool]) -> npt.NDArray[np.int64]:
    """Prompt tokens of each tool as JSON; shape (tools,)."""
    return np.array([count_tokens(tool.to_dict()) for tool in tools], np.int64)


def count_tokens(value: object) -> int:
    """About how many prompt tokens a text or a tool's definition takes.

    A text counts by its UTF-8 bytes, anything else as the JSON it is written as, without escapes.
    No tokenizer is asked: providers give none for definitions.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
