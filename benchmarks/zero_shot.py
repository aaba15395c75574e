"""How well are tools ranked without a demonstration, and with which weights?

    python benchmarks/zero_shot.py [--datasets t_eval livemcp ...] [--data-dir DATA] [--runs 120]
    python benchmarks/zero_shot.py --curve 0 1 3 10 30 100 300
    python benchmarks/zero_shot.py --speed
    python benchmarks/zero_shot.py --train
    python benchmarks/zero_shot.py --smoke

Each set is ranked with weights that were learned on the others. The reciprocal rank is that of the
tool that the log called next, given that one is called; equal scores share the mean of their ranks.
Means are over runs. ``--curve`` ranks held-out groups with models of this many demonstrations
each. ``--speed`` times new queries and steps with 50, 500 and 5,000 tools: those of all sets, the
same under other names where they do not suffice. ``--train`` writes the weights of all sets into
the package.

Learned on: T-Eval (Apache-2.0), UltraTool, TRAJECT-Bench, TinyAgent's example bank, tau-bench (MIT)
and LiveMCPBench (Apache-2.0). The weights are numbers about features that know no tool; no text of
these sets is in them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

import dtdr.rankers.zero_shot as package
from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.source import Dataset
from dtdr.evaluate.datasets.splits import group_split
from dtdr.evaluate.harness import run_before
from dtdr.predict import create
from dtdr.predict.model import END_TOOL, Model
from dtdr.rankers.calibration import fit_isotonic
from dtdr.rankers.vectors import rule_out_end, softmax
from dtdr.rankers.zero_shot.features import END_FEATURES, FEATURES, RunProgress
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.rankers.zero_shot.scorer import Weights, ZeroShotState, shipped_weights

PLANS = dict.fromkeys(("t_eval", "ultratool", "traject_bench", "tinyagent"), 1.0)
RUNS = {"livemcp": 1.0, "tau_airline": 0.5, "tau_retail": 0.5}
"""Sets of plans and of agents' runs, with their weights; the two of tau-bench count as one."""
RIVALS = ("bm25", "qts", "tgr")
_SHARED, _OWN = 1e-3, 1e-2
"""How strongly weights of all runs are drawn to 0, and those of a kind of runs to these."""
_PLAN_SHARES = (0.8, 0.1)
"""Of a first query and of a later turn: of eight pairs, the best mean MRR of all sets."""
_QUANTILES, _POINTS, _STEPS, _FAMILIAR = 19, 6, 150, 0.02
_HELD = 60
"""Held-out runs of a curve."""
_NOTHING = np.array([0.0, 1.0])
_NO_WEIGHTS = Weights(
    np.zeros((2, len(FEATURES))),
    np.zeros((2, len(END_FEATURES))),
    np.array(_PLAN_SHARES),
    _NOTHING,
    np.stack([_NOTHING, _NOTHING]),
    np.zeros(1),
)
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """The steps of some runs of a set.

    Attributes:
        dataset: with these runs as its demonstrations.
        model: of its tools.
        features: shape (calls, n, features).
        wanted: shape (calls,): the tool that was called.
        end: shape (steps, end features), of the steps after a call.
        is_end: shape (steps,): whether the run ended there.
    """

    dataset: Dataset
    model: ZeroShotModel
    features: npt.NDArray[np.float32]
    wanted: npt.NDArray[np.intp]
    end: Array
    is_end: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, dataset: Dataset) -> Steps:
        """Read the features of every step."""
        model = zero_shot_model(dataset, _NO_WEIGHTS)
        features, wanted, end, is_end = [], [], [], []
        for item in dataset.demonstrations:
            progress = RunProgress.start(model.prepare(item.query, item.before))
            for tool in map(model.index.__getitem__, item.plan.tools):
                features.append(progress.features().T)
                wanted.append(tool)
                progress = progress.call(tool)
                end.append(progress.end_features())
                is_end.append(progress.calls == len(item.plan))
        rows = np.array(features, np.float32), np.array(wanted), np.array(end, np.float64)
        return cls(dataset, model, *rows, np.array(is_end))


def load(names: Sequence[str], data_dir: Path | None, runs: int) -> Iterator[Dataset]:
    """Each set with some of its runs, drawn at random; runs that failed count, plans do not."""
    for name in names:
        try:
            dataset = datasets.load(name, data_dir=data_dir)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        usable = [item for item in dataset.demonstrations if item.plan.calls]
        random.Random(0).shuffle(usable)
        yield replace(dataset, demonstrations=usable[:runs])


