"""What dtdr-f claims: the worth of its blocks, few demonstrations, updates, and new tools.

    python benchmarks/factored.py blocks  [--datasets tinyagent t_eval ...]
    python benchmarks/factored.py sizes   [--sizes 100 300 1000] [--retriever NAME ...]
    python benchmarks/factored.py few     [--runs FOLDER] [--against FOLDER]
    python benchmarks/factored.py update  [--share 0.3]
    python benchmarks/factored.py tools   [--trials 5]
    python benchmarks/factored.py --smoke

``blocks`` leaves out one block at a time and ranks a validation quarter of the training side. The
others learn from the training side and rank the test side; nothing is chosen there. ``few`` draws
10, 20 and 50 demonstrations five times; ``--runs`` keeps its run logs, and ``--against`` compares
with those that another version kept. Reads the published sets (--data-dir, DTDR_DATA_DIR), or the
bundled one where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate import datasets, metrics
from dtdr.evaluate.compare import compare
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, default_split, fixed_split
from dtdr.evaluate.harness import run
from dtdr.evaluate.run_log_file import read_run_log, write_run_log
from dtdr.evaluate.statistics import paired_p_value
from dtdr.evaluate.tables import Column, Table, count, duration, share
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers import NAMES
from dtdr.rankers.dtdr_f.blocks import BLOCKS

BY_SEQUENCE = "traject_bench by-sequence"
PUBLISHED = ["tinyagent", "t_eval", "ultratool", "traject_bench", BY_SEQUENCE]
VARIANTS = {"default": None, **{f"without {block.name}": block for block in BLOCKS}}
"""What is left out: a block that says nothing of any tool."""


def read(name: str, data_dir: Path | None) -> tuple[Dataset, Split]:
    """A set and its fixed split; the bundled set where a published one is not there."""
    folder, _, kind = name.partition(" ")
    try:
        dataset = datasets.load(folder, data_dir=data_dir)
    except InputError:
        dataset = datasets.load(datasets.BUNDLED)
        dataset = replace(dataset, demonstrations=dataset.demonstrations[:1_500])
        return dataset, default_split(dataset)
    if kind:
        return dataset, fixed_split(folder, data_dir, kind.replace("-", "_"))
    return dataset, default_split(dataset, data_dir)


def validation(dataset: Dataset, split: Split, *, grouped: bool) -> Split:
    """A quarter of the training side is held out, whole groups of it where ``grouped``."""
    names = [
        dataset.demonstrations[position].group if grouped else str(position)
        for position in split.train
    ]
    distinct = sorted(set(names))
    random.Random(1).shuffle(distinct)
    held = set(distinct[::4])
    sides: tuple[list[int], list[int]] = ([], [])
    for position, name in zip(split.train, names, strict=True):
        sides[name in held].append(position)
    return Split("validation", tuple(sides[0]), tuple(sides[1]))


def blocks(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a variant and set: MRR on the validation quarter."""
    for name in given.datasets:
        dataset, split = read(name, given.data_dir)
        split = validation(dataset, split, grouped=name == BY_SEQUENCE)
        for variant, silent in VARIANTS.items():
            if silent is None:
                log = run(create("dtdr-f"), dataset, split)
            else:
                with patch.object(silent, "start", lambda *_: None):
                    log = run(create("dtdr-f"), dataset, split)
            yield {"set": name, "variant": variant, **_scores(log)}


