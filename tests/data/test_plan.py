import random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr import Plan, ToolCall
from dtdr.data.calls import END
from dtdr.errors import InputError
from tests.strategies import plans, runs


def call(identifier, tool, *needs):
    return ToolCall(identifier, tool, {f"x{need}": {"$ref": need} for need in needs})


REF_Z = {"$ref": "1", "path": "/z"}

# Two files opened, both summarised, one mail that uses both summaries.
BRANCHES = Plan(
    (
        call("1", "open"),
        call("2", "open"),
        call("3", "summarize", "1"),
        call("4", "summarize", "2"),
        call("5", "mail", "3", "4"),
    )
)


def test_acceptable_next_holds_every_ready_call():
    assert BRANCHES.acceptable_next([]) == {"open"}
    assert BRANCHES.acceptable_next([0]) == {"open", "summarize"}
    assert BRANCHES.acceptable_next([0, 2]) == {"open"}
    assert BRANCHES.acceptable_next([0, 1, 2, 3]) == {"mail"}


def test_teacher_forced_walk_has_one_step_more_than_calls():
    steps = list(BRANCHES.steps())
    assert len(steps) == 6
    assert steps[0].history == ()
    assert steps[-1].history == BRANCHES.tools
    assert steps[-1].acceptable == {END}


@given(plans())
def test_acceptable_next_agrees_with_networkx_topological_generations(plan):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(plan)))
    graph.add_edges_from(plan.edges())
    assert nx.is_directed_acyclic_graph(graph)
    done: set[int] = set()
    for generation in nx.topological_generations(graph):
        ready = {node for node in graph if node not in done and not (set(graph.pred[node]) - done)}
        assert set(generation) <= ready
        assert plan.acceptable_next(done) == {plan.calls[node].tool for node in ready}
        done |= set(generation)


