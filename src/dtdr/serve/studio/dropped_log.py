"""A log that is dropped on the page: received in parts, learned and shown."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dtdr.api import fit
from dtdr.data.demonstrations import Demonstration
from dtdr.data.partials import TemporaryFolder
from dtdr.errors import DtdrError, InputError
from dtdr.evaluate.datasets.splits import group_split
from dtdr.logs import open_demonstrations
from dtdr.net.threads import start_daemon
from dtdr.serve.server.logs import logger

MOST_BYTES = 2_000_000_000
_HELD_OUT = 0.2
"""Share of the runs that judge the model."""
_FEWEST = 10
"""Groups; of fewer, all are learned."""


class LearnedLog(NamedTuple):
    """A learned log: its runs, the held-out ones among them, and the folder of the model."""

    name: str
    runs: Sequence[Demonstration]
    held_out: Sequence[Demonstration]
    model: Path


class DroppedLog:
    """One log at a time, in a temporary folder of the process.

    Args:
        show: takes the learned log, in a thread.

    Attributes:
        stage: the present or last stage, as a sentence.
        is_working: whether a log is being learned.
    """

    def __init__(self, show: Callable[[LearnedLog], None]) -> None:
        self.stage = ""
        self.is_working = False
        self._show = show
        self._folder = TemporaryFolder("dtdr-studio-")
        self._path = self._folder.path / "log"
        self._lock = threading.Lock()

    def receive(self, name: str, content: bytes, offset: int, *, is_last: bool) -> None:
        """Take the next part of a log; the last one starts the learning.

        Raises:
            InputError: a log is being learned, the part is not the next one, or the log is too
                large.
        """
        with self._lock:
            if self.is_working:
                raise InputError("a log is being learned from; wait until it is shown")
            size = self._path.stat().st_size if offset and self._path.exists() else 0
            if offset != size:
                raise InputError("a part of the log is missing; drop the file again")
            if offset + len(content) > MOST_BYTES:
                raise InputError("the log is larger than 2 GB; use dtdr import and dtdr fit")
            with self._path.open("ab" if offset else "wb") as file:
                file.write(content)
            self.stage = f"Received {(offset + len(content)) / 1e6:,.1f} MB of {name}."
            if is_last:
                self.is_working = True
                start_daemon(self._learn, name)

    def _learn(self, name: str) -> None:
        try:
            runs = []
            for run in open_demonstrations([self._path]):
                runs.append(run)
                if len(runs) % 100 == 0:
                    self.stage = f"Read {len(runs):,} runs of {name}."
            learned, held_out = _hold_out(runs)
            self.stage = f"Learning from {len(learned):,} of {len(runs):,} runs of {name}."
            model = self._folder.path / "model"
            fit(learned, arguments=True, plans=False).save(model, force=True)
            title = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(name).stem).strip("-")[:60] or "log"
            self._show(LearnedLog(title, runs, held_out, model))
            self.stage = (
                f"Learned from {len(learned):,} of {len(runs):,} runs of {name}; "
                f"the figures are of the {len(held_out):,} others."
            )
        except DtdrError as error:
            self.stage = f"{name} cannot be used: {str(error).replace(str(self._path), name)}"
        except Exception:  # noqa: BLE001  # a log may be anything
            logger.exception("a dropped log cannot be learned from")
            self.stage = f"{name} cannot be used; the server's log has the reason"
        finally:
            self.is_working = False


def _hold_out(
    runs: Sequence[Demonstration],
) -> tuple[Sequence[Demonstration], Sequence[Demonstration]]:
    """Runs to learn, and a fifth of the groups to judge by; of few groups, all are learned."""
    groups = {run.group or run.id for run in runs}
    if len(groups) < _FEWEST:
        return runs, ()
    split = group_split(runs, test=_HELD_OUT)
    return [runs[at] for at in split.train], [runs[at] for at in split.test]
