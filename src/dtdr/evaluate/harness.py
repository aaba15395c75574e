"""Fit a model on one side of a split, rank every step of the other, and log it."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.progress import track
from dtdr.data.run import Run, as_run
from dtdr.errors import InputError
from dtdr.evaluate.plan_accuracy import PlanScores, score_plans
from dtdr.evaluate.run_log import RunHeader, RunLog, RunLogBuilder
from dtdr.predict.model import Model
from dtdr.rankers.base import IncrementalRanker
from dtdr.rankers.model_folder import versions
from dtdr.rankers.ranking import Ranking

if TYPE_CHECKING:
    from dtdr.evaluate.datasets import Dataset
    from dtdr.evaluate.datasets.splits import Split

STEPS_AT_ONCE = 4_096
"""Steps ranked in one batch: 32 MB of probabilities for 1,000 tools."""

TIMED_PLANS = 30
"""Plans whose sessions are timed: over 100 steps on every published set, so that the median moves
by a few per cent between runs, while a neural encoder encodes only 30 queries more."""

Step = tuple[Demonstration, int]
"""A demonstration, and how many of its calls were made before."""


def run(
    model: Model,
    dataset: Dataset,
    *splits: Split,
    plan_scores: list[PlanScores] | None = None,
) -> RunLog:
    """Fit on the train side, then rank every step of the test side teacher-forced.

    The history of each step is the plan's own calls, and the last step of each plan accepts the
    end of plan only. A model that ``uses_calls`` receives what the agent knew at the step: the
    arguments and outputs of calls, and what came before the query. Runs whose outcome is a failure
    are not tested either.

    Of several splits, such as folds, the log has the steps of all test sides, which must not share
    a demonstration. The time of fitting is the sum.

    Args:
        model: fitted again for each split.
        dataset: demonstrations and tools.
        splits: positions of the demonstrations on each side.
        plan_scores: if given, the model learns arguments and whole plans too; how many of them
            are right is appended, one item for each split.

    Raises:
        InputError: a side of a split is empty, or the data cannot be learned from.
    """
    sides = [_sides(dataset, split) for split in splits]
    is_one = len(splits) == 1
    has_plans = plan_scores is not None
    known = {tool.name for tool in dataset.tools} | _tools_of_runs(dataset.demonstrations)
    tools: tuple[str, ...] = (*sorted(known - {END}), END)
    builder: RunLogBuilder | None = None
    seconds, times = 0.0, []
    for train, test in sides:
        started = time.perf_counter()
        model.fit(train, dataset.tools or None, arguments=has_plans, plans=has_plans)
        seconds += time.perf_counter() - started
        if is_one:
            tools = _ranked_tools(model, test)
        builder = builder or RunLogBuilder(tools)
        _log_steps(model, test, builder, tools_called(train))
        times.append(rank_microseconds_median(model, test))
        if plan_scores is not None:
            plan_scores.append(score_plans(model, test))
    assert builder is not None
    hashes = [split_sha256(*pair) for pair in sides]
    about = {
        "name": splits[0].name if is_one else f"{len(splits)}-folds",
        "sha256": hashes[0] if is_one else _sha256(hashes),
        "train": round(statistics.mean(len(train) for train, _ in sides)),
        "test": sum(len(test) for _, test in sides),
    }
    header = _header(model, dataset, about, seconds, statistics.median(times))
    return builder.build(replace(header, tools=tools))


def score_model(
    model: Model,
    dataset: Dataset,
    report: Callable[[int], None] | None = None,
    *,
    train: Iterable[DemonstrationLike] | None = None,
    history: int | None = None,
) -> RunLog:
    """Rank every step of all demonstrations with a model as it is, teacher-forced as in ``run``.

    Args:
        model: fitted; it should not have learned from these demonstrations.
        dataset: what is tested; runs that failed are left out.
        report: receives the number of ranked steps.
        train: what the model learned from, if that is known.
        history: if given, the model receives the names of that many last calls and no more.

    Raises:
        InputError: no demonstration is left, or the model knows none of the tools that they call.
    """
    test = [item for item in dataset.demonstrations if item.outcome != "failure"]
    called = tools_called(test)
    if not test:
        raise InputError(f"{dataset.name} has no run that succeeded; give others")
    if called and called.isdisjoint(model.vocabulary):
        raise InputError(
            f"the model knows none of the tools that {dataset.name} calls; give runs "
            "of the agent that it learned from"
        )
    learned: Collection[str] = model.vocabulary
    training = list(as_demonstrations(train or ()))
    if train is not None:
        learned = tools_called(training)
    elif isinstance(model.ranker, IncrementalRanker):
        learned = {tool for plan in model.ranker.demonstrated_plans() for tool in plan.tools}
    about = {
        "name": "all",
        "sha256": split_sha256(training, test),
        "train": model.training_.demonstrations if train is None else len(training),
        "test": len(test),
    }
    builder = RunLogBuilder(_ranked_tools(model, test))
    _log_steps(model, test, builder, learned, report, history)
    median = rank_microseconds_median(model, test)
    return builder.build(_header(model, dataset, about, 0.0, median))


def tools_called(demonstrations: Iterable[Demonstration]) -> set[str]:
    """Names of the tools that demonstrations call."""
    return {tool for item in demonstrations for tool in item.plan.tools}


def _tools_of_runs(demonstrations: Sequence[Demonstration]) -> set[str]:
    """Names of the tools that demonstrations call, in earlier turns too."""
    before = (item for run in demonstrations for item in run.before)
    earlier = {item.tool for item in before if isinstance(item, ToolCall)}
    return tools_called(demonstrations) | earlier


def _ranked_tools(model: Model, test: Sequence[Demonstration]) -> tuple[str, ...]:
    """The vocabulary, and the tools of these runs that it lacks, which their rankings may have."""
    vocabulary = model.vocabulary
    return (*vocabulary[:-1], *sorted(_tools_of_runs(test).difference(vocabulary)), END)


def _sides(dataset: Dataset, split: Split) -> tuple[list[Demonstration], list[Demonstration]]:
    """Demonstrations to learn from, and those to test on."""
    train = split.training(dataset.demonstrations)
    test = [item for item in split.testing(dataset.demonstrations) if item.outcome != "failure"]
    for side, members in (("train", train), ("test", test)):
        if not members:
            raise InputError(
                f"split {split.name!r} leaves nothing on its {side} side; give more demonstrations "
                "or another split"
            )
    return train, test


def _header(
    model: Model, dataset: Dataset, split: dict[str, Any], fit_seconds: float, median: float
) -> RunHeader:
    return RunHeader(
        dataset=dataset.name,
        synthetic=dataset.synthetic,
        split=split,
        ranker=model.name,
        encoder=None if model.ranker.encoder is None else model.ranker.encoder.config(),
        parameters=model.parameters(),
        seed=model.seed,
        training_data=vars(model.training_),
        versions=versions(),
        tools=model.vocabulary,
        fit_seconds=fit_seconds,
        rank_microseconds_median=median,
    )


def split_sha256(train: Sequence[Demonstration], test: Sequence[Demonstration]) -> str:
    """Hash of which demonstrations, by id and in order, are on which side."""
    return _sha256([[demonstration.id for demonstration in side] for side in (train, test)])


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def rank_microseconds_median(model: Model, demonstrations: Sequence[Demonstration]) -> float:
    """Median time of a session to rank its next step and sort the tools, in microseconds.

    What an agent waits for after each call: the query is encoded already, and the code is warm.
    """
    sample = random.Random(0).sample(demonstrations, min(TIMED_PLANS, len(demonstrations)))
    times: list[float] = []
    for demonstration in sample:
        session = model.session(demonstration.query, before=demonstration.before)
        for call in (*demonstration.plan.calls, None):
            _ = session.rank().order
            started = time.perf_counter()
            _ = session.rank().order
            times.append(time.perf_counter() - started)
            if call is not None:
                session.call(call)
    return statistics.median(times) * 1e6


def run_before(item: Demonstration, done: int, history: int | None = None) -> Run:
    """The run as the agent knew it before call ``done``, counted from 0.

    Of calls of one step, none had returned when the others were made.

    Args:
        item: the demonstration.
        done: how many calls were made.
        history: if given, only the names of that many last calls.
    """
    plan = item.plan
    calls = plan.calls[:done]
    if history is not None:
        return as_run(item.query, plan.tools[max(0, done - history) : done])
    step = plan.calls[done].step if done < len(plan) else None
    if step is not None:
        calls = tuple(
            ToolCall(call.id, call.tool, call.arguments, step=step) if call.step == step else call
            for call in calls
        )
    return as_run(item.query, calls, item.before, item.offered)


def rank_after_calls(
    model: Model, steps: Sequence[Step], history: int | None = None
) -> list[Ranking]:
    """Rankings after the first N calls of each demonstration; see ``run_before``."""
    return model.rank_batch([run_before(*step, history) for step in steps])


def rank_steps(
    model: Model, demonstrations: Iterable[DemonstrationLike], history: int | None = None
) -> Iterator[tuple[Demonstration, int, Ranking]]:
    """Every teacher-forced step, ends of plans included: the plan, the calls made, the ranking."""
    items = as_demonstrations(demonstrations)
    steps = ((item, done) for item in items for done in range(len(item.plan) + 1))
    while batch := list(islice(steps, STEPS_AT_ONCE)):
        rankings = rank_after_calls(model, batch, history)
        for (item, done), ranking in zip(batch, rankings, strict=True):
            yield item, done, ranking


def _log_steps(
    model: Model,
    test: Sequence[Demonstration],
    builder: RunLogBuilder,
    learned: Collection[str],
    report: Callable[[int], None] | None = None,
    history: int | None = None,
) -> None:
    """Rank every step; ``learned`` are the tools that training runs call."""
    positions = {name: index for index, name in enumerate(builder.tools)}
    known = {*learned, END}
    items = track(test, f"ranking with {model.name}", len(test))
    for count, (item, done, ranking) in enumerate(rank_steps(model, items, history), start=1):
        called = (*item.plan.tools, END)[done]
        is_same = ranking.vocabulary == builder.tools
        builder.add(
            plan=item.id,
            step=done,
            plan_length=len(item.plan),
            called=called,
            acceptable=item.plan.acceptable_next(range(done)),
            next_in_log=item.plan.next_in_log(range(done)),
            ranking=ranking.order if is_same else [positions[name] for name in ranking.tools],
            probabilities=ranking.probabilities,
            is_new=called not in known,
            confidence=ranking.confidence,
        )
        if report is not None:
            report(count)
