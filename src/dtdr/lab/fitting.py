"""From a cell's description to a fitted retriever."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.lab.memoized_encoder import MemoizedLexicalEncoder
from dtdr.lab.train_test import TrainTest
from dtdr.ranking import Floats
from dtdr.retrievers import NAMES, retriever_class
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.session import History

_RANKING_ONLY = frozenset(
    {
        *("kind", "queries", "queries_data", "icl", "select", "top", "steps", "size", "llm"),
        *("threshold", "mask", "loop", "layout", "fill"),
    }
)
"""Parts of a cell's description that do not change what its retriever learns."""

_last: tuple[str, Retriever, float] | None = None


def resolve_retriever(name: str) -> type[Retriever]:
    """The class behind a registered name, or behind ``module:Class``.

    Raises:
        InputError: no retriever has that name, or the module does not hold such a class.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        if name not in NAMES:
            raise InputError(
                f"unknown retriever {name!r}; choose one of {', '.join(sorted(NAMES))}, or name a "
                "class of your own as module:Class"
            )
        return retriever_class(name)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        chosen = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"retriever {name!r} cannot be imported: {error}") from error
    if not (isinstance(chosen, type) and issubclass(chosen, Retriever)):
        raise InputError(f"{name!r} is not a subclass of dtdr.retrievers.base.Retriever")
    return chosen


def fit_signature(spec: Mapping[str, Any]) -> str:
    """The same for two cells whose retrievers learn the same."""
    left_out = _RANKING_ONLY | (set() if _learns_truncated(spec) else {"history"})
    if asks_llm(spec):
        left_out -= {"llm"}
    kept = {key: value for key, value in spec.items() if key not in left_out}
    return json.dumps(kept, sort_keys=True)


def asks_llm(spec: Mapping[str, Any]) -> bool:
    """Whether the cell's retriever asks an LLM itself."""
    return "llm" in inspect.signature(resolve_retriever(str(spec["retriever"]))).parameters


def fit_retriever(
    spec: Mapping[str, Any], data: TrainTest, ask: Callable[[str], str] | None = None
) -> tuple[Retriever, float]:
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
    if _last is None or _last[0] != signature:
        _last = None  # two of them need not fit into memory
        whole = {key: value for key, value in spec.items() if key != "history" or history is None}
        retriever = make_retriever(whole, len(data.train), memoize=True, ask=ask)
        started = time.perf_counter()
        retriever.fit(data.train, data.tools or None)
        _last = (signature, retriever, time.perf_counter() - started)
    _, retriever, seconds = _last
    return retriever if history is None else TruncatedHistory(retriever, history), seconds


def make_retriever(
    spec: Mapping[str, Any],
    train: int,
    *,
    memoize: bool = False,
    ask: Callable[[str], str] | None = None,
) -> Retriever:
    """The cell's retriever, not fitted yet; its seed is that of the split.

    A text ``"n/10"`` among the parameters stands for that share of the training side. With
    ``memoize``, the lexical encoder looks up what it did for another run of this process.

    Raises:
        InputError: the retriever does not take a parameter.
    """
    chosen = resolve_retriever(str(spec["retriever"]))
    accepted = inspect.signature(chosen).parameters
    given = {key: _number(value, train) for key, value in spec.get("parameters", {}).items()}
    history = spec.get("history")
    if history is not None and "order" in accepted:
        given["order"] = history
    if "encoder" in spec and "encoder" in accepted:
        given["encoder"] = spec["encoder"]
    elif memoize and "encoder" in accepted and accepted["encoder"].default == "lexical":
        given["encoder"] = MemoizedLexicalEncoder()
    if "llm" in accepted:
        given["llm"] = ask
    if "seed" in accepted:
        given["seed"] = int(spec.get("seed", 0))
    calls = None if "order" in accepted else history
    if calls is not None and _writes_history(chosen):
        chosen, calls = _make_truncated_linear(chosen, calls), None
    try:
        retriever = chosen(**given)
    except TypeError as error:
        raise InputError(f"retriever {spec['retriever']!r}: {error}") from error
    return retriever if calls is None else TruncatedHistory(retriever, calls)


class TruncatedHistory(Retriever):
    """A retriever that learns from whole histories and ranks by the last calls of each.

    Args:
        retriever: what is fitted and ranks; it is shared, not copied.
        calls: how many calls it sees.
    """

    def __init__(self, retriever: Retriever, calls: int) -> None:
        self.retriever, self.calls = retriever, calls
        self.seed = retriever.seed
        self.threshold, self.encoder = retriever.threshold, retriever.encoder
        self.failure_weight = retriever.failure_weight
        if hasattr(retriever, "tools_"):
            self._share()

    @property
    def name(self) -> str:  # type: ignore[override]  # another one for each instance
        """That of the retriever."""
        return self.retriever.name

    @property
    def cut(self) -> float | None:
        """See ``Retriever.cut``."""
        return self.retriever.cut

    @property
    def cuts_by_score(self) -> bool:
        """See ``Retriever.cuts_by_score``."""
        return self.retriever.cuts_by_score

    @property
    def may_end_at_once(self) -> bool:
        """Without a history, a first step is not told from any other."""
        return self.calls == 0 or self.retriever.may_end_at_once

    def _share(self) -> None:
        """Take what the retriever learned about tools and rankings."""
        self._install_tools(self.retriever.tools_)
        self.training_ = self.retriever.training_
        self.calibration_ = self.retriever.calibration_

    def parameters(self) -> dict[str, Any]:
        """Those of the retriever."""
        return self.retriever.parameters()

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        self.retriever.fit(demonstrations, self.tools_)
        self._share()

    def _prepare(self, queries: Sequence[str]) -> Sequence[Any]:
        return self.retriever._prepare(queries)

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return self.retriever._probabilities(prepared, [_last_of(h, self.calls) for h in histories])

    def _familiarity(self, prepared: Sequence[Any]) -> Sequence[float | None]:
        return self.retriever._familiarity(prepared)

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return self.retriever._state()

    def _restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        self.retriever._restore(state)


def _make_truncated_linear(base: type[Retriever], calls: int) -> type[Retriever]:
    """A dtdr-l that learns from and ranks by the last calls of a history."""

    class TruncatedLinear(base):  # type: ignore[valid-type, misc]
        def _history_text(self, history: History) -> str:
            return str(super()._history_text(_last_of(history, calls)))

        @property
        def may_end_at_once(self) -> bool:
            return calls == 0 or bool(super().may_end_at_once)

    return TruncatedLinear


def _last_of(history: History, calls: int) -> History:
    return history[max(0, len(history) - calls) :]


def _learns_truncated(spec: Mapping[str, Any]) -> bool:
    """Whether a truncated history changes what the retriever learns."""
    chosen = resolve_retriever(str(spec["retriever"]))
    return "order" in inspect.signature(chosen).parameters or _writes_history(chosen)


def _writes_history(chosen: type[Retriever]) -> bool:
    from dtdr.retrievers.linear import DTDRLinear

    return issubclass(chosen, DTDRLinear)


def _number(value: Any, train: int) -> Any:
    if isinstance(value, str) and (share := re.fullmatch(r"n(?:/([1-9]\d*))?", value)):
        return max(1, train // int(share.group(1) or 1))
    return value
