"""A folder of an agent's runs, and of the model that learns from them while the agent works."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dtdr.agents.recording import Recorder
from dtdr.agents.trial import compare
from dtdr.conversation.events import Event, LoggedCall
from dtdr.data.demonstration_files import read_demonstrations
from dtdr.data.demonstrations import Demonstration
from dtdr.data.files import explain_os_errors, lock_file, replace_file
from dtdr.data.jsonl import BadRecords
from dtdr.data.tools import Tool, ToolLike, as_tools
from dtdr.errors import DtdrError
from dtdr.net.threads import start_daemon
from dtdr.predict.model import Model

logger = logging.getLogger("dtdr.agents")

MOST_BYTES = 200_000_000
"""Largest file of runs; later runs are not written."""

MOST_RUNS_AN_HOUR = 300
"""Limit for all clients together, so that made-up runs of one cannot outweigh the others."""

_RUNS, _TOOLS, _MODEL = "demonstrations.jsonl", "tools.json", "model"
_HISTORY, _USAGE, _LOCK = "history.jsonl", "usage.json", "lock"


def default_folder(name: str) -> Path:
    """The folder of a name: ``$XDG_DATA_HOME/dtdr/NAME``, or ``~/.local/share/dtdr/NAME``."""
    return data_home() / (re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-")[:80] or "agent")


def data_home() -> Path:
    """Where the folders of all names are."""
    configured = os.environ.get("XDG_DATA_HOME")
    return (Path(configured) if configured else Path.home() / ".local" / "share") / "dtdr"


def next_count(runs: int) -> int:
    """The number of runs, above this one, at which a model is learned: 3, 10, 30, 100, 300, …."""
    count = 3
    while count <= runs:
        count = count * 10 // 3 if str(count)[0] == "3" else count * 3
    return count


@dataclass(frozen=True, slots=True)
class Learning:
    """One line of the history.

    Attributes:
        runs: that were there.
        outcome: ``published``; ``kept``, if the model would have been worse; ``held``, if it waits
            for a person.
        time: in seconds since 1970.
        judged: runs held back to compare both models.
        before: MRR of the model in use on these.
        after: MRR of the new model.
        reason: why it was not published.
    """

    runs: int
    outcome: str
    time: float
    judged: int = 0
    before: float = 0.0
    after: float = 0.0
    reason: str = ""


class RunFolder(Recorder):
    """Records runs in a folder of its owner alone, and learns a model when there are enough.

    It learns in a thread when 3, 10, 30, 100, … runs are there, and takes a new model only if that
    is no worse on the runs that the model in use has not learned, each held back from the new one.
    Several processes may share a folder; one of them learns.

    Args:
        folder: created with mode 700.
        tools: those that the agent has, as far as they are known.
        redact: scrub secrets and personal data before anything is written.
        outputs: whether the calls' outputs are written.
        ranker: the name of what learns.
        source: see ``Recorder``.

    Attributes:
        tools: may be replaced at any time.
        learned: called in the thread with each new model.
        usage: counts since the last ``save_usage``.

    Raises:
        OutputError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: str | Path,
        tools: Iterable[ToolLike] = (),
        *,
        redact: bool = True,
        outputs: bool = True,
        ranker: str = "dtdr-f",
        source: str = "dtdr mcp",
    ) -> None:
        self.folder = Path(folder).expanduser()
        with explain_os_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(self.folder / _RUNS, redact=redact, outputs=outputs, source=source)
        self.tools = tuple(as_tools(tools))
        self.learned: Callable[[Model], object] = lambda _: None
        self.usage: Counter[str] = Counter()
        self._ranker = ranker
        self._loaded: object = None
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_learning = False
        self._times: deque[float] = deque(maxlen=MOST_RUNS_AN_HOUR)

    # -- the model -----------------------------------------------------------------------------

    def load(self) -> Model | None:
        """The model that was learned; None without one, or if it cannot be used."""
        from dtdr.api import load

        self._loaded = self._signature()
        if self._loaded is None:
            return None
        try:
            return load(self.folder / _MODEL)
        except DtdrError as error:
            logger.warning("starting without what was learned: %s", error)
            return None

    def load_newer(self) -> Model | None:
        """The model if another process has replaced it since it was loaded."""
        return self.load() if self._signature() != self._loaded else None

    def _signature(self) -> object:
        try:
            about = (self.folder / _MODEL / "config.json").stat()
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns

    def start_model(self) -> Model:
        """The model before any run was learned: it ranks by names and descriptions."""
        return describe_tools(self.tools)

    # -- runs ----------------------------------------------------------------------------------

    def add(
        self, texts: Sequence[str], calls: Sequence[LoggedCall], earlier: Sequence[Event] = ()
    ) -> None:
        """Record a run in a thread, and learn in another one if that is due."""
        moment = time.monotonic()
        if len(self._times) == self._times.maxlen and moment - self._times[0] < 3_600:
            logger.warning("a run is not recorded: there were %d in an hour", MOST_RUNS_AN_HOUR)
            return
        self._times.append(moment)
        super().add(texts, calls, earlier)

    def record(
        self, texts: Sequence[str], calls: Sequence[LoggedCall], earlier: Sequence[Event] = ()
    ) -> list[Demonstration]:
        """See ``Recorder``; nothing is written once the file is full."""
        with suppress(OSError):
            if self.path.stat().st_size > MOST_BYTES:
                logger.warning("a run is not recorded: %s has its largest size", self.path)
                return []
        return super().record(texts, calls, earlier)

    def _record(self, *run: Any) -> None:
        super()._record(*run)
        self.learn_if_due()

    def count_runs(self) -> int:
        """How many runs were recorded, by all processes."""
        with suppress(OSError), self.path.open("rb") as stream:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
        return 0

    def learn_if_due(self) -> None:
        """Learn in a thread if there are enough new runs, and nothing learns already."""
        with self._turn:
            if self._is_due() and not self._is_learning:
                self._is_learning = True
                self._thread = start_daemon(self._learn_safely)

    def _is_due(self) -> bool:
        history = self.history()
        return self.count_runs() >= next_count(history[-1].runs if history else 0)

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until what is recorded and learned now is done."""
        for run in self._waiting.copy():
            run.result(seconds)
        if (thread := self._thread) is not None:
            thread.join(seconds)

    # -- learning ------------------------------------------------------------------------------

    def _learn_safely(self) -> None:
        while True:
            try:
                is_done = self.learn() is None or not self._is_due()  # more runs came meanwhile
            except Exception as error:  # noqa: BLE001  # whatever it is, the agent goes on
                logger.warning("nothing was learned from the runs in %s: %s", self.folder, error)
                is_done = True
            with self._turn:
                if is_done:
                    self._is_learning = False
                    return

    def learn(self, *, accept: bool = False) -> Learning | None:
        """Learn from all runs now; None if another process is learning.

        Args:
            accept: a person has looked at the runs, so a tool may rise at many steps.

        Raises:
            DtdrError: the runs cannot be read or learned from, or the model cannot be written.
        """
        from dtdr.api import fit

        with self._append(_LOCK) as stream:
            try:
                lock_file(stream, wait=False)
            except BlockingIOError:
                return None
            tools = self._keep_tools()
            runs = list(read_demonstrations(self.path, bad=BadRecords()))
            count, history = self.count_runs(), self.history()
            published = [item.runs for item in history if item.outcome == "published"]
            new = runs[published[-1] if published else 0 :]
            served = (self.load() if published else None) or describe_tools(tools)

            def learn_from(items: Sequence[Demonstration]) -> Model:
                keywords: dict[str, Any] = {"ranker": self._ranker, "arguments": False}
                return fit(items, tools, plans=False, **keywords)

            trial = compare(served, runs, new, learn_from)
            is_held = bool(trial.gains) and not accept
            outcome = "held" if is_held else "published" if trial.is_better else "kept"
            learning = Learning(
                count,
                outcome,
                time.time(),
                trial.judged,
                round(trial.before, 4),
                round(trial.after, 4),
                trial.reason,
            )
            model = learn_from(runs) if outcome == "published" else None
            if model is not None:
                model.save(self.folder / _MODEL, force=True)
                self._loaded = self._signature()
            with explain_os_errors(self.folder), self._append(_HISTORY) as target:
                target.write(json.dumps(asdict(learning)).encode() + b"\n")
        logger.info("learned from %d runs: %s", count, learning)
        if model is not None:
            self.learned(model)
        return learning

    def history(self) -> list[Learning]:
        """The history of learning, oldest first; damaged lines are left out."""
        entries = []
        with suppress(OSError):
            for line in (self.folder / _HISTORY).read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    entries.append(Learning(**json.loads(line)))
        return entries

    def known_tools(self) -> dict[str, Tool]:
        """The tools of this and earlier times, by name."""
        known: dict[str, Tool] = {}
        with suppress(OSError, ValueError, DtdrError):
            kept = json.loads((self.folder / _TOOLS).read_text(encoding="utf-8"))
            known = {tool.name: tool for tool in as_tools(kept)}
        return known | {tool.name: tool for tool in self.tools}

    def _keep_tools(self) -> list[Tool]:
        tools = list(self.known_tools().values())
        with replace_file(self.folder / _TOOLS, private=True) as stream:
            json.dump([tool.to_dict() for tool in tools], stream)
        return tools

    def _append(self, name: str) -> Any:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        return os.fdopen(os.open(self.folder / name, flags, 0o600), "ab")

    # -- what it was good for ------------------------------------------------------------------

    def save_usage(self) -> None:
        """Add the counts of this process to those in the folder; the log says if it cannot."""
        counts, self.usage = self.usage, Counter()
        if not counts:
            return
        try:
            with self._append(f"{_USAGE}.lock") as stream:
                lock_file(stream)
                if self.tools:
                    self._keep_tools()
                total = self.read_usage() + counts
                with replace_file(self.folder / _USAGE, private=True) as target:
                    json.dump(total, target)
        except (OSError, DtdrError) as error:
            logger.warning("counts of use are not kept: %s", error)

    def read_usage(self) -> Counter[str]:
        """The counts of all processes."""
        with suppress(OSError, ValueError, TypeError):
            return Counter(json.loads((self.folder / _USAGE).read_text(encoding="utf-8")))
        return Counter()

    def status(self) -> str:
        """Summarize recording, learning, listing and savings in five lines."""
        return "\n".join(f"{name:<7}{text}" for name, text in _status_of(self))


def _status_of(folder: RunFolder) -> list[tuple[str, str]]:
    runs, history, usage = folder.count_runs(), folder.history(), folder.read_usage()
    last = history[-1] if history else None
    published = [item for item in history if item.outcome == "published"]
    if published:
        item = published[-1]
        day = datetime.fromtimestamp(item.time).strftime("%Y-%m-%d %H:%M")
        model = (
            f"learned from {item.runs} runs on {day}: MRR {item.after:.3f}, {item.before:.3f} "
            f"before, on {item.judged} runs held back"
        )
    else:
        model = "names and descriptions of the tools; nothing is learned yet"
    if last is not None and last.outcome != "published":
        model += f"; at {last.runs} runs, {last.reason}"
    if last is not None and last.outcome == "held":
        model += f": look at the runs, then dtdr mcp --accept --name {folder.folder.name}"
    lists, calls = usage["lists"], usage["calls"]
    saved = usage["all_tokens"] - usage["listed_tokens"]
    share = saved / usage["all_tokens"] if usage["all_tokens"] else 0.0
    listed = usage["listed"] / lists if lists else 0.0
    called = f"{usage['listed_calls']} of {calls} calls were of tools in the list at that time"
    return [
        ("runs", f"{runs} in {folder.path}"),
        ("model", model),
        ("next", f"learns again at {next_count(last.runs if last else 0)} runs"),
        ("list", f"{listed:.0f} of {len(folder.known_tools())} tools on average; {called}"),
        ("saved", f"{saved:,} tokens of definitions in {lists} lists ({share:.0%})"),
    ]


def describe_tools(tools: Iterable[ToolLike]) -> Model:
    """A model that ranks tools by their names and descriptions, without a demonstration."""
    return Model.of(tools, arguments=False)
