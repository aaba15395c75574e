"""What the blocks of dtdr-f are worth, and how it ranks after few demonstrations.

    python benchmarks/factored.py blocks  [--datasets tinyagent ...] [--without chain+parts ...]
    python benchmarks/factored.py sizes   [--sizes 100 300 1000] [--retriever NAME ...]
    python benchmarks/factored.py runs    --datasets tau_retail tau_airline livemcp
    python benchmarks/factored.py calibration --datasets tau_retail t_eval ...
    python benchmarks/factored.py --smoke

``blocks`` leaves out one block at a time, or several joined by ``+``, and ranks a validation
quarter of the training side, whole groups of TRAJECT-Bench. ``sizes`` learns from a part of the
training side and ranks the test side; nothing is chosen there. ``runs`` leaves out what dtdr-f
learns from runs of agents, in five folds that hold out whole tasks. It tests on all runs, failed
ones too, and only the call that the log made next is right. ``calibration`` compares how often the
best tool is right with its confidence: runs of agents in these folds, plans, where each acceptable
tool is right, on the test side.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate import compare, run
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_folds
from dtdr.evaluate.harness import run_before
from dtdr.evaluate.metrics import summary
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import calibration_error
from dtdr.evaluate.tables import Column, count, duration, share
from dtdr.predict import create
from dtdr.rankers.dtdr_f.blocks import BLOCKS
from dtdr.rankers.dtdr_f.run_tools import CallSequence
from printing import print_rows
from sets import load_sets, make_parser

_BLOCKS = {block.name: block for block in BLOCKS}


def validation(dataset: Dataset, split: Split) -> Split:
    """A quarter of the training side is held out; whole groups of it where it has groups."""
    names = {place: dataset.demonstrations[place].group or str(place) for place in split.train}
    distinct = sorted(set(names.values()))
    random.Random(1).shuffle(distinct)
    held = set(distinct[::4])
    sides: tuple[list[int], list[int]] = ([], [])
    for place, name in names.items():
        sides[name in held].append(place)
    return Split("validation", tuple(sides[0]), tuple(sides[1]))


def blocks(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per set and variant: MRR on the validation quarter."""
    for dataset, split in load_sets(given):
        quarter = validation(dataset, split)
        for names in ["", *given.without[: 1 if given.smoke else None]]:
            row = {"set": dataset.name, "variant": f"without {names}" if names else "default"}
            with ExitStack() as left_out:
                for name in filter(None, names.split("+")):
                    left_out.enter_context(patch.object(_BLOCKS[name], "start", lambda *_: None))
                yield row | _scores(run(create("dtdr-f"), dataset, quarter))


