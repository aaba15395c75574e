"""How odd a call is after a run: p-values of its tool and of where its arguments come from.

Conformal p-values (Vovk, Gammerman and Shafer, 2005): the share of held-out calls that were at
least as odd. Of calls like the demonstrations', a share p has a p-value of at most p.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.errors import ModelError
from dtdr.predict.arguments.origins import OriginCounts, iter_demonstrated, iter_origins
from dtdr.rankers.base import HeldOutFold, StepState
from dtdr.rankers.calibration import Floats
from dtdr.rankers.ranking import Ranking

LEAST = 20
"""Held-out calls below which nothing is said."""

MOST_PLANS = 750
"""Held-out plans whose calls are ranked, of more: of 2,500 calls, how many of a hundred usual ones
are taken for odd is known to .2."""

ODD = 0.01
"""P-values up to which a call is odd, unless told otherwise: one false alarm in a hundred."""

JUDGEMENTS = ("odd", "usual", "abstained")
"""What can be said of a call; the last where there is no p-value."""


@dataclass(frozen=True, slots=True)
class Surprise:
    """How odd a call is. It is a hint, not a permission.

    Attributes:
        call_tool: name of the tool.
        p_value: of the call as a whole; None where nothing can be said.
        tool: p-value of the tool, given the run; None where nothing can be said.
        arguments: p-values of the arguments by name: of the origin of the oddest value of each.
        origins: where that value comes from: ``user``, ``output of TOOL``, ``argument`` or
            ``other``.
        note: why nothing is said; empty else.
    """

    call_tool: str
    p_value: float | None
    tool: float | None = None
    arguments: Mapping[str, float] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def is_odd(self, level: float = ODD) -> bool:
        """Whether the p-value is at most the level; False where nothing can be said."""
        return self.p_value is not None and self.p_value <= level

    @property
    def judgement(self) -> str:
        """One of ``JUDGEMENTS``: what metrics count."""
        if self.p_value is None:
            return "abstained"
        return "odd" if self.is_odd() else "usual"

    def __str__(self) -> str:
        """One sentence."""
        if self.p_value is None:
            return f"{self.call_tool}: {self.note}"
        text = f"{self.call_tool}: p = {self.p_value:.3f}; the tool {self.tool:.3f}"
        for name, value in self.arguments.items():
            text += f", {name} ({self.origins[name]}) {value:.3f}"
        return text

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """What ``to_dict`` gave."""
        arguments = record["arguments"]
        return cls(
            str(record["tool"]),
            record["p_value"],
            record["tool_p_value"],
            {name: float(item["p_value"]) for name, item in arguments.items()},
            {name: str(item["origin"]) for name, item in arguments.items()},
            str(record["note"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "tool": self.call_tool,
            "p_value": None if self.p_value is None else round(self.p_value, 6),
            "tool_p_value": None if self.tool is None else round(self.tool, 6),
            "arguments": {
                name: {"p_value": round(value, 6), "origin": self.origins[name]}
                for name, value in self.arguments.items()
            },
            "note": self.note,
        }


@dataclass(frozen=True)
class SurpriseModel:
    """What is odd, learned from plans that the retriever has not seen.

    Attributes:
        tools: minus the log probabilities of held-out calls, sorted; shape (n,).
        origins: how often each parameter's values come from where.
        values: the oddness of demonstrated values, each left out of the counts, sorted; shape (m,).
        joint: of held-out calls, the p-value of the tool times the least one of an argument (1
            without any), sorted; shape (n,).
    """

    tools: Floats
    origins: OriginCounts
    values: Floats
    joint: Floats

    @classmethod
    def fit(
        cls,
        demonstrations: Sequence[Demonstration],
        folds: Iterable[HeldOutFold],
        index: Mapping[str, int],
    ) -> SurpriseModel | None:
        """Learn from held-out plans; None where there are too few calls.

        Only plans count whose whole ``group`` is in one fold, and neither the retriever nor the
        origins that they are judged by have seen any of the group. Otherwise calls of a new task
        are too often odd: of tau-bench's airline, 8.4 % had a p-value of .05 or less, now 6.8 %.

        Args:
            demonstrations: all of them.
            folds: parts of them, with retrievers that have not seen them.
            index: positions of the tools in the vocabulary.
        """
        groups: dict[str, list[int]] = defaultdict(list)
        for at, item in enumerate(demonstrations):
            groups[item.group or f"#{at}"].append(at)
        step = max(1, math.ceil(len(demonstrations) / MOST_PLANS))
        origins = OriginCounts.of(chain.from_iterable(map(iter_demonstrated, demonstrations)))
        starts: dict[int, Callable[[int], StepState]] = {}
        own: dict[int, OriginCounts] = {}
        for fold in folds:
            inside = set(fold.positions)
            apart = [members for members in groups.values() if inside.issuperset(members)]
            for members in apart[::step]:
                runs = (iter_demonstrated(demonstrations[at]) for at in members)
                starts.update(dict.fromkeys(members, fold.start))
                own.update(dict.fromkeys(members, OriginCounts.of(chain.from_iterable(runs))))
        tools: list[float] = []
        values: list[list[float]] = []
        for position, start in starts.items():
            state = start(position)
            for call, pairs in iter_demonstrated(demonstrations[position]):
                ranking = state.rank()
                tools.append(_oddness(ranking, index[call.tool]))
                left_out = (origins.oddness(call.tool, *pair, own[position]) for pair in pairs)
                values.append([value for value in left_out if value is not None])
                state.call(index[call.tool], call)
        if len(tools) < LEAST:
            return None
        of_tools = np.sort(np.array(tools))
        of_values = np.sort(np.array([value for some in values for value in some]))
        joint = [
            _p_value(of_tools, tool)
            * min((_p_value(of_values, value) for value in some), default=1)
            for tool, some in zip(tools, values, strict=True)
        ]
        return cls(of_tools, origins, of_values, np.sort(np.array(joint)))

    def judge(self, call: ToolCall, run: Run, ranking: Ranking, position: int) -> Surprise:
        """How odd a call is.

        Args:
            call: with its arguments.
            run: before the call.
            ranking: of the run's next step.
            position: of the tool in the vocabulary, below 0 for one that is not known.
        """
        if not ranking.is_familiar:
            return Surprise(call.tool, None, note="the query is unlike the demonstrations")
        if position < 0:
            return Surprise(call.tool, None, note="the model never saw this tool")
        tool = _p_value(self.tools, _oddness(ranking, position))
        arguments: dict[str, float] = {}
        origins: dict[str, str] = {}
        for name, origin in iter_origins(call, run.query, run.before, run.calls):
            oddness = self.origins.oddness(call.tool, name, origin)
            if oddness is None or not len(self.values):
                continue
            value = _p_value(self.values, oddness)
            if value < arguments.get(name, 2.0):
                arguments[name], origins[name] = value, origin
        product = tool * min(arguments.values(), default=1.0)
        below = int(np.searchsorted(self.joint, product + 1e-12, side="right"))
        p_value = (1 + below) / (1 + len(self.joint))
        return Surprise(call.tool, p_value, tool, arguments, origins)

    def rename_tool(self, old: str, new: str) -> Self:
        """The model of a vocabulary in which a tool has another name."""
        return type(self)(self.tools, self.origins.rename_tool(old, new), self.values, self.joint)

    def config(self) -> dict[str, Any]:
        """The part that is JSON."""
        return {
            "origins": self.origins.to_list(),
            "calls": len(self.tools),
            "values": len(self.values),
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save."""
        return {"tools": self.tools, "values": self.values, "joint": self.joint}

    @classmethod
    def restore(
        cls, config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> SurpriseModel:
        """The model that ``config`` and ``arrays`` gave.

        Raises:
            ModelError: they are something else.
            KeyError: something is missing.
        """
        rows = [np.asarray(arrays[name], np.float64) for name in ("tools", "values", "joint")]
        sizes = (config["calls"], config["values"], config["calls"])
        if any(
            row.shape != (size,) or not np.isfinite(row).all()
            for row, size in zip(rows, sizes, strict=True)
        ):
            raise ModelError("what it learned of odd calls is damaged; fit it again")
        tools, values, joint = map(np.sort, rows)
        return cls(tools, OriginCounts.from_list(config["origins"]), values, joint)


def _oddness(ranking: Ranking, position: int) -> float:
    return -math.log(max(float(ranking.scores[position]), 1e-12))


def _p_value(rising: Floats, oddness: float) -> float:
    """The share of values that are at least so large, this one counted too."""
    at_least = len(rising) - int(np.searchsorted(rising, oddness - 1e-9, side="left"))
    return (1 + at_least) / (1 + len(rising))