def shuffled(plan, seed):
    """The same DAG under other ids, listed in another order that follows its dependencies."""
    generator = random.Random(seed)
    names = {c.id: f"n{index}" for index, c in enumerate(generator.sample(plan.calls, len(plan)))}

    def renamed(value):
        if isinstance(value, dict):
            if set(value) == {"$ref"}:
                return {"$ref": names[value["$ref"]]}
            return {key: renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return value

    calls = [ToolCall(names[c.id], c.tool, renamed(c.arguments)) for c in plan.calls]
    generator.shuffle(calls)
    return Plan.in_order(calls, [(names[a], names[b]) for a, b in plan.links])


@given(plans(), st.integers(0, 5))
def test_isomorphism_ignores_ids_and_order(plan, seed):
    other = shuffled(plan, seed)
    assert plan.is_isomorphic(other)
    assert plan.is_isomorphic(other, arguments=True)


def test_isomorphism_sees_another_dependency():
    chain = Plan((call("1", "a"), call("2", "b", "1"), call("3", "c", "2")))
    fork = Plan((call("1", "a"), call("2", "b", "1"), call("3", "c", "1")))
    assert not chain.is_isomorphic(fork)


def test_isomorphism_with_arguments_sees_another_value():
    left = Plan((ToolCall("1", "open", {"name": "a.pdf"}),))
    right = Plan((ToolCall("1", "open", {"name": "b.pdf"}),))
    assert left.is_isomorphic(right)
    assert not left.is_isomorphic(right, arguments=True)


def test_isomorphism_with_arguments_sees_a_reference_in_another_place():
    first = call("1", "open")
    to = Plan((first, ToolCall("2", "mail", {"to": {"$ref": "1"}, "body": "x"})))
    body = Plan((first, ToolCall("2", "mail", {"to": "x", "body": {"$ref": "1"}})))
    assert to.is_isomorphic(body)
    assert not to.is_isomorphic(body, arguments=True)


@pytest.mark.parametrize(
    ("calls", "links", "message"),
    [
        ([call("1", "a"), call("1", "b")], [], "two calls share the id '1'"),
        ([call("1", "a", "7")], [], "refers to '7', which is not a call"),
        ([call("1", "a", "2"), call("2", "b")], [], "depends on the later call '2'"),
        ([call("1", "a"), call("2", "b")], [("1", "9")], "a link names '9'"),
        ([call("1", "a"), call("2", "b")], [("1", "2"), ("2", "1")], "cycle: '1' needs '2'"),
        ([call("1", "a", "1")], [], "cycle: '1' needs '1'"),
        ([call("1", "")], [], "call '1' has no tool name"),
        ([call("1", END)], [], "reserved for the end of the plan"),
    ],
)
def test_a_plan_that_is_no_dag_is_refused(calls, links, message):
    with pytest.raises(InputError, match=message):
        Plan(tuple(calls), tuple(links))


def test_in_order_moves_calls_after_what_they_use_and_keeps_the_rest():
    plan = Plan.in_order([call("1", "mail", "3"), call("2", "note"), call("3", "open")])
    assert [item.id for item in plan.calls] == ["2", "3", "1"]


def made(identifier, tool, step=None, **more):
    return ToolCall(identifier, tool, more.pop("arguments", {}), step=step, **more)


# Two searches at once, then a booking that uses one of them, then a mail that uses neither.
ORDERED = Plan(
    (
        made("1", "hotels", 1, output={"rooms": [{"id": "R7"}, {"id": "R9"}]}),
        made("2", "trains", 1),
        made("3", "book", 2, arguments={"room": {"$ref": "1", "path": "/rooms/1/id"}}),
        made("4", "mail", 3),
    )
)


def test_order_and_dependency_are_two_relations():
    assert list(ORDERED.edges()) == [(0, 2)]
    assert ORDERED.acceptable_next([]) == {"hotels", "trains", "mail"}
    assert ORDERED.next_calls([]) == {"hotels", "trains"}
    assert ORDERED.next_calls([0]) == {"trains"}
    assert ORDERED.next_calls([0, 1]) == {"book"}
    assert ORDERED.next_calls([0, 1, 2]) == {"mail"}
    assert ORDERED.next_calls(range(4)) == {END}
    assert [step.targets for step in ORDERED.steps()][1:3] == [{"trains"}, {"book"}]
    assert list(map(set, ORDERED.prerequisites)) == [set(), set(), {0, 1}, {2}]


def test_the_log_made_the_first_call_that_is_left_next():
    assert ORDERED.next_in_log([]) == {"hotels", "trains"}
    assert ORDERED.next_in_log([0, 1]) == {"book"}
    assert ORDERED.next_in_log(range(4)) == {END}
    assert BRANCHES.next_in_log([0, 2]) == {"open"}
    assert BRANCHES.next_in_log([0, 1]) == {"summarize"}
    assert Plan(()).next_in_log([]) == {END}


@given(runs())
def test_targets_are_acceptable_and_hold_what_the_log_called(run):
    plan = run.plan
    after = [max(needs, default=-1) + 1 for needs in plan.prerequisites]
    for done in range(len(plan) + 1):
        targets = plan.next_calls(range(done))
        assert targets <= plan.acceptable_next(range(done))
        assert plan.next_in_log(range(done)) & targets
        if all(call.step is not None for call in plan.calls):
            ready = {plan.tools[i] for i in range(done, len(plan)) if after[i] <= done}
            assert targets == (ready or {END})
            assert plan.next_in_log(range(done)) == targets


@pytest.mark.parametrize(
    ("calls", "earlier", "message"),
    [
        ([made("1", "a", 2), made("2", "b", 1)], (), "call '2' has step 1, after a call of step 2"),
        ([call("1", "a", "b1")], (), "refers to 'b1', which is not a call"),
        ([made("1", "a")], [made("1", "b")], "two calls share the id '1'"),
        (
            [made("1", "a", output={"x": 1}), made("2", "b", arguments={"y": [REF_Z]})],
            (),
            "refers to '/z' in the output of '1', which does not name a part of it",
        ),
        (
            [made("2", "b", arguments={"y": {"$ref": "1", "path": "z"}})],
            [made("1", "a")],
            "refers to 'z' in the output of '1'",
        ),
    ],
)
def test_a_run_that_contradicts_itself_says_where(calls, earlier, message):
    with pytest.raises(InputError, match=message):
        Plan(tuple(calls), (), tuple(earlier))


def test_a_pointer_may_name_what_was_cut_off_or_never_known():
    cut = made("1", "a", output={"x": 1}, output_length=9000)
    user = made("2", "b", arguments={"y": REF_Z})
    assert list(Plan((cut, user)).edges()) == [(0, 1)]
    assert list(Plan((made("1", "a"), user)).edges()) == [(0, 1)]


def test_earlier_calls_may_be_referred_to_and_nothing_waits_for_them():
    plan = Plan((made("2", "b", arguments={"y": {"$ref": "1"}}),), (), (made("1", "a"),))
    assert list(plan.edges()) == []
    assert plan.acceptable_next([]) == {"b"}
    assert plan.is_isomorphic(plan, arguments=True)
