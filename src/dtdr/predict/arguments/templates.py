"""Texts that are put together: constant words around values of the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from dtdr.data.calls import is_reference
from dtdr.predict.arguments.texts import MAX_SPAN, split_tokens
from dtdr.predict.arguments.values import says

Template = tuple[str, ...]
"""The words before, between and after values; one more than there are values."""

MAX_VALUES = 3
MAX_LENGTH = 200
"""Characters of a text that is read as words around values; longer ones hardly repeat."""
_FUNCTION_WORDS = frozenset(
    ("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "i", "in", "is", "it", "my")
) | {"of", "on", "or", "our", "please", "that", "the", "this", "to", "with", "you", "your"}
"""A value neither begins nor ends with one of these: they belong to the words around it."""


def find_templates(text: str, said: str) -> list[Template]:
    """The templates by which a text may have been made from what was said.

    Args:
        text: an argument.
        said: what stands in the run, casefolded.

    Returns:
        For each longest piece of the text that was said, the words around it, and those around all
        of them together.
    """
    folded = text.casefold()
    if len(text) > MAX_LENGTH or len(folded) != len(text) or says(said, folded):
        return []
    places = split_tokens(text)
    pieces: list[tuple[int, int]] = []
    at = 0
    while at < len(places):
        end = -1
        if _may_be_edge(folded, places[at]):
            for last in range(at, min(len(places), at + MAX_SPAN)):
                if not says(said, folded[places[at][0] : places[last][1]]):
                    break
                if _may_be_edge(folded, places[last]):
                    end = last
        if end >= 0:
            pieces.append((places[at][0], places[end][1]))
        at = max(at, end) + 1
    templates: list[Template] = [(text[:start], text[end:]) for start, end in pieces]
    if 1 < len(pieces) <= MAX_VALUES:
        edges = [0, *(edge for piece in pieces for edge in piece), len(text)]
        templates.append(tuple(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)))
    return [template for template in templates if any(map(_says_something, template))]


def _says_something(words: str) -> bool:
    return bool(words.strip())


def _may_be_edge(folded: str, place: tuple[int, int]) -> bool:
    token = folded[slice(*place)]
    return token[0].isalnum() and token not in _FUNCTION_WORDS


@lru_cache(maxsize=1 << 12)
def template_form(template: Template) -> str:
    """One text for all templates that count as the same."""
    return "\x01".join(" ".join(words.casefold().split()) for words in template)


def read_template(template: Template, value: Any) -> list[Any] | None:
    """The values that a template holds in an argument; None where it did not make it."""
    if isinstance(value, Mapping):
        parts = split_join(value)
        if parts is None or template_form(parts[0]) != template_form(template):
            return None
        return parts[1]
    if not isinstance(value, str) or len(value) > MAX_LENGTH:
        return None
    match = _pattern(template).fullmatch(" ".join(value.split()).casefold())
    return None if match is None else [piece.strip() for piece in match.groups()]


@lru_cache(maxsize=1 << 12)
def _pattern(template: Template) -> re.Pattern[str]:
    words = [re.escape(" ".join(part.casefold().split())) for part in template]
    return re.compile(r"\s?(.+?)\s?".join(words), re.DOTALL)


def fill_template(template: Template, values: Sequence[Any]) -> Any:
    """The text, or ``{"$join": …}`` where a value is a reference; None where one is not text."""
    if any(is_reference(value) for value in values):
        parts: list[Any] = [template[0]]
        for value, words in zip(values, template[1:], strict=True):
            parts += [value, words]
        return {"$join": [part for part in parts if part != ""]}
    if any(isinstance(value, (bool, Mapping, list)) or value is None for value in values):
        return None
    pairs = zip(values, template[1:], strict=True)
    return template[0] + "".join(f"{value}{words}" for value, words in pairs)


def split_join(value: Mapping[str, Any]) -> tuple[Template, list[Any]] | None:
    """The words and values of ``{"$join": …}``; None where it is something else."""
    parts = value.get("$join")
    if not isinstance(parts, (list, tuple)) or len(value) > 1:
        return None
    words, values = [""], []
    for part in parts:
        if isinstance(part, str):
            words[-1] += part
        else:
            values.append(part)
            words.append("")
    return (tuple(words), values) if 0 < len(values) <= MAX_VALUES else None
