"""What a retriever is: learned from demonstrations, it ranks the tools for the next step."""

from __future__ import annotations

import html
import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dtdr import model_folder
from dtdr.arguments.model import ArgumentModel, ArgumentOptions
from dtdr.calibration import Floats
from dtdr.calls import END
from dtdr.demonstration_files import DemonstrationFile
from dtdr.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.errors import InputError, ModelError
from dtdr.plan import Plan
from dtdr.plans.beam import StepState
from dtdr.plans.held_out import HeldOutFold
from dtdr.plans.model import PlanModel
from dtdr.retrievers.folds import assign_folds
from dtdr.retrievers.notebook import fitted_html
from dtdr.retrievers.predictor import Predictor
from dtdr.retrievers.session import History
from dtdr.retrievers.surprise import SurpriseModel
from dtdr.retrievers.training import TrainingData, select_training_data
from dtdr.tools import Tool, unique_tools

logger = logging.getLogger("dtdr")

END_TOOL = Tool(END, "Finish: everything the user asked for is planned, no further tool is needed.")

Demonstrations = str | Path | Iterable[DemonstrationLike]
"""What a retriever is fitted to: a file, or anything that can be iterated over."""


class Retriever(Predictor):
    """Base of every retriever: learned from demonstrations, saved as a folder.

    Attributes that end in ``_`` are learned by ``fit``. A subclass keeps each constructor keyword
    in an attribute of the same name, and never changes in place what an attribute holds. It
    implements ``_fit``, ``_prepare``, ``_probabilities``, ``_state`` and ``_restore``.

    Any number of threads may rank while others fit or update; see ``Estimator``.

    Attributes:
        needs_descriptions: cannot work without tool descriptions.
        uses_encoder: takes an ``encoder``.
        has_folds: learns from parts of the demonstrations in turn, so that models which have not
            seen them cost nothing.
        failure_weight: how much a failed demonstration counts; 0 leaves it out.
        seed: of all that is drawn.
    """

    needs_descriptions: ClassVar[bool] = False
    uses_encoder: ClassVar[bool] = False
    has_folds: ClassVar[bool] = False

    failure_weight: float = 0.0
    seed: int = 0

    def _repr_html_(self) -> str:
        if not hasattr(self, "tools_"):
            return f"<code>{html.escape(repr(self))}</code>, not fitted yet"
        calibrated = self.calibration_.has_coverage
        return fitted_html(repr(self), self.tools_, self.training_.demonstrations, calibrated)

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        demonstrations: Demonstrations,
        tools: Iterable[Tool] | None = None,
        *,
        arguments: bool | ArgumentOptions = False,
        plans: bool = False,
    ) -> Self:
        """Learn from demonstrations; failures are left out where ``failure_weight`` is 0.

        Args:
            demonstrations: the path of a ``demonstrations.jsonl`` or of an agent's log, whose
                format is found; or any iterable, read once, of ``Demonstration`` objects, their
                JSON objects, or pairs ``(query, [tool names])``.
            tools: descriptions and parameters, and tools that no demonstration uses yet; None
                takes those that the log or the ``tools.json`` beside the file holds.
            arguments: whether to learn also which value each argument takes, for ``next_calls``
                and ``fill``, from failures too; ``ArgumentOptions`` say which values are kept.
            plans: whether to learn also which whole plans are right, for ``plans``, and how odd a
                call is, for ``surprise``, which dtdr-f learns in any case. Another retriever is
                fitted once more for each of three folds.

        Raises:
            InputError: there is nothing to learn from, something is not a demonstration, two tools
                share a name, or the retriever needs descriptions and there are none; or the seed
                is not one that numpy and scikit-learn take.
        """
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be between 0 and 4,294,967,295")
        if isinstance(demonstrations, (str, Path)):
            from dtdr.traces import open_demonstrations

            demonstrations = open_demonstrations([demonstrations])
        source, everything = demonstrations, list[Demonstration]()
        started = time.perf_counter()
        if arguments:
            demonstrations = everything = list(as_demonstrations(demonstrations))
        with self._change() as draft:
            usable, draft.training_ = select_training_data(
                demonstrations, failures=bool(draft.failure_weight)
            )
            if tools is None and isinstance(source, DemonstrationFile):
                tools = source.tools
            draft._set_vocabulary(unique_tools(tools or ()), usable)
            draft._fit(usable)
            draft.arguments_ = None
            if arguments:
                options = arguments if isinstance(arguments, ArgumentOptions) else None
                # Most calls of a failed run are right. Without those runs, of tau-bench's airline
                # 39 % of calls were filled exactly, with them 44 %.
                draft.arguments_ = ArgumentModel.fit(
                    everything, draft.tools_[:-1], options, seed=draft.seed
                )
            held_out = draft._held_out(usable)
            draft.plans_ = draft.surprise_ = None
            folds = list(held_out) if plans or draft.has_folds else []
            if folds:
                draft.surprise_ = SurpriseModel.fit(usable, folds, draft._index)
            if plans:
                draft.plans_ = PlanModel.fit(
                    usable,
                    draft.tools_[:-1],
                    iter(folds),
                    may_be_empty=draft.may_end_at_once,
                    seed=draft.seed,
                )
        logger.info(
            "fitted %s on %d demonstrations of %d tools in %.2f s",
            self.name,
            self.training_.demonstrations,
            len(self.tools_) - 1,
            time.perf_counter() - started,
        )
        return self

    def record_counts(self, training: TrainingData, phrases: npt.NDArray[np.uint32] | None) -> None:
        """Say of what the demonstrations were a sample that ``fit`` learned from.

        Args:
            training: what was counted.
            phrases: hashes of what all counted queries hold, by which queries are familiar; None
                leaves those of the sample.
        """
        with self._change() as draft:
            draft.training_ = replace(training, choice=draft.training_.choice)
            if phrases is not None:
                draft._add_phrases(phrases)

    def record_options(self, options: Mapping[str, Any]) -> None:
        """Say how ``fit`` was called, for what fits the model again; see ``TrainingData``."""
        with self._change() as draft:
            draft.training_ = replace(draft.training_, options=dict(options) or None)

    def _add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        """Nothing, where queries are familiar by something else than their phrases."""

    def _held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """Parts of the demonstrations, each with a retriever that has not seen it."""
        fold = assign_folds(demonstrations, folds=3, grouped=True, seed=self.seed)
        for number in range(int(fold.max()) + 1):
            rest = [item for item, own in zip(demonstrations, fold, strict=True) if own != number]
            if not rest:
                return
            other = self.clone().fit(rest, self.tools_[:-1])

            def start(position: int, other: Retriever = other) -> StepState:
                return other._start(demonstrations[position].query, demonstrations[position].before)

            yield HeldOutFold(np.flatnonzero(fold == number).tolist(), start)

    def _set_vocabulary(self, known: dict[str, Tool], usable: Sequence[Demonstration]) -> None:
        if self.needs_descriptions and not any(tool.description for tool in known.values()):
            raise InputError(
                f"retriever {self.name!r} needs tool descriptions; pass tools (--tools tools.json) "
                "or choose a retriever that learns from demonstrations alone, such as dtdr-c"
            )
        names = {call.tool for demonstration in usable for call in demonstration.plan.calls}
        names.update(known)
        names.discard(END)
        ordered = [known.get(name, Tool(name)) for name in sorted(names)]
        self._install_tools((*ordered, known.get(END, END_TOOL)))

    @abstractmethod
    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn; ``tools_`` is set and no demonstration is a failure."""

    def demonstrated_plans(self) -> list[Plan] | None:
        """The plans that were learned from, by names alone; None where they are not kept."""
        self._snapshot()
        return None

    # -- saving --------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a model folder: ``config.json`` and ``model.safetensors``, no pickle.

        Raises:
            OutputError: the folder exists and ``force`` is False, or it cannot be written; what
                was there before is intact.
        """
        model = self._snapshot()
        config = {
            "retriever": model.name,
            "parameters": model.parameters(),
            "encoder": None,
            "seed": model.seed,
            "tools": [tool.to_dict() for tool in model.tools_],
            "training_data": vars(model.training_),
        }
        parts = {
            "encoder": model.encoder,
            "arguments": model.arguments_,
            "plans": model.plans_,
            "surprise": model.surprise_,
        }
        model_folder.write(folder, config, model._state(), parts, force=force)

    def restore(
        self,
        tools: Iterable[Tool],
        training: TrainingData,
        arrays: Mapping[str, npt.NDArray[Any]],
        arguments: ArgumentModel | None = None,
        plans: PlanModel | None = None,
        surprise: SurpriseModel | None = None,
    ) -> Self:
        """Take back what ``save`` wrote; ``dtdr.load`` calls it.

        Args:
            tools: the vocabulary, in its order.
            training: what the model was fitted on.
            arrays: those of the retriever; its encoder has its own already.
            arguments: what fills arguments, where that was learned.
            plans: what makes whole plans, where that was learned.
            surprise: what knows odd calls, where that was learned.

        Raises:
            ModelError: the arrays do not fit the retriever, its encoder or its tools.
            KeyError: an array is missing.
        """
        tools = tuple(tools)
        names = [tool.name for tool in tools]
        if len({*names}) < len(names) or names[-1:] != [END]:
            raise ModelError(f"its tools are not unique, or do not end with {END!r}; fit it again")
        with self._change() as draft:
            draft._install_tools(tools)
            draft.training_ = training
            draft._restore(arrays)
            draft.arguments_ = arguments
            draft.plans_ = plans
            draft.surprise_ = surprise
        return self

    @abstractmethod
    def _state(self) -> dict[str, npt.NDArray[Any]]:
        """What was learned, as named arrays."""

    @abstractmethod
    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take back what ``_state`` gave; ``tools_`` and the encoder are set."""


class StaticRetriever(Retriever):
    """Ranks once a query, for the whole plan (paper, Appendix I.3, Algorithm 7)."""

    static = True

    def _prepare(self, queries: Sequence[str]) -> Sequence[Floats]:
        return self._scores(queries)

    @abstractmethod
    def _scores(self, queries: Sequence[str]) -> Sequence[Floats]:
        """For each query, scores of shape (tools,), at least 0."""

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return np.stack(prepared)
