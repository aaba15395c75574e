import subprocess
import sys

import pytest

SCRIPT = """
import atexit, threading
from dtdr.cli import main
import dtdr.cli
from dtdr.net.threads import start_daemon

dtdr.cli.run = lambda arguments: start_daemon(threading.Event().wait, {seconds}).join({join}) or 3
atexit.register(print, "finalized")
main()
"""


@pytest.mark.parametrize(("seconds", "join", "printed"), [(60, 0, ""), (0, None, "finalized\n")])
def test_a_process_with_a_working_thread_ends_at_once(seconds, join, printed):
    """Python's finalization aborts a process whose thread is in a C++ library."""
    script = SCRIPT.format(seconds=seconds, join=join)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, printed, "")
