"""Rankers by the names that users type."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dtdr.data.registry import Registry
from dtdr.errors import InputError, ModelError, unknown_choice
from dtdr.rankers.base import Ranker

_REGISTRY: Registry[Ranker] = Registry(
    "ranker",
    {
        "random": ("dtdr.rankers.random", "RandomRetriever"),
        "zero-shot": ("dtdr.rankers.zero_shot.ranker", "ZeroShot"),
        "bm25": ("dtdr.rankers.bm25", "BM25Retriever"),
        "qts": ("dtdr.rankers.similarity", "QueryToolSimilarity"),
        "tgr": ("dtdr.rankers.similarity", "ToolGraphRetriever"),
        "less-is-more": ("dtdr.rankers.similarity", "LessIsMore"),
        "dr": ("dtdr.rankers.markov", "DependencyRetriever"),
        "markov-1": ("dtdr.rankers.markov", "FirstOrderMarkov"),
        "markov-2": ("dtdr.rankers.markov", "SecondOrderMarkov"),
        "lr": ("dtdr.rankers.linear", "LearnedRetriever"),
        "forest": ("dtdr.rankers.forest", "ForestRanker"),
        "dtdr-c": ("dtdr.rankers.clustering", "DTDRClustering"),
        "dtdr-l": ("dtdr.rankers.linear", "DTDRLinear"),
        "dtdr-f": ("dtdr.rankers.dtdr_f.factored", "DTDRFactored"),
    },
)

NAMES = _REGISTRY.names
"""Every ranker, baselines first."""

DEFAULT = "dtdr-f"
"""Ahead of all others on five published splits: MRR .952 on the TinyAgent bank, dtdr-l .920."""


def ranker_class(name: str) -> type[Ranker]:
    """The class behind a name, or behind ``module:Class``, also of the current folder.

    Raises:
        InputError: no ranker has that name, or the module has no such class.
    """
    if ":" not in name:
        if name not in NAMES:
            raise InputError(
                f"unknown ranker {name!r}; choose one of {', '.join(sorted(NAMES))}, or name "
                "your own class as module:Class"
            )
        return _REGISTRY.find(name)
    try:
        ranker = import_own(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"ranker {name!r} cannot be imported: {error}") from error
    if not (isinstance(ranker, type) and issubclass(ranker, Ranker)):
        raise InputError(f"{name!r} is not a subclass of dtdr.rankers.base.Ranker")
    return ranker


def import_own(name: str) -> Any:
    """Import ``module:attribute``; the module may be in the current folder.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has no such attribute.
        ValueError: the name has no module.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def saved_class(folder: str | Path, name: str, allowed: Iterable[str] = ()) -> type[Ranker]:
    """The class that a model folder names, which cannot choose what is imported.

    Args:
        folder: the model's.
        name: a name of this package, or ``module:Class``.
        allowed: classes whose code may be run, as ``module:Class``.

    Raises:
        ModelError: there is no such class.
        InputError: its module is neither imported already nor allowed.
    """
    module, colon, attribute = name.partition(":")
    if colon and not hasattr(sys.modules.get(module), attribute) and name not in allowed:
        raise InputError(
            f"{folder} is a {name[:60]!r}, whose code would be run; import it first, or allow it: "
            "dtdr.load(…, allow_class=…)"
        )
    if not colon and name not in NAMES:
        unknown = unknown_choice("ranker", name[:60], NAMES)
        raise ModelError(f"{folder} has no usable model: {unknown}")
    return ranker_class(name)


_TYPE_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "null",
}


def expected_type(name: str, parameter: str, value: object) -> str:
    """Check a JSON value against the annotation of a ranker's parameter.

    Returns:
        The expected type in words; empty if the value has it, or if the parameter also takes
        objects that JSON does not have, which its constructor checks.
    """
    try:
        hint = get_type_hints(ranker_class(name).__init__).get(parameter, object)
    except NameError:  # a type that is imported for type checkers only
        return ""
    kinds = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    if not all(kind in _TYPE_WORDS for kind in kinds):
        return ""
    if type(value) in kinds or (type(value) is int and float in kinds):
        return ""
    return " or ".join(_TYPE_WORDS[kind] for kind in kinds)
