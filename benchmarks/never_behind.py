"""dtdr-f against simpler rankers on every set and fold: it must be behind none of them.

    python benchmarks/never_behind.py [--sets tinyagent chain-2-50 ...] [--data-dir DATA]
    python benchmarks/never_behind.py --smoke

Each set is divided into five folds, whole groups together. The reciprocal rank of the call that the
log made next is averaged over each plan, and the plans are compared in pairs: dtdr-f is behind if
it is worse by more than two standard errors of the difference. Then the program ends with code 1.
``chain-K-N`` is made up: N runs without a telling query whose next call hangs on the last K.
``NAME-silent`` is a set without its queries and messages, as logs of MCP servers are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError
from dtdr.evaluate import datasets
from dtdr.predict import create
from dtdr.rankers.folds import assign_folds

RIVALS: tuple[str, ...] = (
    "random",
    "markov-1",
    "markov-2",
    "dr",
    "dtdr-c",
    "dtdr-l",
    "lr",
    "bm25",
    "forest",
)
SETS = (
    *("tinyagent", "t_eval", "traject_bench", "tau_airline", "tau_retail", "livemcp"),
    *("tau_airline-silent", "tau_retail-silent", "livemcp-silent"),
    *("chain-1-50", "chain-1-200", "chain-2-50", "chain-2-200"),
)
_ERRORS = 2.0
_TOOLS, _LONGEST = 12, 25
_SILENT = "-silent"


def chain(order: int, runs: int, seed: int = 0) -> list[Demonstration]:
    """Runs of 12 tools; what follows the last calls is drawn once, unevenly."""
    rng = np.random.default_rng([order, seed])
    follows = rng.dirichlet(np.full(_TOOLS + 1, 0.25), size=(_TOOLS + 1,) * order)
    demonstrations: list[Demonstration] = []
    while len(demonstrations) < runs:
        calls: list[int] = []
        while len(calls) < _LONGEST:
            context = ([_TOOLS] * order + calls)[-order:]
            chosen = int(rng.choice(_TOOLS + 1, p=follows[tuple(context)]))
            if chosen == _TOOLS:
                break
            calls.append(chosen)
        if calls:
            made = tuple(ToolCall(str(at), f"tool_{c}", step=at) for at, c in enumerate(calls))
            demonstrations.append(Demonstration(str(len(demonstrations)), "-", Plan(made)))
    return demonstrations


def load(name: str, data_dir: Path | None) -> tuple[list[Demonstration], tuple[Tool, ...]]:
    """A set and its tools."""
    if name.startswith("chain-"):
        _, order, runs = name.split("-")
        return chain(int(order), int(runs)), ()
    dataset = datasets.load(name.removesuffix(_SILENT), data_dir=data_dir)
    kept = [item for item in dataset.demonstrations if item.outcome != "failure"]
    if name.endswith(_SILENT):
        kept = [replace(item, query="-", before=()) for item in kept]
    return kept, dataset.tools


def reciprocal_ranks(
    name: str,
    train: Sequence[Demonstration],
    test: Sequence[Demonstration],
    tools: Sequence[Tool],
) -> list[float]:
    """Of the call that the log made next, the mean over the steps of each plan."""
    model = create(name).fit(train, tools or None, arguments=False, plans=False)
    means = []
    for item in test:
        calls = item.plan.calls
        run = Run(item.query, item.before, calls)
        rankings = model.rank_batch([run.first(done) for done in range(len(calls) + 1)])
        ranks = []
        for ranking, wanted in zip(rankings, [*item.plan.tools, END], strict=True):
            is_known = wanted in ranking.tools
            ranks.append(1 / (1 + ranking.tools.index(wanted)) if is_known else 0.0)
        means.append(float(np.mean(ranks)))
    return means


def compare(
    name: str, rivals: Sequence[str], folds: int, data_dir: Path | None
) -> Iterator[tuple[str, float, float, float]]:
    """Each rival: the mean of dtdr-f, its own, and how many standard errors dtdr-f is ahead."""
    items, tools = load(name, data_dir)
    fold = assign_folds(items, folds=folds, seed=0)
    means: dict[str, list[float]] = {ranker: [] for ranker in ("dtdr-f", *rivals)}
    for number in range(int(fold.max()) + 1):
        train = [item for item, own in zip(items, fold, strict=True) if own != number]
        test = [item for item, own in zip(items, fold, strict=True) if own == number]
        for ranker in means:
            try:
                means[ranker] += reciprocal_ranks(ranker, train, test, tools)
            except DtdrError:  # a ranker that needs descriptions of tools
                means[ranker] += [0.0] * len(test)
    ours = np.array(means["dtdr-f"])
    for rival in rivals:
        above = ours - np.array(means[rival])
        error = float(above.std() / np.sqrt(len(above))) or 1e-9
        yield rival, float(ours.mean()), float(np.mean(means[rival])), float(above.mean()) / error


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a set and rival; exit with 1 if dtdr-f is behind one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a small made-up set only")
    given = parser.parse_args(arguments)
    sets, rivals, folds = given.sets, RIVALS, 5
    if given.smoke:
        sets, rivals, folds = ["chain-1-40"], ("random", "markov-1"), 2
    behind = False
    for name in sets:
        for rival, ours, theirs, errors in compare(name, rivals, folds, given.data_dir):
            verdict = "BEHIND" if errors < -_ERRORS else "ahead" if errors > _ERRORS else "even"
            behind |= errors < -_ERRORS
            line = f"{name:14} dtdr-f {ours:.3f}  {rival:9} {theirs:.3f}  {errors:+6.1f}  {verdict}"
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if behind:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
