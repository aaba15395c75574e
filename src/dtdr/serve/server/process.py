"""What a process that serves many clients asks of the interpreter and the system."""

from __future__ import annotations

import gc
import sys

if sys.platform != "win32":
    import resource


def tune_process(connections: int) -> None:
    """Keep what would stop every request at once from doing so, and let many connections be open.

    The garbage collector takes 30 ms to look at all that is loaded (77,000 objects): what is there
    at the start is left out for good, and models, sessions and requests need no collector, since
    their counts of references fall to zero. And a thread that loads, updates or asks a model gives
    the interpreter back ten times sooner than usual.

    Called once, when everything is loaded and before threads are started.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    sys.setswitchinterval(0.0005)
    allow_files(2 * connections)


def allow_files(number: int) -> None:
    """Let the process open this many files, as far as the system does: a connection is one.

    Where there are too few, no connection is accepted and none is refused either.
    """
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = number if hard == resource.RLIM_INFINITY else min(number, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
