"""Finds the candidates of parameters with what was learned from demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.arguments.candidates import (
    AROUND,
    LIST,
    OBJECT,
    OBJECTS,
    OMITTED,
    TEMPLATE,
    UNKNOWN,
    CandidateFeatures,
    Candidates,
    TextView,
)
from dtdr.arguments.constants import ANY_TOOL, MAX_CONSTANTS, Constants
from dtdr.arguments.dates import read_dates
from dtdr.arguments.earlier import EarlierValues
from dtdr.arguments.features import (
    MAX_OUTPUTS,
    Mention,
    constant_features,
    find_mention,
    last_used,
    output_features,
    span_usage,
    token_columns,
    use_features,
)
from dtdr.arguments.hashing import Hashes, feature, features, parameter_keys
from dtdr.arguments.knowledge import Anchors, Associations
from dtdr.arguments.run_texts import RunTexts
from dtdr.arguments.sources import Source
from dtdr.arguments.state import ITEM, RunState
from dtdr.arguments.templates import template_form
from dtdr.arguments.texts import name_stems

_SPAN = 1
_ROWS = tuple(features([name]) for name in ("u", "o", "l", "j", "i", "t"))
_UNKNOWN_ROW, _OMITTED_ROW, _LIST_ROW, _OBJECT_ROW, _OBJECTS_ROW, _TEMPLATE_ROW = range(6)
_MAX_VIEWS = 200
"""Tools as seen from which a run's texts are kept, 10 KB each for a query of 40 words."""
_AROUND_SALT = np.uint32(feature("around"))
_UNKNOWN_SOURCE, _CONSTANT_SOURCE = Source("unknown"), Source("constant")


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

    def find_announced(self, state: RunState) -> list[str]:
        """The tool that each token of a run's texts announces."""
        if self not in state.memo:
            state.memo[self] = self.associations.find_announced(state.texts)
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
            stems = name_stems(name.partition("\x00")[0])
            columns, is_mentioned = token_columns(texts, self.anchors, stems)
            keys = parameter_keys(tool, name)
            view = TextView(texts.features(), keys, columns, self.context, is_mentioned)
            self.parameters[name] = view
        return self.parameters[name]


@lru_cache(maxsize=64)
def _dates_of(texts: RunTexts) -> Mapping[int, str]:
    return read_dates(texts.span_values, texts.first.tolist(), texts.last.tolist())


class _CandidateTable:
    """Candidates as they are collected; spans of the texts are not among them.

    Attributes:
        values, sources, forms: of each candidate.
        kinds: names of all kinds; no two constants are of one.
        parts: features of the rows, one row after the other; ``lengths`` says how many each has.
        row, kind: of each candidate, its row and its kind, ``further_rows`` and
            ``further_kinds`` those of the candidates behind these.
    """

    def __init__(self) -> None:
        self.values: list[Any] = [None, None]
        self.sources = [_UNKNOWN_SOURCE, Source("omitted")]
        self.forms = [UNKNOWN, OMITTED]
        self.kinds = ["unknown", "span", "omitted"]
        self.parts = list(_ROWS)
        self.lengths = [1] * len(_ROWS)
        self.row = [_UNKNOWN_ROW, _OMITTED_ROW]
        self.kind = [0, 2]
        self.further_rows: list[npt.NDArray[np.int64]] = []
        self.further_kinds: list[npt.NDArray[np.int64]] = []

    def add_kind(self, name: str) -> int:
        """One more kind; its place."""
        self.kinds.append(name)
        return len(self.kinds) - 1

    def add(self, value: Any, form: str, source: Source, row: int, kind: str) -> None:
        """One more candidate, of a kind of its own."""
        self.values.append(value)
        self.forms.append(form)
        self.sources.append(source)
        self.row.append(row)
        self.kind.append(self.add_kind(kind))


