"""From a cell's description to a fitted retriever."""

from __future__ import annotations

import copy
import inspect
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.run import Run
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate.lab.train_test import TrainTest
from dtdr.predict.model import Model
from dtdr.rankers import retriever_class
from dtdr.rankers.base import History, Ranker
from dtdr.rankers.ranking import Floats

Item = TypeVar("Item")

_RANKING_ONLY = frozenset(
    {
        *("kind", "icl", "select", "top", "steps", "size", "llm"),
        *("threshold", "mask", "loop", "layout", "fill"),
    }
)
"""Parts of a cell's description that do not change what its retriever learns."""

_last: tuple[str, Model, float] | None = None


def fit_signature(spec: Mapping[str, Any]) -> str:
    """The same for two cells whose retrievers learn the same."""
    left_out = _RANKING_ONLY | (set() if _learns_truncated(spec) else {"history"})
    if asks_llm(spec):
        left_out -= {"llm"}
    kept = {key: value for key, value in spec.items() if key not in left_out}
    return json.dumps(kept, sort_keys=True)


def asks_llm(spec: Mapping[str, Any]) -> bool:
    """Whether the cell's retriever asks an LLM itself."""
    return "llm" in inspect.signature(retriever_class(str(spec["retriever"]))).parameters


def fit_retriever(
    spec: Mapping[str, Any], data: TrainTest, ask: Callable[[str], str] | None = None
) -> tuple[Model, float]:
    """The cell's retriever, fitted, and the seconds that fitting took.

    The last one is kept, since many cells differ in what is asked of one and the same retriever.

    Args:
        spec: of the cell.
        data: what it learns from.
        ask: an LLM, for retrievers that need one.

    Raises:
        InputError: the retriever does not take a parameter, or the data cannot be learned from.
    """
    global _last  # one a process
    history = None if _learns_truncated(spec) else spec.get("history")
    signature = fit_signature(spec)
    last = _last
    if last is None or last[0] != signature:
        _last = None  # two of them need not fit into memory
        whole = {key: value for key, value in spec.items() if key != "history" or history is None}
        model = make_retriever(whole, len(data.train), ask)
        started = time.perf_counter()
        model.fit(data.train, data.tools or None)
        _last = last = (signature, model, time.perf_counter() - started)
    _, model, seconds = last
    return model if history is None else _truncate(model, history), seconds


def make_retriever(
    spec: Mapping[str, Any],
    train: int,
    ask: Callable[[str], str] | None = None,
) -> Model:
    """The cell's retriever, not fitted yet; its seed is that of the split.

    A text ``"n/10"`` among the parameters stands for that share of the training side.

    Raises:
        InputError: the retriever does not take a parameter.
    """
    chosen = retriever_class(str(spec["retriever"]))
    accepted = inspect.signature(chosen).parameters
    keywords = {key: _number(value, train) for key, value in spec.get("parameters", {}).items()}
    history = spec.get("history")
    if history is not None and "order" in accepted:
        keywords["order"] = history
    if "encoder" in spec and "encoder" in accepted:
        keywords["encoder"] = spec["encoder"]
    if "llm" in accepted:
        keywords["llm"] = ask
    if "seed" in accepted:
        keywords["seed"] = int(spec.get("seed", 0))
    calls = None if "order" in accepted else history
    if calls is not None and _writes_history(chosen):
        chosen, calls = _make_truncated_linear(chosen, calls), None
    try:
        ranker = chosen(**keywords)
    except TypeError as error:
        raise InputError(f"retriever {spec['retriever']!r}: {error}") from error
    return Model(ranker if calls is None else TruncatedHistory(ranker, calls))


def _truncate(model: Model, calls: int) -> Model:
    """The fitted model with a ranker that sees the last calls only; everything else is shared."""
    truncated = copy.copy(model)
    truncated.ranker = TruncatedHistory(model.ranker, calls)
    return truncated


class TruncatedHistory(Ranker):
    """A ranker that learns from whole histories and ranks by the last calls of each.

    Args:
        ranker: what is fitted and ranks.
        calls: how many calls it sees, by name.
    """

    uses_calls = False

    def __init__(self, ranker: Ranker, calls: int) -> None:
        self.ranker, self.calls = ranker, calls
        self.encoder, self.calibration_ = ranker.encoder, ranker.calibration_

    @property
    def name(self) -> str:  # type: ignore[override]  # another one for each instance
        """That of the ranker."""
        return self.ranker.name

    @property
    def cut(self) -> float | None:
        """See ``Ranker.cut``."""
        return self.ranker.cut

    @property
    def cuts_by_score(self) -> bool:
        """See ``Ranker.cuts_by_score``."""
        return self.ranker.cuts_by_score

    @property
    def may_end_at_once(self) -> bool:
        """Without a history, a first step is not told from any other."""
        return self.calls == 0 or self.ranker.may_end_at_once

    def get_params(self) -> dict[str, Any]:
        """Those of the ranker."""
        return self.ranker.get_params()

    def fit(self, demonstrations: Sequence[Demonstration], tools: Sequence[Tool]) -> None:
        """See ``Ranker.fit``."""
        self.ranker = copy.copy(self.ranker)
        self.ranker.fit(demonstrations, tools)
        self.encoder, self.calibration_ = self.ranker.encoder, self.ranker.calibration_

    def prepare(self, query: str) -> Any:
        """See ``Ranker.prepare``."""
        return self.ranker.prepare(query)

    def prepare_all(self, runs: Sequence[Run]) -> Sequence[Any]:
        """See ``Ranker.prepare_all``."""
        return self.ranker.prepare_all(list(map(self._truncate, runs)))

    def probabilities(self, prepared: Any, run: Run) -> Floats:
        """See ``Ranker.probabilities``."""
        return self.ranker.probabilities(prepared, self._truncate(run))

    def score_all(self, prepared: Sequence[Any], runs: Sequence[Run]) -> Floats:
        """See ``Ranker.score_all``."""
        return self.ranker.score_all(prepared, list(map(self._truncate, runs)))

    def familiarity(self, prepared: Any) -> float | None:
        """See ``Ranker.familiarity``."""
        return self.ranker.familiarity(prepared)

    def _truncate(self, run: Run) -> Run:
        calls = _last_of(run.calls, self.calls)
        return Run.of_read(run.query, (), [ToolCall(call.id, call.tool) for call in calls])


def _make_truncated_linear(base: type[Ranker], calls: int) -> type[Ranker]:
    """A dtdr-l that learns from and ranks by the last calls of a history."""

    class TruncatedLinear(base):  # type: ignore[valid-type, misc]
        def _history_text(self, history: History) -> str:
            return str(super()._history_text(_last_of(history, calls)))

        @property
        def may_end_at_once(self) -> bool:
            return calls == 0 or bool(super().may_end_at_once)

    return TruncatedLinear


def _last_of(history: Sequence[Item], calls: int) -> Sequence[Item]:
    return history[max(0, len(history) - calls) :]


def _learns_truncated(spec: Mapping[str, Any]) -> bool:
    """Whether a truncated history changes what the retriever learns."""
    chosen = retriever_class(str(spec["retriever"]))
    return "order" in inspect.signature(chosen).parameters or _writes_history(chosen)


def _writes_history(chosen: type[Ranker]) -> bool:
    from dtdr.rankers.linear import DTDRLinear

    return issubclass(chosen, DTDRLinear)


def _number(value: Any, train: int) -> Any:
    if isinstance(value, str) and (share := re.fullmatch(r"n(?:/([1-9]\d*))?", value)):
        return max(1, train // int(share.group(1) or 1))
    return value
