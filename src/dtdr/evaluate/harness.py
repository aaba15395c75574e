"""Fit a retriever on one side of a split, rank every step of the other, and log it."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, Message
from dtdr.data.plan import Plan
from dtdr.data.progress import track
from dtdr.data.run import Run, as_run
from dtdr.errors import InputError
from dtdr.evaluate.plan_accuracy import PlanScores, score_plans
from dtdr.evaluate.run_log import COVERAGES, DIGITS, RunHeader, RunLog, RunLogBuilder
from dtdr.evaluate.run_log_file import write_run_log
from dtdr.predict.model import Model
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


def run(retriever: Model, dataset: Dataset, split: Split, **options: Any) -> RunLog:
    """Fit on the train side, then rank every step of the test side teacher-forced.

    The history of each step is the plan's own calls, and the last step of each plan accepts the
    end of plan only. A retriever that ``uses_calls`` receives what the agent knew at the step: the
    arguments and outputs of calls, and what came before the query. Runs whose outcome is a failure
    are not tested either.

    Args:
        retriever: not fitted yet, or to be fitted again.
        dataset: demonstrations and tools.
        split: positions of the demonstrations on each side.
        options: see ``run_folds``.

    Raises:
        InputError: a side of the split is empty, or the data cannot be learned from.
        OutputError: the log exists and ``force`` is False, or it cannot be written.
    """
    return run_folds(retriever, dataset, [split], **options)


def run_folds(
    retriever: Model,
    dataset: Dataset,
    folds: Sequence[Split],
    *,
    path: str | Path | None = None,
    force: bool = False,
    fit_seconds: float | None = None,
    history: int | None = None,
    plan_scores: list[PlanScores] | None = None,
) -> RunLog:
    """Fit on the train side of each fold in turn, and log the steps of all test sides together.

    As ``run``, for splits whose test sides share no demonstration. The time of fitting is the sum;
    cuts and thresholds, which differ between folds, are in the header of a single split only.

    Args:
        retriever: fitted again for each fold.
        dataset: demonstrations and tools.
        folds: such as ``datasets.splits.group_folds`` gives.
        path: where to write the run log; it is returned either way.
        force: whether to replace an existing file.
        fit_seconds: if given, the retriever was fitted on this train side before, in that time.
        history: if given, the retriever receives the names of that many last calls and no more.
        plan_scores: if given, the retriever learns arguments and whole plans too; how many of them
            are right is appended, one item for each fold.

    Raises:
        InputError: a side of a split is empty, or the data cannot be learned from.
        OutputError: the log exists and ``force`` is False, or it cannot be written.
    """
    sides = [_sides(dataset, split) for split in folds]
    known = {tool.name for tool in dataset.tools} | tools_called(dataset.demonstrations)
    tools: tuple[str, ...] = (*sorted(known - {END}), END)
    seconds, times = fit_seconds or 0.0, []
    is_one = len(folds) == 1
    builder: RunLogBuilder | None = None
    for train, test in sides:
        if fit_seconds is None:
            started = time.perf_counter()
            has_plans = plan_scores is not None
            retriever.fit(train, dataset.tools or None, arguments=has_plans, plans=has_plans)
            seconds += time.perf_counter() - started
        if builder is None:
            tools = retriever.vocabulary if is_one else tools
            builder = RunLogBuilder(tools, _coverage_cuts(retriever) if is_one else None)
        _rank_steps(retriever, test, builder, tools, tools_called(train), history=history)
        times.append(rank_microseconds_median(retriever, test))
        if plan_scores is not None:
            plan_scores.append(score_plans(retriever, test))
    assert builder is not None
    hashes = [split_sha256(*pair) for pair in sides]
    about = {
        "name": folds[0].name if is_one else f"{len(folds)}-folds",
        "sha256": hashes[0] if is_one else _sha256(hashes),
        "train": round(statistics.mean(len(train) for train, _ in sides)),
        "test": sum(len(test) for _, test in sides),
    }
    header = _header(retriever, dataset, about, seconds, times)
    if not is_one:
        header = replace(header, tools=tools, coverage_cuts=None, familiarity_threshold=None)
    log = builder.build(header)
    if path is not None:
        write_run_log(path, log, force=force)
    return log


def score_model(
    retriever: Model, dataset: Dataset, report: Callable[[int], None] | None = None
) -> RunLog:
    """Rank every step of all demonstrations with a model as it is, teacher-forced as in ``run``.

    Args:
        retriever: fitted; it should not have learned from these demonstrations.
        dataset: what is tested; runs that failed are left out.
        report: receives the number of ranked steps after each batch.

    Raises:
        InputError: no demonstration is left, or the model knows none of the tools that they call.
    """
    test = [item for item in dataset.demonstrations if item.outcome != "failure"]
    called = tools_called(test)
    if not test:
        raise InputError(f"{dataset.name} has no run that succeeded; give others")
    if called and called.isdisjoint(retriever.vocabulary):
        raise InputError(
            f"the model knows none of the tools that {dataset.name} calls; give runs "
            "of the agent that it learned from"
        )
    plans = retriever.demonstrated_plans()
    known = (
        set(retriever.vocabulary) if plans is None else {t for plan in plans for t in plan.tools}
    )
    learned = retriever.training_.demonstrations
    sha256 = split_sha256((), test)
    about = {"name": "all", "sha256": sha256, "train": learned, "test": len(test)}
    builder = RunLogBuilder(retriever.vocabulary, _coverage_cuts(retriever))
    _rank_steps(retriever, test, builder, retriever.vocabulary, known, report)
    times = [rank_microseconds_median(retriever, test)]
    return builder.build(_header(retriever, dataset, about, 0.0, times))


def tools_called(demonstrations: Iterable[Demonstration]) -> set[str]:
    """Names of the tools that demonstrations call."""
    return {tool for item in demonstrations for tool in item.plan.tools}


def _sides(dataset: Dataset, split: Split) -> tuple[list[Demonstration], list[Demonstration]]:
    """What is learned from and what is tested."""
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
    retriever: Model,
    dataset: Dataset,
    split: Mapping[str, Any],
    fit_seconds: float,
    times: Sequence[float | None],
) -> RunHeader:
    """The header of a log of a fitted retriever; ``times`` are medians in microseconds."""
    known_times = [median for median in times if median is not None]
    return RunHeader(
        dataset=dataset.name,
        synthetic=dataset.synthetic,
        split=split,
        retriever=retriever.name,
        encoder=None if retriever.encoder is None else retriever.encoder.config(),
        parameters=retriever.parameters(),
        seed=retriever.seed,
        training_data=vars(retriever.training_),
        versions=versions(),
        tools=retriever.vocabulary,
        fit_seconds=fit_seconds,
        rank_microseconds_median=statistics.median(known_times) if known_times else None,
        coverage_cuts=_coverage_cuts(retriever),
        familiarity_threshold=retriever.calibration_.familiarity_threshold,
    )


def split_sha256(train: Sequence[Demonstration], test: Sequence[Demonstration]) -> str:
    """Hash of which demonstrations, by id and in order, are on which side."""
    return _sha256([[demonstration.id for demonstration in side] for side in (train, test)])


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def rank_microseconds_median(
    retriever: Model, demonstrations: Sequence[Demonstration]
) -> float | None:
    """Median time of a session to rank its next step and sort the tools, in microseconds.

    What an agent waits for after each call: the query is encoded already, and the code is warm.
    """
    chosen = random.Random(0).sample(demonstrations, min(TIMED_PLANS, len(demonstrations)))
    times: list[float] = []
    for demonstration in chosen:
        session = retriever.session(demonstration.query, before=demonstration.before)
        for call in (*demonstration.plan.calls, None):
            _ = session.rank().order
            started = time.perf_counter()
            _ = session.rank().order
            times.append(time.perf_counter() - started)
            if call is not None:
                session.call(call)
    return statistics.median(times) * 1e6 if times else None


@dataclass(frozen=True, slots=True)
class TeacherForcedStep:
    """One teacher-forced step: the calls before it are the plan's own.

    Attributes:
        query: of the demonstration.
        history: names called before, oldest first.
        known: these calls as far as the agent knew them: what a call returned that was made
            together with the next one is left out.
        before: messages and calls before the query.
        offered: names of the tools that could be called; None where that is not known.
        facts: the arguments of ``RunLogBuilder.add`` that do not depend on a ranking.
    """

    query: str
    history: tuple[str, ...]
    known: tuple[ToolCall, ...]
    before: tuple[Message | ToolCall, ...]
    offered: frozenset[str] | None
    facts: Mapping[str, Any]

    def run(self, history: int | None = None) -> Run:
        """What the agent knew; with ``history``, the names of that many last calls alone."""
        if history is None:
            return as_run(self.query, self.known, self.before, self.offered)
        return as_run(self.query, self.history[max(0, len(self.history) - history) :])


def teacher_forced_steps(demonstration: Demonstration) -> list[TeacherForcedStep]:
    """Every step of a plan, its end included."""
    plan = demonstration.plan
    called = (*plan.tools, END)
    return [
        TeacherForcedStep(
            demonstration.query,
            step.history,
            known_calls(plan, number),
            demonstration.before,
            demonstration.offered,
            {
                "plan": demonstration.id,
                "step": number,
                "plan_length": len(plan),
                "called": called[number],
                "acceptable": step.acceptable,
                "next_in_log": plan.next_in_log(range(number)),
            },
        )
        for number, step in enumerate(plan.steps())
    ]


def known_calls(plan: Plan, done: int) -> tuple[ToolCall, ...]:
    """The first calls of a plan as the agent knew them when it made the next one.

    Of calls of one step, none had returned when the others were made.
    """
    calls = plan.calls[:done]
    step = plan.calls[done].step if done < len(plan) else None
    if step is None or not calls or calls[-1].step != step:
        return calls
    return tuple(
        ToolCall(call.id, call.tool, call.arguments, step=step) if call.step == step else call
        for call in calls
    )


def rank_after_calls(retriever: Model, steps: Sequence[tuple[Demonstration, int]]) -> list[Ranking]:
    """Rankings after the first N calls of each demonstration, as its agent knew them."""
    states = [(item, known_calls(item.plan, done)) for item, done in steps]
    runs = [as_run(item.query, calls, item.before, item.offered) for item, calls in states]
    return retriever.rank_batch(runs)


def _rank_steps(
    retriever: Model,
    test: Sequence[Demonstration],
    builder: RunLogBuilder,
    tools: Sequence[str],
    learned: Collection[str],
    report: Callable[[int], None] | None = None,
    history: int | None = None,
) -> None:
    """Rank every step, for a log of these tools; ``learned`` are those that training runs call."""
    label = f"ranking with {retriever.name}"
    place = {name: index for index, name in enumerate(tools)}
    known = {*learned, END}
    done = 0
    for batch in track(_batches(test), label, total=None):
        rankings = retriever.rank_batch([step.run(history) for step in batch])
        for step, ranking in zip(batch, rankings, strict=True):
            builder.add(
                **step.facts,
                ranking=(
                    ranking.order
                    if ranking.vocabulary == tools
                    else [place[name] for name in ranking.tools]
                ),
                probabilities=ranking.probabilities,
                is_new=step.facts["called"] not in known,
                confidence=ranking.confidence,
                familiarity=ranking.familiarity,
            )
        done += len(batch)
        if report is not None:
            report(done)


def _coverage_cuts(retriever: Model) -> tuple[float, ...] | None:
    calibration = retriever.calibration_
    if calibration.held_out is None or not len(calibration.held_out):
        return None
    # Rounded as the probabilities are, so that the log cuts where the ranking does.
    return tuple(
        round(calibration.probability_for(percent / 100), DIGITS)
        for percent in range(1, COVERAGES + 1)
    )


def _batches(test: Sequence[Demonstration]) -> Iterator[list[TeacherForcedStep]]:
    """Steps of whole plans, so that a query is encoded in one batch only."""
    batch: list[TeacherForcedStep] = []
    for demonstration in test:
        batch += teacher_forced_steps(demonstration)
        if len(batch) >= STEPS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
