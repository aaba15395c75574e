"""What calls made early would have come to, by replaying runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dtdr.arguments.prediction import CallPrediction
from dtdr.arguments.values import resolve_references
from dtdr.calls import END, ToolCall
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.integrations.early_calls import PrefetchBounds
from dtdr.progress import track
from dtdr.retrievers.base import Retriever
from dtdr.run import Run

PROBABILITIES = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Least probabilities that are told of."""


@dataclass(frozen=True, slots=True)
class PrefetchReplay:
    """What was made early in the replayed runs, at one least probability.

    Attributes:
        min_probability: of a call that is made early.
        calls: that the runs made.
        hits: of them, those that had been made early.
        started: calls made early.
        wasted: of them, those that no run asked for.
        saved_seconds: a run, on average.
    """

    min_probability: float
    calls: int
    hits: int
    started: int
    wasted: int
    saved_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def replay_prefetch(
    retriever: Retriever,
    demonstrations: Sequence[Demonstration],
    *,
    tools: Collection[str] | None = None,
    llm_seconds: float = 2.0,
    call_seconds: float = 1.0,
    probabilities: Sequence[float] = PROBABILITIES,
) -> list[PrefetchReplay]:
    """Replay runs as ``dtdr.integrations.EarlyCalls`` would have gone along with them.

    A call is a hit where it was made early with exactly its arguments; whole outputs that the
    demonstrations do not hold are taken to be what a reference to them says. A hit saves the time
    of the call, as far as the LLM took that long before it asked.

    Args:
        retriever: fitted with arguments, on other runs.
        demonstrations: the runs.
        tools: names of those that may be called early; None: all of them.
        llm_seconds: that the LLM takes for each step.
        call_seconds: that a call takes.
        probabilities: least probabilities to replay with.

    Raises:
        InputError: the model knows no arguments, or no tool is known of those that may be called.
    """
    known = set(retriever.vocabulary)
    if tools is not None and not known.intersection(tools):
        raise InputError("the model knows none of the tools that may be called early")
    allowed = known if tools is None else set(tools)
    runs = [_steps(retriever, item) for item in track(demonstrations, "Predicting")]
    return [_replay(runs, allowed, llm_seconds, call_seconds, least) for least in probabilities]


@dataclass(frozen=True, slots=True)
class _Step:
    """Calls that were predicted, and the one that was made, as texts that are compared."""

    predicted: tuple[tuple[str, str, float], ...]
    made: tuple[str, str]


def _steps(retriever: Retriever, item: Demonstration) -> list[_Step]:
    session = retriever.session(Run(item.query, item.before))
    steps: list[_Step] = []
    by_id: dict[str, ToolCall] = {}
    for call in item.plan.calls:
        predicted = tuple(
            (_text(one.tool, one.arguments, by_id), one.tool, one.probability)
            for one in session.next_calls(2 * PrefetchBounds().concurrency)
            if _is_whole(one)
        )
        steps.append(_Step(predicted, (_text(call.tool, call.arguments, by_id), call.tool)))
        by_id[call.id] = call
        session.call(call)
    return steps


def _is_whole(call: CallPrediction) -> bool:
    return call.tool != END and not call.unknown


def _text(tool: str, arguments: Mapping[str, Any], calls: Mapping[str, ToolCall]) -> str:
    return json.dumps([tool, resolve_references(arguments, calls)], sort_keys=True, default=repr)


def _replay(
    runs: Sequence[Sequence[_Step]],
    allowed: Collection[str],
    llm_seconds: float,
    call_seconds: float,
    least: float,
) -> PrefetchReplay:
    bounds = PrefetchBounds()
    calls = hits = started = wasted = 0
    saved = 0.0
    for steps in runs:
        live: dict[str, float] = {}  # when it was made, in seconds of the run
        thrown_away: set[str] = set()
        now = 0.0
        for step in steps:
            wanted = [
                text
                for text, tool, probability in step.predicted
                if probability >= least and tool in allowed
            ]
            for text in live.keys() - {*wanted}:
                del live[text]
                thrown_away.add(text)
            for text in wanted:
                is_full = len(live) >= bounds.concurrency
                if is_full or len(thrown_away) + len(live) >= bounds.budget:
                    break
                if text not in live and text not in thrown_away:
                    live[text] = now
                    started += 1
            now += llm_seconds
            calls += 1
            text, tool = step.made
            if tool not in allowed:
                thrown_away |= live.keys()
                live = {}
            if text in live:
                spared = min(call_seconds, now - live.pop(text))
                saved += spared
                hits += 1
                now += call_seconds - spared
            else:
                now += call_seconds
        wasted += len(thrown_away) + len(live)
    return PrefetchReplay(least, calls, hits, started, wasted, saved / max(1, len(runs)))
