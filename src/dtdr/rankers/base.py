"""Rankers: fitted to demonstrations, they score the tools for the next step of a run."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.rankers.calibration import NO_CALIBRATION, Calibration, Floats
from dtdr.rankers.explanation import Explanation
from dtdr.rankers.ranking import Ranking
from dtdr.text.encoders.base import Encoder

UNKNOWN = -1
"""Position of a tool that is not in the vocabulary."""

History = Sequence[int]
"""Positions of the called tools in the vocabulary, oldest first, or ``UNKNOWN``."""

Arrays = Mapping[str, npt.NDArray[Any]]


class StepState(Protocol):
    """One query and the calls made for it, as a ranker keeps them between steps."""

    def call(self, tool: int, call: ToolCall | None = None) -> None:
        """One more call of the tool at this position, with as much of it as is known."""

    def rank(self) -> Ranking:
        """The ranking of the next step."""

    def copy(self) -> Self:
        """The same state, to go on from in another way."""


@runtime_checkable
class ReadsText(Protocol):
    """A ``StepState`` that also reads what the agent wrote before its next call."""

    def say(self, text: str | None) -> None:
        """Read the text, which counts until the next call; None: nothing is known."""


@dataclass(frozen=True, slots=True)
class HeldOutFold:
    """A part of the demonstrations, and a ranker that has not seen them.

    Attributes:
        positions: which demonstrations.
        start: the state of a demonstration, by its position, before the first call.
    """

    positions: Sequence[int]
    start: Callable[[int], StepState]


class Ranker(ABC):
    """Scores every tool for the next step of a run (the paper's ω, Section 3).

    Implement ``fit``, ``prepare`` and ``probabilities``. ``dtdr.Model(ranker)`` adds sessions,
    masks, arguments, plans and saving. ``evaluate`` and the lab take it as ``module:Class``.

        class Frequent(Ranker):
            def fit(self, demonstrations, tools):
                called = Counter(name for item in demonstrations for name in item.plan.tools)
                self.counts = np.array([called[tool.name] + 1.0 for tool in tools])

            def prepare(self, query):
                return None

            def probabilities(self, prepared, run):
                return self.counts

    Do not use the names of this class for other attributes. ``fit`` must replace attributes, never
    change them in place, since other threads may rank with them. The numpy arrays that it sets are
    saved; if it sets anything else, override ``arrays`` and ``restore``. Constructor keywords are
    the parameters of the model, and are saved as JSON.

    Attributes:
        name: what users type; ``module:Class`` unless a class says otherwise.
        needs_descriptions: cannot work without tool descriptions.
        needs_demonstrations: cannot be fitted to tools alone.
        uses_encoder: takes an ``encoder``.
        uses_calls: reads more of a run than the query and the names of its calls.
        static: ranks once a query; only the end of plan has another probability after a call.
        not_saved: constructor keywords that are not JSON: given again on load.
        encoder: turns texts into vectors; None where none is used.
        calibration_: what ``fit`` learned about its own rankings on held-out plans.
    """

    name: ClassVar[str] = ""
    needs_descriptions: ClassVar[bool] = False
    needs_demonstrations: ClassVar[bool] = True
    uses_encoder: ClassVar[bool] = False
    uses_calls: ClassVar[bool] = True
    static: ClassVar[bool] = False
    not_saved: ClassVar[frozenset[str]] = frozenset({"encoder"})

    encoder: Encoder | None = None
    calibration_: Calibration = NO_CALIBRATION

    __signature__: ClassVar[inspect.Signature]
    _given: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A base that is given its module's name here does not pass it on to subclasses.
        if not cls.name or (":" in cls.name and "name" not in vars(cls)):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"
        # Early releases of Python 3.11 would give that of ``__new__`` where ``__init__`` is
        # inherited.
        signature = inspect.signature(cls.__init__)
        parameters = list(signature.parameters.values())[1:]
        is_own = cls.__init__ is not object.__init__
        cls.__signature__ = signature.replace(parameters=parameters if is_own else [])

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        """Remember the parameters, so that attributes may have any name."""
        ranker = super().__new__(cls)
        ranker._given = inspect.signature(cls).bind_partial(*args, **keywords).arguments
        return ranker

    # -- to implement --------------------------------------------------------------------------

    @abstractmethod
    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """Learn.

        Args:
            demonstrations: at least one, read once; their calls name tools of the vocabulary.
            tools: the n tools of the vocabulary, sorted by name, the end of plan last.
        """

    @abstractmethod
    def prepare(self, query: str) -> Any:
        """Compute what is needed once per query: its vector, its cluster, its ranking."""

    @abstractmethod
    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """Shape (n,), in the order of ``tools``: scores of the next step, at least 0.

        The model divides them by their sum.

        Args:
            prepared: of the run's query.
            run: the query, what came before it, and the calls so far.
        """

    # -- may be overridden ---------------------------------------------------------------------

    def prepare_all(self, runs: Sequence[Run]) -> Sequence[Any]:
        """``prepare`` for the queries of several runs."""
        return [self.prepare(run.query) for run in runs]

    def score_all(self, prepared: Sequence[Any], runs: Sequence[Run]) -> Floats:
        """``probabilities`` of several steps; shape (steps, n)."""
        return np.stack([self.probabilities(*step) for step in zip(prepared, runs, strict=True)])

    def familiarity(self, prepared: Any) -> float | None:
        """How much a query is like the demonstrations' queries; None where it cannot tell."""
        return None

    @property
    def cut(self) -> float | None:
        """The cut of ``Ranking.select()`` without arguments: a threshold, or a recipe's own."""
        return None

    @property
    def cuts_by_score(self) -> bool:
        """Whether the cut applies to the scores before they are normalised."""
        return False

    @property
    def may_end_at_once(self) -> bool:
        """Whether a plan may end before its first call even if no demonstrated plan does."""
        return False

    # -- parameters and saving -----------------------------------------------------------------

    def get_params(self) -> dict[str, Any]:
        """The constructor's keywords and their values."""
        return self.default_params() | dict(self._given)

    def default_params(self) -> dict[str, Any]:
        """The values that ``repr`` leaves out."""
        signature = inspect.signature(type(self)).parameters
        return {name: item.default for name, item in signature.items()}

    def arrays(self) -> Arrays:
        """The fitted state as named arrays.

        Raises:
            ModelError: an attribute that ``fit`` set has another type.
        """
        learned = {name: value for name, value in vars(self).items() if name not in self._own()}
        for name, value in learned.items():
            if not isinstance(value, np.ndarray):
                raise ModelError(
                    f"{self.name} cannot be saved: its attribute {name!r} is not a numpy array; "
                    "override arrays and restore"
                )
        return learned

    def restore(self, tools: Sequence[Tool], arrays: Arrays) -> None:
        """Restore from the output of ``arrays()``.

        Raises:
            ModelError: the arrays do not fit the ranker, its encoder or its tools.
            KeyError: an array is missing.
        """
        vars(self).update(arrays)

    def _own(self) -> set[str]:
        """Attributes that the constructor sets."""
        return set(vars(type(self)(**self.get_params())))


class IncrementalRanker(Ranker):
    """A ranker that keeps a state along a run, explains itself, and changes after its fit.

    ``Model`` asks for this class before it uses one of these methods; dtdr-f is the only one here.
    """

    @abstractmethod
    def start(self, prepared: Any, run: Run) -> StepState:
        """The state of a run before its first call."""

    @abstractmethod
    def explain(self, explanation: Explanation, run: Run, state: StepState) -> Explanation:
        """Add reasons to an explanation.

        Args:
            explanation: of a tool and its rival, which are known.
            run: what was ranked.
            state: after its calls.
        """

    @abstractmethod
    def held_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """Folds of the demonstrations just fitted, with rankers that have not seen them."""

    @abstractmethod
    def update(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn from further demonstrations, whose tools are in the vocabulary.

        As ``fit`` does, it replaces attributes.
        """

    @abstractmethod
    def change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Use another vocabulary.

        Args:
            tools: the new one, as ``fit`` takes it.
            names: the new name of each tool of the old one, in its order.
        """

    @abstractmethod
    def add_phrases(self, phrases: npt.NDArray[np.uint32]) -> None:
        """Add the hashed phrases of further queries, which make queries familiar."""

    @abstractmethod
    def demonstrated_plans(self) -> list[Plan]:
        """The plans that were learned from, with names of tools but without arguments."""
