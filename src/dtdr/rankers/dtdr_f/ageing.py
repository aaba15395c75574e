"""How much a demonstration counts: less with its age, and less where it failed."""

from __future__ import annotations

from collections.abc import Sequence

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.rankers.training import TrainingData, parse_duration

_LEAST = 1e-3
"""A demonstration never counts less: divisions by weights stay finite."""


class Ageing:
    """Halves what a demonstration counts after a number of further ones, or after a time.

    Args:
        half_life: as ``DTDRFactored`` takes it.
        failure_weight: how much a failed demonstration counts, in [0, 1].

    Raises:
        InputError: one of them is out of range.
    """

    def __init__(self, half_life: float | str | None, failure_weight: float) -> None:
        if not 0 <= failure_weight <= 1:
            raise InputError(f"failure_weight is {failure_weight}; it must be in [0, 1]")
        self._given = half_life
        self._by_time = isinstance(half_life, str)
        self._half = parse_duration(half_life) if isinstance(half_life, str) else half_life
        if self._half is not None and not self._half > 0:
            raise InputError(f"half_life is {half_life}; it must be above 0, or None")
        self._failure_weight = failure_weight

    def weights(self, demonstrations: Sequence[Demonstration], known: TrainingData) -> list[float]:
        """How much each demonstration counts, the last one, or the newest, being new.

        Args:
            demonstrations: in the order of their time.
            known: what was learned from; its newest one may be newer than these.

        Raises:
            InputError: they are to age by time, and one has none.
        """
        return [
            max(
                (self._failure_weight if item.outcome == "failure" else 1.0) * self._share(age),
                _LEAST,
            )
            for item, age in zip(demonstrations, self._ages(demonstrations, known), strict=True)
        ]

    def decay(self, before: TrainingData, update: TrainingData) -> float:
        """What is left of the weights of what was known before an update."""
        if not self._by_time or before.newest is None or update.newest is None:
            return self._share(float(update.demonstrations))
        return self._share(max(0.0, update.newest - before.newest))

    def _ages(self, demonstrations: Sequence[Demonstration], known: TrainingData) -> list[float]:
        if not self._by_time:
            return [float(later) for later in range(len(demonstrations) - 1, -1, -1)]
        times = [item.time.timestamp() for item in demonstrations if item.time is not None]
        if missing := len(demonstrations) - len(times):
            raise InputError(
                f"half_life is {self._given!r}, a time, and {missing:,} of "
                f"{len(demonstrations):,} demonstrations have no 'time'; give each one, or "
                "half_life as a number of demonstrations"
            )
        newest = max(times) if known.newest is None else max(known.newest, *times)
        return [newest - moment for moment in times]

    def _share(self, age: float) -> float:
        return 1.0 if self._half is None else float(0.5 ** (age / self._half))
