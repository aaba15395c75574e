"""Options that several commands take, spelled and explained once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer
from msgspec import inspect

from dtdr.errors import InputError, unknown_choice
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers import expected_type, ranker_class
from dtdr.text import encoders

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
HISTORY = Annotated[
    list[str] | None,
    typer.Option("--history", metavar="A,B", help="Tools called so far, oldest first; repeatable."),
]
RUN = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="FILE",
        help="Read the query and the calls from this file, or from standard input (-). It has one "
        'JSON object with "query", "before", "calls" and "offered", as in demonstrations.jsonl.',
    ),
]
FORCE = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
SKIP_BAD = Annotated[bool, typer.Option("--skip-bad", help="Skip bad records and count them.")]
ONLY_KNOWN_TOOLS = Annotated[
    bool,
    typer.Option("--only-known-tools", help="Skip plans that call a tool without a description."),
]
DATASET = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME", help="Read a named set; 'dtdr data list' lists them."
    ),
]
TOOLS = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="FILE",
        help="Read the tools from this file; default: tools.json in the folder of the data.",
    ),
]
SPLIT = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="FILE|NAME",
        help="How to split the data for learning and testing: default (the set's own split, or "
        "70 % for learning), paper (the paper's method), group (each group on one side), a variant "
        "such as by-sequence, or a split file.",
    ),
]
SETTINGS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a parameter of the ranker, such as order=2, encoder=minilm or seed=1; "
        "repeatable.",
    ),
]
TOP_K_NAMES = ("--top-k", "--top")
"""The option, and its short name."""

TOP_K = Annotated[
    int | None, typer.Option(*TOP_K_NAMES, metavar="K", help="Show the LLM at most K tools.", min=1)
]

_CONSTANTS = {"True": True, "False": False, "None": None}

_TYPES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
"""How errors name the types of settings."""

Settings = TypeVar("Settings")


def further_settings(kind: type, example: str, page: str) -> Any:
    """The option ``--set`` of a command with choices that few users need."""
    keys = ", ".join(get_type_hints(kind))
    text = f"A further setting, such as {example}; repeatable. docs/{page}.md explains the keys: "
    return typer.Option("--set", metavar="KEY=VALUE", help=f"{text}{keys}.")


def parse_settings(texts: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """``["order=2", "clusters=null"]`` as keywords; a value that is not JSON is text.

    Python's ``True``, ``False`` and ``None`` have their Python values.

    Raises:
        InputError: a text has no ``=``, or a key is given twice.
    """
    settings: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(
                f"{option} {text!r} is not KEY=VALUE; write for example {option} order=2"
            )
        if key in settings:
            raise InputError(f"{option} gives {key!r} twice; give it once")
        try:
            settings[key] = _CONSTANTS[value] if value in _CONSTANTS else json.loads(value)
        except ValueError:
            settings[key] = value
    return settings


def take_settings(
    settings: dict[str, Any], kind: type[Settings], option: str = "--set"
) -> Settings:
    """Remove a command's own settings from the others, and check them.

    Raises:
        InputError: a value has another type, or is out of range.
    """
    values = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in settings:
            value = settings.pop(name)
            try:
                values[name] = msgspec.convert(value, hint)
            except msgspec.ValidationError as error:
                expected = _describe(inspect.type_info(hint))
                raise _wrong_value(name, value, expected, option) from error
    return kind(**values)


def _describe(expected: Any) -> str:
    """A type of a setting in words, such as ``a whole number of at least 1``."""
    if isinstance(expected, inspect.UnionType):
        kinds = [item for item in expected.types if not isinstance(item, inspect.NoneType)]
        return " or ".join(map(_describe, kinds))
    words = _TYPES[type(expected).__name__.removesuffix("Type").lower()]
    low, high = (getattr(expected, bound, None) for bound in ("ge", "le"))
    if high is not None:
        return f"{words} from {low:g} to {high:g}"
    return words if low is None else f"{words} of at least {low:g}"


def _wrong_value(name: str, value: object, expected: str, option: str = "--set") -> InputError:
    text = value if isinstance(value, str) else json.dumps(value)
    return InputError(f"{option} {name}={text}: expected {expected}")


def read_settings(
    texts: Sequence[str] | None, kind: type[Settings], option: str = "--set"
) -> Settings:
    """The settings of a command that has no others.

    Raises:
        InputError: a key is unknown, or a value has another type or is out of range.
    """
    settings = parse_settings(texts, option)
    taken = take_settings(settings, kind, option)
    for key in settings:
        raise unknown_choice(f"key of {option}", key, get_type_hints(kind))
    return taken


def read_seed(settings: Mapping[str, Any]) -> int:
    """The seed among the settings of rankers, which splits and samples use as well.

    Raises:
        InputError: numpy and scikit-learn cannot use it.
    """
    seed = settings.get("seed", 0)
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise _wrong_value("seed", seed, "a whole number from 0 to 4294967295")
    return seed


def create_model(name: str, settings: Mapping[str, Any]) -> Model:
    """The one ranker that a user named, not fitted yet; raises as ``ranker_keywords``."""
    return create(name, **ranker_keywords([name], settings)[name])


def ranker_keywords(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The constructor keywords of each ranker.

    ``order=2`` goes to every ranker that has that parameter, ``dtdr-c.order=2`` to that one.

    Raises:
        InputError: a ranker is unknown or needs an LLM, no ranker has a parameter, or a value
            has another type.
    """
    accepted = {name: signature(ranker_class(name)).parameters for name in names}
    for name in filter(needs_llm, names):
        raise InputError(f"ranker {name!r} {LLM_REMEDY}")
    keywords: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key in sorted(settings, key=lambda key: "." in key):  # those of one ranker come last
        value, (owner, dot, parameter) = settings[key], key.rpartition(".")
        if dot and owner not in accepted:
            raise InputError(f"--set {key!r}: before the dot, write {' or '.join(names)}")
        asked = [owner] if dot else names
        takers = [name for name in asked if parameter in accepted[name]]
        if not takers and key != "seed":
            known = {item for name in asked for item in accepted[name]}
            raise unknown_choice("parameter", parameter, known)
        if parameter == "encoder" and str(value).partition(":")[0] not in encoders.NAMES:
            raise unknown_choice("encoder", str(value), encoders.NAMES)
        for name in takers:
            if expected := expected_type(name, parameter, value):
                raise _wrong_value(key, value, expected)
            keywords[name][parameter] = value
    return keywords


LLM_REMEDY = "needs an LLM; fit it in Python, or use dtdr lab run --llm"


def needs_llm(name: str) -> bool:
    """Whether a ranker cannot run without an LLM, which only Python and ``dtdr lab`` give."""
    return "llm" in signature(ranker_class(name)).parameters
