"""Applies feedback to a model: update, measure on held-out feedback, publish if not worse."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dtdr.api import load
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError, check_at_least
from dtdr.predict.model import Model
from dtdr.serve.feedback import Entry, FeedbackLog, order_of
from dtdr.serve.learning.guard import FEWEST_HELD_OUT, HeldOut, compare
from dtdr.serve.learning.versions import (
    ReplacedError,
    VersionChange,
    Versions,
    checksum_of,
    copy_folder,
    now,
)

MOST_HELD_OUT = 1_000
"""Demonstrations of feedback; the last ones count."""

_AT_ONCE = 5_000
"""Demonstrations in one update at most."""


@dataclass(frozen=True)
class LearnOptions:
    """How feedback is learned.

    Attributes:
        batch: demonstrations to wait for; the networks of dtdr-f learn from 32 together.
        seconds: after which the model learns from fewer.
        share: of held-out feedback, by a salted hash of the group or id.
        tolerance: by which MRR may fall in a published version.
        sender: share of MRR that the feedback of one key may have where there is other feedback.
        gain: in 1 / rank, on average over the steps where demonstrations do not call a tool; a
            version with a tool that gains more waits for a person.
        keep: versions to roll back to.

    Raises:
        InputError: one is out of range.
    """

    batch: int = 32
    seconds: float = 60.0
    share: float = 0.1
    tolerance: float = 0.005
    sender: float = 0.5
    gain: float = 0.1
    keep: int = 10

    def __post_init__(self) -> None:
        check_at_least(1, batch=self.batch, keep=self.keep)
        check_at_least(0, seconds=self.seconds, share=self.share, tolerance=self.tolerance)
        check_at_least(0, sender=self.sender, gain=self.gain)
        if self.share >= 1:
            raise InputError(f"share is {self.share}; it must be below 1")


@dataclass
class LearningOutcome:
    """The result of one look at the log.

    Attributes:
        change: a version that was published or refused, if any.
        waiting: demonstrations that are in no version yet.
        oldest: seconds since the oldest of these was written or first seen.
        held_out: demonstrations that versions are measured on.
        unusable: entries since the start that are unreadable, or cannot be learned from.
        reason: why waiting demonstrations are not learned, except that there are too few.
    """

    change: VersionChange | None = None
    waiting: int = 0
    oldest: float = 0.0
    held_out: int = 0
    unusable: int = 0
    reason: str = ""


@dataclass
class _ServedVersion:
    """The state of the served model."""

    checksum: str
    version: str
    position: str
    model: Model


class Trainer:
    """The one process that changes a model.

    Args:
        model: the folder that servers watch.
        log: of feedback.
        options: of learning.
        held_out: further demonstrations to measure on.
        clock: seconds since 1970; another one in tests.

    Raises:
        ModelError: there is no usable model.
        InputError: the model does not support updates.
    """

    def __init__(
        self,
        model: Path,
        log: FeedbackLog,
        options: LearnOptions | None = None,
        held_out: Sequence[Demonstration] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.versions = Versions(model)
        self._log = log
        self._options = options or LearnOptions()
        self._given = [HeldOut(item, None) for item in held_out if item.outcome != "failure"]
        self._clock = clock
        self._salt = self.versions.salt()
        self._held_out: deque[HeldOut] = deque(maxlen=MOST_HELD_OUT)
        self._waiting: list[tuple[Demonstration, float, str]] = []
        self._read_to = ""
        self._unusable = 0
        self._state = self._find_state()

    def step(self, *, flush: bool = False) -> LearningOutcome:
        """Read new entries, and make a version if there are enough.

        Args:
            flush: make one of any number.

        Raises:
            DtdrError: the log or a version cannot be read or written now.
        """
        if self._has_changed():  # somebody fitted it again, or rolled back
            self._state = self._find_state()
            self._waiting, self._read_to = [], ""
            self._held_out.clear()
        if not self._read_to:
            self._log.read(self._state.position, 1)  # raises if the log was replaced
        while len(self._waiting) < _AT_ONCE:
            entries = self._log.read(self._read_to, 1_000)
            if not entries:
                break
            for entry in entries:
                self._take(entry)
            self._read_to = entries[-1].position
        moment = self._clock()
        outcome = LearningOutcome(
            waiting=len(self._waiting),
            oldest=moment - min((seen for _, seen, _ in self._waiting), default=moment),
            held_out=len(self._given) + len(self._held_out),
        )
        is_due = (
            flush
            or outcome.waiting >= self._options.batch
            or outcome.oldest >= self._options.seconds
        )
        if (held := self.versions.held()) is not None:
            outcome.reason = (
                f"version {held.version} waits for a person, since it ranks "
                f"{', '.join(held.gains)} much higher; see: dtdr learn {self.versions.model} "
                "--review list"
            )
        elif self._waiting and is_due:
            if outcome.held_out < FEWEST_HELD_OUT:
                outcome.reason = (
                    f"{outcome.held_out} demonstrations are held out and {FEWEST_HELD_OUT} are "
                    "needed to measure on; wait for more feedback, or give --held-out FILE"
                )
            else:
                outcome.change = self._learn()
                outcome.waiting, outcome.oldest = len(self._waiting), 0.0
        outcome.unusable = self._unusable
        return outcome

    def _has_changed(self) -> bool:
        return checksum_of(self.versions.model) != self._state.checksum

    # -- the log -------------------------------------------------------------------------------

    def _take(self, entry: Entry) -> None:
        """Keep an entry to measure on; one to learn only if the served model has not."""
        item = entry.demonstration
        is_new = order_of(entry.position) > order_of(self._state.position)
        if item is None:
            self._unusable += is_new
        elif self._is_held_out(item):
            self._held_out.append(HeldOut(item, entry.sender))
        elif is_new:
            self._waiting.append((item, entry.time or self._clock(), entry.sender))

    def _is_held_out(self, item: Demonstration) -> bool:
        """By a hash with a secret, so that the next process decides the same, and no sender can."""
        if item.outcome == "failure":
            return False
        name = (item.group or item.id).encode("utf-8", "replace")
        digest = hashlib.sha256(self._salt + name).digest()
        return int.from_bytes(digest[:8], "big") < self._options.share * 2**64

    # -- the model -----------------------------------------------------------------------------

    def _find_state(self) -> _ServedVersion:
        """The served model, and its position in the log."""
        folder = self.versions.model
        checksum = checksum_of(folder)
        model = load(folder)
        if not model.can_update:
            raise InputError(
                f"{folder} is a {model.name}, which does not support updates; fit a dtdr-f, "
                "or fit this one again with the log: dtdr fit DATA LOG"
            )
        history = self.versions.history()
        known = [change for change in history if change.checksum == checksum]
        if known:
            return _ServedVersion(checksum, known[-1].version, known[-1].position, model)
        # A model that was fitted again has learned from the log so far.
        position = history[-1].position if history else ""
        name = self.versions.next_name(history)
        copy_folder(folder, self.versions.folder / name)
        self.versions.add(VersionChange(name, "begun", checksum, position, now()))
        return _ServedVersion(checksum, name, position, model)

    def _learn(self) -> VersionChange | None:
        """Publish, hold or refuse a version; None if the model's folder has changed."""
        items = [item for item, *_ in self._waiting]
        state, options = self._state, self._options
        updated = self._update(items)
        test = [*self._given, *self._held_out]
        verdict = compare(state.model, updated or state.model, test, options.sender)
        if self._has_changed():
            return None
        gains = {
            tool: round(gain, 3) for tool, gain in verdict.gains.items() if gain > options.gain
        }
        is_usable = updated is not None and verdict.after >= verdict.before - options.tolerance
        outcome: Literal["published", "held", "refused"] = "refused"
        name, checksum = state.version, state.checksum
        if updated is not None and is_usable:
            outcome = "held" if gains else "published"
            name = self.versions.next_name(self.versions.history())
            checksum = self.versions.save(name, updated)
        change = VersionChange(
            name,
            outcome,
            checksum,
            self._read_to,
            now(),
            len(items),
            len(test),
            round(verdict.before, 6),
            round(verdict.after, 6),
            gains if outcome == "held" else {},
            dict(Counter(sender for *_, sender in self._waiting if sender)),
        )
        if updated is not None and outcome == "published":
            try:
                self.versions.publish(change, state.checksum)
            except ReplacedError:
                return None
            self._state = _ServedVersion(checksum, name, self._read_to, updated)
            self.versions.prune(options.keep)
        else:
            self.versions.add(change)
        self._waiting = []
        return change

    def _update(self, items: Sequence[Demonstration]) -> Model | None:
        """An updated copy; None if it can learn from no demonstration."""
        served = self._state.model
        try:
            return served.update_copy(items)[0]
        except DtdrError:
            # Learn from those that work alone.
            usable = list(filter(self._can_learn, items)) if len(items) > 1 else []
        self._unusable += len(items) - len(usable)
        return served.update_copy(usable)[0] if usable else None

    def _can_learn(self, item: Demonstration) -> bool:
        try:
            self._state.model.update_copy([item])
        except DtdrError:
            return False
        return True
