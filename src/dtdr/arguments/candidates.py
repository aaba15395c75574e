"""The values that a parameter may take at a step, where each comes from, and their features."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.features import COLUMNS, LAST_USED
from dtdr.arguments.hashing import Hashes
from dtdr.arguments.run_texts import RunTexts, TextFeatures
from dtdr.arguments.sources import Source
from dtdr.arguments.state import RunState, is_plain_reference
from dtdr.arguments.values import canonical, resolve_references
from dtdr.calls import find_references, is_reference

OMITTED, LIST, UNKNOWN = "\x00omitted", "\x00list", "\x00unknown"
"""Canonical forms of what is not a value: no argument, a list to be put together, none known."""
OBJECT, OBJECTS, TEMPLATE = "\x00object", "\x00objects", "\x00template "
"""Of what is put together part by part: an object, a list of objects, a text by its template."""
AROUND = "\x00around"
"""Of a text or object that has to be written around outputs: this, and their references' forms."""


@dataclass(slots=True, eq=False)
class TextView:
    """The texts of a run as seen from a parameter of a tool, whatever was called so far.

    Attributes:
        texts: n tokens, m spans.
        keys: what features are joined with; shape (3,).
        columns: of each token, positions in ``COLUMNS``; shape (n, 4).
        context: what decides between kinds of values; shape (c,).
        is_mentioned: whether a word of the parameter's name stands in the texts.
        scores: what a ranker computed from it; a ranker's own.
    """

    texts: TextFeatures
    keys: Hashes
    columns: npt.NDArray[np.uint8]
    context: Hashes
    is_mentioned: bool
    scores: Any = None


@dataclass(slots=True, eq=False)
class CandidateFeatures:
    """What a ranker sees of the candidates of one parameter: m spans of the texts, and o others.

    Attributes:
        view: what does not change from call to call.
        last_used: of each token, a position in ``LAST_USED``; shape (n,).
        usage: of each span, a position in ``USAGE``; shape (m,).
        context: what decides between kinds of values, besides the view's; shape (c,).
        kinds: of values; shape (k,).
        message_kind: the kind of spans outside the query; that of spans in it is 1.
        row_parts: features of other candidates, those of each row in turn, in parts that
            examples share; (sum of lengths,) together.
        row_lengths: features of each row, at least one; shape (r,).
        other_row: the row of each other candidate; shape (o,).
        other_kind: shape (o,).
    """

    view: TextView
    last_used: npt.NDArray[np.uint8]
    usage: npt.NDArray[np.uint8]
    context: Hashes
    kinds: Hashes
    message_kind: int
    row_parts: list[Hashes]
    row_lengths: npt.NDArray[np.uint8]
    other_row: npt.NDArray[np.uint16]
    other_kind: npt.NDArray[np.uint8]

    def rows(self) -> list[Hashes]:
        """The features of each row."""
        ends = np.cumsum(self.row_lengths, dtype=np.int64)
        return np.split(np.concatenate(self.row_parts), ends[:-1])

    def token_rows(self) -> Hashes:
        """What is known of each token as seen from the parameter; shape (n, 5)."""
        return np.concatenate([COLUMNS[self.view.columns], LAST_USED[self.last_used, None]], axis=1)


@dataclass(slots=True, eq=False)
class Candidates:
    """The candidates of one parameter.

    Attributes:
        texts: whose spans are candidates.
        features: of the spans, then of the others.
        kinds: names of the kinds of values.
        values, sources, forms: of the others; ``forms`` are canonical.
        window: words around the one that announces the tool.
        dates: spans that say a date in words, and the date, where the parameter takes dates.
    """

    tool: str
    parameter: str
    texts: RunTexts
    features: CandidateFeatures
    kinds: list[str]
    values: list[Any]
    sources: list[Source]
    forms: list[str]
    window: Hashes
    dates: Mapping[int, str]

    def targets(self, form: str, composed: Collection[str] = ()) -> npt.NDArray[np.int64]:
        """Positions of the candidates that are the value; of ``unknown`` where none is.

        Args:
            form: the canonical form of the value.
            composed: forms of what the value may be put together as.

        Returns:
            Shape (m,), m at least 1.
        """
        count = len(self.texts.first)
        forms = {form}
        if form.startswith(AROUND):
            forms = {AROUND + output for output in form.removeprefix(AROUND).split("\x00")}
        places = [*self.texts.places.get(form, ())]
        places += [place for place, date in self.dates.items() if date == form]
        if (composed and form.startswith(AROUND)) or (not places and forms.isdisjoint(self.forms)):
            forms = {*composed}
        elif OBJECT in composed or OBJECTS in composed:
            forms |= {*composed}
        places += [count + place for place, other in enumerate(self.forms) if other in forms]
        return np.array(places or [count + self.forms.index(UNKNOWN)], np.int64)

    def has(self, form: str) -> bool:
        """Whether a value stands somewhere in the run."""
        return form in self.texts.places or form in self.forms

    def span_form(self, place: int) -> str:
        """The canonical form of a span's value, as the parameter takes it."""
        return self.dates.get(place) or self.texts.span_canonical[place]

    def label(self, form: str, outputs: Iterable[str] = ()) -> str:
        """A short name of a decision, which later parameters of the call see.

        Args:
            form: the canonical form of the value.
            outputs: tools whose outputs are in it.
        """
        if form == LIST:
            return f"{self.parameter}=list {' '.join(sorted({*outputs}))}"
        if form in self.forms:
            kind = self.kinds[self.features.other_kind[self.forms.index(form)]]
            return f"{self.parameter}={kind[:40]}"
        return f"{self.parameter}=span"


def gold_form(value: Any, state: RunState) -> str:
    """The canonical form of a demonstrated argument.

    ``LIST`` where it is put together, and ``AROUND`` with ids where something was written around
    whole outputs.
    """
    if value == OMITTED:
        return OMITTED
    if isinstance(value, list) and value and all(map(is_plain_reference, value)):
        return LIST
    resolved = resolve_references(value, state.by_id)
    if isinstance(resolved, list) and resolved and not any(map(_is_nested, resolved)):
        return LIST
    if not is_reference(resolved):
        outputs = [canonical({"$ref": one.call}) for one in find_references(resolved)]
        if outputs:
            return AROUND + "\x00".join(dict.fromkeys(outputs))
    return canonical(resolved)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, Mapping)) and not is_plain_reference(value)


def span_source(candidates: Candidates, place: int) -> Source:
    """Where a span stands."""
    texts = candidates.texts
    part = int(texts.span_part[place])
    text = texts.parts[part]
    start = text.starts[int(texts.first[place]) - texts.offsets[part]]
    end = text.ends[int(texts.last[place]) - texts.offsets[part]]
    return Source("message" if part else "query", "", "", (start, end))
