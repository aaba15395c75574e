"""Settings of the interpreter and the system for a process with many clients."""

from __future__ import annotations

import contextlib
import gc
import sys


def tune_process() -> None:
    """Keep pauses short, and let many connections be open.

    The garbage collector takes 30 ms for all that is loaded (77,000 objects), so it skips these and
    runs rarely: models, sessions and requests have no reference cycles. A thread gives the
    interpreter back ten times sooner than usual. A connection is an open file; without a free one,
    the server neither accepts nor refuses a connection.

    Called once, when everything is loaded and before threads are started.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    sys.setswitchinterval(0.0005)
    with contextlib.suppress(ImportError):  # on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            most = 8_192 if hard == resource.RLIM_INFINITY else min(8_192, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
