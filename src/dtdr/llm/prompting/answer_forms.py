"""The form of a filling answer: a grammar for llama.cpp, a JSON schema for other servers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.data.json_codec import safe
from dtdr.data.tools import Parameter
from dtdr.llm.prompting.values import kind_of_type

_VALUES = r"""
text ::= "'" ([^'\\\n{] | part)* "'" | "\"" ([^"\\\n{] | part)* "\""
integer ::= "-"? [0-9]{1,15}
number ::= integer ("." [0-9]{1,15})?
boolean ::= "True" | "False"
list ::= "[" (item (", " item)*)? "]"
object ::= "{" (text ": " item (", " text ": " item)*)? "}"
item ::= text | number | boolean | list | object
""".strip()
"""GBNF rules of a value."""

_SCHEMA_TYPES = {"text": "string", "integer": "integer", "number": "number", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer.

    Attributes:
        grammar: GBNF of ``name='value', other=out_1``.
        schema: JSON schema of the same as an object, where the output of a call is its name.
    """

    grammar: str
    schema: Mapping[str, Any]


def filling_form(parameters: Sequence[Parameter], outputs: int) -> AnswerForm:
    """The form of an answer that fills parameters, each with a value of its type.

    Optional parameters may be left out; any value may be the output of a call.

    Args:
        parameters: to fill, at least one.
        outputs: number of calls to refer to.
    """
    rules = [*_value_rules(outputs), *_pair_rules(parameters, outputs), "root ::= first-0"]
    return AnswerForm("\n".join(rules), _schema(parameters))


def _value_rules(outputs: int) -> list[str]:
    # A brace in a text begins an existing output, or anything but the name of an output.
    part = r'part ::= "\\" [^\n] | "{" [^o{"\x27\\\n]'
    if not outputs:
        return [_VALUES, part]
    numbers = " | ".join(json.dumps(str(index)) for index in range(1, outputs + 1))
    output = f'output ::= "out_" ({numbers}) ("/" [A-Za-z0-9_.~-]+)*'
    return [f"{_VALUES} | output", f'{part} | "{{" output "}}"', output]


def _pair_rules(parameters: Sequence[Parameter], outputs: int) -> list[str]:
    """Rules of the pairs, which begin with ``first-0``."""
    rules: list[str] = []
    for index, parameter in enumerate(parameters):
        name = json.dumps(f"{safe(parameter.name)}=", ensure_ascii=False)
        kind = kind_of_type(parameter.type)
        value = f"({kind}{' | output' if outputs else ''})" if kind else "item"
        pair, following = f"pair-{index}", f"later-{index + 1}"
        rules.append(f"{pair} ::= {name} {value}")
        # What may follow if this is the first pair, and if it is not.
        first, later = f"{pair} {following}", f'", " {pair} {following}'
        if not parameter.required:
            first, later = f"{first} | first-{index + 1}", f"{later} | {following}"
        rules += [f"first-{index} ::= {first}", f"later-{index} ::= {later}"]
    count = len(parameters)
    return [*rules, f'first-{count} ::= ""', f'later-{count} ::= ""']


def _schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """An object for strict servers, which require every key: a value left out is null."""
    properties = {safe(item.name): _value_schema(item) for item in parameters}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _value_schema(parameter: Parameter) -> dict[str, Any]:
    kind = _SCHEMA_TYPES.get(kind_of_type(parameter.type))
    options: list[dict[str, Any]] = [{"type": "string"}]
    if kind is None:  # a list, an object, or anything
        scalars: dict[str, Any] = {"type": ["string", "number", "boolean"]}
        options = [scalars, {"type": "array", "items": scalars}]
    elif kind != "string":
        options.append({"type": kind})
    if not parameter.required:
        options.append({"type": "null"})
    return options[0] if len(options) == 1 else {"anyOf": options}
