"""The result of a retrieval step: every known tool with its probability, best first."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Unpack, overload

import numpy as np

from dtdr.data.calls import END
from dtdr.deprecated import renamed_method
from dtdr.errors import InputError, check_lists
from dtdr.rankers.calibration import NO_CALIBRATION, Calibration, Floats
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.selection import Bounds, Positions, Selection

_ROWS = 20
"""Tools in a notebook's table."""


def _no_tool_is_new(ranking: Ranking, names: Collection[str], kept: Collection[str] | None) -> None:
    """For rankings without a model, which would know how often each tool was called."""


class Ranking:
    """Tools with their probabilities, best first; ties keep the order of the vocabulary.

    A sequence of ``(tool, probability)`` pairs, best first: ``len``, iteration, index and slice
    (a slice is a list of pairs) go by rank. As with a dictionary, ``in`` asks for a tool's name.

    >>> ranking = Ranking(["mail", "open", "end"], np.array([0.2, 0.7, 0.1]))
    >>> ranking[0], "mail" in ranking, len(ranking)
    (('open', 0.7), True, 3)

    Args:
        vocabulary: names of the n known tools, end of plan included.
        probabilities: shape (n,), in the order of the vocabulary, summing to 1.
        threshold: the ranker's own cut (the paper's α), used by ``select()`` without arguments.
        calibration: what the ranker knows about its rankings.
        familiarity: how much the query is like the demonstrations' queries, higher is more; None
            where the ranker cannot tell.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        probabilities: Floats,
        *,
        threshold: float | None = None,
        calibration: Calibration = NO_CALIBRATION,
        familiarity: float | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self._probabilities = probabilities
        self._order: Positions | None = None
        self.threshold = threshold
        self.calibration = calibration
        self.familiarity = familiarity
        # In the order of the vocabulary, and as the ranker gave them: those of a selection sum
        # to less than 1. Confidence, thresholds and calibrated cuts are about these.
        self.scores = probabilities
        # Of a tool and its rival: goes back to the ranker and the step that were ranked.
        self.explainer: Callable[[str, str | None], Explanation] | None = None
        # Of names: finds the new tool that the query names best; see ``new_tool``.
        self.newcomers: Callable[[Ranking, Collection[str], Collection[str] | None], str | None]
        self.newcomers = _no_tool_is_new

    @property
    def _is_whole(self) -> bool:
        """Whether no selection was made; one keeps the scores that its tools had among all."""
        return self.scores is self._probabilities

    @property
    def order(self) -> Positions:
        """Positions in the vocabulary, best first; shape (n,)."""
        if self._order is None:
            self._order = np.argsort(-self._probabilities, kind="stable")
        return self._order

    @property
    def tools(self) -> tuple[str, ...]:
        """Every known tool, best first."""
        return tuple(self.vocabulary[index] for index in self.order)

    @property
    def calls(self) -> tuple[str, ...]:
        """The tools that can be called, best first: ``tools`` without the end of the plan."""
        return tuple(tool for tool in self.tools if tool != END)

    @property
    def probabilities(self) -> Floats:
        """Probabilities in the order of ``tools``; shape (n,)."""
        return self._probabilities[self.order]

    @property
    def best(self) -> str:
        """The most probable next tool."""
        return self.vocabulary[int(self._probabilities.argmax())]

    @property
    def confidence(self) -> float:
        """How likely the best tool is an acceptable one; the same before and after ``select``.

        If the ranker is calibrated, it is lower for a query unlike the demonstrations;
        otherwise it is the best probability.
        """
        at = int(self.scores.argmax())
        is_end = self.vocabulary[at] == END
        best = float(self.scores[at])
        return self.calibration.confidence_of(best, self.familiarity, is_end=is_end)

    @property
    def is_familiar(self) -> bool:
        """Whether the query is like the demonstrations; True where the ranker cannot tell."""
        threshold = self.calibration.familiarity_threshold
        return self.familiarity is None or threshold is None or self.familiarity >= threshold

    @property
    def is_none_of_these(self) -> bool:
        """Whether probably no tool is right.

        The query is unlike the demonstrations, and the best tool is more likely wrong than right.
        False if the best tool was added after the fit: queries for it are unlike all
        demonstrations.
        """
        added = self.calibration.added
        is_added = added is not None and bool(added[self.scores.argmax()])
        return not (is_added or self.is_familiar) and self.confidence < 0.5

    def new_tool(self, names: Collection[str], kept: Collection[str] | None = None) -> str | None:
        """The tool that the query names best, of those that demonstrations hardly call.

        ``select`` and masks keep a place for it. A mask, which knows what it ``kept`` from an
        earlier step, also shows a tool without any call if the query's words match none: one that
        is kept, or the most probable.

        Args:
            names: the tools to choose from.
            kept: shown at an earlier step; None: only a tool that words of the query match.

        Returns:
            Its name; None if there is none.

        Raises:
            InputError: the names are a text.
        """
        check_lists(names=names, kept=kept)
        return self.newcomers(self, names, kept)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for index in self.order:
            yield self.vocabulary[index], float(self._probabilities[index])

    def __contains__(self, tool: object) -> bool:
        return tool in self.vocabulary

    @overload
    def __getitem__(self, rank: int) -> tuple[str, float]: ...
    @overload
    def __getitem__(self, rank: slice) -> list[tuple[str, float]]: ...
    def __getitem__(self, rank: int | slice) -> tuple[str, float] | list[tuple[str, float]]:
        if isinstance(rank, slice):
            return self.pairs(self.order[rank])
        return self.pairs(self.order[[rank]])[0]

    def top(self, top_k: int) -> list[tuple[str, float]]:
        """The ``top_k`` most probable tools with their probabilities."""
        return self.pairs(self.order[:top_k])

    def positions(self, selection: Selection) -> Positions:
        """Positions in the vocabulary of the tools that ``select`` shows, best first.

        Raises:
            InputError: the ranker was not calibrated for the selection.
        """
        positions, top_k = selection.positions(self), selection.top_k
        if top_k is None or top_k < 2 or selection.token_budget is not None:
            return positions
        new = self.new_tool(self.calls)
        index = -1 if new is None else self.vocabulary.index(new)
        if index < 0 or index in positions:
            return positions
        return np.append(positions[: top_k - 1], index)

    def pairs(self, positions: Positions) -> list[tuple[str, float]]:
        """The tools at some positions of the vocabulary, with their probabilities."""
        values = self._probabilities[positions].tolist()
        return [
            (self.vocabulary[index], value)
            for index, value in zip(positions.tolist(), values, strict=True)
        ]

    def probability(self, tool: str) -> float:
        """Probability of a tool; 0 for one that the ranker does not know."""
        try:
            return float(self._probabilities[self.vocabulary.index(tool)])
        except ValueError:
            return 0.0

    def select(self, selection: Selection | None = None, **bounds: Unpack[Bounds]) -> Ranking:
        """The tools worth showing, best first, renormalised; never empty.

        Args:
            selection: the bounds as one object.
            bounds: or ``top_k``, ``threshold``, ``coverage``, ``token_budget`` and ``fallback`` of
                a ``Selection``, one by one; without any, its default rule.

        Returns:
            A ranking of these tools, with the confidence and familiarity of the whole ranking. It
            may include the end of the plan, ``end``; its ``calls`` do not. A second ``select``
            applies both selections.

        Raises:
            InputError: an argument is out of range, or the ranker was not calibrated for it.
        """
        return self._part(self.positions(Selection.of(selection, bounds)))

    def restrict(self, offered: Collection[str] | None) -> Ranking:
        """The ranking of the tools that can be called, renormalised; the end of plan stays.

        Args:
            offered: names, also unknown ones; None returns the ranking unchanged.

        Raises:
            InputError: it is a text.
        """
        if offered is None:
            return self
        check_lists(offered=offered)
        names = enumerate(self.vocabulary)
        positions = [index for index, name in names if name in offered or name == END]
        if len(positions) == len(self):
            return self
        part = self._part(np.array(positions))
        if self._is_whole:
            # Given that the others cannot be called, these are the probabilities.
            part.scores = part._probabilities
        return part

    among = renamed_method("among", "restrict")

    def _part(self, positions: Positions) -> Ranking:
        """Some of the tools, renormalised, with the scores that they have among all."""
        shares = self._probabilities[positions]
        total = shares.sum()
        part = Ranking(
            [self.vocabulary[index] for index in positions],
            shares / total if total > 0 else np.full(len(positions), 1 / len(positions)),
            threshold=self.threshold,
            calibration=self.calibration.of(positions),
            familiarity=self.familiarity,
        )
        part.scores = self.scores[positions]
        part.explainer, part.newcomers = self.explainer, self.newcomers
        return part

    def explain(self, tool: str | None = None, *, against: str | None = None) -> Explanation:
        """Why a tool is more probable than another.

        For ``dtdr-f``: what each block adds, and the nearest demonstrations. For others: only the
        probabilities. An update of the ranker after this ranking does not change the
        explanation.

        Args:
            tool: one that the ranker knows; None for the best.
            against: the tool that it is compared with; None for the best of the others.

        Raises:
            InputError: the ranker knows no such tool, both are the same, or no ranker made
                this ranking.
        """
        if self.explainer is None:
            raise InputError("only a ranking that a ranker made can be explained")
        return self.explainer(self.best if tool is None else tool, against)

    def to_dict(self, top_k: int | None = None) -> dict[str, Any]:
        """A JSON object: ``{"tools": [{"tool": name, "probability": p}, …]}``, best first."""
        return {
            "tools": [
                {"tool": tool, "probability": round(probability, 6)}
                for tool, probability in self.top(len(self) if top_k is None else top_k)
            ]
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{tool} {probability:.3f}" for tool, probability in self.top(3))
        return f"Ranking({shown}{', …' if len(self) > 3 else ''})"

    def _repr_html_(self) -> str:
        """A table with a bar a tool, as notebooks show it."""
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(tool)}</td><td>{probability:.3f}</td>"
            f"<td style='text-align:left'><div style='background:#4c78a8;height:.8em;"
            f"width:{max(1, round(160 * probability))}px'></div></td></tr>"
            for tool, probability in self.top(_ROWS)
        )
        rest = f"<p>and {len(self) - _ROWS:,} more</p>" if len(self) > _ROWS else ""
        return (
            "<table><thead><tr><th style='text-align:left'>tool</th><th>probability</th><th></th>"
            f"</tr></thead><tbody>{rows}</tbody></table>{rest}"
        )
