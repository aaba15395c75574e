"""A fit within a memory limit: how many workers and how large a sample."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dtdr.errors import InputError
from dtdr.rankers.folds import ALL_HELD_OUT

SAMPLE = 100_000
"""Default limit of demonstrations to learn from."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)i?b?", re.IGNORECASE)

# Measured with plans of the generator over 200 tools, arguments and plans included, at the peak of
# the largest process: dtdr-f took 2.64 GB for 12,000, 1.78 for 20,000 and 2.53 for 48,484.
_BASE = 800_000_000
"""Bytes of the process that learns, with its counts, before it learns."""
_WORKER = 350_000_000
"""Bytes per process that counts."""
_LEARNED = 66_000
"""Bytes per demonstration while learning."""
_HELD_OUT = 260_000
"""The same if each is held out in turn, in addition to ``_HELD_OUT_BASE``: 3,030 over 60 tools took
1.04 GB."""
_HELD_OUT_BASE = 300_000_000


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What fits into a memory limit.

    Attributes:
        sample: demonstrations to learn from.
        workers: processes that count; None: one per core.
    """

    sample: int
    workers: int | None


def parse_size(text: str) -> int:
    """Bytes, of a text such as ``4GB`` or ``512 MB``.

    Raises:
        InputError: it is not one.
    """
    parts = _SIZE.fullmatch(text.strip())
    if parts is None:
        raise InputError(f"{text!r} is not an amount of memory; write it as 4GB or 512MB")
    return int(float(parts[1]) * _UNITS[parts[2].lower()])


def plan_memory(
    memory: int | None, sample: int | None, workers: int | None, cores: int
) -> MemoryPlan:
    """Choose the sample and the number of workers that fit into a memory limit.

    Args:
        memory: bytes of all processes of this machine together; None: no limit.
        sample: as the user chose it; None: ``SAMPLE``, or less if memory is short.
        workers: as the user chose them; None: one per core, or fewer.
        cores: of this machine.

    Raises:
        InputError: the limit is too low to learn anything, or for what the user chose.
    """
    if memory is None:
        return MemoryPlan(SAMPLE if sample is None else sample, workers)
    room = memory - _BASE
    most = room // _LEARNED
    if memory < _bytes_for(ALL_HELD_OUT):
        most = min(most, (memory - _HELD_OUT_BASE) // _HELD_OUT)
    if most < 1_000:
        lowest = (_BASE + 1_000 * _LEARNED) // 10**6
        raise InputError(f"memory must be {lowest:,}MB or more to learn anything")
    if sample == 0:
        raise InputError("--sample 0 learns from all demonstrations; leave out either it or memory")
    if sample is not None and sample > most:
        raise InputError(
            f"a sample of {sample:,} takes about {_bytes_for(sample) / 1e9:.1f}GB; give more "
            f"memory, or --sample {most}"
        )
    fitting = max(1, room // _WORKER)
    if workers is not None and workers > fitting:
        raise InputError(
            f"{workers} workers take about {(_BASE + workers * _WORKER) / 1e9:.1f}GB; give more "
            f"memory, or --workers {fitting}"
        )
    return MemoryPlan(
        min(SAMPLE, most) if sample is None else sample,
        workers or min(cores, fitting),
    )


def _bytes_for(sample: int) -> int:
    """Bytes that learning from a sample takes at most."""
    held_out = _HELD_OUT_BASE + min(sample, ALL_HELD_OUT) * _HELD_OUT
    return max(held_out, _BASE + sample * _LEARNED)
