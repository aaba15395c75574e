"""What a process that serves many clients asks of the interpreter and the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time

if sys.platform != "win32":
    import resource

_M_ARENA_MAX = -8
"""Of malloc.h."""

_TRIM_SECONDS = 20.0
"""Between times; one takes a few milliseconds, in which others run."""


def tune_process(connections: int) -> None:
    """Keep memory and pauses small, and let so many connections be open.

    Called once, when everything is loaded and before threads are started.
    """
    _share_arenas()
    threading.Thread(target=_give_back, name="dtdr-memory", daemon=True).start()
    _pause_rarely()
    allow_files(2 * connections)


def _share_arenas() -> None:
    """Have all threads take memory from two arenas, where the C library is glibc.

    Otherwise each of up to 16 keeps as much as the largest update or reload in it once took.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _give_back() -> None:
    """Give the system what nothing uses any more, again and again, where the C library is glibc.

    Otherwise it keeps what a large batch of runs or a reload once took: a tenth of a process.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        trim = ctypes.CDLL(None).malloc_trim
        while True:
            time.sleep(_TRIM_SECONDS)
            trim(0)


def _pause_rarely() -> None:
    """Keep what would stop every request at once from doing so often.

    The garbage collector takes 30 ms to look at all that is loaded (77,000 objects): what is there
    at the start is left out for good, and models, sessions and requests need no collector, since
    their counts of references fall to zero. And a thread that loads or updates a model gives the
    interpreter back ten times sooner than usual.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    sys.setswitchinterval(0.0005)


def allow_files(number: int) -> None:
    """Let the process open so many files, as far as the system does: a connection is one.

    Where there are too few, no connection is accepted and none is refused either.
    """
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
