"""The values that a parameter may take at a step, where each comes from, and their features."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.constants import Constants
from dtdr.arguments.dates import read_dates
from dtdr.arguments.earlier import EarlierValues
from dtdr.arguments.features import (
    COLUMNS,
    LAST_USED,
    MAX_OUTPUTS,
    last_used,
    output_features,
    span_usage,
    token_columns,
    use_features,
)
from dtdr.arguments.hashing import Hashes, feature, features, parameter_keys
from dtdr.arguments.knowledge import Anchors, Associations
from dtdr.arguments.sources import Source
from dtdr.arguments.state import RunState, RunTexts, TextFeatures, is_plain_reference
from dtdr.arguments.texts import name_stems
from dtdr.arguments.values import canonical, resolve_references
from dtdr.calls import find_references, is_reference

OMITTED, LIST, UNKNOWN = "\x00omitted", "\x00list", "\x00unknown"
"""Canonical forms of what is not a value: no argument, a list to be put together, none known."""
AROUND = "\x00around"
"""Of a text or object that has to be written around outputs: this, and their references' forms."""

_SPAN = 1
_ROWS = tuple(features([name]) for name in ("u", "o", "c", "l"))
_UNKNOWN_ROW, _OMITTED_ROW, _CONSTANT_ROW, _LIST_ROW = range(4)
_MAX_VIEWS = 200
"""Tools as seen from which a run's texts are kept, 10 KB each for a query of 40 words."""
_AROUND_SALT = np.uint32(feature("around"))


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

    def targets(self, form: str) -> npt.NDArray[np.int64]:
        """Positions of the candidates that are the value; of ``unknown`` where none is."""
        count = len(self.texts.first)
        forms = {form}
        if form.startswith(AROUND):
            forms = {AROUND + output for output in form.removeprefix(AROUND).split("\x00")}
        places = [*self.texts.places.get(form, ())]
        places += [place for place, date in self.dates.items() if date == form]
        places += [count + place for place, other in enumerate(self.forms) if other in forms]
        return np.array(places or [count + self.forms.index(UNKNOWN)], np.int64)

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


class CandidateFinder:
    """Finds candidates with what was learned from demonstrations.

    Args:
        constants: values of parameters.
        associations: words that announce tools.
    """

    def __init__(self, constants: Constants, associations: Associations) -> None:
        self.constants = constants
        self.associations = associations

    def call(self, state: RunState, tool: str) -> CallCandidates:
        """The candidates of the parameters of a call.

        Args:
            state: what is known before the call.
            tool: the tool that is called.
        """
        return CallCandidates(state, tool, self)

    def announced(self, state: RunState) -> list[str]:
        """The tool that each token of a run's texts announces."""
        if self not in state.memo:
            state.memo[self] = self.associations.announced(state.texts)
        announced: list[str] = state.memo[self]
        return announced

    def tool_view(self, state: RunState, tool: str) -> _ToolView:
        """The texts of a run as seen from a tool."""
        key = (self, tool)
        if key not in state.memo:
            for oldest in list(state.memo)[: len(state.memo) - _MAX_VIEWS + 1]:
                state.memo.pop(oldest, None)
            state.memo[key] = _ToolView.of(state.texts, tool, self.associations)
        view: _ToolView = state.memo[key]
        return view


@dataclass(frozen=True, slots=True, eq=False)
class _ToolView:
    """The texts of a run as seen from a tool: which words announce it, and the words around."""

    anchors: Anchors
    window: Hashes
    window_from: Hashes
    context: Hashes
    parameters: dict[str, TextView] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: RunTexts, tool: str, associations: Associations) -> _ToolView:
        anchors = associations.anchors(texts, tool)
        strongest = anchors.strongest
        near = texts.near_features
        # Most of the words around an announcing word stand after it.
        window = near[max(0, strongest - 5) : strongest + 9] if strongest >= 0 else near[:0]
        produced = np.uint32(feature(f"from {tool}"))
        context = np.concatenate([texts.word_features, window])
        return cls(anchors, window, window ^ produced, context)

    def parameter(self, texts: RunTexts, tool: str, name: str) -> TextView:
        """The same as seen from one of its parameters."""
        if name not in self.parameters:
            columns, is_mentioned = token_columns(texts, self.anchors, name_stems(name))
            keys = parameter_keys(tool, name)
            view = TextView(texts.features(), keys, columns, self.context, is_mentioned)
            self.parameters[name] = view
        return self.parameters[name]


@lru_cache(maxsize=64)
def _dates_of(texts: RunTexts) -> Mapping[int, str]:
    return read_dates(texts.span_values, texts.first.tolist(), texts.last.tolist())


