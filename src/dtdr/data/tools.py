"""Tools: name, description, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dtdr.data.calls import check_text, is_object
from dtdr.errors import InputError


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool; ``type`` is a JSON-schema type name, or whatever the source says."""

    name: str
    type: str = ""
    description: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the agent can call. Descriptions and parameters are never needed to learn."""

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()

    @classmethod
    def from_dict(cls, record: object) -> Tool:
        """A tool from its JSON object.

        Accepts a list of parameters, or a JSON schema under ``parameters``, ``input_schema`` or
        ``inputSchema``, and the ``{"type": "function", "function": {...}}`` envelope.

        Raises:
            InputError: the record is not an object or has no name.
        """
        if isinstance(record, Mapping) and isinstance(record.get("function"), Mapping):
            record = record["function"]
        if not isinstance(record, Mapping):
            raise InputError(f"a tool must be a JSON object, not {type(record).__name__}")
        name = record.get("name")
        if not isinstance(name, str) or not name:
            raise InputError("a tool has no 'name'")
        check_text(name, "the tool name")
        schema = record.get("parameters", record.get("input_schema", record.get("inputSchema")))
        description = record.get("description") or ""
        return cls(name, str(description), _parameters(name, schema))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``from_dict`` reads back."""
        return {**asdict(self), "parameters": list(map(asdict, self.parameters))}


def unique_tools(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by name.

    Raises:
        InputError: two tools share a name.
    """
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in by_name:
            raise InputError(f"two tools are named {tool.name!r}; tool names must be unique")
        by_name[tool.name] = tool
    return by_name


def _type_of(schema: Mapping[str, Any]) -> str:
    """The type of a JSON schema; several are joined by ``|``, without ``null``."""
    types = schema.get("type", "")
    if not types:
        options = schema.get("anyOf") or schema.get("oneOf") or ()
        types = [_type_of(item) for item in options if isinstance(item, Mapping)]
    if not isinstance(types, list):
        return str(types)
    return "|".join(dict.fromkeys(str(name) for name in types if name and name != "null"))


def _parameters(tool: str, schema: object) -> tuple[Parameter, ...]:
    if schema is None:
        return ()
    if isinstance(schema, Mapping):
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise InputError(f"the parameters of tool {tool!r} are not a JSON schema")
        required = schema.get("required") or ()
        described = {key: value if is_object(value) else {} for key, value in properties.items()}
        schema = [
            {**value, "name": str(key), "required": key in required}
            for key, value in described.items()
        ]
    if isinstance(schema, list) and all(
        isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in schema
    ):
        return tuple(
            Parameter(
                item["name"],
                _type_of(item),
                str(item.get("description", "")),
                bool(item.get("required", True)),
            )
            for item in schema
        )
    raise InputError(f"the parameters of tool {tool!r} must be a list of objects with a 'name'")
