"""Examples of decisions, from demonstrations with arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dtdr.arguments.batch import Example, MemberExample
from dtdr.arguments.candidates import LIST, OMITTED, CandidateFinder, gold_form
from dtdr.arguments.lists import ListMembers
from dtdr.arguments.state import RunState
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
            found = finder.call(state, call.tool)
            for parameter in parameters_of(call):
                candidates = found.find(parameter, decided, taken)
                given = call.arguments.get(parameter, OMITTED)
                form = gold_form(given, state)
                result.examples.append(Example(candidates.features, candidates.targets(form)))
                references = find_references(given)
                used = {one.call for one in references if one.path is None} & state.by_id.keys()
                decided.append(candidates.label(form, (state.by_id[one].tool for one in used)))
                if LIST in candidates.forms:
                    value = call.arguments[parameter] if form == LIST else ()
                    items = {canonical(item) for item in resolve_references(value, state.by_id)}
                    members = ListMembers.find(candidates, state)
                    result.members.append(MemberExample(members.rows, members.labels(items)))
                taken |= used
        return result


def iter_calls(demonstrations: Sequence[Demonstration]) -> Iterator[tuple[RunState, ToolCall]]:
    """Every call with the state before it; the state changes with the next item."""
    for item in demonstrations:
        state = RunState(item.query, item.before)
        for call in item.plan.calls:
            yield state, call
            state.add(call)
