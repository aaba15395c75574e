"""How well the next calls of a log are ranked: misses, the end, another run of the task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.metrics import hit_at, mean, mean_score
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import BINS, Record, calibration_error, over_splits
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, interval, numeric

CAUSES = {
    "right": "Right",
    "never_called": "Never called",
    "ended_early": "Ended early",
    "end_missed": "End missed",
    "comes_later": "Comes later",
    "repeated": "Repeated",
    "other": "Other tool",
}
"""Why the next call of a log was not first, in the order in which a cause is looked for."""


@dataclass(frozen=True, slots=True)
class NextCalls(Record):
    """How the next calls of a log were ranked.

    Attributes:
        log_top1: share of all steps whose best tool the log called next, the end included.
        tool_top1: given that a call was made, the share of steps whose best tool was called next.
        tool_recall: the same for the tools called next that are among the best five.
        end_auroc: how well the probability of the end separates the ends of plans from other steps;
            None if all steps are of one kind.
        end_ece: expected calibration error of that probability.
        ece: that of ``Ranking.confidence``; None if the log has none.
        causes: share of all steps, by the keys of ``CAUSES``.
        new_tools: share of all steps whose next tool no training run calls.
    """

    log_top1: float
    tool_top1: float
    tool_recall: float
    end_auroc: float | None
    end_ece: float
    ece: float | None
    causes: Mapping[str, float]
    new_tools: float


def score_next_calls(log: RunLog) -> NextCalls:
    """How a run ranked what the log called next."""
    from sklearn.metrics import roc_auc_score

    ends = log.ends
    is_mixed = 0 < ends.sum() < len(ends)
    causes = Counter(find_causes(log))
    known = ~np.isnan(log.confidence)
    return NextCalls(
        mean_score(log, "log_top1"),
        mean_score(log, "tool_top1"),
        mean_score(log, "tool_recall@5"),
        float(roc_auc_score(ends, log.end_probability)) if is_mixed else None,
        calibration_error(log.end_probability, ends),
        calibration_error(log.confidence[known], hit_at(1)(log)[known]) if known.any() else None,
        {cause: causes[cause] / max(1, len(log)) for cause in CAUSES},
        mean(log.is_new.tolist()),
    )


def find_causes(log: RunLog) -> list[str]:
    """For each step one of ``CAUSES``."""
    calls: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for plan, step, called in zip(
        log.plan.tolist(), log.step.tolist(), log.called.tolist(), strict=True
    ):
        calls[plan].append((step, called))
    causes = []
    for row, best in enumerate(log.best.tolist()):
        calls_made = calls[int(log.plan[row])]
        now = int(log.step[row])
        if log.log_rank[row] == 1:
            cause = "right"
        elif log.is_new[row]:
            cause = "never_called"
        elif best == log.end:
            cause = "ended_early"
        elif log.ends[row]:
            cause = "end_missed"
        elif any(called == best for step, called in calls_made if step > now):
            cause = "comes_later"
        elif any(called == best for step, called in calls_made if step < now):
            cause = "repeated"
        else:
            cause = "other"
        causes.append(cause)
    return causes


@dataclass(frozen=True, slots=True)
class Agreement(Record):
    """How often another run of the same task makes the same next call.

    Attributes:
        known: share of the steps before which another run of the task had made the same calls, in
            whatever order.
        other_run: of these, how often the commonest next call of the other runs is right.
        model: of these, how often the ranking's best tool is right.
    """

    known: float
    other_run: float
    model: float

    @property
    def ratio(self) -> float:
        """How much of what another run would tell the ranking has."""
        return self.model / self.other_run


def agreement(log: RunLog, demonstrations: Iterable[Demonstration]) -> Agreement | None:
    """How a ranking compares with other runs of the same task, where runs share a ``group``.

    Args:
        log: of a split that keeps groups apart, so that the ranking has seen none of these runs.
        demonstrations: all of the data set. Turns of one run have ids that differ in the last
            number, as ``dtdr import`` writes them.

    Returns:
        None where no two runs of one group were in the same state.
    """
    states: dict[Any, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    steps: dict[tuple[str, int], tuple[Any, str, frozenset[str]]] = {}
    for item in demonstrations:
        plan = item.plan
        stem, dash, turn = item.id.rpartition("-")
        run = stem if dash and turn.isdigit() else item.id
        done = Counter(call.tool for call in plan.earlier)
        for step, called in enumerate((*plan.tools, END)):
            state = (item.group, frozenset(done.items()))
            if item.group:
                states[state][run][called] += 1
            steps[item.id, step] = (state, run, plan.next_in_log(range(step)))
            done[called] += 1
    right: list[float] = []
    model: list[float] = []
    top1 = log.log_rank == 1
    for row, step in enumerate(log.step.tolist()):
        state, run, wanted = steps[log.plan_ids[int(log.plan[row])], step]
        votes: Counter[str] = Counter()
        for other, calls in states[state].items():
            if other != run:
                votes += calls
        if votes:
            most = max(votes.values())
            first = [tool for tool, count in votes.items() if count == most]
            right.append(sum(tool in wanted for tool in first) / len(first))
            model.append(float(top1[row]))
    if not any(right):
        return None
    return Agreement(len(right) / len(log), mean(right), mean(model))


def next_call_tables(
    methods: Sequence[tuple[str, Sequence[NextCalls], Sequence[Agreement]]], title: str = ""
) -> tuple[Table, Table]:
    """Which tool, given a call, and whether the run ends; and why calls were missed.

    Args:
        methods: name, scores and agreements of each, one a split.
        title: what the splits are about.
    """
    columns = {
        "Log top-1": "log_top1",
        "Tool top-1": "tool_top1",
        "Tool recall@5": "tool_recall",
        "End AUROC": "end_auroc",
    }
    has_others = any(agreements for _, _, agreements in methods)
    others = {"Other run": "other_run", "Here": "model", "Ratio": "ratio"} if has_others else {}
    rows = [
        [name, *_means(scores, columns.values()), *_means(agreements, others.values())]
        for name, scores, agreements in methods
    ]
    new_tools = mean(score.new_tools for score in methods[0][1])
    caption = (
        f"At {new_tools:.1%} of the steps, the log called a tool that no training run calls. Tool: "
        "of the steps where the log made a call, the end set aside. End: how well its probability "
        "tells where the log ends."
    )
    for other in [score for _, _, agreements in methods for score in agreements][:1]:
        caption += (
            f"\nOther run: at {other.known:.0%} of the steps, another run of the same task had "
            "made the same calls; how often its next call is right; here: the best tool at these "
            "steps; ratio: here by other run."
        )
    about = f", {title}" if title else ""
    ranked = Table(
        [Column("Method"), *numeric(*columns, *others, best=True)],
        rows,
        f"Which tool, given a call; and whether the run ends{about}",
        caption,
    )
    rows = [
        [name, *(_mean([score.causes[cause] for score in scores]) for cause in CAUSES)]
        for name, scores, _ in methods
    ]
    heads = [Column("Method"), *numeric(*CAUSES.values())]
    return ranked, Table(heads, rows, f"The next call of the log: share of the steps{about}")


def calibration_table(methods: Sequence[tuple[str, Sequence[NextCalls], object]]) -> Table:
    """Calibration errors of each method, over its splits."""
    rows = [[name, *_means(scores, ("ece", "end_ece"))] for name, scores, _ in methods]
    columns = [Column("Method"), *numeric("ECE", "End ECE")]
    caption = f"ECE: calibration error of the confidence, {BINS} bins; End: of P(end)."
    return Table(columns, rows, "Calibration", caption)


def _means(records: Sequence[Record], names: Iterable[str]) -> list[Cell]:
    return [_mean([getattr(record, name) for record in records]) for name in names]


def _mean(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    return interval(over_splits(known)) if known else EMPTY


@dataclass(frozen=True, slots=True)
class Mistake(Record):
    """A step whose best tool was not acceptable.

    Attributes:
        id: of the demonstration.
        query: of the demonstration.
        history: tools called before the step, oldest first.
        predicted: the best tool of the ranking.
        probability: of the best tool.
        confidence: of the ranking; the probability where the model gives no confidence.
        called: the tool that the run called next, or ``end``.
        acceptable: all tools that would have been right, sorted.
    """

    id: str
    query: str
    history: tuple[str, ...]
    predicted: str
    probability: float
    confidence: float
    called: str
    acceptable: tuple[str, ...]


def find_mistakes(log: RunLog, demonstrations: Iterable[Demonstration], k: int) -> list[Mistake]:
    """At most k steps of a run log that were ranked wrong, most confident first.

    Args:
        log: of one model.
        demonstrations: those that the log is about.
        k: how many at most.
    """
    by_id = {item.id: item for item in demonstrations}
    probability = log.best_probability
    confidence = np.where(np.isnan(log.confidence), probability, log.confidence)
    wrong = np.flatnonzero(log.first_rank > 1)
    order = wrong[np.lexsort((-probability[wrong], -confidence[wrong]))][:k]
    mistakes = []
    for step in order.tolist():
        item = by_id[log.plan_ids[log.plan[step]]]
        acceptable = (log.names[tool] for tool in log.acceptable[step].tolist() if tool >= 0)
        mistakes.append(
            Mistake(
                item.id,
                item.query,
                item.plan.tools[: int(log.step[step])],
                log.names[log.best[step]],
                float(probability[step]),
                float(confidence[step]),
                log.names[log.called[step]],
                tuple(sorted(acceptable)),
            )
        )
    return mistakes
