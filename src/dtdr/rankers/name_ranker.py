"""Base of the rankers of this package, which rank by query and names of calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Literal, get_args

from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import ModelError, check_choice
from dtdr.rankers.base import UNKNOWN, Arrays, History, Ranker
from dtdr.rankers.calibration import Floats
from dtdr.text import encoders
from dtdr.text.encoders.base import Encoder

Recipe = Literal["default", "paper"]
"""Hyper-parameters by name: the ones that measured better, and exactly the paper's."""


class NameRanker(Ranker):
    """Base of the rankers here: they know tools by position, and runs by names of their calls.

    A subclass implements ``_fit``, ``_prepare`` and ``_row``, and names in ``SHAPES`` what it
    learns besides the tools.

    Attributes:
        SHAPES: attributes that are saved as arrays, ``a.b`` for b of the attribute a. Each size is
            a number, the number of ``tools``, the ``dimension`` of the encoder, or a name for the
            same number everywhere.
    """

    uses_calls = False
    SHAPES: ClassVar[Mapping[str, tuple[str | int, ...]]] = {}

    threshold: float | None = None
    recipe: str = "default"
    tools_: tuple[Tool, ...]

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """See ``Ranker.fit``."""
        self.set_tools(tools)
        self._fit(demonstrations)

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Take a vocabulary."""
        self.tools_ = tuple(tools)
        self._names = tuple(tool.name for tool in tools)
        self._index = {name: position for position, name in enumerate(self._names)}

    def positions(self, run: Run) -> list[int]:
        """The calls of a run by the positions of their tools."""
        return [self._index.get(call.tool, UNKNOWN) for call in run.calls]

    def plans(self, demonstrations: Sequence[Demonstration]) -> list[list[int]]:
        """The calls of demonstrations by the positions of their tools."""
        return [[self._index[name] for name in item.plan.tools] for item in demonstrations]

    def prepare(self, query: str) -> Any:
        """See ``Ranker.prepare``."""
        return self._prepare([query])[0]

    def prepare_all(self, runs: Sequence[Run]) -> Sequence[Any]:
        """See ``Ranker.prepare_all``."""
        return self._prepare([run.query for run in runs])

    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        return self._row(prepared, self.positions(run))

    @property
    def cut(self) -> float | None:
        """See ``Ranker.cut``."""
        return self.threshold

    @property
    def may_end_at_once(self) -> bool:
        """The paper's recipes are left as they are; without a history, no step is the first."""
        return self.recipe == "paper" or vars(self).get("order") == 0

    def arrays(self) -> Arrays:
        """See ``Ranker.arrays``."""
        return {name: attrgetter(name)(self) for name in self.SHAPES}

    def restore(self, tools: Sequence[Tool], arrays: Arrays) -> None:
        """See ``Ranker.restore``."""
        self.set_tools(tools)
        self._check_shapes(arrays)
        self._restore(arrays)

    def _check_shapes(self, arrays: Arrays) -> None:
        """Raise a ModelError unless a model folder has the arrays of this ranker and no others."""
        shapes, sizes = self.SHAPES, {"tools": len(self.tools_)}
        if self.encoder is not None:
            sizes["dimension"] = self.encoder.dimension
        for problem, wrong in (
            ("lacks", shapes.keys() - arrays.keys()),
            ("has another ranker's", arrays.keys() - shapes.keys()),
        ):
            if wrong:
                raise ModelError(f"the model folder {problem} array {min(wrong)!r}; fit it again")
        for name, shape in shapes.items():
            actual = arrays[name].shape
            expected = tuple(
                sizes.setdefault(axis, size) if isinstance(axis, str) else axis
                for axis, size in zip(shape, actual, strict=False)
            )
            if len(actual) != len(shape) or actual != expected:
                raise ModelError(
                    f"array {name!r} of the model folder has shape {actual}, expected {expected}; "
                    "fit it again"
                )

    @abstractmethod
    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        """Learn; ``tools_`` is set and no demonstration is a failure."""

    @abstractmethod
    def _prepare(self, queries: Sequence[str]) -> Sequence[Any]:
        """Values that are computed once per query, one item per query."""

    @abstractmethod
    def _row(self, prepared: Any, history: History) -> Floats:
        """Shape (tools,): scores after these calls, at least 0."""

    def _restore(self, arrays: Arrays) -> None:
        """Take back what ``arrays`` gave, of the right shapes; ``tools_`` and encoder are set."""
        vars(self).update(arrays)


class StaticRanker(NameRanker):
    """Ranks once a query, for the whole plan (paper, Appendix I.3, Algorithm 7).

    What it prepares for a query are the scores, of shape (tools,).
    """

    static = True

    def _row(self, prepared: Floats, history: History) -> Floats:
        return prepared


def check_recipe(recipe: str) -> None:
    """Raise an InputError for a recipe that does not exist."""
    check_choice("recipe", recipe, get_args(Recipe))


def recipe_encoder(encoder: str | Encoder, recipe: str) -> Encoder:
    """The encoder of a recipe, by its name, or the encoder itself.

    The paper's encoder does not return vectors of length 1, and the paper does not normalise them;
    its recipe takes them as they are (``normalize=False`` of ``sentence-transformers``).
    """
    if recipe == "paper" and encoder == "sentence-transformers":
        return encoders.create(encoder, normalize=False)
    return encoders.as_encoder(encoder)
