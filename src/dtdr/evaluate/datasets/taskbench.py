"""TaskBench (Shen et al., 2024): Hugging Face models, multimedia tools and daily-life APIs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import convert_records
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords, iter_json_lines
from dtdr.data.plan import Plan
from dtdr.data.tools import Parameter, Tool
from dtdr.errors import InputError
from dtdr.evaluate.datasets.source import (
    Hub,
    Published,
    Read,
    Source,
    map_leaves,
    mark_references,
    member,
    read_json,
)

_TOOLS = "tool_desc.json"
_NODE = re.compile(r"<node-(\d+)>")
_MARKED = re.compile(r"<([^<>]+)>")
_OUTPUT_OF = re.compile(
    r"^(?:the )?(?:output|result)s? (?:of|from) (?:the )?| (?:output|result)s?$"
)

DROPPED_LINKS = "links dropped that name a tool which the plan does not call, or one call twice"
NAMED_OUTPUTS = "arguments read as outputs of the calls that they name"
OWN_OUTPUTS = "arguments that name their own call, read as the output of the call linked to it"
NO_OUTPUTS = "references to a call that the plan does not have, kept as text"


def convert(
    record: Any,
    *,
    links_are_dependencies: bool = True,
    source: str = "",
    repairs: Counter[str] | None = None,
) -> Demonstration:
    """A demonstration from one record: old or new keys, lists plain or as JSON text in strings.

    A ``<node-k>`` in an argument is a reference to node k, counted from 0. Some records refer by
    name instead: ``<output_of_X>``, or the name of another node as the whole argument. Where links
    are dependencies, they add what arguments do not show: a node that refers to none takes its
    links. So a plan's dependencies are "cases where the parameter of a function call is the output
    of a function call earlier in the plan" (paper, App. Dataset Statistics) wherever the record has
    them. Links of the daily-life domain only order calls in time, and are left out: the published
    0.1 dependencies a plan are what its arguments refer to.

    Nodes may be in any order; the calls follow their dependencies. A node that names itself means
    the node that is linked to it; without such a node, the text is kept.

    Args:
        record: one object of ``data.json``.
        links_are_dependencies: False for the daily-life domain.
        source: where the demonstration comes from.
        repairs: counts what was read in another way than it was written.

    Raises:
        InputError: a key is missing or of another type, or the nodes depend on each other in a
            cycle.
    """
    nodes = _list(record, "task_nodes", "tool_nodes")
    listed = _list(record, "task_links", "tool_links")
    names = [member(node, "task") for node in nodes]
    counts: Counter[str] = Counter()
    links: list[tuple[int, int]] = []
    if links_are_dependencies:
        usable = [link for link in listed if _can_link(link, names)]
        counts[DROPPED_LINKS] += len(listed) - len(usable)
        links = node_links(names, usable)
    calls = []
    for index, (name, node) in enumerate(zip(names, nodes, strict=True)):
        references = _References(index, names, links, links_are_dependencies, counts)
        calls.append(ToolCall(str(index), name, _arguments(node.get("arguments", []), references)))
    shown = {call.id for call in calls if call.references()}
    added = [(str(earlier), str(later)) for earlier, later in links if str(later) not in shown]
    demonstration = Demonstration(
        str(member(record, "id", kind=(str, int))),
        member(record, "user_request", "instruction").strip(),
        Plan.in_order(calls, added),
        source,
    )
    if repairs is not None:
        repairs.update(+counts)
    return demonstration


def _can_link(link: Any, names: Sequence[str]) -> bool:
    source, target = member(link, "source"), member(link, "target")
    return source in names and target in names and (source != target or names.count(source) > 1)


class _References:
    """Which calls the arguments of one node refer to.

    Args:
        own: the node's number.
        names: of all nodes.
        links: pairs of nodes, earlier and later.
        by_name: whether a tool's bare name is a reference; in the daily-life domain it is a value.
        counts: of repairs.
    """

    def __init__(
        self,
        position: int,
        names: Sequence[str],
        links: Sequence[tuple[int, int]],
        by_name: bool,
        counts: Counter[str],
    ) -> None:
        self._own, self._count, self._by_name, self._counts = position, len(names), by_name, counts
        self._words = [_words(name) for name in names]
        self._linked = [earlier for earlier, later in links if later == position]

    def read(self, text: Any) -> Any:
        """A text with its references as dtdr writes them; anything else as it is."""
        if not isinstance(text, str):
            return text
        if not _NODE.search(text) and (whole := self._named(text)) is not None:
            return {"$ref": whole}
        return mark_references(text, _MARKED, self._target)

    def _target(self, match: re.Match[str]) -> str | None:
        numbered = _NODE.fullmatch(match[0])
        if numbered is None:
            return self._named(match[0])
        position = int(numbered[1])
        if position >= self._count:
            self._counts[NO_OUTPUTS] += 1
            return None
        if position != self._own:
            return str(position)
        if not self._linked:
            return None
        self._counts[OWN_OUTPUTS] += 1
        return str(self._linked[0])

    def _named(self, text: str) -> str | None:
        target = self._find_call(text)
        if target is None:
            return None
        self._counts[NAMED_OUTPUTS] += 1
        return str(target)

    def _find_call(self, text: str) -> int | None:
        """The call whose output a text names; of several, the one linked to this, or the nearest.

        Only an earlier or a linked one: a later one would turn the plan around.
        """
        words = _words(text)
        meant = _OUTPUT_OF.sub("", words)
        if meant == words and not self._by_name:
            return None
        named = [index for index, name in enumerate(self._words) if name == meant]
        linked = [index for index in named if index in self._linked]
        earlier = [index for index in named if index < self._own]
        if linked or earlier:
            return (linked or earlier)[-1]
        if named == [self._own] and len(self._linked) == 1:
            return self._linked[0]
        return None


def _words(text: str) -> str:
    return re.sub(r"(?:'s\b|[\W_])+", " ", text).strip().lower()


def node_links(names: Sequence[str], links: Sequence[Any]) -> list[tuple[int, int]]:
    """Positions that ``{"source": name, "target": name}`` links mean, as ``(earlier, later)``.

    A repeated link means the next target of that name; a target takes the nearest earlier node
    with the source's name. If there is none, the source is the first later one,
    since some records list nodes and links in different orders.

    Raises:
        InputError: a link names a tool that is not a node, or links a node to itself.
    """
    pairs: list[tuple[int, int]] = []
    taken: Counter[tuple[str, str]] = Counter()
    for link in links:
        source, target = pair = member(link, "source"), member(link, "target")
        for name in pair:
            if name not in names:
                raise InputError(f"a link names {name!r}, which is not a node of this plan")
        targets = [index for index, name in enumerate(names) if name == target]
        if source == target:
            if len(targets) < 2:
                raise InputError(f"a link joins {source!r}, which appears once, to itself")
            targets = targets[1:]
        else:
            targets = [index for index in targets if source in names[:index]] or targets
        later = targets[min(taken[pair], len(targets) - 1)]
        taken[pair] += 1
        sources = [index for index, name in enumerate(names) if name == source and index != later]
        earlier = max((index for index in sources if index < later), default=sources[0])
        if (earlier, later) not in pairs:
            pairs.append((earlier, later))
    return pairs


def read_tool_descriptions(path: Path) -> tuple[Tool, ...]:
    """The tools of ``tool_desc.json`` in the folder of a data file; none without such a file.

    Raises:
        InputError: the file is not ``{"nodes": [{"id", "desc", ...}]}``.
    """
    tools_file = path.with_name(_TOOLS)
    if not tools_file.is_file():
        return ()
    try:
        nodes = member(read_json(tools_file), "nodes", kind=list)
        return tuple(
            Tool(member(node, "id"), str(node.get("desc", "")), _parameters(node)) for node in nodes
        )
    except InputError as error:
        raise InputError(f"{tools_file}: {error}") from error


def _reader(source: str, links_are_dependencies: bool) -> Read:
    def read(path: Path, bad: BadRecords | None) -> Iterator[Demonstration]:
        convert_record = partial(
            convert,
            links_are_dependencies=links_are_dependencies,
            source=source,
            repairs=None if bad is None else bad.repairs,
        )
        records = ((f":{line}", record) for line, record in iter_json_lines(path, bad=bad))
        return convert_records(path, records, convert_record, bad)

    return read


def _list(record: Any, *names: str) -> list[Any]:
    value = member(record, *names, kind=(list, str))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{names[0]!r} is text that is not JSON") from error
        if not isinstance(value, list):
            raise InputError(f"{names[0]!r} is {type(value).__name__}, expected list")
    items: list[Any] = value
    return items


def _arguments(value: Any, references: _References) -> dict[str, Any]:
    if isinstance(value, dict):
        return {str(key): map_leaves(item, references.read) for key, item in value.items()}
    arguments: dict[str, Any] = {}
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        name = f"arg{index}"
        if isinstance(item, dict) and isinstance(item.get("name"), str) and "value" in item:
            name, item = item["name"], item["value"]
        name = name if name not in arguments else f"arg{index}"
        arguments[name] = map_leaves(item, references.read)
    return arguments


def _parameters(node: dict[str, Any]) -> tuple[Parameter, ...]:
    if isinstance(node.get("parameters"), list):
        return tuple(
            Parameter(member(item, "name"), str(item.get("type", "")), str(item.get("desc", "")))
            for item in node["parameters"]
        )
    types = node.get("input-type") or ()
    return tuple(Parameter(f"arg{index}", str(kind)) for index, kind in enumerate(types))


def _source(domain: str, folder: str, title: str, published: Published, note: str) -> Source:
    files = {f"{folder}/{file}": f"taskbench/{folder}/{file}" for file in ("data.json", _TOOLS)}
    return Source(
        name=f"taskbench_{domain}",
        title=f"TaskBench {title}",
        files=(f"taskbench/{folder}/data.json",),
        read=_reader(f"TaskBench {title}", links_are_dependencies=domain != "dailylife"),
        tools=read_tool_descriptions,
        origin="https://github.com/microsoft/JARVIS (taskbench) or "
        "huggingface.co/datasets/microsoft/Taskbench",
        licence="MIT",
        note=note,
        hub=Hub("microsoft/Taskbench", files),
        published=published,
    )


_NOTE = "dependencies are references in arguments, and links where arguments show none"

SOURCES = (
    _source(
        "dailylife",
        "data_dailylifeapis",
        "DailyLife",
        Published(3860, 41, (4.1, 1.7), (0.1, 0.2)),
        "links only order the calls in time, so they are not dependencies",
    ),
    _source(
        "huggingface",
        "data_huggingface",
        "HuggingFace",
        Published(4959, 24, (3.2, 1.5), (1.1, 1.5)),
        _NOTE,
    ),
    _source(
        "multimedia",
        "data_multimedia",
        "Multimedia",
        Published(4310, 41, (3.6, 1.7), (1.5, 1.7)),
        _NOTE,
    ),
)
