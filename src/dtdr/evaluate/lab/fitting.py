"""From an experiment's description to a fitted ranker."""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from dtdr.errors import InputError
from dtdr.evaluate.lab.data import TrainTest
from dtdr.predict.model import Model
from dtdr.rankers import ranker_class
from dtdr.rankers.base import History, Ranker

_RANKING_ONLY = frozenset(
    {
        *("kind", "icl", "select", "top", "steps", "size", "llm"),
        *("threshold", "mask", "loop", "layout", "fill"),
    }
)
"""Parts of an experiment's description that do not change what its ranker learns."""

_last: tuple[str, Model, float] | None = None


def fit_signature(spec: Mapping[str, Any]) -> str:
    """The same for two experiments whose rankers learn the same."""
    left_out = _RANKING_ONLY | (set() if learns_truncated(spec) else {"history"})
    if asks_llm(spec):
        left_out -= {"llm"}
    kept = {key: value for key, value in spec.items() if key not in left_out}
    return json.dumps(kept, sort_keys=True)


def asks_llm(spec: Mapping[str, Any]) -> bool:
    """Whether the experiment's ranker asks an LLM itself."""
    return "llm" in inspect.signature(ranker_class(str(spec["retriever"]))).parameters


def needs_llm(spec: Mapping[str, Any]) -> bool:
    """Whether the experiment asks an LLM."""
    return spec["kind"] in ("selections", "plans") or asks_llm(spec)


def fit_model(
    spec: Mapping[str, Any], data: TrainTest, ask: Callable[[str], str] | None = None
) -> tuple[Model, float]:
    """The experiment's ranker, fitted, and the seconds that fitting took.

    The last one is kept, since many experiments use the same ranker.

    Args:
        spec: of the experiment.
        data: what it learns from.
        ask: an LLM, for rankers that need one.

    Raises:
        InputError: the ranker does not take a parameter, or the data cannot be learned from.
    """
    global _last  # one a process
    signature = fit_signature(spec)
    last = _last
    if last is None or last[0] != signature:
        _last = None  # two of them need not fit into memory
        model = make_model(spec, len(data.train), ask)
        started = time.perf_counter()
        model.fit(data.train, data.tools or None, arguments=False, plans=False)
        _last = last = (signature, model, time.perf_counter() - started)
    return last[1], last[2]


def make_model(
    spec: Mapping[str, Any],
    train: int,
    ask: Callable[[str], str] | None = None,
) -> Model:
    """The experiment's ranker, not fitted yet; its seed is that of the split or a parameter.

    A parameter ``"n/10"`` means that share of the training side. For chains, a cut history is the
    order. dtdr-l learns from cut histories, and every other ranker from whole ones.

    Raises:
        InputError: the ranker does not take a parameter.
    """
    ranker = ranker_class(str(spec["retriever"]))
    accepted = inspect.signature(ranker).parameters
    settings = {
        "order": spec.get("history"),
        "encoder": spec.get("encoder"),
        "llm": ask,
        "seed": int(spec.get("seed", 0)),
    }
    keywords = {key: v for key, v in settings.items() if key in accepted and v is not None}
    keywords |= {key: _number(value, train) for key, value in spec.get("parameters", {}).items()}
    if spec.get("history") is not None and _writes_history(ranker):
        ranker = _make_truncated_linear(ranker, spec["history"])
    try:
        return Model(ranker(**keywords))
    except TypeError as error:
        raise InputError(f"ranker {spec['retriever']!r}: {error}") from error


def _make_truncated_linear(base: type[Ranker], calls: int) -> type[Ranker]:
    """A dtdr-l that learns from and ranks by the last calls of a history."""

    class TruncatedLinear(base):  # type: ignore[valid-type, misc]
        def _history_text(self, history: History) -> str:
            return str(super()._history_text(history[max(0, len(history) - calls) :]))

        @property
        def may_end_at_once(self) -> bool:
            return calls == 0 or bool(super().may_end_at_once)

    return TruncatedLinear


def learns_truncated(spec: Mapping[str, Any]) -> bool:
    """Whether a truncated history changes what the ranker learns."""
    ranker = ranker_class(str(spec["retriever"]))
    return "order" in inspect.signature(ranker).parameters or _writes_history(ranker)


def _writes_history(ranker: type[Ranker]) -> bool:
    from dtdr.rankers.linear import DTDRLinear

    return issubclass(ranker, DTDRLinear)


def _number(value: Any, train: int) -> Any:
    if isinstance(value, str) and (share := re.fullmatch(r"n(?:/([1-9]\d*))?", value)):
        return max(1, train // int(share.group(1) or 1))
    return value
