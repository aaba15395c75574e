"""The models that are served: each a snapshot that requests use and that reloads replace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr import rankers
from dtdr.api import load
from dtdr.data.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.net.limits import Limits
from dtdr.net.server_logs import logger
from dtdr.net.workers import Workers
from dtdr.predict.model import Model
from dtdr.rankers.model_folder import read_config
from dtdr.serve.server.snapshots import PREPARED_BYTES, PreparedQueries, Snapshot, computes

Stamp = tuple[tuple[int, int, int], ...]
Lesson = tuple[Sequence[Demonstration], asyncio.Future[int]]
"""Demonstrations of one request, and its answer: how many were learned."""

_COMPUTING = 2
"""Threads of a model that waits for nothing: more of them share one interpreter and are no faster,
and each makes the event loop wait longer for its turn."""

_CHANGE_SECONDS = 120.0
"""For loading or updating a model, which takes seconds unless it waits for a server."""


class ServedModel:
    """One model folder under its name.

    Raises:
        ModelError: the folder holds no usable model.
    """

    def __init__(self, name: str, folder: Path, limits: Limits) -> None:
        self.name = name
        self.folder = folder
        self.reload_error: str | None = None
        self.unsaved = 0
        self._lock = asyncio.Lock()
        self._lessons: list[Lesson] = []
        self._stamp = _stamp(folder)
        self._failed_stamp: Stamp | None = None
        retriever = _load(folder)
        threads = min(limits.threads, _COMPUTING) if computes(retriever) else limits.threads
        self.workers = Workers(threads, limits.ranking_seconds)
        self.current = self._snapshot(retriever, 1)

    # -- reloading -----------------------------------------------------------------------------

    @property
    def written(self) -> float:
        """When the folder that was loaded was written, in seconds since 1970."""
        return max((item[0] for item in self._stamp or ()), default=0) / 1e9

    @property
    def changed(self) -> bool:
        """Whether the folder is another than the one that was loaded, or tried, last."""
        stamp = _stamp(self.folder)
        return stamp is not None and stamp not in (self._stamp, self._failed_stamp)

    async def reload(self) -> Snapshot:
        """Load the folder again; requests under way keep the snapshot they began with.

        Raises:
            ModelError: the folder cannot be used; the model stays as it was.
        """
        async with self._lock:
            stamp = _stamp(self.folder)
            try:
                retriever = await self.workers.run(_load, self.folder, seconds=_CHANGE_SECONDS)
            except Exception as error:
                if not isinstance(error, DtdrError):
                    logger.exception("a folder cannot be loaded")
                    reason = f"{self.folder} cannot be loaded ({type(error).__name__})"
                    error = ModelError(reason)
                self.reload_error = str(error)
                self._failed_stamp = stamp
                raise error from None
            self._stamp, self._failed_stamp, self.reload_error = stamp, None, None
            self.unsaved = 0
            return self._install(retriever)

    def _install(self, retriever: Model) -> Snapshot:
        self.current = self._snapshot(retriever, self.current.generation + 1)
        return self.current

    def _snapshot(self, retriever: Model, generation: int) -> Snapshot:
        loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
        # The queries go with the snapshot, so that no ranking is ever made with an older model.
        prepare = PreparedQueries(retriever, PREPARED_BYTES)
        return Snapshot(self.name, retriever, generation, loaded_at, self.workers, prepare)

    # -- learning on ---------------------------------------------------------------------------

    @property
    def can_learn(self) -> bool:
        """Whether the retriever learns from single demonstrations after it was fitted."""
        return self.current.retriever.can_update

    async def learn(self, demonstrations: Sequence[Demonstration]) -> int:
        """Learn from demonstrations, in a thread, on a copy that then takes the model's place.

        What arrives while a copy learns is learned together by the next one: an update of a dtdr-f
        takes as long for many demonstrations as for one.

        Returns:
            How many demonstrations were learned.

        Raises:
            HTTPException: the retriever does not support incremental updates.
            InputError: it cannot learn from these.
            ModelError: it took too long.
        """
        if not self.can_learn:
            raise HTTPException(
                409,
                f"model {self.name!r} is a {self.current.retriever.name}, which cannot learn after "
                "it was fitted; fit it again with the new demonstrations and reload, "
                "or serve a dtdr-f",
            )
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lessons.append((demonstrations, answer))
        async with self._lock:
            if not answer.done():
                lessons, self._lessons = self._lessons, []
                await self._learn(lessons)
        return await answer

    async def _learn(self, lessons: Sequence[Lesson]) -> None:
        """Learn lessons together; if that fails, one at a time, so that none spoils another."""
        together = [item for demonstrations, _ in lessons for item in demonstrations]
        learn = self.current.retriever.update_copy
        try:
            updated, learned = await self.workers.run(learn, together, seconds=_CHANGE_SECONDS)
        except Exception as error:  # noqa: BLE001  # it is raised where the answer is awaited
            if len(lessons) > 1:
                for lesson in lessons:
                    await self._learn([lesson])
                return
            if isinstance(error, TimeoutError):
                error = ModelError(f"model {self.name!r} did not learn in time")
            lessons[0][1].set_exception(error)
            return
        self.unsaved += learned
        self._install(updated)
        counts_failures = updated.failure_weight > 0
        for demonstrations, answer in lessons:
            answer.set_result(
                sum(counts_failures or item.outcome != "failure" for item in demonstrations)
            )

    async def save(self) -> int:
        """Write what was learned to the folder; returns how many demonstrations that were.

        Raises:
            HTTPException: another process changed the folder since it was loaded.
            OutputError: it cannot be written; it is as it was.
        """
        async with self._lock:
            if _stamp(self.folder) != self._stamp:
                raise HTTPException(
                    409,
                    f"the folder of model {self.name!r} was changed since it was loaded; reload it "
                    "and send the feedback again, or copy the folder away first",
                )
            saved, retriever = self.unsaved, self.current.retriever
            await to_thread.run_sync(lambda: retriever.save(self.folder, force=True))
            self._stamp = _stamp(self.folder)
            self.unsaved -= saved
            return saved


class ModelRegistry(dict[str, ServedModel]):
    """The served models by name."""

    @classmethod
    def load(cls, folders: Mapping[str, Path], limits: Limits) -> ModelRegistry:
        """The models of folders.

        Raises:
            ModelError: a folder holds no usable model.
        """
        return cls({name: ServedModel(name, path, limits) for name, path in folders.items()})

    def find(self, name: str | None) -> ServedModel:
        """The model that a request names; the only one where it names none.

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


def _load(folder: Path) -> Model:
    name = read_config(folder)["retriever"]
    if name in rankers.NAMES and "llm" in rankers.retriever_class(name).not_saved:
        raise InputError(
            f"{folder} is a {name}, which asks an LLM for every query; serve a retriever that "
            "learned from demonstrations, such as dtdr-l"
        )
    retriever = load(folder)
    if erased := retriever.training_.erased:
        logger.warning(
            "%s learned from %d demonstrations that were erased since; fit it again", folder, erased
        )
    # What is set up at the first ranking is not for a request.
    if computes(retriever) and not isfinite(retriever.rank("warm up").confidence):
        raise ModelError(f"{folder} gives probabilities that are not numbers; fit it again")
    return retriever


def _stamp(folder: Path) -> Stamp | None:
    """Changes whenever a file of a model is written; None while one is missing."""
    files = (folder / "config.json", folder / "model.safetensors")
    with contextlib.suppress(OSError):
        states = [path.stat() for path in files]
        return tuple((item.st_mtime_ns, item.st_ino, item.st_size) for item in states)
    return None
