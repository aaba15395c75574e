"""The tools of all upstreams under distinct names, and the search among them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from dtdr.agents.search import described_tool
from dtdr.predict.search import ToolSearch
from dtdr.rankers.descriptions import document
from dtdr.rankers.ranking import Ranking
from dtdr.text.words import name_words

SEPARATOR = "__"
"""In a full name; providers of LLMs allow letters, digits, ``_`` and ``-`` in names."""

LONGEST_NAME = 64
"""Characters of a name that the APIs of OpenAI and Anthropic take."""

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode: control characters, marks of direction, line ends."""

MAX_SUBJECTS = 40
"""In the instructions, which some clients cut after 2,000 characters."""


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool as clients see it.

    Attributes:
        name: unique over all upstreams.
        upstream: the server's name.
        raw_name: the server's own name of the tool.
        definition: the server's definition, under ``name``.
        known_as: the tool's name in the model; None if the model never saw it.
    """

    name: str
    upstream: str
    raw_name: str
    definition: Mapping[str, Any] = field(repr=False)
    known_as: str | None = None


class AmbiguousNameError(MCPError):
    """A name that tools or prompts of several servers have."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(
            types.INVALID_PARAMS,
            f"more than one server has had {name!r}; use the full name: {' or '.join(names)}",
        )