def zero_shot_model(dataset: Dataset, weights: Weights | None = None) -> ZeroShotModel:
    """The model of a set's tools."""
    tools = sorted(dataset.tools, key=lambda tool: tool.name)
    return ZeroShotModel((*tools, END_TOOL), weights)


def fit_tools(
    sets: Sequence[tuple[Steps, float]], decay: float, start: Array, scale: Array
) -> Array:
    """Weights of the features by which the tools that were called are likeliest.

    Args:
        sets: with the weight of each.
        decay: how strongly weights are drawn to where they start.
        start: shape (features,).
        scale: shape (features,): of each feature.
    """
    total = sum(weight for _, weight in sets)

    def loss(weights: Array) -> tuple[float, Array]:
        away = weights - start * scale
        value, gradient = decay * float(away @ away), 2 * decay * away
        for steps, weight in sets:
            rows = np.arange(len(steps.wanted))
            chances = softmax(
                (steps.features @ (weights / scale).astype(np.float32)).astype(np.float64)
            )
            share = weight / total / len(rows)
            value -= share * float(np.log(chances[rows, steps.wanted] + 1e-12).sum())
            chances[rows, steps.wanted] -= 1
            slope = chances.ravel() @ steps.features.reshape(chances.size, -1)
            gradient += share * slope / scale
        return value, gradient

    options = {"maxiter": 60}
    best: Array = minimize(loss, start * scale, jac=True, method="L-BFGS-B", options=options).x
    return best / scale


def fit_end(sets: Sequence[tuple[Steps, float]]) -> Array:
    """Weights of the log odds that a run ends, by logistic regression."""
    inputs = np.concatenate([steps.end for steps, _ in sets])
    ends = np.concatenate([steps.is_end for steps, _ in sets])
    counts = np.concatenate([np.full(len(s.is_end), w / len(s.is_end)) for s, w in sets])

    def loss(weights: Array) -> tuple[float, Array]:
        logits = inputs @ weights
        value = float((counts * (np.logaddexp(0, logits) - ends * logits)).sum())
        error = counts * (1 / (1 + np.exp(-logits)) - ends)
        return value + 1e-3 * float(weights @ weights), inputs.T @ error + 2e-3 * weights

    start = np.zeros(inputs.shape[1])
    best: Array = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return best


def learn(sets: dict[str, Steps]) -> Weights:
    """Weights of some sets, without calibration."""
    width = len(FEATURES)
    kinds = [
        [(sets[name], weight) for name, weight in kind.items() if name in sets]
        for kind in (PLANS, RUNS)
    ]
    known = [kind for kind in kinds if kind]
    squares = [np.square(steps.features).mean(axis=(0, 1)) for steps in sets.values()]
    scale = np.sqrt(np.mean(squares, axis=0)) + 1e-3
    shared = fit_tools([pair for kind in known for pair in kind], _SHARED, np.zeros(width), scale)
    tools = [fit_tools(kind or known[0], _OWN, shared, scale) for kind in kinds]
    end = [fit_end(kind or known[0]) for kind in kinds]
    return replace(_NO_WEIGHTS, tools=np.array(tools), end=np.array(end))


def rank(steps: Steps, weights: Weights) -> Iterator[tuple[Demonstration, list[Array]]]:
    """Each run, and the probabilities before each of its calls and after the last."""
    model = zero_shot_model(steps.dataset, weights)
    for item in steps.dataset.demonstrations:
        state = ZeroShotState(partial(model.prepare, item.query, item.before), weights)
        rows = [state.probabilities()]
        rule_out_end(rows[0])
        for name in item.plan.tools:
            state = state.call(model.index[name])
            rows.append(state.probabilities())
        yield item, rows


def mean_rank(scores: Array, wanted: int) -> float:
    """The rank of a tool; equal scores share the mean of their ranks."""
    equal = float(np.count_nonzero(scores == scores[wanted]))
    return 1 + float(np.count_nonzero(scores > scores[wanted])) + (equal - 1) / 2