def sizes(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a size and retriever: MRR on the test side, and whether dtdr-f is ahead."""
    dataset, split = read(given.datasets[0], given.data_dir)
    order = list(split.train)
    random.Random(0).shuffle(order)
    for size in given.sizes:
        part = replace(split, train=tuple(sorted(order[:size])))
        own = run(create("dtdr-f"), dataset, part)
        yield {"size": size, "retriever": "dtdr-f", **_scores(own)}
        for name in given.retriever:
            other = run(create(name), dataset, part)
            found = compare(own, other)
            yield {"size": size, "retriever": name, **_scores(other), "p": found.p_value}


FEW = (10, 20, 50)
DRAWS = 5


def few(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a set and size: means over the draws, and the test of their difference."""
    for name in given.datasets:
        dataset, split = read(name, given.data_dir)
        for size in FEW:
            own: dict[str, float] = {}
            other: dict[str, float] = {}
            scores, its = [], []
            for draw in range(given.draws):
                drawn = random.Random(draw).sample(split.train, min(size, len(split.train)))
                part = replace(split, train=tuple(sorted(drawn)))
                log = run(create("dtdr-f"), dataset, part)
                file = f"{name}-{size}-{draw}.npz"
                if given.runs:
                    given.runs.mkdir(parents=True, exist_ok=True)
                    write_run_log(given.runs / file, log, force=True)
                scores.append(metrics.summary(log)["mrr"])
                _add_plans(own, log)
                if given.against:
                    before = read_run_log(given.against / file)
                    its.append(metrics.summary(before)["mrr"])
                    _add_plans(other, before)
            yield {
                "set": name,
                "size": size,
                "mrr": statistics.fmean(scores),
                "lowest": min(scores),
                "highest": max(scores),
                "before": statistics.fmean(its) if its else None,
                "p": paired_p_value(other, own) if its else None,
            }


def _add_plans(sums: dict[str, float], log: Any) -> None:
    """Add each plan's mean reciprocal rank to those of the other draws."""
    for plan, found in metrics.by_plan(log, "mrr").items():
        sums[plan] = sums.get(plan, 0.0) + found.value


def update(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Fit on a part, update with the rest, and refit on everything."""
    for name in given.datasets:
        dataset, split = read(name, given.data_dir)
        known, test = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
        cut = round(len(known) * (1 - given.share))
        fresh = known[cut:]

        def line(how: str, retriever: Model, seconds: float, learned: int) -> dict[str, Any]:
            return {
                "set": name,  # noqa: B023 - called in this round of the loop only
                "how": how,
                "mrr": _mrr(retriever, test),  # noqa: B023
                "ms": seconds * 1e3 / learned,
            }

        started = time.perf_counter()
        part: Any = create("dtdr-f").fit(known[:cut], dataset.tools)
        yield line("fit on a part", part, time.perf_counter() - started, cut)
        started = time.perf_counter()
        part.update(fresh)
        yield line("updated", part, time.perf_counter() - started, len(fresh))
        started = time.perf_counter()
        whole = create("dtdr-f").fit(known, dataset.tools)
        yield line("fit on everything", whole, time.perf_counter() - started, len(known))


def new_tools(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Hide every demonstration of three tools, then add the tools by their descriptions only."""
    dataset, split = read(given.datasets[0], given.data_dir)
    known, test = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
    names = sorted({tool for item in known for tool in item.plan.tools})
    draw = random.Random(given.seed)
    trials: list[set[str]] = []
    while len(trials) < given.trials:
        hidden = set(draw.sample(names, 3))
        if hidden not in trials:
            trials.append(hidden)
    for hidden in trials:
        rest = [item for item in known if not hidden & set(item.plan.tools)]
        described = [tool for tool in dataset.tools if tool.name not in hidden]
        own: Any = create("dtdr-f").fit(rest, described)
        _, before = _hidden(own, test, hidden)
        row: dict[str, Any] = {"hidden": ", ".join(sorted(hidden)), "plans": len(rest)}
        for name in ("bm25", "qts"):
            row[name], _ = _hidden(create(name).fit(rest, dataset.tools), test, hidden)
        own.add_tools([tool for tool in dataset.tools if tool.name in hidden])
        row["recall"], after = _hidden(own, test, hidden)
        yield {**row, "before": before, "change": after - before}


def _hidden(
    retriever: Model, test: Sequence[Demonstration], hidden: set[str]
) -> tuple[float, float]:
    """Recall@5 of hidden tools where they are acceptable, and MRR on all other steps."""
    recalls, ranks = [], []
    for item in test:
        for step in item.plan.steps():
            ranking = retriever.rank(item.query, step.history)
            wanted = step.acceptable & hidden
            if wanted:
                recalls.append(len(wanted & set(ranking.tools[:5])) / len(wanted))
            else:
                ranks.append(_reciprocal(ranking.tools, step.acceptable))
    return statistics.fmean(recalls), statistics.fmean(ranks)


def _reciprocal(tools: Sequence[str], acceptable: frozenset[str]) -> float:
    return next((1 / place for place, tool in enumerate(tools, 1) if tool in acceptable), 0.0)


def _mrr(retriever: Model, test: Sequence[Demonstration]) -> float:
    return statistics.fmean(
        _reciprocal(retriever.rank(item.query, step.history).tools, step.acceptable)
        for item in test
        for step in item.plan.steps()
    )


def _scores(log: Any) -> dict[str, Any]:
    found = metrics.summary(log)
    return {"mrr": found["mrr"], "top1": found["top1"], "seconds": found["fit_seconds"]}


def _signed(value: Any) -> str:
    return f"{value:+.3f}"


def _or_nothing(digits: int) -> Any:
    return lambda value: "" if value is None else f"{value:.{digits}f}"


MEASURES = {
    "blocks": blocks,
    "sizes": sizes,
    "few": few,
    "update": update,
    "tools": new_tools,
}
MRR = Column("MRR", "mrr", share, True)
COLUMNS = {
    "blocks": [
        Column("Set", "set"),
        Column("Variant", "variant"),
        MRR,
        Column("Top-1", "top1", share, True),
        Column("Fit s", "seconds", duration, True),
    ],
    "sizes": [
        Column("Demonstrations", "size", count, True),
        Column("Retriever", "retriever"),
        MRR,
        Column("Top-1", "top1", share, True),
        Column("p", "p", lambda value: f"{value:.4f}", True),
        Column("Fit s", "seconds", duration, True),
    ],
    "few": [
        Column("Set", "set"),
        Column("Demonstrations", "size", count, True),
        MRR,
        Column("Lowest", "lowest", share, True),
        Column("Highest", "highest", share, True),
        Column("Before", "before", _or_nothing(3), True),
        Column("p", "p", _or_nothing(4), True),
    ],
    "update": [
        Column("Set", "set"),
        Column("How", "how"),
        MRR,
        Column("ms a demonstration", "ms", lambda value: f"{value:.1f}", True),
    ],
    "tools": [
        Column("Hidden", "hidden"),
        Column("Plans", "plans", count, True),
        Column("dtdr-f", "recall", share, True),
        Column("bm25", "bm25", share, True),
        Column("qts", "qts", share, True),
        Column("Change", "change", _signed, True),
    ],
}
TITLES = {
    "blocks": (
        "What the blocks of dtdr-f are worth",
        "A validation quarter of the training sides.",
    ),
    "sizes": (
        "Few demonstrations: the test side",
        "p: two-sided paired permutation test over plans against dtdr-f, not corrected.",
    ),
    "few": (
        "Very few demonstrations: the test side, means over the draws",
        "p: two-sided paired permutation test over plans, of their means over the draws.",
    ),
    "update": ("Learning on: the test side", "Time is for fitting or updating, not for ranking."),
    "tools": (
        "New tools: recall@5 where a hidden tool is acceptable",
        "Change: of dtdr-f's MRR on all other steps.",
    ),
}


def main() -> None:
    """Measure one claim, or a little of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("claim", nargs="?", choices=list(MEASURES))
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=", ".join(PUBLISHED))
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("DTDR_DATA_DIR"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1_000])
    others = [name for name in NAMES if name not in ("less-is-more", "dtdr-f")]
    parser.add_argument("--retriever", nargs="+", default=others)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of demonstrations, for few")
    parser.add_argument("--runs", type=Path, help="keep the run logs of few there")
    parser.add_argument("--against", type=Path, help="run logs of few to compare with")
    parser.add_argument("--share", type=float, default=0.3, help="of the plans that come later")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    if given.claim is None and not given.smoke:
        parser.error("name a claim, or give --smoke")
    if given.smoke:
        _shrink(given)
    usual = {"blocks": PUBLISHED, "few": PUBLISHED[:2]}.get(given.claim, PUBLISHED[:1])
    given.datasets = given.datasets or usual
    for claim in [given.claim] if given.claim else MEASURES:
        rows = []
        for row in MEASURES[claim](given):
            rows.append(row)
            if given.json:
                print(json.dumps(row), flush=True)
        if not given.json:
            table = Table(COLUMNS[claim], rows, *TITLES[claim])
            Console(width=100).print(table.to_rich())


def _shrink(given: argparse.Namespace) -> None:
    """Little enough for a check that the benchmark runs."""
    bundled = datasets.load(datasets.BUNDLED)
    small = replace(bundled, demonstrations=bundled.demonstrations[:120])
    given.datasets, given.sizes, given.retriever, given.trials = ["tiny"], [40], ["dr"], 1
    given.draws = 2
    globals()["FEW"] = (20,)
    for name in list(VARIANTS)[2:]:
        del VARIANTS[name]
    globals()["read"] = lambda *_: (small, default_split(small))


if __name__ == "__main__":
    main()