class Names:
    """Distinct names over all upstreams, for tools or prompts.

    The full name is ``upstream__name``, and only that upstream can have it: names of upstreams have
    no ``__``. A bare name is used while only one upstream has ever offered it. Once another has,
    both go by their full names and the bare one is refused, in whatever order they came. A bare
    name that is reserved, or looks like a full name, is never used.

    Args:
        upstreams: names of all configured upstreams.
        reserved: names of the gateway itself.
        offered: ``(upstream, name)`` of what was offered before.
        clean: what clients can use of an upstream's own name.
    """

    def __init__(
        self,
        upstreams: Iterable[str],
        reserved: Iterable[str] = (),
        offered: Iterable[tuple[str, str]] = (),
        clean: Callable[[str], str] = lambda name: clean_name(name),
    ) -> None:
        self._upstreams = tuple(upstreams)
        self._prefixes = tuple(f"{name}{SEPARATOR}" for name in self._upstreams)
        self._reserved = frozenset(reserved)
        self._clean = clean
        # By clean name: who offered it, under which names.
        self._offers: dict[str, dict[str, set[str]]] = {}
        self._by_full_name: dict[str, tuple[str, str]] | None = None
        for upstream, raw_name in offered:
            self._add(upstream, raw_name)

    def _add(self, upstream: str, raw_name: str) -> None:
        names = self._offers.setdefault(self._clean(raw_name), {}).setdefault(upstream, set())
        if raw_name not in names:
            names.add(raw_name)
            self._by_full_name = None

    def assign(
        self, offers: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> list[tuple[str, str, Mapping[str, Any]]]:
        """``(name, upstream, definition)`` of everything that upstreams offer, each once.

        Every definition has its upstream's name of it under ``name``.
        """
        listed = [
            (upstream, definition)
            for upstream, definitions in offers.items()
            for definition in definitions
        ]
        for upstream, definition in listed:
            self._add(upstream, definition["name"])
        assigned: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
        for upstream, definition in listed:
            name = self.name_of(upstream, definition["name"])
            assigned.setdefault(name, (name, upstream, definition))
        return list(assigned.values())

    def name_of(self, upstream: str, raw_name: str) -> str:
        """The bare name, or the full one if it is not unique."""
        bare = self._clean(raw_name)
        offers = self._offers.get(bare, {})
        names = offers.get(upstream, set())
        if self._is_bare(bare) and len(offers) <= 1 and len(names) <= 1:
            return bare
        # Two names of one server that differ only in what clients cannot use.
        bare = _shorten(bare, raw_name, is_forced=len(names) > 1)
        return _shorten(f"{upstream}{SEPARATOR}{bare}", raw_name)

    def owner(self, name: str) -> tuple[str, str] | None:
        """``(upstream, raw name)`` of a bare or full name that was ever offered.

        Raises:
            AmbiguousNameError: it is a bare name that several upstreams have offered.
        """
        owner = self._full_names().get(name)
        bare = self._clean(name)
        offers = self._offers.get(bare, {})
        owners = [(upstream, raw) for upstream, names in offers.items() for raw in names]
        if owner is not None or not owners or not self._is_bare(bare):
            return owner
        if name != bare:  # a client that knows the server's own name
            owners = [item for item in owners if item[1] == name] or owners
        if len(owners) > 1:
            order = {upstream: index for index, upstream in enumerate(self._upstreams)}
            owners.sort(key=lambda item: (order.get(item[0], len(order)), item[1]))
            raise AmbiguousNameError(name, [self.name_of(*item) for item in owners])
        return owners[0]

    def _full_names(self) -> dict[str, tuple[str, str]]:
        """Everything that was offered by its full names."""
        if self._by_full_name is None:
            self._by_full_name = {
                full: (upstream, raw_name)
                for bare, upstreams in self._offers.items()
                for upstream, names in upstreams.items()
                for raw_name in names
                for full in (
                    *([f"{upstream}{SEPARATOR}{bare}"] if len(names) == 1 else ()),
                    f"{upstream}{SEPARATOR}{raw_name}",
                    self.name_of(upstream, raw_name),
                )
            }
        return self._by_full_name

    def _is_bare(self, name: str) -> bool:
        return name not in self._reserved and not name.startswith(self._prefixes)


def clean_name(name: str) -> str:
    """A tool's name as APIs of LLMs take it: 64 letters, digits, ``_`` and ``-`` at most."""
    return _shorten(_UNUSABLE.sub("_", name), name)


def clean_title(name: str) -> str:
    """A name for people, without characters that control a terminal or reorder a text."""
    return "".join(" " if unicodedata.category(char) in _HIDDEN else char for char in name)


def _shorten(name: str, raw_name: str, *, is_forced: bool = False) -> str:
    """The name itself, or its beginning and a digest of the upstream's name if it is too long."""
    if len(name) <= LONGEST_NAME and not is_forced:
        return name
    digest = hashlib.sha256(raw_name.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{digest}"


class Catalog(dict[str, CatalogTool]):
    """The tools that can be called now, by name, in the order of the upstreams.

    Args:
        is_known: whether the model knows a tool of that name.
        names: of the tools that were ever offered.

    Attributes:
        by_model_name: names of the tools by their name in the model: several if upstreams share a
            name.
    """

    def __init__(self, is_known: Callable[[str], bool], names: Names) -> None:
        super().__init__()
        self.names = names
        self.by_model_name: dict[str, list[str]] = {}
        self._is_known = is_known
        self._search: ToolSearch | None = None

    def rebuild(
        self, offers: Mapping[str, Sequence[Mapping[str, Any]]], available: Iterable[str]
    ) -> None:
        """Take the tools of every upstream, in the order of the upstreams.

        Args:
            offers: tool definitions by upstream; those last seen if it is disconnected.
            available: upstreams whose tools can be called now.
        """
        up = set(available)
        self.clear()
        self.by_model_name, self._search = {}, None
        for name, upstream, definition in self.names.assign(offers):
            if upstream in up:
                raw_name = definition["name"]
                known_as = self._model_name(name, upstream, raw_name)
                exposed = {**definition, "name": name}
                if isinstance(title := definition.get("title"), str):
                    exposed["title"] = clean_title(title)
                self[name] = CatalogTool(name, upstream, raw_name, exposed, known_as)
                if known_as is not None:
                    self.by_model_name.setdefault(known_as, []).append(name)

    def unknown(self) -> list[CatalogTool]:
        """Those that the model does not know."""
        return [tool for tool in self.values() if tool.known_as is None]

    def model_name(self, name: str) -> str:
        """The model's name of a tool; the listed name if the model does not know it."""
        owner = self.names.owner(name)
        if owner is None:
            return name
        listed = self.names.name_of(*owner)
        return self._model_name(listed, *owner) or listed

    def subjects(self) -> list[str]:
        """Topics of the tools, from the words of their names; those the model knows first.

        The first word of a name says what the tool does, the others what it works on.
        """
        tools = sorted(self.values(), key=lambda tool: tool.known_as is None)
        words = (" ".join(name_words(tool.raw_name).split()[1:]) for tool in tools)
        return list(islice(dict.fromkeys(filter(None, words)), MAX_SUBJECTS))

    def search(
        self, text: str, limit: int, run: Ranking | None = None, asked: Ranking | None = None
    ) -> list[str]:
        """Names of the tools that match a text, best first; see ``dtdr.predict.search``."""
        if self._search is None:
            tools = tuple(self.values())
            self._search = ToolSearch(
                tuple(self),
                lambda: list(map(_document, tools)),
                tuple(tool.known_as for tool in tools),
            )
        return [name for name, _ in self._search.find(text, limit, run=run, asked=asked)]

    def _model_name(self, name: str, upstream: str, raw_name: str) -> str | None:
        # Claude Code and Codex write the last one into their transcripts.
        candidates = (name, raw_name, f"mcp__{upstream}__{raw_name}")
        return next(filter(self._is_known, candidates), None)


def _document(tool: CatalogTool) -> str:
    title = tool.definition.get("title") or ""
    described = document(described_tool(tool.raw_name, tool.definition))
    return f"{tool.upstream} {title}\n{described}"
