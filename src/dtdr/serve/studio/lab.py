"""What the studio shows of a lab: its runs, two of them side by side, their worst steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from dtdr.errors import InputError, unknown_choice
from dtdr.evaluate.lab.kinds import RANKS
from dtdr.evaluate.lab.report import build_report
from dtdr.evaluate.lab.report.page import Page, Text, tables_of
from dtdr.evaluate.lab.report.results import Results, Run
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.metrics import by_step, mean_score
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.tables import Table

SHOWN_METRICS = ("mrr", "top1", "f1", "recall@5", "log_mrr")
DEEPEST = 10
"""Tools up to which recall is drawn."""
FEWEST_STEPS = 5
"""Steps after this many calls below which their mean says little."""
_WORST = 25


@dataclass(frozen=True, slots=True)
class LabRun:
    """A run that ranks.

    Attributes:
        key: its hash.
        suite: which it belongs to.
        dataset: by name.
        split: kind of split.
        method: the retriever and what is not its default.
        seed: of the split and of the retriever.
    """

    key: str
    suite: str
    dataset: str
    split: str
    method: str
    seed: int


@dataclass(frozen=True, slots=True)
class StepMean:
    """How often the best tool was right after this many calls, and at how many steps."""

    calls: int
    top1: float
    steps: int


@dataclass(frozen=True, slots=True)
class Metrics:
    """Means of a run over its steps.

    Attributes:
        key: of the run.
        label: what it is of.
        steps: how many.
        plans: how many.
        means: by metric.
        recall: the share of the acceptable tools among the first 1, 2, ... 10.
        by_step: by the number of calls before.
    """

    key: str
    label: str
    steps: int
    plans: int
    means: dict[str, float]
    recall: list[float]
    by_step: list[StepMean]


@dataclass(frozen=True, slots=True)
class RankedName:
    """A tool and its probability."""

    tool: str
    probability: float


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A step of a run.

    Attributes:
        plan: id of the demonstration.
        query: empty where the lab does not keep it.
        history: the calls before.
        acceptable: the tools that would have been right.
        rank: of the best of them; 0 where the retriever knows none.
        probability: of the best of them.
        best: what was ranked first instead.
        other_rank: the same rank in the run that it is compared with; None without one.
    """

    plan: str
    query: str
    history: list[str]
    acceptable: list[str]
    rank: int
    probability: float
    best: list[RankedName]
    other_rank: int | None


@dataclass(frozen=True, slots=True)
class LabCell:
    """A cell of a table."""

    text: str
    best: bool


@dataclass(frozen=True, slots=True)
class LabBlock:
    """A paragraph (``columns`` is empty) or a table.

    Attributes:
        text: the paragraph, or the title of the table.
        columns: titles.
        numeric: whether each column is of numbers.
        rows: cells.
        caption: notes below the table, one a line.
    """

    text: str
    columns: list[str]
    numeric: list[bool]
    rows: list[list[LabCell]]
    caption: str


@dataclass(frozen=True, slots=True)
class LabSection:
    """A part of the report."""

    id: str
    title: str
    blocks: list[LabBlock]


