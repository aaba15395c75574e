"""Values that are put together part by part: objects, lists of objects, texts by templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

from dtdr.arguments.candidates import (
    AROUND,
    OBJECT,
    OBJECTS,
    OMITTED,
    TEMPLATE,
    UNKNOWN,
    Candidates,
)
from dtdr.arguments.choice import Choice, choose_value
from dtdr.arguments.constants import Constants, is_filled_object
from dtdr.arguments.finder import CallCandidates
from dtdr.arguments.ranker import CandidateRanker
from dtdr.arguments.sources import Source
from dtdr.arguments.state import ITEM, RunState
from dtdr.arguments.templates import Template, fill_template, read_template, template_form
from dtdr.arguments.values import canonical, convert

MAX_ITEMS = 20
"""Objects of a list; more are unknown."""


def value_slot(parameter: str, template: Template, number: int) -> str:
    """The name under which a value in a text is decided."""
    return f"{parameter}\x00{template_form(template)}\x00{number}"


def item_labels(state: RunState, number: int) -> list[str]:
    """What the decision whether a list has one more object sees, besides what all see."""
    token = state.last_token
    following = state.texts.neighbour(token, 1) if number and token >= 0 else ""
    return [f"items {min(number, 5)}", f"items then {following}"]


def find_template(constants: Constants, tool: str, parameter: str, form: str) -> Template:
    """The template of a form."""
    wanted = form.removeprefix(TEMPLATE)
    templates = constants.templates[tool, parameter]
    return next(one for one in templates if template_form(one) == wanted)


def compose_forms(constants: Constants, candidates: Candidates, value: Any) -> list[str]:
    """As what a demonstrated value may be put together, all of whose parts stand somewhere.

    Args:
        constants: fields and templates.
        candidates: of the parameter.
        value: its references into known outputs resolved.
    """
    if is_filled_object(value):
        return [OBJECT] if OBJECT in candidates.forms else []
    if isinstance(value, list):
        is_list = OBJECTS in candidates.forms and all(map(is_filled_object, value))
        return [OBJECTS] if is_list and value else []
    forms = []
    for template in constants.templates.get((candidates.tool, candidates.parameter), ()):
        parts = read_template(template, value)
        if parts is not None and all(candidates.has(canonical(part)) for part in parts):
            forms.append(TEMPLATE + template_form(template))
    return forms


class CallFiller:
    """Decides the values of one call.

    Args:
        ranker: weighs candidates.
        candidates: finds them.
        constants: fields and templates.
    """

    def __init__(
        self, ranker: CandidateRanker, candidates: CallCandidates, constants: Constants
    ) -> None:
        self._ranker = ranker
        self._candidates = candidates
        self._constants = constants

    def choose(
        self, parameter: str, decided: Sequence[str] = (), taken: Collection[str] = ()
    ) -> tuple[Choice, str]:
        """The value of a parameter, and the label of this decision.

        Args:
            parameter: or a part of one.
            decided: labels of what was decided before.
            taken: the calls whose outputs these decisions use.
        """
        call_candidates = self._candidates
        candidates = call_candidates.find(parameter, decided, taken)

        def compose(form: str) -> Choice | None:
            return self._compose(parameter, form)

        choice = choose_value(self._ranker, candidates, call_candidates.state, compose)
        tools = (call_candidates.state.by_id[one].tool for one in choice.used_calls)
        return choice, candidates.label(choice.form, tools)

    def _compose(self, parameter: str, form: str) -> Choice | None:
        """The most probable value of a form; None where a part of it is unknown."""
        if form == OBJECT:
            return self._fill_object(parameter)
        return self._fill_list(parameter) if form == OBJECTS else self._fill_text(parameter, form)

    def _fill_object(self, parameter: str) -> Choice | None:
        tool = self._candidates.tool
        values: dict[str, Any] = {}
        sources: list[Source] = []
        labels: list[str] = []
        taken: set[str] = set()
        share = 1.0
        for name in self._constants.fields[tool, parameter]:
            slot = f"{parameter}/{name}"
            choice, label = self.choose(slot, labels, taken)
            if _is_unknown(choice):
                return None
            share *= choice.probability
            labels.append(label)
            taken |= choice.used_calls
            if choice.form != OMITTED:
                kind = self._constants.types.get((tool, slot), "")
                values[name] = convert(choice.value, kind)
                sources += choice.sources
        return Choice(OBJECT, share, values, tuple(sources)) if values else None

    def _fill_list(self, parameter: str) -> Choice | None:
        slot = f"{parameter}/{ITEM}"
        items: list[Any] = []
        sources: list[Source] = []
        share = 1.0
        filler = self
        while len(items) < MAX_ITEMS:
            more = filler._is_next(slot, len(items))
            if more < 0.5:
                return Choice(OBJECTS, share * (1 - more), items, tuple(sources)) if items else None
            item = filler._fill_object(slot)
            if item is None or item.value in items:
                return None
            share *= more * item.probability
            items.append(item.value)
            sources += item.sources
            filler = filler._after({slot: item.value})
        return None

    def _is_next(self, slot: str, number: int) -> float:
        """How likely a list has one more object."""
        candidates = self._candidates.find(slot, item_labels(self._candidates.state, number))
        probabilities = self._ranker.probabilities(candidates.features)
        spans = len(candidates.texts.first)
        stop, more = (
            float(probabilities[spans + candidates.forms.index(form)]) for form in (OMITTED, OBJECT)
        )
        return more / (stop + more) if stop + more else 0.0

    def _fill_text(self, parameter: str, form: str) -> Choice | None:
        template = find_template(self._constants, self._candidates.tool, parameter, form)
        values: list[Any] = []
        sources: list[Source] = []
        share = 1.0
        filler = self
        for number in range(len(template) - 1):
            slot = value_slot(parameter, template, number)
            choice, _ = filler.choose(slot)
            if _is_unknown(choice) or choice.form == OMITTED:
                return None
            share *= choice.probability
            values.append(choice.value)
            sources += choice.sources
            filler = filler._after({slot: choice.value})
        text = fill_template(template, values)
        if text is None:
            return None
        return Choice(form, share, text, (*sources, Source("constant")))

    def _after(self, parts: Mapping[str, Any]) -> CallFiller:
        """The same once parts of the call are decided."""
        result = copy(self)
        result._candidates = self._candidates.after(parts)
        return result


def _is_unknown(choice: Choice) -> bool:
    return choice.form == UNKNOWN or choice.form.startswith(AROUND)