class CallCandidates:
    """The candidates of the parameters of one call; what they share is computed once."""

    def __init__(self, state: RunState, tool: str, finder: CandidateFinder) -> None:
        self.state = state
        self.tool = tool
        self._finder = finder
        self._constants = finder.constants
        self._view = finder.tool_view(state, tool)

    def views(self, parameters: Sequence[str]) -> list[TextView]:
        """The texts as seen from parameters."""
        return [
            self._view.parameter(self.state.texts, self.tool, parameter) for parameter in parameters
        ]

    def find(
        self, parameter: str, decided: Sequence[str] = (), taken: Collection[str] = ()
    ) -> Candidates:
        """The candidates of a parameter.

        Args:
            parameter: to be filled.
            decided: labels of the parameters of this call that are decided already.
            taken: the calls whose outputs these use.
        """
        state, tool, texts = self.state, self.tool, self.state.texts
        view = self._view.parameter(texts, tool, parameter)
        own = state.spans.get((tool, parameter)) or state.spans.get(("", parameter), ())
        usage, has_free_quotation = span_usage(state, tool, parameter)
        kinds = ["unknown", "span", "omitted"]
        values: list[Any] = [None, None]
        sources = [Source("unknown"), Source("omitted")]
        forms = [UNKNOWN, OMITTED]
        rows = list(_ROWS)
        row_of = [_UNKNOWN_ROW, _OMITTED_ROW]
        kind_of = [0, 2]
        if len(texts.parts) > 1:
            kinds.append("message span")
        message_kind = len(kinds) - 1 if len(texts.parts) > 1 else _SPAN
        constants = self._constants.values.get((tool, parameter), ())
        for form, value in constants:
            values.append(value)
            forms.append(form)
            kind_of.append(len(kinds))
            kinds.append(f"constant {form}")
        sources += [Source("constant")] * len(constants)
        row_of += [_CONSTANT_ROW] * len(constants)
        if (tool, parameter) in self._constants.lists:
            values.append(None)
            forms.append(LIST)
            sources.append(Source("unknown"))
            row_of.append(_LIST_ROW)
            kind_of.append(len(kinds))
            kinds.append("list")
        row, kind = np.array(row_of), np.array(kind_of)
        if state.calls:
            earlier = self._earlier
            values += earlier.values
            forms += earlier.forms
            sources += earlier.sources
            outputs = self._outputs_for(parameter, taken)
            arguments = earlier.arguments(tool, parameter)
            leaves, leaf_row = earlier.leaves(tool, parameter)
            first = len(rows) + len(outputs) + len(arguments)
            own_rows = np.arange(len(rows), first)
            row = np.concatenate([row, own_rows, leaf_row + first])
            producers = [
                state.by_id[source.call].tool for source in earlier.sources[: len(outputs)]
            ]
            names = [f"output {name}" for name in dict.fromkeys(producers)]
            place = {name: len(kinds) + number for number, name in enumerate(names)}
            kinds += [*names, "argument", "leaf"]
            output_kinds = [place[f"output {name}"] for name in producers]
            others = np.repeat([len(kinds) - 2, len(kinds) - 1], [len(arguments), len(leaf_row)])
            kind = np.concatenate([kind, output_kinds, others])
            rows += outputs + arguments + leaves
            if (tool, parameter) in self._constants.composed:
                values += [None] * len(outputs)
                forms += [AROUND + form for form in earlier.forms[: len(outputs)]]
                sources += earlier.sources[: len(outputs)]
                row = np.concatenate([row, np.arange(len(rows), len(rows) + len(outputs))])
                rows += [one ^ _AROUND_SALT for one in outputs]
                kind = np.concatenate([kind, np.array(output_kinds) + len(kinds) - place[names[0]]])
                kinds += [f"around {name}" for name in dict.fromkeys(producers)]
        lengths = list(map(len, rows))
        is_date = self._constants.types.get((tool, parameter)) == "date"
        more = features(
            [
                *(f"decided {label}" for label in decided),
                f"decided last {decided[-1] if decided else ''}",
                f"mentioned {view.is_mentioned}",
                f"free quotation {has_free_quotation}",
            ]
        )
        return Candidates(
            tool,
            parameter,
            texts,
            CandidateFeatures(
                view,
                last_used(len(texts.stems), own[-1][1] if own else -1, state.last_token),
                usage,
                np.concatenate([self._called, more]),
                features([f"kind {name}" for name in kinds]),
                message_kind,
                rows,
                np.array(lengths, np.uint8),
                row.astype(np.uint16),
                kind.astype(np.uint8),
            ),
            kinds,
            values,
            sources,
            forms,
            self._view.window,
            _dates_of(texts) if is_date else {},
        )

    @cached_property
    def _earlier(self) -> EarlierValues:
        memo = self.state.step_memo
        key = (EarlierValues, self._finder)
        if key not in memo:
            memo[key] = EarlierValues(self.state, self._constants.paths)
        earlier: EarlierValues = memo[key]
        return earlier

    @cached_property
    def _outputs(self) -> list[Hashes]:
        producers = {past.call.tool for past in self.state.calls}
        views = {name: self._finder.tool_view(self.state, name) for name in producers}
        return [
            np.concatenate([own, views[past.call.tool].window_from])
            for own, past in zip(
                output_features(
                    self.state,
                    self.tool,
                    self._view.anchors,
                    {name: view.anchors.strongest for name, view in views.items()},
                    self._finder.announced(self.state),
                ),
                self.state.calls[-MAX_OUTPUTS:],
                strict=True,
            )
        ]

    def _outputs_for(self, parameter: str, taken: Collection[str]) -> list[Hashes]:
        """The features of each whole output as seen from a parameter."""
        state, tool = self.state, self.tool
        return [
            np.concatenate(
                [own, use_features(state, past.call, tool, parameter, past.call.id in taken)]
            )
            for own, past in zip(self._outputs, state.calls[-MAX_OUTPUTS:], strict=True)
        ]

    @cached_property
    def _called(self) -> Hashes:
        """The tools called so far."""
        state, tool = self.state, self.tool
        current = [past.call.tool for past in state.calls if not past.is_earlier]
        called = sorted({past.call.tool for past in state.calls})
        unused = sorted(
            {past.call.tool for past in state.calls if not state.uses.get(past.call.id)}
        )
        return features(
            [
                *(f"called {name}" for name in called),
                *(f"unused {name}" for name in unused),
                "always",
                f"last {current[-1] if current else '^'}",
                f"same {min(current.count(tool), 4)}",
                f"calls {min(len(current), 8)}",
            ]
        )


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
