"""The tools of all upstreams under names that differ, and a lexical index over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dtdr.demonstrations import Tool
from dtdr.encoders.base import MAX_CHARACTERS
from dtdr.encoders.lexical import words
from dtdr.errors import InputError
from dtdr.retrievers.descriptions import document

SEPARATOR = "__"
"""In a prefixed name; providers of LLMs allow letters, digits, ``_`` and ``-`` in names."""


@dataclass(frozen=True, slots=True)
class CatalogTool:
    """A tool as clients see it.

    Attributes:
        name: unique over all upstreams.
        upstream: whose tool it is.
        raw_name: what the upstream calls it.
        definition: the upstream's definition with ``name`` in place of its own.
        known_as: the tool's name in the model; None where the model never saw it.
    """

    name: str
    upstream: str
    raw_name: str
    definition: Mapping[str, Any] = field(repr=False)
    known_as: str | None = None


class Names:
    """Names that differ over all upstreams, for tools or prompts.

    A thing keeps its own name unless another upstream, or the gateway itself, has one of that name;
    then it is ``upstream__name``. A name that was given away once is never given to another thing,
    so that a client's old list stays true.

    Args:
        reserved: names of the gateway's own.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._names: dict[tuple[str, str], str] = {}
        self._owners: dict[str, tuple[str, str]] = {}

    def assign(
        self, offers: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> list[tuple[str, str, Mapping[str, Any]]]:
        """``(name, upstream, definition)`` of everything that is offered, each once.

        Args:
            offers: definitions by upstream, with the upstream's own ``name`` in each.
        """
        shared = Counter(
            name
            for definitions in offers.values()
            for name in {str(item.get("name", "")) for item in definitions}
        )
        found: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
        for upstream, definitions in offers.items():
            for definition in definitions:
                raw_name = str(definition.get("name", ""))
                name = self._name(upstream, raw_name, is_shared=shared[raw_name] > 1)
                found.setdefault(name, (name, upstream, definition))
        return list(found.values())

    def owner(self, name: str) -> tuple[str, str] | None:
        """``(upstream, its own name)`` of a name that was ever given away."""
        return self._owners.get(name)

    def _name(self, upstream: str, raw_name: str, *, is_shared: bool) -> str:
        key = (upstream, raw_name)
        current = self._names.get(key)
        if current is not None and (not is_shared or current != raw_name):
            return current
        name = raw_name
        while (
            (is_shared and name == raw_name)
            or name in self._reserved
            or self._owners.get(name, key) != key
        ):
            name = f"{upstream}{SEPARATOR}{name}"
        self._names[key] = name
        self._owners[name] = key
        return name


class Catalog:
    """The tools that can be called, by name.

    Args:
        is_known: whether the model knows a tool of that name.
        reserved: names of the gateway's own tools.
    """

    def __init__(self, is_known: Callable[[str], bool], reserved: Iterable[str] = ()) -> None:
        self._is_known = is_known
        self._naming = Names(reserved)
        self._by_name: dict[str, CatalogTool] = {}
        self._by_model_name: dict[str, list[str]] = {}
        self._index: _Index | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def rebuild(
        self, offers: Mapping[str, Sequence[Mapping[str, Any]]], available: Iterable[str]
    ) -> None:
        """Take the tools of every upstream, in the order of the upstreams.

        Args:
            offers: tool definitions by upstream, those last seen where it is away.
            available: upstreams whose tools can be called now.
        """
        up = set(available)
        self._by_name = {}
        for name, upstream, definition in self._naming.assign(offers):
            if upstream in up:
                raw_name = str(definition.get("name", ""))
                exposed = {**definition, "name": name}
                known_as = self._model_name(name, raw_name)
                self._by_name[name] = CatalogTool(name, upstream, raw_name, exposed, known_as)
        self._by_model_name = {}
        for tool in self._by_name.values():
            if tool.known_as is not None:
                self._by_model_name.setdefault(tool.known_as, []).append(tool.name)
        self._index = None

    def get(self, name: str) -> CatalogTool | None:
        """The tool of that name, if it can be called now."""
        return self._by_name.get(name)

    def owner(self, name: str) -> tuple[str, str] | None:
        """``(upstream, its own name)`` of a name that was ever given away, away or not."""
        return self._naming.owner(name)

    def model_name(self, name: str) -> str:
        """What the model calls a tool; the name itself where it never saw it."""
        tool = self._by_name.get(name)
        if tool is not None:
            return tool.known_as or name
        owner = self.owner(name)
        return name if owner is None else self._model_name(name, owner[1]) or name

    def model_names(self) -> tuple[str, ...]:
        """What the model calls the tools that it knows, each once."""
        return tuple(self._by_model_name)

    def unknown(self) -> list[CatalogTool]:
        """The tools that can be called now and that the model does not know."""
        return [tool for tool in self._by_name.values() if tool.known_as is None]

    def of_model_name(self, known_as: str) -> Sequence[str]:
        """Names of the tools that the model calls so: several where upstreams share a name."""
        return self._by_model_name.get(known_as, ())

    def names(self) -> tuple[str, ...]:
        """Every tool that can be called now, in the order of the upstreams."""
        return tuple(self._by_name)

    def search(self, query: str, limit: int) -> list[str]:
        """Names of the tools that share words with a text, best first, by BM25."""
        if self._index is None:
            self._index = _Index(list(self._by_name.values()))
        return self._index.search(query, limit)

    def _model_name(self, name: str, raw_name: str) -> str | None:
        return next((item for item in (name, raw_name) if self._is_known(item)), None)


class _Index:
    """BM25 over names, descriptions and parameters (bm25s)."""

    def __init__(self, tools: Sequence[CatalogTool]) -> None:
        import bm25s  # slow to import, and needed at the first search only

        self._names = [tool.name for tool in tools]
        texts = [_terms(_document(tool)) for tool in tools]
        self._scorer = bm25s.BM25() if any(texts) else None
        if self._scorer is not None:
            self._scorer.index(texts, show_progress=False)

    def search(self, query: str, limit: int) -> list[str]:
        if self._scorer is None:
            return []
        known = self._scorer.vocab_dict
        asked = [word for word in _terms(query[:MAX_CHARACTERS]) if word in known]
        if not asked:
            return []
        scores = np.asarray(self._scorer.get_scores(asked))
        best = np.argsort(-scores, kind="stable")[:limit]
        return [self._names[index] for index in best if scores[index] > 0]


def _document(tool: CatalogTool) -> str:
    title = tool.definition.get("title") or ""
    try:
        described = document(Tool.from_dict({**tool.definition, "name": tool.raw_name}))
    except InputError:
        described = document(Tool(tool.raw_name, str(tool.definition.get("description") or "")))
    return f"{tool.upstream} {title}\n{described}"


def _terms(text: str) -> list[str]:
    return [word for word in words(text) if word[0].isalnum()]
