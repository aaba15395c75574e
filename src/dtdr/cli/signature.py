"""Commands from plain functions: the signature has the options, the docstring explains them.

Parameters before the ``*`` become arguments, those after it options. The section ``Args`` of the
docstring has one entry each: ``name (METAVAR): help``. A parameter annotated with
``typer.Option(...)`` keeps what that says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import CommandFunctionType, OptionInfo, ParameterInfo

_ENTRY = re.compile(r"(\w+)(?: \((.+?)\))?: (.*)", re.DOTALL)


class CommandGroup(typer.Typer):
    """A group whose commands are such functions."""

    def command(
        self, name: str | None = None, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a function as a command, and leave the function itself as it is."""
        register = super().command(name, **settings)

        def add(function: CommandFunctionType) -> CommandFunctionType:
            register(as_command(function))
            return function

        return add


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """A wrapper with a signature that typer understands."""
    about, entries = _read_docstring(inspect.getdoc(function) or "")
    signature = inspect.signature(function, eval_str=True)

    @wraps(function)
    def command(**values: Any) -> None:
        function(**values)

    parameters = [
        parameter.replace(
            annotation=_annotate(parameter, *entries.get(parameter.name, (None, None))),
            kind=inspect.Parameter.KEYWORD_ONLY,
        )
        for parameter in signature.parameters.values()
    ]
    vars(command)["__signature__"] = signature.replace(parameters=parameters)
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    command.__doc__ = about
    return command


def _read_docstring(text: str) -> tuple[str, Mapping[str, tuple[str | None, str]]]:
    """The summary of a command, and the metavar and help of its parameters."""
    about, _, section = text.partition("\nArgs:\n")
    entries = {}
    for entry in re.split(r"\n(?=    \w)", "\n" + section):
        if match := _ENTRY.match(" ".join(entry.split())):
            name, metavar, help_text = match.groups()
            entries[name] = (metavar, help_text)
    return about.rstrip(), entries


def _annotate(parameter: inspect.Parameter, metavar: str | None, help_text: str | None) -> Any:
    annotation, info = parameter.annotation, None
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        info = copy(next(item for item in more if isinstance(item, ParameterInfo)))
    is_option = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    info = info or (typer.Option() if is_option else typer.Argument(show_default=False))
    if isinstance(info, OptionInfo) and info.default is ... and not info.param_decls:
        name = parameter.name.replace("_", "-")
        can_negate = parameter.default is True or annotation == bool | None
        negation = f"/--no-{name}" if can_negate else ""
        info.default = f"--{name}{negation}"
    info.help = info.help or help_text
    info.metavar = info.metavar or metavar
    return Annotated[annotation, info]