def sizes(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per size and ranker: MRR on the test side, compared with the first ranker."""
    for dataset, split in load_sets(given):
        order = list(split.train)
        random.Random(0).shuffle(order)
        for size in [40] if given.smoke else given.sizes:
            part = replace(split, train=tuple(sorted(order[:size])))
            logs = {name: run(create(name), dataset, part) for name in given.retriever}
            first = logs[given.retriever[0]]
            for name, log in logs.items():
                p = None if log is first else compare(first, log).p_value
                yield {"set": dataset.name, "size": size, "ranker": name, **_scores(log), "p": p}


@dataclass(frozen=True)
class _Variant:
    """One ranker, or dtdr-f without a part.

    Attributes:
        name: as printed.
        ranker: its name.
        patched: an object, its attribute, and what that is while the ranker learns and ranks.
        change: of what is learned from and tested on.
        learns: which demonstrations are learned from.
    """

    name: str
    ranker: str = "dtdr-f"
    patched: tuple[Any, str, Any] | None = None
    change: Callable[[Demonstration], Demonstration] = lambda item: item
    learns: Callable[[Demonstration], bool] = lambda _: True


def _without_texts(item: Demonstration) -> Demonstration:
    calls = tuple(replace(call, text=None) for call in item.plan.calls)
    return replace(item, plan=replace(item.plan, calls=calls))


WHOLE = _Variant("default")
FOREST = _Variant("the ranker forest", ranker="forest")
SUCCESSES = _Variant("without failed runs", learns=lambda item: item.outcome != "failure")
NO_STATE = _Variant("without state", patched=(_BLOCKS["state"], "start", lambda *_: None))
NO_RUN_TOOLS = _Variant("without the run's tools", patched=(CallSequence, "unknown", ()))
NO_TEXTS = _Variant("without texts", change=_without_texts)


_SURE = 0.95
"""Confidence from which a ranking counts as sure."""
_ENOUGH_CALLS = 0.1
"""Share of the calls that have a text, or are of a tool that one task alone calls, from which it is
measured what these are worth."""


def runs(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per set and variant; differences are those of the first line to each other one."""
    for dataset, _ in load_sets(given, smoke=40):
        items = dataset.demonstrations
        has_failures = any(item.outcome == "failure" for item in items)
        yield from _compare_variants(
            dataset, [WHOLE, FOREST, *[SUCCESSES] * has_failures, NO_STATE], given
        )
        if _share_of_rare_tools(items) >= _ENOUGH_CALLS and not given.smoke:
            unlisted = replace(dataset, name=f"{dataset.name}, no list", tools=())
            yield from _compare_variants(unlisted, [WHOLE, NO_RUN_TOOLS], given)
        if np.mean([bool(call.text) for item in items for call in item.plan.calls]) > _ENOUGH_CALLS:
            with_texts = replace(dataset, name=f"{dataset.name}, calls with text")
            yield from _compare_variants(with_texts, [WHOLE, NO_TEXTS], given, only_texts=True)


def _share_of_rare_tools(items: Sequence[Demonstration]) -> float:
    """Share of the calls that are of tools that one task alone calls."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for item in items:
        for tool in item.plan.tools:
            tasks[tool].add(item.group or item.id)
    return float(np.mean([len(tasks[tool]) == 1 for item in items for tool in item.plan.tools]))


def _compare_variants(
    dataset: Dataset,
    variants: Sequence[_Variant],
    given: argparse.Namespace,
    *,
    only_texts: bool = False,
) -> Iterator[dict[str, Any]]:
    """Log top-1 and MRR of each, and how far the first is ahead, with the standard error by task.

    With ``only_texts``, only the calls count before which the agent wrote a text, which is known.
    """
    items = dataset.demonstrations
    tasks = [item.group or item.id for item in items]
    succeeded = [item.outcome != "failure" for item in items]
    first: npt.NDArray[np.float64] | None = None
    for variant in variants[: 2 if given.smoke else None]:
        ranks: dict[int, list[float]] = {}
        for fold in group_folds(items, 2 if given.smoke else 5):
            with ExitStack() as patches:
                if variant.patched is not None:
                    patches.enter_context(patch.object(*variant.patched))
                ranks |= _ranks(variant, dataset, fold, only_texts=only_texts)
        owner = np.array([at for at in sorted(ranks) for _ in ranks[at]])
        reciprocal = 1 / np.array([rank for at in sorted(ranks) for rank in ranks[at]])
        scores = np.stack([reciprocal == 1, reciprocal]).astype(np.float64)
        row: dict[str, Any] = {
            "set": dataset.name,
            "variant": variant.name,
            "steps": len(owner),
        }
        row["scores"] = scores.mean(axis=1).tolist()
        row["succeeded"] = scores[:, np.array(succeeded)[owner]].mean(axis=1).tolist()
        if first is None:
            first = scores
        else:
            task = np.unique(np.array(tasks)[owner], return_inverse=True)[1]
            row["top1_lead"], row["mrr_lead"] = (
                _mean_and_error(difference, task) for difference in first - scores
            )
        yield row


def _ranks(
    variant: _Variant, dataset: Dataset, fold: Split, *, only_texts: bool
) -> dict[int, list[float]]:
    """By test run, the rank of the call that the log made next at each step."""
    items = dataset.demonstrations
    train = [variant.change(items[at]) for at in fold.train if variant.learns(items[at])]
    model = create(variant.ranker)
    model.fit(train, dataset.tools or None, arguments=False, plans=False)
    ranks = {}
    for at in fold.test:
        plan, item = items[at].plan, variant.change(items[at])
        steps = [*range(len(plan) + 1)]
        if only_texts:
            steps = [done for done in steps[:-1] if plan.calls[done].text]
        states = [run_before(item, done) for done in steps]
        if only_texts:
            for state, done in zip(states, steps, strict=True):
                state.text = item.plan.calls[done].text
        ranks[at] = [
            min(
                (ranking.tools.index(name) + 1.0 for name in wanted if name in ranking.tools),
                default=np.inf,
            )
            for ranking, wanted in zip(
                model.rank_batch(states),
                [plan.next_in_log(range(done)) for done in steps],
                strict=True,
            )
        ]
    return ranks


def calibration(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line per set: the calibration error of confidence, and what was said to be sure."""
    for dataset, split in load_sets(given, smoke=40):
        items = dataset.demonstrations
        is_of_agents = any(call.step is not None for item in items for call in item.plan.calls)
        said, right = [], []
        for part in group_folds(items, 5) if is_of_agents else [split]:
            model = create("dtdr-f")
            train = [items[at] for at in part.train]
            model.fit(train, dataset.tools or None, arguments=False, plans=False)
            for item in (items[at] for at in part.test):
                steps = range(len(item.plan) + 1)
                for done, ranking in enumerate(
                    model.rank_batch([run_before(item, done) for done in steps])
                ):
                    said.append(ranking.confidence)
                    right.append(ranking.best in item.plan.next_calls(range(done)))
        confidence, is_right = np.array(said), np.array(right, np.float64)
        sure = confidence >= _SURE
        yield {
            "set": dataset.name,
            "steps": len(said),
            "right": is_right.mean(),
            "said": confidence.mean(),
            "ece": calibration_error(confidence, is_right, bins=10),
            "sure": int(sure.sum()),
            "sure_right": is_right[sure].mean() if sure.any() else None,
        }


def _mean_and_error(
    values: npt.NDArray[np.float64], task: npt.NDArray[np.intp]
) -> tuple[float, float]:
    """The mean over all steps, and its standard error where steps of a task depend on each other.

    Both arguments have shape (steps,).
    """
    mean = values.mean()
    by_task = np.bincount(task, values - mean)
    return float(mean), float(np.sqrt((by_task**2).sum()) / len(values))


def _scores(log: RunLog) -> dict[str, Any]:
    scores = summary(log)
    return {"mrr": scores["mrr"], "top1": scores["top1"], "seconds": scores["fit_seconds"]}


def _show_scores(pair: Sequence[float]) -> str:
    return ", ".join(map(share, pair))


def _show_difference(pair: tuple[float, float]) -> str:
    return f"{pair[0]:+.3f} ± {pair[1]:.3f}"


FIGURES = [
    Column("MRR", "mrr", share, True),
    Column("Top-1", "top1", share, True),
    Column("Fit s", "seconds", duration, True),
]
MEASURES = {
    "blocks": (
        blocks,
        [Column("Set", "set"), Column("Variant", "variant"), *FIGURES],
        "A validation quarter of the training sides.",
    ),
    "sizes": (
        sizes,
        [
            Column("Set", "set"),
            Column("Demonstrations", "size", count, True),
            Column("Ranker", "ranker"),
            *FIGURES,
            Column("p", "p", lambda value: f"{value:.4f}", True),
        ],
        "The test side. p: paired permutation test over plans against the first ranker.",
    ),
    "runs": (
        runs,
        [
            Column("Set", "set"),
            Column("Variant", "variant"),
            Column("Steps", "steps", count, True),
            Column("Log top-1, MRR", "scores", _show_scores, True),
            Column("Succeeded", "succeeded", _show_scores, True),
            Column("Default's lead in top-1", "top1_lead", _show_difference, True),
            Column("In MRR", "mrr_lead", _show_difference, True),
        ],
        "Five folds by task, all runs. Succeeded: of successful runs alone. ±: by task.",
    ),
    "calibration": (
        calibration,
        [
            Column("Set", "set"),
            Column("Steps", "steps", count, True),
            Column("Right", "right", share, True),
            Column("Confidence", "said", share, True),
            Column("ECE", "ece", share, True),
            Column("Sure", "sure", count, True),
            Column("Right if sure", "sure_right", share, True),
        ],
        "ECE: calibration error of the confidence in ten bins. Sure: a confidence of 0.95 or more.",
    ),
}


def main() -> None:
    """Measure one claim, or a little of each."""
    parser = make_parser(__doc__, ["tinyagent"])
    parser.add_argument("claim", nargs="?", choices=list(MEASURES))
    parser.add_argument("--without", nargs="+", metavar="BLOCK+BLOCK", default=list(_BLOCKS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1_000])
    parser.add_argument("--retriever", nargs="+", default=["dtdr-f", "dtdr-l", "dtdr-c", "bm25"])
    given = parser.parse_args()
    if given.claim is None and not given.smoke:
        parser.error("name a claim, or give --smoke")
    if unknown := {*"+".join(given.without).split("+")} - _BLOCKS.keys():
        parser.error(f"no block is named {min(unknown)!r}; blocks: {', '.join(_BLOCKS)}")
    if given.smoke:
        given.retriever = ["dtdr-f", "dr"]
    for claim in [given.claim] if given.claim else MEASURES:
        measure, columns, caption = MEASURES[claim]
        print_rows(measure(given), columns, as_json=given.json, caption=caption)


if __name__ == "__main__":
    main()
