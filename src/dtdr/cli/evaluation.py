"""What ``dtdr evaluate`` shows of runs: tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtdr.cli.output import printable, shorten

if TYPE_CHECKING:
    from dtdr.evaluate.call_accuracy import CallScores
    from dtdr.evaluate.metrics import Mean
    from dtdr.evaluate.mistakes import Mistake
    from dtdr.evaluate.next_calls import NextCallReport
    from dtdr.evaluate.plan_accuracy import PlanScores
    from dtdr.evaluate.reliability import Reliability
    from dtdr.evaluate.run_log import RunLog
    from dtdr.evaluate.tables import Table


class By(StrEnum):
    """What a second table breaks the first metric down by."""

    STEP = "step"
    PLAN_LENGTH = "plan-length"


@dataclass(frozen=True)
class Subject:
    """What the runs are about, as titles say it."""

    dataset: str
    label: str
    synthetic: bool
    split: str
    train: int
    test: int

    @property
    def title(self) -> str:
        """The data set and the split."""
        return f"{self.label}, split {self.split}"


@dataclass
class Results:
    """Results of retrievers, or of a model.

    Attributes:
        logs: one per retriever.
        calls: how calls are filled; None if that was not asked.
        plans: how whole plans come out, by retriever; empty if that was not asked.
        mistakes: of a fitted model, most confident first; None if retrievers were fitted.
    """

    logs: list[RunLog] = field(default_factory=list)
    calls: CallScores | None = None
    plans: dict[str, PlanScores] = field(default_factory=dict)
    mistakes: Sequence[Mistake] | None = None


@dataclass(frozen=True)
class Evaluation:
    """Results on one split, and what to show of them.

    Attributes:
        subject: what they are about.
        results: of each retriever, or of the model.
        metrics: names, in the order of the columns.
        by: what the first metric is broken down by; None shows only the total.
        has_calibration: whether calibration is shown.
        next_calls: how the next calls of the logs were ranked.
    """

    subject: Subject
    results: Results
    metrics: Sequence[str]
    by: By | None
    has_calibration: bool
    next_calls: NextCallReport

    @cached_property
    def _summaries(self) -> list[dict[str, Any]]:
        """The metrics of each run."""
        from dtdr.evaluate.metrics import summary

        return [summary(log, self.metrics) for log in self.results.logs]

    @cached_property
    def _groups(self) -> list[dict[int, Mean]]:
        from dtdr.evaluate import by_plan_length, by_step

        if self.by is None:
            return []
        group = by_step if self.by is By.STEP else by_plan_length
        return [group(log, self.metrics[0]) for log in self.results.logs]

    @cached_property
    def _reliabilities(self) -> list[Reliability]:
        from dtdr.evaluate.reliability import reliability_of

        return [reliability_of(log) for log in self.results.logs]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        results = [dict(item) for item in self._summaries]
        for item, means in zip(results, self._groups, strict=False):
            item[f"{self.metrics[0]}_by_{self.by}".replace("-", "_")] = {
                str(number): {"mean": round(mean.value, 6), "steps": mean.steps}
                for number, mean in means.items()
            }
        for item, ranked in zip(results, self.next_calls.records(), strict=True):
            item.update(ranked)
        if self.has_calibration:
            for item, reliability in zip(results, self._reliabilities, strict=True):
                item["calibration"] = reliability.to_dict()
        if self.results.calls is not None:
            for item in results:
                item["calls"] = self.results.calls.to_dict()
        first = next(iter(self.results.plans.values()), None)
        for item, planned in zip(results, self.results.plans.values(), strict=False):
            item["plans"] = planned.to_dict()
            if first is not None and planned is not first:
                item["plans"]["p_value_against_first"] = round(planned.p_value_against(first), 6)
        if self.results.mistakes is not None:
            for item in results:
                item["mistakes"] = [mistake.to_dict() for mistake in self.results.mistakes]
        record: dict[str, Any] = {
            "dataset": self.subject.dataset,
            "split": self.subject.split,
            "results": results,
        }
        if self.subject.synthetic:
            record["synthetic"] = True
        return record

    def tables(self) -> Iterator[Table]:
        """What a terminal shows, one table after the other."""
        from dtdr.evaluate.result_tables import (
            breakdown_table,
            metric_title,
            reliability_table,
            retrieval_table,
        )

        steps = (
            f"{self._summaries[0]['steps']:,} steps" if self._summaries else "nothing to evaluate"
        )
        subject = self.subject
        tested = "held-out plans" if self.results.mistakes is None else "runs"
        caption = f"{steps} of {subject.test:,} {tested}; learned from {subject.train:,}."
        yield retrieval_table(self._summaries, self.metrics, title=subject.title, caption=caption)
        if self.next_calls.keeps_groups:
            yield from self.next_calls.tables()
        if self.by is not None:
            what = "calls made before the step" if self.by is By.STEP else "calls of the plan"
            title = f"{metric_title(self.metrics[0])} by {what}"
            yield breakdown_table(
                list(zip(self._summaries, self._groups, strict=True)), title=title
            )
        if self.has_calibration:
            yield reliability_table(self._summaries, self._reliabilities, title="Calibration")
        yield from self._tables_of_calls()
        yield from self._tables_of_plans()
        if self.results.mistakes:
            yield _mistakes_table(self.results.mistakes)

    def _tables_of_calls(self) -> Iterator[Table]:
        from dtdr.evaluate.result_tables import calls_table, lost_leaves_table

        if self.results.calls is not None:
            yield calls_table(self.results.calls, title="Calls, the right tool given")
            if self.results.calls.exact < 1:
                yield lost_leaves_table(
                    self.results.calls, title="Leaves that are wrong most often"
                )

    def _tables_of_plans(self) -> Iterator[Table]:
        from dtdr.evaluate.plan_accuracy import lengths_table, plan_calibration_table, plans_table

        if self.results.plans:
            yield plans_table(self.results.plans, title="Whole plans")
        if self.by is By.PLAN_LENGTH:
            for name, planned in self.results.plans.items():
                title = f"Whole plans of {name} by the number of calls"
                yield lengths_table(planned, title=title)
        if self.has_calibration:
            for name, planned in self.results.plans.items():
                title = f"Probabilities of the whole plans of {name}"
                yield plan_calibration_table(planned, title=title)


def _mistakes_table(mistakes: Sequence[Mistake]) -> Table:
    from dtdr.evaluate.tables import Column, Table, numeric

    rows = [
        (
            shorten(printable(" ".join(item.query.split())), 44),
            len(item.history),
            shorten(printable(item.history[-1]), 18) if item.history else "-",
            shorten(printable(item.predicted), 18),
            item.probability,
            item.confidence,
            shorten(printable(item.called), 18),
        )
        for item in mistakes
    ]
    columns = [
        Column("Query"),
        Column("Calls", numeric=True),
        *(Column(title, is_whole=True) for title in ("The last", "Predicted")),
        *numeric("P", "Sure"),
        Column("Came", is_whole=True),
    ]
    caption = "P: probability of the predicted tool; Sure: confidence; --json has all in full."
    return Table(columns, rows, "The most confident mistakes", caption)