class Lab:
    """The labs of a cache folder.

    Args:
        store: the cache.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def name(self, lab: str | None) -> str:
        """A lab by its name, or the one that was run last.

        Raises:
            InputError: there is none.
        """
        labs = self.store.labs()
        if not labs:
            raise InputError(
                f"{self.store.folder} holds no lab; run one with: "
                "dtdr lab run retrieval --data FILE --cache FOLDER"
            )
        if lab is not None and lab not in labs:
            raise unknown_choice("lab", lab[:80], labs)
        return lab or labs[0]

    def runs(self, lab: str) -> list[LabRun]:
        """The runs that rank, of every suite."""
        runs = []
        for suite, manifest in Results(self.store, lab).manifests.items():
            for cell in manifest["cells"]:
                run = Run(cell["key"], cell["spec"])
                if run.kind in RANKS and self.store.path(run.key) is not None:
                    runs.append(
                        LabRun(run.key, suite, *run.place, run.method, int(run.spec.get("seed", 0)))
                    )
        return runs

    def report(self, lab: str) -> tuple[str, list[LabSection]]:
        """The report as text and tables; charts as the tables of their values."""
        page, _ = build_report(self.store, lab)
        return page.title, _sections(page)

    def find(self, lab: str, key: str) -> tuple[LabRun, RunLog]:
        """A run and its log.

        Raises:
            InputError: the lab holds no such run, or its log cannot be read.
        """
        for run in self.runs(lab):
            if run.key == key:
                return run, _read_log(self.store, key)
        raise InputError("this lab holds no such run; choose one of its list")

    def queries(self, lab: str, dataset: str) -> Mapping[str, str]:
        """Queries of a data set by the id of the demonstration."""
        queries: Mapping[str, str] = Results(self.store, lab).dataset_summary(dataset)["queries"]
        return queries


@lru_cache(8)
def _read_log(store: Store, key: str) -> RunLog:
    return cast(RunLog, store.read(key))


def metrics_of(run: LabRun, log: RunLog) -> Metrics:
    """Means over the steps of a run."""
    return Metrics(
        run.key,
        f"{run.method} on {run.dataset}, seed {run.seed}",
        len(log),
        len(log.plan_ids),
        {name: round(mean_score(log, name), 6) for name in SHOWN_METRICS},
        [
            round(mean_score(log, f"recall@{depth}"), 6)
            for depth in range(1, min(DEEPEST, len(log.header.tools)) + 1)
        ],
        [
            StepMean(calls, round(mean.value, 6), mean.steps)
            for calls, mean in sorted(by_step(log, "top1").items())
            if mean.steps >= FEWEST_STEPS
        ],
    )


def worst_steps(
    log: RunLog, queries: Mapping[str, str], other: RunLog | None = None
) -> list[StepOfRun]:
    """The steps with the worst ranks; beside another run of the same steps, where it loses most."""
    ranks = np.where(np.isinf(log.first_rank), len(log.header.tools) + 1, log.first_rank)
    badness = 1 - 1 / ranks
    others: dict[tuple[str, int], int] = {}
    if other is not None:
        others = {
            (other.plan_ids[plan], step): int(0 if np.isinf(rank) else rank)
            for plan, step, rank in zip(
                other.plan.tolist(), other.step.tolist(), other.first_rank.tolist(), strict=True
            )
        }
        for place, (plan, step) in enumerate(
            zip(log.plan.tolist(), log.step.tolist(), strict=True)
        ):
            rank = others.get((log.plan_ids[plan], step), 0)
            badness[place] += 1 / rank if rank else 0
    probability = log.probabilities.max(axis=1, initial=0.0)
    order = np.lexsort((probability, -ranks, -badness))[:_WORST]
    return [_step(log, int(place), queries, others if other else None) for place in order]


def _step(
    log: RunLog,
    place: int,
    queries: Mapping[str, str],
    others: Mapping[tuple[str, int], int] | None,
) -> StepOfRun:
    plan, step = int(log.plan[place]), int(log.step[place])
    same = np.flatnonzero((log.plan == plan) & (log.step < step))
    history = [log.names[log.called[at]] for at in same[np.argsort(log.step[same])]]
    rank = log.first_rank[place]
    best = zip(log.head[place].tolist(), log.head_probabilities[place].tolist(), strict=True)
    name = log.plan_ids[plan]
    return StepOfRun(
        name,
        queries.get(name, ""),
        history,
        [log.names[at] for at in log.acceptable[place].tolist() if at >= 0],
        0 if np.isinf(rank) else int(rank),
        round(float(log.probabilities[place].max(initial=0.0)), 6),
        [RankedName(log.names[at], round(value, 6)) for at, value in best if at >= 0][:3],
        None if others is None else others.get((name, step)),
    )


def _sections(page: Page) -> list[LabSection]:
    sections = []
    for section in page.sections:
        blocks: list[LabBlock] = []
        for block in section.blocks:
            if isinstance(block, Text):
                blocks.append(LabBlock(block.text, [], [], [], ""))
            blocks += map(_table, tables_of(block))
        sections.append(LabSection(section.id, section.title, blocks))
    return sections


def _table(table: Table) -> LabBlock:
    return LabBlock(
        table.title,
        [column.title for column in table.columns],
        [column.numeric for column in table.columns],
        [[LabCell(cell.text, cell.best) for cell in row] for row in table.cells()],
        table.caption,
    )
