"""The served models, each a snapshot that reloads replace, and the steps that they are asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr import rankers
from dtdr.api import load
from dtdr.data.partials import TemporaryFolder
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.net.servers import Limits
from dtdr.net.workers import Workers
from dtdr.predict.model import Model
from dtdr.predict.session import Session
from dtdr.rankers.model_folder import read_config
from dtdr.rankers.ranking import Ranking
from dtdr.serve.learning.versions import copy_folder
from dtdr.serve.remote_folder import RemoteFolder, Stamp
from dtdr.serve.server.learning import LearningQueue, ModelChange, check_change
from dtdr.serve.server.logs import logger
from dtdr.serve.server.runs import RunCache, are_names, names_of
from dtdr.serve.server.schemas import CallMade, Object
from dtdr.serve.server.snapshots import Snapshot, computes, keep_prepared

Result = TypeVar("Result")

_COMPUTING = 2
"""Threads of a model that only computes: more share one interpreter, and delay the event loop."""

_LOAD_SECONDS, _LEARN_SECONDS = 120.0, 3_600.0
"""For loading a model, which takes seconds unless it waits for a server, and for learning."""


class ServedModel:
    """One model folder under its name.

    Args:
        name: of requests.
        folder: of this machine, or a URL, of which this machine gets a copy.
        limits: of rankings.

    Raises:
        ModelError: the folder has no usable model.
    """

    def __init__(self, name: str, folder: Path | str, limits: Limits) -> None:
        self.name = name
        self._remote: RemoteFolder | None = None
        if isinstance(folder, str):
            self._remote, self._copies = RemoteFolder(folder), TemporaryFolder("dtdr-serve-")
            folder = self._copies.path / "model"
        self.folder = folder
        self.reload_error: str | None = None
        self.unsaved = 0
        self._lock = asyncio.Lock()
        self._failed_stamp: Stamp | None = None
        model, self._stamp = self._read()
        threads = min(limits.threads, _COMPUTING) if computes(model) else limits.threads
        self.workers = Workers(threads, limits.ranking_seconds)
        self._trainer = Workers(1, _LEARN_SECONDS)
        self.learning = LearningQueue(self._learn)
        self._install(model, 1)

    # -- reloading -----------------------------------------------------------------------------

    @property
    def written(self) -> float:
        """When the folder that was loaded was written, in seconds since 1970."""
        return self._written

    @property
    def changed(self) -> bool:
        """Whether the folder has changed since it was loaded, or failed to load; may ask a store.

        Raises:
            ModelError: the store cannot be reached.
        """
        stamp = self._look()
        return stamp is not None and stamp not in (self._stamp, self._failed_stamp)

    async def reload(self) -> None:
        """Load the folder again; requests keep the snapshot that they began with.

        Raises:
            ModelError: the folder cannot be used; the model stays as it was.
        """
        async with self._lock:
            stamp: Stamp | None = None
            try:
                stamp = await self.workers.run(self._look)
                model, stamp = await self.workers.run(self._read, seconds=_LOAD_SECONDS)
            except Exception as error:
                if not isinstance(error, DtdrError):
                    logger.exception("a folder cannot be loaded")
                    error = ModelError(f"{self.folder} cannot be loaded ({type(error).__name__})")
                self.reload_error = str(error)
                self._failed_stamp = stamp
                raise error from None
            self._stamp, self._failed_stamp, self.reload_error = stamp, None, None
            self.unsaved = 0
            self._install(model, self.current.generation + 1)

    def _look(self) -> Stamp | None:
        """A stamp that changes with the files of the folder."""
        return _stamp(self.folder) if self._remote is None else self._remote.stamp()

    def _read(self) -> tuple[Model, Stamp | None]:
        """The model of the folder, and its stamp."""
        stamp = _stamp(self.folder)
        if self._remote is not None:
            stamp = self._remote.fetch(self.folder)
        model = _load(self.folder)
        self._written = max(item[0] for item in _stamp(self.folder) or [(0,)]) / 1e9
        return model, stamp

    def _install(self, model: Model, generation: int) -> None:
        # Prepared queries go with the snapshot, so that no older model ranks them.
        prepare = keep_prepared(model)
        runs = RunCache(model)
        self.current = Snapshot(self.name, model, generation, self.workers, runs, prepare)

    # -- learning ------------------------------------------------------------------------------

    def change(self, change: ModelChange) -> None:
        """Check a change, and let it be made aside, after those that wait.

        Raises:
            HTTPException: the model cannot change so, or too much waits.
        """
        queue = self.learning
        check_change(self.current.model, self.name, queue.after_current, change)
        queue.add(change)

    async def _learn(self, change: ModelChange) -> None:
        """Change a copy in a thread, and serve it.

        Raises:
            DtdrError: the model cannot change so, or it took too long.
        """
        while True:
            former = self.current
            try:
                changed = await self._trainer.run(change.apply, former.model)
            except TimeoutError:
                raise ModelError(f"model {self.name!r} did not learn in time") from None
            async with self._lock:
                if self.current is former:  # else it was reloaded meanwhile
                    learned = changed.training_.demonstrations
                    self.unsaved += learned - former.model.training_.demonstrations
                    self._install(changed, former.generation + 1)
                    return

    def stop(self) -> None:
        """Give up learning and long rankings."""
        self.learning.stop()
        self.workers.stop()

    async def save(self) -> int:
        """Write the folder; returns the number of demonstrations that were not in it.

        Raises:
            HTTPException: another process changed the folder since it was loaded.
            OutputError: it cannot be written; it is as before.
        """
        async with self._lock:
            if self._remote is not None:
                raise HTTPException(
                    409,
                    f"model {self.name!r} is served from a URL; log the feedback, and publish it "
                    "with dtdr learn --publish",
                )
            saved = self.unsaved
            await to_thread.run_sync(self._save, self.current.model)
            self._stamp = _stamp(self.folder)
            self.unsaved -= saved
            return saved

    def _save(self, model: Model) -> None:
        def confirm() -> None:
            if _stamp(self.folder) != self._stamp:
                raise HTTPException(
                    409,
                    f"the folder of model {self.name!r} was changed since it was loaded; reload it "
                    "and send the feedback again, or copy the folder first",
                )

        confirm()
        with TemporaryDirectory(prefix=".dtdr-", dir=self.folder.parent) as folder:
            model.save(Path(folder) / "model")
            copy_folder(Path(folder) / "model", self.folder, confirm)


class ModelRegistry(dict[str, ServedModel]):
    """The served models by name."""

    def find(self, name: str | None) -> ServedModel:
        """The model of a name; without a name, the only one.

        Raises:
            HTTPException: there is no such model, or several and none was named.
        """
        if name is None:
            if len(self) == 1:
                return next(iter(self.values()))
            raise HTTPException(422, f"name a model, one of {', '.join(self)}: several are served")
        model = self.get(name)
        if model is None:
            raise HTTPException(
                404, f"no model is named {name[:80]!r}; choose one of {', '.join(self)}"
            )
        return model


@dataclass
class AskedStep:
    """A run up to now, and the model that is asked about it.

    Attributes:
        calls: for the query, oldest first.
        before: the conversation before the query.
        owner: id of the key that asks.
        text: what the agent wrote before its next call; None if unknown.
    """

    model: ServedModel
    query: str
    calls: Sequence[CallMade | str] = field(repr=False)
    before: Sequence[Object] = field(repr=False)
    owner: str
    text: str | None = field(default=None, repr=False)

    @cached_property
    def history(self) -> list[str]:
        """Names of the tools called for the query, oldest first."""
        return names_of(self.calls)

    @cached_property
    def has_details(self) -> bool:
        """Whether the run has more than the query and these names."""
        return bool(self.before) or self.text is not None or not are_names(self.calls)

    def open(self, snapshot: Snapshot) -> AbstractContextManager[Session]:
        """The session of the run, of a recent request if there is one.

        Raises:
            InputError: something is not a call or a message, or two calls share an id.
        """
        return snapshot.runs.session(self.owner, self.query, self.calls, self.before, self.text)

    def rank(self, snapshot: Snapshot) -> Ranking:
        """The ranking of the next step."""
        if not self.has_details:
            return snapshot.rank(self.query, self.history)
        with self.open(snapshot) as session:
            return session.rank()

    async def ask(self, answer: Callable[[Snapshot], Result], *, ranks: bool = False) -> Result:
        """Compute an answer, in a thread unless this ranks a short step.

        Raises:
            HTTPException: it took too long.
        """
        snapshot = self.model.current
        size = len(self.query) + sum(map(len, self.history))
        if ranks and not self.has_details and snapshot.is_quick(size):
            return answer(snapshot)
        return await snapshot.run(answer, snapshot)


def unknown_names(snapshot: Snapshot, history: Sequence[str]) -> list[str]:
    """Names in a history that the model never saw, each once."""
    index = snapshot.model.index
    return list(dict.fromkeys(name for name in history if index(name) < 0))


def _load(folder: Path) -> Model:
    name = read_config(folder)["ranker"]
    if name in rankers.NAMES and "llm" in rankers.ranker_class(name).not_saved:
        raise InputError(
            f"{folder} is a {name}, which asks an LLM for every query; serve a model that "
            "learned from demonstrations, such as dtdr-l"
        )
    model = load(folder)
    if erased := model.training_.erased:
        logger.warning(
            "%s learned from %d demonstrations that were erased since; fit it again", folder, erased
        )
    # The first ranking also sets things up.
    if computes(model) and not isfinite(model.rank("warm up").confidence):
        raise ModelError(f"{folder} gives probabilities that are not numbers; fit it again")
    return model


def _stamp(folder: Path) -> Stamp | None:
    """Changes whenever a model's file is written; None while one is missing."""
    files = (folder / "config.json", folder / "model.safetensors")
    with contextlib.suppress(OSError):
        states = [path.stat() for path in files]
        return tuple((item.st_mtime_ns, item.st_ino, item.st_size) for item in states)
    return None
