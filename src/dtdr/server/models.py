"""The models that are served: each a snapshot that requests use and that reloads replace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path

from anyio import to_thread
from starlette.exceptions import HTTPException

from dtdr import retrievers
from dtdr.api import load
from dtdr.arguments.prediction import CallPrediction
from dtdr.demonstrations import Demonstration
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.model_folder import read_config
from dtdr.plans.prediction import PlanPrediction
from dtdr.ranking import Ranking
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.protocols import SupportsUpdates, update_copy
from dtdr.retrievers.surprise import Surprise
from dtdr.run import CallLike, Run
from dtdr.server.logs import logger
from dtdr.server.settings import Limits
from dtdr.server.snapshots import PREPARED_BYTES, PreparedQueries, Snapshot
from dtdr.server.workers import Workers

Stamp = tuple[tuple[int, int, int], ...]


_CHANGE_SECONDS = 120.0
"""For loading or updating a model, which takes seconds unless it waits for a server."""


@dataclass
class _UpdateRequest:
    demonstrations: Sequence[Demonstration]
    learned: int | None = None
    error: DtdrError | None = None


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
        self.on_replace: Callable[[ServedModel], None] = lambda _: None
        self._lock = asyncio.Lock()
        self._waiting: list[_UpdateRequest] = []
        self._stamp = _stamp(folder)
        self._failed_stamp: Stamp | None = None
        self.workers = Workers(limits.threads, limits.ranking_seconds)
        self.current = self._snapshot(_load(folder), 1)

    async def rank(
        self, query: str, history: Sequence[str], run: Run | None = None
    ) -> tuple[Snapshot, Ranking]:
        """Rank one step, and the snapshot that did.

        Args:
            query: what the user asked for.
            history: names of the calls.
            run: the query and the calls with all that is known of them.
        """
        snapshot = self.current
        if run is not None:
            return snapshot, await snapshot.run(snapshot.retriever.rank, run)
        return snapshot, await snapshot.run(snapshot.rank, query, history)

    async def search(
        self, text: str, run: Run | None, top_k: int, among: Collection[str] | None
    ) -> tuple[Snapshot, Sequence[tuple[str, float]]]:
        """The tools that a text means in a run, and the snapshot that found them."""
        snapshot = self.current
        work = partial(snapshot.retriever.search, among=among)
        return snapshot, await snapshot.run(work, text, run, top_k)

    async def surprise(self, call: CallLike, run: Run) -> tuple[Snapshot, Surprise]:
        """How odd a call is after a run, and the snapshot that says so."""
        snapshot = self.current
        return snapshot, await snapshot.run(snapshot.retriever.surprise, call, run)

    async def predict(
        self, run: Run, top_k: int, tool: str | None
    ) -> tuple[Snapshot, Sequence[CallPrediction]]:
        """The next calls of a run, or the call of one tool, and the snapshot that predicted them.

        Raises:
            HTTPException: it took too long.
            InputError: the model knows no arguments.
        """
        snapshot = self.current
        retriever = snapshot.retriever
        if tool is not None:
            return snapshot, [await snapshot.run_in_thread(retriever.fill, tool, run)]
        return snapshot, await snapshot.run_in_thread(retriever.next_calls, run, top_k)

    async def predict_plans(
        self, run: Run, top_k: int
    ) -> tuple[Snapshot, Sequence[PlanPrediction]]:
        """The most probable plans of what is left to do, and the snapshot that predicted them.

        Raises:
            HTTPException: it took too long.
            InputError: the model knows no plans.
        """
        snapshot = self.current
        work = partial(snapshot.retriever.plans, k=top_k)
        return snapshot, await snapshot.run_in_thread(work, run)

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

    def _install(self, retriever: Retriever) -> Snapshot:
        self.current = self._snapshot(retriever, self.current.generation + 1)
        self.on_replace(self)
        return self.current

    def _snapshot(self, retriever: Retriever, generation: int) -> Snapshot:
        loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
        inline = _ranks_inline(retriever)
        # The queries go with the snapshot, so that no ranking is ever made with an older model.
        prepare = PreparedQueries(retriever, PREPARED_BYTES)
        return Snapshot(retriever, generation, inline, loaded_at, self.workers, prepare)

    # -- learning on ---------------------------------------------------------------------------

    @property
    def can_learn(self) -> bool:
        """Whether the retriever learns from single demonstrations after it was fitted."""
        return isinstance(self.current.retriever, SupportsUpdates)

    async def learn(self, demonstrations: Sequence[Demonstration]) -> int:
        """Learn from demonstrations, in a thread, on a copy that then takes the model's place.

        What arrives while a copy learns is learned together by the next one.

        Returns:
            How many demonstrations were learned.

        Raises:
            HTTPException: the retriever does not support incremental updates.
            InputError: it cannot learn from these.
        """
        if not self.can_learn:
            raise HTTPException(
                409,
                f"model {self.name!r} is a {self.current.retriever.name}, which cannot learn after "
                "it was fitted; fit it again with the new demonstrations and reload, "
                "or serve a dtdr-f",
            )
        request = _UpdateRequest(demonstrations)
        self._waiting.append(request)
        async with self._lock:
            if request.learned is None and request.error is None:
                requests, self._waiting = self._waiting, []
                updated = await self._apply(requests)
                if updated is not None:
                    self.unsaved += sum(item.learned or 0 for item in requests)
                    self._install(updated)
        if request.error is not None:
            raise request.error
        return request.learned or 0

    async def _apply(self, requests: Sequence[_UpdateRequest]) -> Retriever | None:
        retriever = self.current.retriever
        try:
            return await self.workers.run(
                _apply_updates, retriever, requests, seconds=_CHANGE_SECONDS
            )
        except TimeoutError:
            for request in requests:
                request.error = ModelError(f"model {self.name!r} did not learn in time")
            return None

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


class ModelRegistry(Mapping[str, ServedModel]):
    """The served models by name.

    Raises:
        ModelError: a folder holds no usable model.
    """

    def __init__(self, folders: Mapping[str, Path], limits: Limits) -> None:
        self._models = {name: ServedModel(name, path, limits) for name, path in folders.items()}

    def __getitem__(self, name: str) -> ServedModel:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def find(self, name: str | None) -> ServedModel:
        """The model that a request names; the only one where it names none.

        Raises:
            HTTPException: there is no such model, or several and none was named.
        """
        if name is None:
            if len(self._models) == 1:
                return next(iter(self._models.values()))
            raise HTTPException(
                422, f"name a model, one of {', '.join(self._models)}: several are served"
            )
        model = self._models.get(name)
        if model is None:
            raise HTTPException(
                404, f"no model is named {name[:80]!r}; choose one of {', '.join(self._models)}"
            )
        return model


def _load(folder: Path) -> Retriever:
    name = read_config(folder)["retriever"]
    if name in retrievers.NAMES and "llm" in retrievers.retriever_class(name).not_saved:
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
    if _ranks_inline(retriever) and not isfinite(retriever.rank("warm up").confidence):
        raise ModelError(f"{folder} gives probabilities that are not numbers; fit it again")
    return retriever


def _ranks_inline(retriever: Retriever) -> bool:
    return retriever.encoder is None or retriever.encoder.learned


def _stamp(folder: Path) -> Stamp | None:
    """Changes whenever a file of a model is written; None while one is missing."""
    files = (folder / "config.json", folder / "model.safetensors")
    with contextlib.suppress(OSError):
        states = [path.stat() for path in files]
        return tuple((item.st_mtime_ns, item.st_ino, item.st_size) for item in states)
    return None


def _apply_updates(retriever: Retriever, requests: Sequence[_UpdateRequest]) -> Retriever | None:
    """A copy of the retriever that learned the requests; None when it learned from none of them."""
    try:
        updated, total = update_copy(
            retriever, [item for request in requests for item in request.demonstrations]
        )
    except DtdrError as error:
        if len(requests) == 1:
            requests[0].error = error
            return None
        # One of several is at fault: each by itself, so that it spoils no other.
        latest = None
        for request in requests:
            latest = _apply_updates(latest or retriever, [request]) or latest
        return latest
    counts_failures = updated.failure_weight > 0
    for request in requests:
        request.learned = sum(
            counts_failures or item.outcome != "failure" for item in request.demonstrations
        )
    if len(requests) == 1:
        requests[0].learned = total
    return updated
