"""Results of ``dtdr evaluate`` on runs: tables and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from dtdr.cli.output import printable
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate import plan_accuracy, result_tables
from dtdr.evaluate.branches import Branch
from dtdr.evaluate.call_accuracy import CallScores
from dtdr.evaluate.metrics import summary
from dtdr.evaluate.next_calls import (
    Agreement,
    Mistake,
    NextCalls,
    agreement,
    calibration_table,
    next_call_tables,
    score_next_calls,
)
from dtdr.evaluate.plan_accuracy import PlanScores
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.tables import Column, Table, numeric, shorten


class Show(StrEnum):
    """Results that are shown in addition to the metrics of the ranking."""

    BRANCHES = "branches"
    CALIBRATION = "calibration"
    CALLS = "calls"
    PLANS = "plans"


@dataclass(frozen=True)
class Evaluation:
    """Results on one split, and what to show of them.

    Attributes:
        dataset: the set's name.
        title: the set's title.
        split: name of the split.
        logs: one per ranker, or that of the model.
        metrics: names, in the order of the columns.
        show: what is shown in addition.
        together: all demonstrations, if the split keeps the runs of one group on one side.
        calls: how calls are filled; None if that was not asked.
        plans: whether whole plans are right, by ranker; empty if that was not asked.
        mistakes: of a fitted model, most confident first; None if rankers were fitted.
        branches: of the agent, for each of the logs; empty if that was not asked.
        verdict: how to show the tools, in one sentence.
    """

    dataset: str
    title: str
    split: str
    logs: Sequence[RunLog]
    metrics: Sequence[str]
    show: Collection[Show]
    together: Sequence[Demonstration] = ()
    calls: CallScores | None = None
    plans: Mapping[str, PlanScores] = field(default_factory=dict)
    mistakes: Sequence[Mistake] | None = None
    branches: Sequence[Sequence[Branch]] = ()
    verdict: str = ""

    @cached_property
    def _next_calls(self) -> list[tuple[str, list[NextCalls], list[Agreement]]]:
        """By ranker: how the next calls were ranked, compared with other runs of the task."""
        rows = []
        for log in self.logs:
            encoder = log.header.encoder
            name = log.header.ranker + (f" ({encoder['name']})" if encoder else "")
            other = agreement(log, self.together) if self.together else None
            rows.append((name, [score_next_calls(log)], [] if other is None else [other]))
        return rows

    @cached_property
    def _summaries(self) -> list[dict[str, Any]]:
        """The metrics of each run."""
        return [summary(log, self.metrics) for log in self.logs]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        results = [dict(item) for item in self._summaries]
        for item, (_, scores, others) in zip(results, self._next_calls, strict=True):
            item["next_calls"] = scores[0].to_dict()
            for other in others:
                item["another_run"] = other.to_dict()
        for item, planned in zip(results, self.plans.values(), strict=False):
            item["plans"] = planned.to_dict()
        for item, branches in zip(results, self.branches, strict=False):
            item["branches"] = [branch.to_dict() for branch in branches]
        for item in results:
            if self.calls is not None:
                item["calls"] = self.calls.to_dict()
            if self.mistakes is not None:
                item["mistakes"] = [mistake.to_dict() for mistake in self.mistakes]
        synthetic = {"synthetic": True} if self.logs[0].header.synthetic else {}
        described = {"dataset": self.dataset, "split": self.split, "results": results}
        return {**described, "verdict": self.verdict, **synthetic}

    def tables(self) -> Iterator[Table]:
        """Tables for the terminal, one after the other."""
        header = self.logs[0].header
        tested = "held-out plans" if self.mistakes is None else "runs"
        is_hidden = header.synthetic and "synthetic" not in self.title
        yield result_tables.retrieval_table(
            self._summaries,
            self.metrics,
            title=f"{self.title}{' (synthetic)' if is_hidden else ''}, split {self.split}",
            caption=f"{self._summaries[0]['steps']:,} steps of {header.split['test']:,} {tested}; "
            f"learned from {header.split['train']:,}.",
        )
        if self.together:
            yield from next_call_tables(self._next_calls)
        if Show.CALIBRATION in self.show:
            yield calibration_table(self._next_calls)
        if self.calls is not None:
            yield result_tables.calls_table(self.calls, title="Calls, the right tool given")
        if self.plans:
            yield plan_accuracy.plans_table(dict(self.plans), title="Whole plans")
        for log, branches in zip(self.logs, self.branches, strict=False):
            yield branches_table(branches, f"Branches of the agent, ranked by {log.header.ranker}")
        if self.mistakes:
            yield _mistakes_table(self.mistakes)


def _mistakes_table(mistakes: Sequence[Mistake]) -> Table:
    def cut(text: str, width: int = 18) -> str:
        return shorten(printable(text), width)

    rows = [
        (
            cut(item.query, 44),
            len(item.history),
            cut(item.history[-1]) if item.history else "-",
            cut(item.predicted),
            item.probability,
            item.confidence,
            cut(item.called),
        )
        for item in mistakes
    ]
    columns = [
        Column("Query"),
        Column("Calls", numeric=True),
        *(Column(title, is_whole=True) for title in ("Last call", "Predicted")),
        *numeric("P", "Conf."),
        Column("Called", is_whole=True),
    ]
    caption = "P: probability of the predicted tool; Conf.: confidence; --json has the whole texts."
    return Table(columns, rows, "The most confident mistakes", caption)


def branches_table(branches: Sequence[Branch], title: str, most: int = 12) -> Table:
    """The first branches, at most ``most`` of them."""
    rows = [
        (
            item.condition,
            item.tool,
            f"{item.agent} of {item.cases}",
            f"{item.model} of {item.agent}",
            f"{item.agent_otherwise} of {item.other_cases}",
        )
        for item in branches[:most]
    ]
    heads = ("Agent", "Ranked first", "Otherwise")
    columns = [Column("If"), Column("The agent calls", is_whole=True)]
    columns += [Column(head, numeric=True, is_whole=True) for head in heads]
    caption = (
        "Agent: in how many cases it called the tool; Ranked first: in how many of these the tool "
        "was ranked first when the agent called it; Otherwise: calls where the condition is false."
    )
    if len(branches) > most:
        caption += f"\n{len(branches) - most} more branches, ranked better, are in --json."
    if not branches:
        caption = "No value of an output says which tool comes next in enough of these runs."
    return Table(columns, rows, title, caption)
