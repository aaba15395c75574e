"""What a retriever is: learned from demonstrations, it ranks the tools for the next step."""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr import encoders
from dtdr.demonstrations import Demonstration, Tool, unique_tools
from dtdr.encoders.base import Encoder
from dtdr.errors import DtdrError, InputError
from dtdr.plan import END
from dtdr.ranking import NO_GUIDE, Floats, Guide, Ranking
from dtdr.retrievers.session import UNKNOWN, History, Prepared, Session, Steps, Walk

END_TOOL = Tool(END, "Finish: everything the user asked for is planned, no further tool is needed.")


@dataclass(frozen=True)
class TrainingData:
    """What a model was fitted on, as its folder records it."""

    demonstrations: int
    skipped_failures: int
    sha256: str


class Retriever(ABC):
    """Base of every retriever (the paper's ω, Section 2).

    Attributes that end in ``_`` are learned by ``fit``. Thread-safe once fitted.
    A subclass keeps each constructor keyword in an attribute of the same name.

    Attributes:
        name: what users type.
        static: ranks once a query and keeps that ranking for the whole plan.
        needs_descriptions: cannot work without tool descriptions.
        uses_encoder: takes an ``encoder``.
        can_update: learns on after ``fit``, and its tools can change.
        failure_weight: how much a failed demonstration counts; 0 leaves it out.
        tools_: the tool vocabulary, sorted by name, end of plan last.
        guide_: what was learned about its own rankings on held-out plans.
    """

    name: ClassVar[str]
    static: ClassVar[bool] = False
    needs_descriptions: ClassVar[bool] = False
    uses_encoder: ClassVar[bool] = False
    can_update: ClassVar[bool] = False
    not_saved: ClassVar[frozenset[str]] = frozenset({"encoder"})
    """Constructor keywords that are no JSON and are kept elsewhere, or given again on load."""

    threshold: float | None = None
    encoder: Encoder | None = None
    failure_weight: float = 0.0
    seed: int = 0

    tools_: tuple[Tool, ...]
    training_: TrainingData
    guide_: Guide = NO_GUIDE

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self, demonstrations: Iterable[Demonstration], tools: Iterable[Tool] | None = None
    ) -> Self:
        """Learn from demonstrations; failures are left out where ``failure_weight`` is 0.

        Args:
            demonstrations: any iterable; it is read once.
            tools: descriptions and parameters, and tools that no demonstration uses yet.

        Raises:
            InputError: there is nothing to learn from, two tools share a name, or the retriever
                needs descriptions and there are none; the demonstrations are a path; or the seed
                is none that numpy and scikit-learn take.
        """
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be between 0 and 4,294,967,295")
        if isinstance(demonstrations, (str, Path)):
            raise InputError(
                f"{str(demonstrations)!r} is a path; read it with dtdr.read_demonstrations first"
            )
        kept, found = self._kept(demonstrations)
        self._set_vocabulary(unique_tools(tools or ()), kept)
        self.training_ = found
        self._fit(kept)
        return self

    def _kept(
        self, demonstrations: Iterable[Demonstration], before: str = ""
    ) -> tuple[list[Demonstration], TrainingData]:
        """What is learned from, and its record; ``before`` is the hash of what was learned."""
        kept: list[Demonstration] = []
        digest = hashlib.sha256(before.encode())
        skipped = 0
        for demonstration in demonstrations:
            if demonstration.outcome == "failure" and not self.failure_weight:
                skipped += 1
                continue
            kept.append(demonstration)
            digest.update(_fingerprint(demonstration))
        if not kept and not before:
            raise InputError(
                "there are no demonstrations to learn from"
                + (f" (all {skipped} are failures)" if skipped else "")
                + "; give at least one"
            )
        return kept, TrainingData(len(kept), skipped, digest.hexdigest())

    def _set_vocabulary(self, known: dict[str, Tool], kept: Sequence[Demonstration]) -> None:
        if self.needs_descriptions and not any(tool.description for tool in known.values()):
            raise InputError(
                f"retriever {self.name!r} needs tool descriptions; pass tools (--tools tools.json) "
                "or choose a retriever that learns from demonstrations alone, such as dtdr-c"
            )
        names = {call.tool for demonstration in kept for call in demonstration.plan.calls}
        names.update(known)
        names.discard(END)
        ordered = [known.get(name, Tool(name)) for name in sorted(names)]
        self._install_tools((*ordered, known.get(END, END_TOOL)))

    def _install_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools_ = tools
        self._names = tuple(tool.name for tool in tools)
        self._index = {name: position for position, name in enumerate(self._names)}

    @abstractmethod
    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn; ``tools_`` is set and no demonstration is a failure."""

    # -- learning on ---------------------------------------------------------------------------

    def update(self, demonstrations: Iterable[Demonstration]) -> int:
        """Learn from further demonstrations without a refit; survives save and load.

        Sessions that are open keep what they were opened with. Tools that are not known yet are
        added.

        Args:
            demonstrations: any iterable; failures are left out where ``failure_weight`` is 0.

        Returns:
            How many were learned from.

        Raises:
            InputError: this retriever cannot learn on.
            DtdrError: the retriever is not fitted.
        """
        raise self._cannot_learn_on()

    def add_tools(self, tools: Iterable[Tool]) -> None:
        """Add tools that no demonstration uses yet, ranked by their descriptions.

        Raises:
            InputError: this retriever cannot, or a name is known already.
            DtdrError: the retriever is not fitted.
        """
        raise self._cannot_learn_on()

    def remove_tools(self, names: Iterable[str]) -> None:
        """Remove tools; their calls in what was learned count as calls of unknown tools.

        Raises:
            InputError: this retriever cannot, or a name is not known.
            DtdrError: the retriever is not fitted.
        """
        raise self._cannot_learn_on()

    def rename_tool(self, old: str, tool: str | Tool) -> None:
        """Give a tool another name, and another description where a ``Tool`` is given.

        Raises:
            InputError: this retriever cannot, the old name is not known, or the new one is taken.
            DtdrError: the retriever is not fitted.
        """
        raise self._cannot_learn_on()

    def _cannot_learn_on(self) -> InputError:
        return InputError(
            f"retriever {self.name!r} cannot learn on; fit it again, or choose dtdr-f"
        )

    # -- ranking -------------------------------------------------------------------------------

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Names of the known tools, end of plan last; the order of every probability vector."""
        self._require_fitted()
        return self._names

    def index(self, tool: str) -> int:
        """Position of a tool in the vocabulary, or ``UNKNOWN``."""
        self._require_fitted()
        return self._index.get(tool, UNKNOWN)

    def rank(self, query: str, history: Sequence[str] = ()) -> Ranking:
        """Rank every known tool for the next step.

        Args:
            query: what the user asked for.
            history: names of the tools called so far, oldest first; unknown names are allowed.

        Returns:
            Probabilities that sum to 1 over the tool vocabulary, end of plan included.

        Raises:
            DtdrError: the retriever is not fitted.
        """
        return self.rank_batch([query], [history])[0]

    def rank_batch(
        self, queries: Sequence[str], histories: Sequence[Sequence[str]]
    ) -> list[Ranking]:
        """Rank many steps at once; each distinct query is encoded once.

        Args:
            queries: one a step.
            histories: one a step.

        Raises:
            InputError: the two differ in length, or hold something else than text.
            DtdrError: the retriever is not fitted.
        """
        self._require_fitted()
        if len(queries) != len(histories):
            raise InputError(f"{len(queries)} queries but {len(histories)} histories were given")
        for query, history in zip(queries, histories, strict=True):
            if not isinstance(query, str):
                raise InputError(f"a query must be text, not {type(query).__name__}")
            if isinstance(history, str):
                raise InputError(f"a history must be a list of tool names, not {history!r}")
        if not queries:
            return []
        distinct = list(dict.fromkeys(queries))
        prepared = self._prepare(distinct)
        position = {query: index for index, query in enumerate(distinct)}
        lookup = self._index
        return self._rankings(
            [prepared[position[query]] for query in queries],
            [[lookup.get(name, UNKNOWN) for name in history] for history in histories],
        )

    def session(self, query: str) -> Session:
        """A session that encodes the query once and ranks after each call."""
        self._require_fitted()
        return Session(self, query)

    def prepared(self, query: str) -> Prepared:
        """The query, encoded once, to be ranked for several histories."""
        self._require_fitted()
        return Prepared(self, query)

    def _walk(self, query: str) -> Walk:
        """What a session keeps of a query and its calls."""
        return Steps(self, query)

    @abstractmethod
    def _prepare(self, queries: Sequence[str]) -> Sequence[Any]:
        """What is computed once a query, one item a query: its vector, its cluster, its ranking."""

    @abstractmethod
    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        """Shape (steps, tools): scores that are at least 0; rows are normalised by the caller."""

    def _rankings(self, prepared: Sequence[Any], histories: Sequence[History]) -> list[Ranking]:
        scores = self._probabilities(prepared, histories)
        rows = normalise(scores)
        familiarity = self._familiarity(prepared)
        return [
            Ranking(
                self._names, row, threshold=self.threshold, guide=self.guide_, familiarity=value
            )
            for row, value in zip(rows, familiarity, strict=True)
        ]

    def _familiarity(self, prepared: Sequence[Any]) -> Sequence[float | None]:
        """How much each query is like the demonstrations' queries; None where it cannot tell."""
        return [None] * len(prepared)

    def _require_fitted(self) -> None:
        if not hasattr(self, "tools_"):
            raise DtdrError(
                f"retriever {self.name!r} is not fitted; call fit(demonstrations) first"
            )

    # -- saving --------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """The constructor's keywords and their values, those of ``not_saved`` left out."""
        return {
            name: getattr(self, name)
            for name in inspect.signature(type(self)).parameters
            if name not in self.not_saved
        }

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a model folder: ``config.json`` and ``model.safetensors``, no pickle.

        Raises:
            OutputError: the folder exists and ``force`` is False, or it cannot be written; what
                was there before is intact.
        """
        from dtdr.model_folder import save_model

        self._require_fitted()
        save_model(self, folder, force=force)

    @abstractmethod
    def _state(self) -> dict[str, npt.NDArray[Any]]:
        """What was learned, as named arrays."""

    @abstractmethod
    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take back what ``_state`` gave; ``tools_`` and the encoder are set."""


def choose_encoder(encoder: str | Encoder) -> Encoder:
    """An encoder from its name, or the encoder itself."""
    return encoders.create(encoder) if isinstance(encoder, str) else encoder


def normalise(scores: Floats) -> Floats:
    """Rows that sum to 1; a row of zeros becomes uniform. Scores must be at least 0."""
    totals = scores.sum(axis=1, keepdims=True)
    empty = totals[:, 0] <= 0
    if empty.any():
        scores = np.where(empty[:, None], 1.0, scores)
        totals = scores.sum(axis=1, keepdims=True)
    result: Floats = scores / totals
    return result


def softmax(logits: Floats) -> Floats:
    """Row-wise softmax that does not overflow."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return result


def _fingerprint(demonstration: Demonstration) -> bytes:
    calls = [(call.tool, call.references()) for call in demonstration.plan.calls]
    record = [demonstration.query, calls, demonstration.plan.links]
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")