def score(ranks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """MRR and the share of ranks up to 5, means over runs."""
    both = [(np.mean([1 / r for r in own]), np.mean([r <= 5 for r in own])) for own in ranks if own]
    mrr, five = np.mean(both, axis=0)
    return float(mrr), float(five)


def rival_ranks(name: str, dataset: Dataset) -> list[list[float]]:
    """The ranks of a rival that reads descriptions; tools that it cannot tell apart are equal."""
    first = dataset.demonstrations[:1]
    model = create(name).fit(first, dataset.tools)
    ranks = []
    for item in dataset.demonstrations:
        scores = model.rank(item.query)._probabilities[:-1]
        places = [mean_rank(scores, model.index(tool)) for tool in item.plan.tools]
        ranks.append(places)
    return ranks


@dataclass(frozen=True)
class Row:
    """What was measured of a ranker on a set.

    Attributes:
        drawn: shape (steps, 3): the probability of the best acceptable tool,
            that of the best tool, and whether this was acceptable.
    """

    dataset: str
    ranker: str
    mrr: float
    five: float
    drawn: Array


def calibrate(weights: Weights, drawn: dict[str, Array], known: dict[str, Array]) -> Weights:
    """With quantiles and confidence on sets that the weights were not learned on.

    Args:
        weights: of all sets.
        drawn: of each set, by weights of the others; see ``Row``.
        known: of each set, the share of known words of its queries.
    """
    rng = np.random.default_rng(0)
    rows = np.concatenate([own[rng.choice(len(own), _STEPS)] for own in drawn.values()])
    quantiles = np.quantile(rows[:, 0], np.arange(1, _QUANTILES + 1) / (_QUANTILES + 1))
    parts = np.array_split(rows[rows[:, 1].argsort()], _POINTS)
    points = fit_isotonic(*np.array([part[:, 1:].mean(axis=0) for part in parts]).T)
    familiarity = np.array(
        [min(np.quantile(shares, _FAMILIAR) for shares in known.values() if len(shares) > 1)]
    )
    return replace(weights, quantiles=quantiles, confidence=points, familiarity=familiarity)


def known_shares(steps: Steps) -> Array:
    """Shares of known words of the first queries of conversations."""
    first = [item.query for item in steps.dataset.demonstrations if not item.before]
    return np.array([steps.model.prepare(query).known for query in first])


def write(weights: Weights) -> Path:
    """The weights as JSON in the package, rounded."""
    record = {name: np.round(value, 3).tolist() for name, value in vars(weights).items()}
    path = Path(package.__file__).with_name("weights.json")
    path.write_text(json.dumps(record, separators=(",", ":")) + "\n", "utf-8")
    return path


def measure(name: str, steps: dict[str, Steps], rivals: Sequence[str]) -> Iterator[Row]:
    """A row for each ranker of a set; what calibration needs of the first."""
    own = steps[name]
    others = {other: rows for other, rows in steps.items() if other != name}
    weights = learn(others) if others else shipped_weights()
    ranks, drawn = [], []
    for item, rows in rank(own, weights):
        tools = [own.model.index[tool] for tool in item.plan.tools]
        ranks.append([mean_rank(row[:-1], at) for row, at in zip(rows, tools, strict=False)])
        for done, row in enumerate(rows):
            right = item.plan.acceptable_next(range(done))
            places = [own.model.index[tool] for tool in right]
            drawn.append((row[places].max(), row.max(), float(row.argmax() in places)))
    yield Row(name, "zero-shot", *score(ranks), np.array(drawn))
    is_described = any(tool.description for tool in own.dataset.tools)
    for rival in rivals if is_described else ():
        yield Row(name, rival, *score(rival_ranks(rival, own.dataset)), np.empty(0))


CURVE = ("dtdr-f", "dtdr-l", "forest")
STATIC: dict[str, dict[str, str]] = {"bm25": {}, "qts": {}, "qts minilm": {"encoder": "minilm"}}
"""Rankers by number of demonstrations, and those that learn nothing."""


def ranks_of(model: Model, runs: Sequence[Demonstration]) -> list[list[float]]:
    """The ranks of the tools that the log called next, the end of plan set aside."""
    ranks = []
    for item in runs:
        steps = [run_before(item, done) for done in range(len(item.plan))]
        rows = []
        for ranking, tool in zip(model.rank_batch(steps), item.plan.tools, strict=True):
            scores = {name: score for name, score in ranking if name != END}
            scores.setdefault(tool, 0.0)
            rows.append(mean_rank(np.array(list(scores.values())), [*scores].index(tool)))
        ranks.append(rows)
    return ranks


def curve(name: str, dataset: Dataset, weights: Weights, sizes: Sequence[int]) -> Iterator[str]:
    """A line for each ranker: MRR by number of demonstrations.

    Args:
        name: of the set.
        dataset: all of it.
        weights: learned on the other sets.
        sizes: numbers of demonstrations.
    """
    split = group_split(dataset.demonstrations, seed=0)
    runs = [item for item in split.testing(dataset.demonstrations) if item.plan.calls]
    held = random.Random(0).sample(runs, min(_HELD, len(runs)))
    known = split.training(dataset.demonstrations)
    random.Random(1).shuffle(known)
    for ranker, keywords in STATIC.items():
        try:
            model = create(ranker.partition(" ")[0], **keywords).fit(known[:1], dataset.tools)
        except DtdrError:  # tools without descriptions
            continue
        yield f"{name:14} {ranker:10} {score(ranks_of(model, held))[0]:.3f}"
    for ranker in CURVE:
        values = []
        for size in sizes:
            if size > len(known) or (not size and ranker != "dtdr-f"):
                values.append("    -")
                continue
            with patch("dtdr.rankers.zero_shot.model.shipped_weights", lambda: weights):
                model = create(ranker).fit(
                    known[:size], dataset.tools, arguments=False, plans=False
                )
            values.append(f"{score(ranks_of(model, held))[0]:5.3f}")
        yield f"{name:14} {ranker:10} {' '.join(values)}"


def time_ranking(sets: Sequence[Dataset], count: int) -> tuple[float, float]:
    """Median milliseconds of the processor for a new query and for a step, with so many tools."""
    tools = [tool for dataset in sets for tool in dataset.tools]
    copies = range(-(-count // len(tools)))
    named = [replace(tool, name=f"{tool.name}_{copy}") for copy in copies for tool in tools]
    distinct = list({tool.name: tool for tool in named}.values())[:count]
    model = Model.of(distinct)
    queries, steps = [], []
    for demonstration in sets[0].demonstrations[: _HELD * 5]:
        started = time.process_time()
        session = model.session(demonstration.query)
        session.rank()
        asked = time.process_time()
        session.call(distinct[0].name).rank()
        queries.append(1e3 * (asked - started))
        steps.append(1e3 * (time.process_time() - asked))
    return statistics.median(queries), statistics.median(steps)


def main() -> None:
    """Print a line a set and ranker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--datasets", nargs="+", default=[*PLANS, *RUNS], metavar="NAME")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="sets of the curve")
    parser.add_argument("--runs", type=int, default=120, help="runs of each set")
    parser.add_argument("--rivals", nargs="*", default=RIVALS, metavar="NAME")
    parser.add_argument("--curve", nargs="+", type=int, metavar="N", help="by demonstrations")
    parser.add_argument("--speed", action="store_true", help="time queries and steps")
    parser.add_argument("--train", action="store_true", help="write the weights of the package")
    parser.add_argument("--smoke", action="store_true", help="the bundled set only; seconds")
    given = parser.parse_args()
    names, runs = given.datasets, given.runs
    if given.smoke:
        names, runs = [datasets.BUNDLED], 40
    if given.speed:
        sets = list(load(names, given.data_dir, runs))
        for count in (50, 500, 5_000):
            query, step = time_ranking(sets, count)
            print(f"{count:5} tools: new query {query:.2f} ms, step {step:.2f} ms", flush=True)
        return
    steps = {item.name: Steps.of(item) for item in load(names, given.data_dir, runs)}
    if given.curve:
        for name in given.only or steps:
            others = {other: rows for other, rows in steps.items() if other != name}
            learned = learn(others)
            weights = replace(shipped_weights(), tools=learned.tools, end=learned.end)
            dataset = datasets.load(name, data_dir=given.data_dir)
            for line in curve(name, dataset, weights, given.curve):
                print(line, flush=True)
        return
    drawn = {}
    for name in steps:
        for row in measure(name, steps, () if given.train else given.rivals):
            print(f"{name:14} {row.ranker:10} {row.mrr:.3f} {row.five:.3f}", flush=True)
            if row.ranker == "zero-shot":
                drawn[name] = row.drawn
    if given.train:
        known = {name: known_shares(own) for name, own in steps.items()}
        path = write(calibrate(learn(steps), drawn, known))
        print(f"wrote {path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