class CallCandidates:
    """The candidates of the parameters of one call; what they share is computed once."""

    def __init__(self, state: RunState, tool: str, finder: CandidateFinder) -> None:
        self.state = state
        self.tool = tool
        self._finder = finder
        self._constants = finder.constants
        self._view = finder.tool_view(state, tool)
        self._mentions: dict[str, Mention] = {}

    def after(self, parts: Mapping[str, Any]) -> CallCandidates:
        """The same for what is decided once these parts of the call are."""
        result = copy(self)
        result.state = self.state.with_used(self.tool, parts)
        result.__dict__.pop("_used_tokens", None)
        result._mentions = {}
        return result

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
        table = _CandidateTable()
        message_kind = table.add_kind("message span") if len(texts.parts) > 1 else _SPAN
        self._add_constants(table, parameter)
        if (tool, parameter) in self._constants.lists:
            table.add(None, LIST, _UNKNOWN_SOURCE, _LIST_ROW, "list")
        for form, name, own_row in self._iter_composed(parameter):
            table.add(None, form, _UNKNOWN_SOURCE, own_row, name)
        if state.calls:
            self._add_earlier(table, parameter, taken)
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
                features([f"kind {name}" for name in table.kinds]),
                message_kind,
                table.parts,
                np.array(table.lengths, np.uint8),
                np.concatenate([np.array(table.row), *table.further_rows]).astype(np.uint16),
                np.concatenate([np.array(table.kind), *table.further_kinds]).astype(np.uint8),
            ),
            table.kinds,
            table.values,
            table.sources,
            table.forms,
            self._view.window,
            _dates_of(texts) if is_date else {},
        )

    def _add_constants(self, table: _CandidateTable, parameter: str) -> None:
        """The constants of the parameter, and those of all parameters of its name."""
        key = (self.tool, parameter)
        own_values = self._constants.values.get(key, ())
        known = {form for form, _ in own_values}
        named = self._constants.values.get((ANY_TOOL, parameter.rpartition("/")[2]), ())
        shared = [item for item in named if item[0] not in known]
        calls = [past for past in self.state.calls if past.call.tool == self.tool]
        given = Counter(past.forms.get(parameter) for past in calls)
        for place, (form, value) in enumerate([*own_values, *shared][:MAX_CONSTANTS]):
            is_own = place < len(own_values)
            rank = min(place if is_own else place - len(own_values), 4)
            own = constant_features(self._mention(form), rank, is_own, min(given[form], 2))
            table.add(value, form, _CONSTANT_SOURCE, len(table.lengths), f"constant {form}")
            table.parts.append(own)
            table.lengths.append(len(own))

    def _add_earlier(self, table: _CandidateTable, parameter: str, taken: Collection[str]) -> None:
        """What earlier calls returned, as a whole and in parts, and what they were given."""
        earlier = self._earlier
        outputs = self._outputs_for(parameter, taken)
        arguments = earlier.arguments(self.tool, parameter)
        leaves, leaf_row = earlier.leaves(self.tool, parameter)
        table.values += earlier.values
        table.forms += earlier.forms
        table.sources += earlier.sources
        begin = len(table.lengths)
        first = begin + len(outputs) + len(arguments)
        table.further_rows += [np.arange(begin, first), leaf_row + first]
        by_id = self.state.by_id
        producers = [by_id[source.call].tool for source in earlier.sources[: len(outputs)]]
        names = list(dict.fromkeys(producers))
        place = {name: number for number, name in enumerate(names)}
        own_kinds = np.array([place[name] for name in producers])
        table.further_kinds.append(own_kinds + len(table.kinds))
        table.kinds += [*(f"output {name}" for name in names), "argument", "leaf"]
        others = [len(table.kinds) - 2, len(table.kinds) - 1]
        table.further_kinds.append(np.repeat(others, [len(arguments), len(leaf_row)]))
        lengths = [len(one) + len(use) for one, use in outputs]
        table.parts += [part for pair in outputs for part in pair]
        table.parts += arguments + leaves
        table.lengths += [*lengths, *map(len, arguments), *map(len, leaves)]
        if (self.tool, parameter) not in self._constants.composed:
            return
        table.values += [None] * len(outputs)
        table.forms += [AROUND + form for form in earlier.forms[: len(outputs)]]
        table.sources += earlier.sources[: len(outputs)]
        table.further_rows.append(np.arange(len(table.lengths), len(table.lengths) + len(outputs)))
        for (_, use), around in zip(outputs, self._outputs_around, strict=True):
            table.parts += [around, use ^ _AROUND_SALT]
        table.lengths += lengths
        table.further_kinds.append(own_kinds + len(table.kinds))
        table.kinds += [f"around {name}" for name in names]

    def _iter_composed(self, parameter: str) -> Iterator[tuple[str, str, int]]:
        """The forms of what is put together part by part, their kinds and rows."""
        constants, key = self._constants, (self.tool, parameter)
        if key in constants.fields:
            yield OBJECT, "object", _OBJECT_ROW
        if (self.tool, f"{parameter}/{ITEM}") in constants.fields:
            yield OBJECTS, "objects", _OBJECTS_ROW
        for template in constants.templates.get(key, ()):
            form = TEMPLATE + template_form(template)
            yield form, form, _TEMPLATE_ROW

    def _mention(self, form: str) -> Mention:
        """How the texts say a constant."""
        texts, memo = self.state.texts, self._mentions
        if form not in memo:
            memo[form] = find_mention(texts, self._view.anchors, form, self._used_tokens)
        return memo[form]

    @cached_property
    def _used_tokens(self) -> frozenset[int]:
        """Tokens that arguments took."""
        spans = self.state.spans.get(("", ""), ())
        return frozenset(token for first, last in spans for token in range(first, last + 1))

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
                    self._finder.find_announced(self.state),
                ),
                self.state.calls[-MAX_OUTPUTS:],
                strict=True,
            )
        ]

    @cached_property
    def _outputs_around(self) -> list[Hashes]:
        """The features of each whole output as one that a text is written around."""
        return [own ^ _AROUND_SALT for own in self._outputs]

    def _outputs_for(self, parameter: str, taken: Collection[str]) -> list[tuple[Hashes, Hashes]]:
        """The features of each whole output, those that all parameters share and those of one."""
        state, tool = self.state, self.tool
        return [
            (own, use_features(state, past.call, tool, parameter, past.call.id in taken))
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
