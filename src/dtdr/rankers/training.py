"""Which demonstrations are learned from, and what a model records of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.outputs import bound_output
from dtdr.errors import nothing_to_learn


@dataclass(frozen=True)
class TrainingData:
    """The record of the data that a model was fitted on.

    Attributes:
        empty_plans: how many of the demonstrations call no tool; None where they were
            not counted.
        sampled: how many demonstrations were drawn of all these, which were counted, to learn from;
            None: all.
        failures: how many of the demonstrations are runs that failed; None where those are left
            out, as ``skipped_failures``.
        erased: demonstrations that were taken out of the data since (``dtdr erase``): the model
            still has what it learned from them.
    """

    demonstrations: int
    skipped_failures: int
    sha256: str
    empty_plans: int | None = None
    sampled: int | None = None
    erased: int = 0
    failures: int | None = None

    def add(self, later: TrainingData) -> TrainingData:
        """The record after an update, whose hash follows from this one's."""
        return TrainingData(
            self.demonstrations + later.demonstrations,
            self.skipped_failures + later.skipped_failures,
            later.sha256,
            None if self.empty_plans is None else self.empty_plans + (later.empty_plans or 0),
            None if self.sampled is None else self.sampled + later.demonstrations,
            self.erased,
            None if self.failures is None else self.failures + (later.failures or 0),
        )


def select_training_data(
    demonstrations: Iterable[DemonstrationLike],
    *,
    may_be_empty: bool = False,
    failures: bool = True,
    learned: str = "",
) -> tuple[list[Demonstration], TrainingData]:
    """Select the demonstrations to learn from, with their record.

    Args:
        demonstrations: as ``Model.fit`` takes them, but not a path.
        may_be_empty: whether tools alone are enough.
        failures: whether to learn from runs that failed.
        learned: the hash of what was learned so far, for an update.

    Raises:
        InputError: nothing is left to learn from, and nothing was learned so far; or something is
            not a demonstration.
    """
    usable: list[Demonstration] = []
    digest = hashlib.sha256(learned.encode())
    failed = 0
    for demonstration in as_demonstrations(demonstrations):
        if demonstration.outcome == "failure":
            failed += 1
            if not failures:
                continue
        usable.append(demonstration)
        digest.update(fingerprint(demonstration))
    if not usable and not learned and not may_be_empty:
        raise nothing_to_learn(failed)
    empty = sum(not demonstration.plan.calls for demonstration in usable)
    skipped = 0 if failures else failed
    kept = failed if failures else None
    return usable, TrainingData(len(usable), skipped, digest.hexdigest(), empty, failures=kept)


def fingerprint(demonstration: Demonstration) -> bytes:
    """The learned content of a demonstration, as bytes."""
    plan = demonstration.plan
    calls = [[call.references(), *_call_fingerprint(call)] for call in plan.calls]
    before = [
        _call_fingerprint(item) if isinstance(item, ToolCall) else [item.role, item.content]
        for item in demonstration.before
    ]
    record = [demonstration.query, calls, plan.links, before]
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _call_fingerprint(call: ToolCall) -> list[Any]:
    return [call.tool, bound_output(call.output)[0], call.status, call.step]
