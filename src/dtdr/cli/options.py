"""Options that several commands take, spelled and explained once."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.errors import InputError, unknown_choice
from dtdr.text import encoders

if TYPE_CHECKING:
    from dtdr.predict.model import Model

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
SEED = Annotated[
    int,
    # What numpy and scikit-learn take.
    typer.Option("--seed", metavar="N", help="Random seed.", min=0, max=2**32 - 1),
]
ENGINE = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where workers run: processes of this machine, ray on this machine, or the "
        "address of a Ray cluster, such as ray:auto or ray://HOST:10001.",
    ),
]
HISTORY = Annotated[
    list[str] | None,
    typer.Option("--history", metavar="A,B", help="Tools called so far, oldest first; repeatable."),
]
RUN = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="FILE",
        help='Read query and calls from a file instead: one JSON object with "query", "before" and '
        '"calls" as in demonstrations.jsonl; - reads standard input.',
    ),
]
FORCE = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
SKIP_BAD = Annotated[bool, typer.Option("--skip-bad", help="Skip bad records and count them.")]
ONLY_KNOWN_TOOLS = Annotated[
    bool,
    typer.Option(
        "--only-known-tools",
        help="Leave out plans that call a tool without a description.",
    ),
]
DATASET = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", help="A set that 'dtdr data list' shows."),
]
TOOLS = Annotated[
    Path | None,
    typer.Option(
        "--tools",
        metavar="FILE",
        help="Descriptions of the tools; default: tools.json in the folder of the data.",
    ),
]
SPLIT = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="FILE|NAME",
        help="Test side: a split file, default, paper, group, or a variant such as by-sequence.",
    ),
]
ENCODER = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Text encoder of the retrievers that use one: lexical, minilm, "
        "sentence-transformers, static:FOLDER, endpoint:MODEL@URL.",
    ),
]
SETTINGS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter of the retriever, such as order=2 or recipe=paper; repeatable.",
    ),
]


def _allow_endpoints(hosts: list[str] | None) -> None:
    # The environment variable reaches models that are reloaded and worker processes, too.
    from dtdr.text.encoders.endpoint import ALLOW_VARIABLE

    if hosts:
        os.environ[ALLOW_VARIABLE] = ",".join([os.environ.get(ALLOW_VARIABLE, ""), *hosts])


ALLOW_ENDPOINT = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-endpoint",
        metavar="HOST",
        help="Let a model with the encoder endpoint send queries to this host; repeatable.",
        callback=_allow_endpoints,
        expose_value=False,
    ),
]
"""The callback does it all, so that a command need not pass it on."""
LLM_REMEDY = "needs an LLM; fit it in Python, or use dtdr lab run --llm"

_CONSTANTS = {"True": True, "False": False, "None": None}


def check_two_files(tools_out: Path | None, output: Path) -> None:
    """Refuse to write tools and demonstrations to one file.

    Raises:
        InputError: both are named the same.
    """
    if tools_out is not None and tools_out.absolute() == output.absolute():
        raise InputError(f"--tools-out and --output both name {output}; give two files")


def parse_settings(texts: Sequence[str] | None, option: str = "--set") -> dict[str, Any]:
    """``["order=2", "clusters=null"]`` as keywords; a value that is not JSON is text.

    Python's ``True``, ``False`` and ``None`` mean what they say.

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


def settings_for(name: str, settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The settings of one of several retrievers.

    ``order=2`` goes to every retriever that has that parameter, ``dtdr-c.order=2`` to that one.

    Raises:
        InputError: none of the retrievers has the parameter.
    """
    from dtdr.rankers import expected_type

    chosen: dict[str, Any] = {}
    for key, value in settings.items():
        owner, dot, parameter = key.rpartition(".")
        if dot and owner not in names:
            raise InputError(f"--set {key!r} is about {owner!r}, which is not evaluated")
        if dot and owner == name:
            chosen[parameter] = value
        elif not dot and parameter in _parameters_of(name):
            chosen.setdefault(parameter, value)
        elif not dot and not any(parameter in _parameters_of(other) for other in names):
            takes = f"; it takes {', '.join(_parameters_of(name))}" if len(names) == 1 else ""
            raise InputError(f"no retriever here has the parameter {parameter!r}{takes}")
    for parameter, value in chosen.items():
        if expected := expected_type(name, parameter, value):
            raise InputError(f"--set {parameter}={value}: {parameter} must be {expected}")
    return chosen


def needs_llm(name: str) -> bool:
    """Whether a retriever cannot run without an LLM, which only Python and ``dtdr lab`` give."""
    return "llm" in _parameters_of(name)


def _parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    from dtdr.rankers import retriever_class

    return inspect.signature(retriever_class(name)).parameters


def create_retriever(
    name: str,
    *,
    seed: int,
    encoder: str | None = None,
    settings: Sequence[str] | None = None,
) -> Model:
    """The one retriever that a user named, not fitted yet.

    Raises:
        InputError: no retriever has that name, or it has no use for something that was given.
    """
    from dtdr.predict import create

    parameters = retriever_parameters(
        name,
        encoder=encoder,
        seed=seed,
        settings=settings_for(name, parse_settings(settings), [name]),
    )
    if encoder is not None and "encoder" not in parameters:
        raise InputError(f"retriever {name!r} uses no encoder; leave --encoder out")
    return create(name, **parameters)


def retriever_parameters(
    name: str,
    *,
    encoder: str | None,
    seed: int,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The keywords of ``retrievers.create`` that a retriever takes, of those that a user gave.

    Seed and encoder are left out if the retriever does not use them.

    Raises:
        InputError: no retriever has that name, or it does not take one of the settings.
    """
    accepted = _parameters_of(name)
    if needs_llm(name):
        raise InputError(f"retriever {name!r} {LLM_REMEDY}")
    given: dict[str, Any] = {"seed": seed}
    if encoder is not None:
        if encoder.partition(":")[0] not in encoders.NAMES:
            raise unknown_choice("encoder", encoder, encoders.NAMES)
        given["encoder"] = encoder
    chosen = {key: value for key, value in given.items() if key in accepted}
    for key, value in settings.items():
        if key not in accepted:
            raise InputError(
                f"retriever {name!r} has no parameter {key!r}; it takes {', '.join(accepted)}"
            )
        chosen[key] = value
    return chosen
