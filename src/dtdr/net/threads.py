"""Threads that a process does not wait for when it ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start_daemon(work: Callable[..., object], *arguments: object) -> threading.Thread:
    """Do some work in a thread that the end of the process does not wait for."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    _started.add(thread)
    thread.start()
    return thread


def is_daemon_working() -> bool:
    """Whether a thread of ``start_daemon`` is not done.

    Python stops such a thread when it finalizes, and one that is in C++ aborts the process then.
    """
    return any(thread.is_alive() for thread in _started)
