"""Kills a writer of demonstrations again and again: ``python killed_writer.py KIND FILE KILLS``.

KIND is ``feedback``, the server's log of feedback, or ``gateway``, the gateway's recorder. Prints a
JSON object: how many writes were acknowledged, and which of those are not in the file once and
whole; how many lines are no demonstration.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO

from dtdr.agents.recording import Recorder
from dtdr.conversation.events import LoggedCall
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.serve.feedback import FileLog


def write(kind: str, path: Path, kill: int, acknowledge: IO[bytes]) -> None:
    """Write until killed, and say of each write when it is done."""
    log = FileLog(path) if kind == "feedback" else None
    recorder = Recorder(path) if kind == "gateway" else None
    for number in range(10_000):
        size = random.randrange(1, 20_000)
        if log is not None:
            name = f"{kill}-{number}"
            call = ToolCall("1", "a", {"text": "x" * size})
            log.append([Demonstration(name, "query", Plan((call,)))])
        elif recorder is not None:
            logged = LoggedCall("a", {"text": "x " * (size // 2)}, 1.0, ended=1.5)
            name = recorder.record([f"query {kill} {number}"], [logged])[0].id
        acknowledge.write(name.encode() + b"\n")
        acknowledge.flush()


def main(kind: str, path: Path, kills: int) -> dict[str, object]:
    """Kill as often as asked, then compare."""
    draw = random.Random(0)
    acknowledged: list[str] = []
    for kill in range(kills):
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.close(read_end)
            random.seed(kill)
            with os.fdopen(write_end, "wb") as stream:
                write(kind, path, kill, stream)
            os._exit(0)
        os.close(write_end)
        # On a busy machine a child may be killed before it writes; every other one has written.
        written = os.read(read_end, 1 << 16) if kill % 2 else b""
        time.sleep(draw.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(read_end, "rb") as stream:
            lines = (written + stream.read()).split(b"\n")
        acknowledged += [line.decode() for line in lines[:-1]]  # the last one may be cut off
    if kind == "feedback":
        FileLog(path).prepare()  # as the next start does
    found: Counter[str] = Counter()
    broken = 0
    for line in path.read_bytes().splitlines():
        try:
            found[Demonstration.from_dict(json.loads(line)).id] += 1
        except ValueError:
            broken += 1
    wrong = [name for name in acknowledged if found[name] != 1]
    return {"acknowledged": len(acknowledged), "wrong": wrong[:5], "broken": broken}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])), sys.stdout)
