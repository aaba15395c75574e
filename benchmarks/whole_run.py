"""What dtdr-f gains from the whole run: outputs, earlier turns, messages and the order of calls.

    python benchmarks/whole_run.py airline [--data-dir DATA] [--retriever dtdr-f]
    python benchmarks/whole_run.py --smoke

Ranks every step of tau-bench's airline runs in five folds by task. Only the call that the log made
next is right, the end of the plan included. Each row is compared with the first by a permutation
test paired by task.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.evaluate.harness import rank_after_calls
from dtdr.evaluate.statistics import paired_p_value
from dtdr.evaluate.tables import Column, count, share
from dtdr.predict import create
from printing import print_rows
from sets import load_sets, make_parser

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Telling:
    """How much of a run a model receives."""

    outputs: bool = True
    earlier: bool = True
    words: bool = True
    order: bool = True

    def of(self, item: Demonstration) -> Demonstration:
        """The demonstration with no more than that."""
        before = tuple(
            self._part(part) if isinstance(part, ToolCall) else part
            for part in item.before
            if (self.earlier if isinstance(part, ToolCall) else self.words)
        )
        calls = tuple(self._part(call) for call in item.plan.calls)
        return replace(item, before=before, plan=Plan(calls, item.plan.links, item.plan.earlier))

    def _part(self, call: ToolCall) -> ToolCall:
        # What a call depends on stays, whether or not the output that it uses is told.
        references = {str(at): {"$ref": name} for at, name in enumerate(call.references())}
        call = replace(call, arguments=references if not self.outputs else call.arguments)
        if not self.outputs:
            call = replace(call, output=None, status="unknown", output_length=None)
        return call if self.order else replace(call, step=None)


NAMES_ONLY = Telling(outputs=False, earlier=False, words=False, order=False)
TELLINGS = {
    "names only": NAMES_ONLY,
    "with the order": replace(NAMES_ONLY, order=True),
    "everything": Telling(),
    "without outputs": Telling(outputs=False),
    "without earlier turns' calls": Telling(earlier=False),
    "without what was said": Telling(words=False),
    "without the order": Telling(order=False),
}


@dataclass(frozen=True, slots=True)
class RankedStep:
    """One step: the group of its plan, the rank of the next call, and what came before."""

    group: str
    rank: int
    is_first: bool
    after_failure: bool


def rank_steps(given: argparse.Namespace, telling: Telling) -> list[RankedStep]:
    """The steps of every fold, ranked by a ranker that learned from the same parts of runs."""
    ((dataset, _),) = load_sets(given, smoke=60)
    groups = sorted({item.group for item in dataset.demonstrations})
    random.Random(given.seed).shuffle(groups)
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    steps = []
    for number in range(1 if given.smoke else FOLDS):
        known = [item for item in dataset.demonstrations if fold[item.group] != number]
        # A fit leaves failed runs out.
        train = [replace(telling.of(item), outcome="success") for item in known]
        model = create(given.retriever).fit(train, dataset.tools, arguments=False, plans=False)
        for whole in dataset.demonstrations:
            if fold[whole.group] != number:
                continue
            calls = whole.plan.calls
            reduced = telling.of(whole)
            states = [(reduced, done) for done in range(len(calls) + 1)]
            for done, ranking in enumerate(rank_after_calls(model, states)):
                wanted = (*whole.plan.tools, END)[done]
                tools = ranking.tools
                rank = 1 + tools.index(wanted) if wanted in tools else len(tools) + 1
                failed = done > 0 and calls[done - 1].status == "error"
                steps.append(RankedStep(whole.group, rank, not done, failed))
    return steps


def mean_of(steps: Sequence[RankedStep]) -> float | None:
    """Mean reciprocal rank; None without steps."""
    return statistics.fmean(1 / step.rank for step in steps) if steps else None


def by_group(steps: Sequence[RankedStep]) -> dict[str, float]:
    """The same of each group."""
    groups: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        groups[step.group].append(1 / step.rank)
    return {group: statistics.fmean(values) for group, values in groups.items()}


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each part of runs."""
    first: dict[str, float] = {}
    for told, telling in list(TELLINGS.items())[: 3 if given.smoke else None]:
        steps = rank_steps(given, telling)
        means = by_group(steps)
        yield {
            "told": told,
            "mrr": mean_of(steps),
            "top1": statistics.fmean(step.rank == 1 for step in steps),
            "first": mean_of([step for step in steps if step.is_first]),
            "failed": mean_of([step for step in steps if step.after_failure]),
            "steps": len(steps),
            "p": paired_p_value(first, means),
        }
        first = first or means


def main() -> None:
    """Print one table, or one JSON object a line with ``--json``."""
    parser = make_parser(__doc__, ["tau_airline"])
    parser.add_argument("claim", nargs="?", choices=["airline"])
    parser.add_argument("--retriever", default="dtdr-f")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    columns = [
        Column("Told", "told"),
        Column("MRR", "mrr", share, True),
        Column("Top-1", "top1", share, True),
        Column("First step", "first", share, True),
        Column("After a failed call", "failed", share, True),
        Column("Steps", "steps", count, True),
        Column("p", "p", lambda value: f"{value:.4f}", True),
    ]
    given = parser.parse_args()
    caption = "p: permutation test of the MRR, paired by task, against the first row."
    print_rows(measure(given), columns, as_json=given.json, caption=caption)


if __name__ == "__main__":
    main()
