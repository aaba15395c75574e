"""Examples of decisions, from demonstrations with arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from dtdr.arguments.batch import Example, MemberExample
from dtdr.arguments.candidates import LIST, OBJECT, OBJECTS, OMITTED, gold_form
from dtdr.arguments.composition import (
    MAX_ITEMS,
    compose_forms,
    find_template,
    item_labels,
    value_slot,
)
from dtdr.arguments.finder import CallCandidates, CandidateFinder
from dtdr.arguments.lists import ListMembers
from dtdr.arguments.state import ITEM, RunState
from dtdr.arguments.templates import read_template
from dtdr.arguments.values import canonical, resolve_references
from dtdr.calls import ToolCall, find_references
from dtdr.demonstrations import Demonstration


@dataclass(slots=True)
class TrainingExamples:
    """Of parameters, and of lists with what belongs to them."""

    examples: list[Example] = field(default_factory=list)
    members: list[MemberExample] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        demonstrations: Sequence[Demonstration],
        finder: CandidateFinder,
        parameters_of: Callable[[ToolCall], Sequence[str]],
    ) -> TrainingExamples:
        """Every parameter of every call, in the order in which they are decided."""
        result = cls()
        for state, call in iter_calls(demonstrations):
            decided: list[str] = []
            taken: set[str] = set()
            candidates = finder.call(state, call.tool)
            for parameter in parameters_of(call):
                given = call.arguments.get(parameter, OMITTED)
                used, label = result._add(finder, candidates, parameter, given, decided, taken)
                decided.append(label)
                taken |= used
        return result

    def _add(
        self,
        finder: CandidateFinder,
        call_candidates: CallCandidates,
        parameter: str,
        given: Any,
        decided: Sequence[str] = (),
        taken: Collection[str] = (),
    ) -> tuple[Set[str], str]:
        """A decision; the calls whose outputs it takes, and its label."""
        state = call_candidates.state
        candidates = call_candidates.find(parameter, decided, taken)
        form = gold_form(given, state)
        value = resolve_references(given, state.by_id)
        composed = compose_forms(finder.constants, candidates, value)
        targets = candidates.targets(form, composed)
        self.examples.append(Example(candidates.features, targets))
        if LIST in candidates.forms:
            items = {canonical(item) for item in value} if form == LIST else set()
            members = ListMembers.find(candidates, state)
            self.members.append(MemberExample(members.rows, members.labels(items)))
        spans = len(candidates.texts.first)
        made = [one for one in composed if spans + candidates.forms.index(one) in targets]
        if made:
            self._add_parts(finder, call_candidates, parameter, made[0], value)
        references = find_references(given)
        used = {one.call for one in references if one.path is None} & state.by_id.keys()
        tools = (state.by_id[one].tool for one in used)
        return used, candidates.label(made[0] if made else form, tools)

    def _add_parts(
        self,
        finder: CandidateFinder,
        call_candidates: CallCandidates,
        parameter: str,
        form: str,
        value: Any,
    ) -> None:
        """The decisions about the parts of a value."""
        constants = finder.constants
        if form == OBJECT:
            decided: list[str] = []
            taken: set[str] = set()
            for name in constants.fields[call_candidates.tool, parameter]:
                part = value.get(name, OMITTED)
                used, label = self._add(
                    finder, call_candidates, f"{parameter}/{name}", part, decided, taken
                )
                decided.append(label)
                taken |= used
        elif form == OBJECTS:
            slot = f"{parameter}/{ITEM}"
            for number, item in enumerate([*value[:MAX_ITEMS], None]):
                candidates = call_candidates.find(slot, item_labels(call_candidates.state, number))
                targets = candidates.targets(OMITTED if item is None else OBJECT)
                self.examples.append(Example(candidates.features, targets))
                if item is not None:
                    self._add_parts(finder, call_candidates, slot, OBJECT, item)
                    call_candidates = call_candidates.after({slot: item})
        else:
            template = find_template(constants, call_candidates.tool, parameter, form)
            for number, part in enumerate(read_template(template, value) or ()):
                slot = value_slot(parameter, template, number)
                self._add(finder, call_candidates, slot, part)
                call_candidates = call_candidates.after({slot: part})


def iter_calls(demonstrations: Sequence[Demonstration]) -> Iterator[tuple[RunState, ToolCall]]:
    """Every call with the state before it; the state changes with the next item."""
    for item in demonstrations:
        state = RunState(item.query, item.before)
        for call in item.plan.calls:
            yield state, call
            state.add(call)
