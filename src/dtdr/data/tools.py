"""Tools: name, description, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dtdr.data.calls import check_text, is_object, kind_of
from dtdr.data.json_codec import dump_object
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
    """A tool the agent can call. Descriptions and parameters are never needed to learn.

    >>> Tool.from_dict({"name": "lock_door", "description": "Locks a door."})
    Tool(name='lock_door', description='Locks a door.', parameters=())
    """

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()

    @classmethod
    def from_dict(cls, record: object) -> Tool:
        """A tool from its JSON object.

        Accepts a list of parameters, or a JSON schema under ``parameters``, ``input_schema`` or
        ``inputSchema``, and the ``{"type": "function", "function": {...}}`` envelope; so also the
        definitions of OpenAI, Anthropic and MCP.

        Raises:
            InputError: the record is not an object or has no name.
        """
        if isinstance(record, Mapping):
            inner = record.get(str(record.get("type", "function")), record.get("function"))
            record = inner if isinstance(inner, Mapping) else record
        if not isinstance(record, Mapping):
            raise InputError(f"a tool must be a JSON object, not {kind_of(record)}")
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


class Dumpable(Protocol):
    """An object of a provider's package that writes its JSON, such as ``mcp.types.Tool``."""

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        """The JSON object."""
        ...


ToolLike = Tool | Mapping[str, Any] | Dumpable
"""A tool, its JSON object, or its definition for OpenAI, Anthropic or MCP."""


def as_tool(value: ToolLike) -> Tool:
    """A tool from anything that describes one.

    >>> as_tool({"name": "lock_door", "input_schema": {"type": "object", "properties": {}}})
    Tool(name='lock_door', description='', parameters=())

    Args:
        value: a ``Tool``, its JSON object, or a definition for OpenAI (chat completions or
            responses), Anthropic or MCP, as JSON or as an object of their packages.

    Raises:
        InputError: it is none of these, or has no name.
    """
    return value if isinstance(value, Tool) else Tool.from_dict(dump_object(value))


def as_tools(values: Iterable[ToolLike]) -> Iterator[Tool]:
    """Tools from anything that describes them; see ``as_tool``.

    Raises:
        InputError: with the position, from 0, of what is not a tool; or it is no collection.
    """
    if isinstance(values, (str, bytes, Mapping, Tool)) or not isinstance(values, Iterable):
        raise InputError(f"give a list of tools, not {kind_of(values)}")
    for position, value in enumerate(values):
        try:
            yield as_tool(value)
        except InputError as error:
            raise InputError(f"tool {position}: {error}") from error


def unique_tools(tools: Iterable[ToolLike]) -> dict[str, Tool]:
    """Tools by name.

    Raises:
        InputError: two tools share a name, or something is not a tool.
    """
    by_name: dict[str, Tool] = {}
    for tool in as_tools(tools):
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
