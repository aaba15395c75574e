import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents import ToolMask, ToolPolicy, ToolSelector, Transcript, Turn
from dtdr.agents.transcript import read_items
from dtdr.conversation.events import AssistantMessage, UserMessage
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Message
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.ranking import Ranking
from tests.integrations.tools import NAMES as SMALL
from tests.integrations.tools import QUERY, shared_model
from tests.mask_strategies import (
    FOREIGN,
    KNOWN,
    available,
    called,
    conversation_of,
    costs,
    outline,
    policies,
    rankings,
    transcripts,
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ToolPolicy(top_k=2), 4),
        (ToolPolicy(top_k=2, sticky="grow"), 4),
        (ToolPolicy(top_k=2, fallback=False), 2),
        (ToolPolicy(top_k=2, token_budget=30), 3),
        (ToolPolicy(token_budget=20, fallback=False), 2),
    ],
)
def test_an_unfamiliar_query_is_shown_all_tools_that_a_budget_allows(policy, expected):
    names = ["a", "b", "c", "d"]
    probabilities = np.array([0.5, 0.3, 0.1, 0.05, 0.05])
    calibration = Calibration(familiarity_threshold=0.5)
    unfamiliar = Ranking([*names, END], probabilities, calibration=calibration, familiarity=0.4)
    prices = dict.fromkeys(names, 10)
    found = ToolSelector(policy).select(names, unfamiliar, costs=prices)
    assert len(found.shown) == expected
    familiar = Ranking([*names, END], probabilities, calibration=calibration, familiarity=0.6)
    assert len(ToolSelector(policy).select(names, familiar, costs=prices).shown) == 2


@pytest.mark.parametrize(("top_k", "expected"), [(None, 100), (5, 100), (110, 110)])
def test_an_unfamiliar_query_is_shown_no_more_tools_than_openai_takes(top_k, expected):
    names = [f"tool_{number}" for number in range(300)]
    calibration = Calibration(familiarity_threshold=0.5)
    probabilities = np.full(301, 1 / 301)
    ranking = Ranking([*names, END], probabilities, calibration=calibration, familiarity=0.4)
    shown = ToolSelector(ToolPolicy(top_k=top_k)).select(names, ranking).shown
    assert shown == tuple(names[:expected])
    called = ToolSelector(ToolPolicy(top_k=top_k)).select(names, ranking, ["tool_299"]).shown
    assert set(called) == {*names[:expected], "tool_299"}


@pytest.mark.parametrize(
    ("familiarity", "called", "expected"),
    [
        (0.1, (), ("search_tools",)),
        (0.1, ("b",), ("a", "b", "c", "search_tools")),  # the run goes on: all, as without a search
        (0.6, (), ("a", "search_tools")),
    ],
)
def test_where_no_tool_is_wanted_an_agent_that_can_search_is_shown_the_search(
    familiarity, called, expected
):
    names = ["a", "b", "c", "search_tools"]
    calibration = Calibration(familiarity_threshold=0.5)
    probabilities = np.array([0.9, 0.06, 0.02, 0.02])
    ranking = Ranking(
        ["a", "b", "c", END], probabilities, calibration=calibration, familiarity=familiarity
    )
    selector = ToolSelector(ToolPolicy(top_k=1))
    assert ranking.is_none_of_these == (familiarity < 0.5)
    assert selector.select(names, ranking, called).shown == expected
    if familiarity < 0.5:  # without a search, nothing is hidden from the agent for good
        assert selector.select(names[:3], ranking).shown == ("a", "b", "c")
    # A query that a tool without demonstrations answers is unlike all of them, and asks for it.
    ranking.calibration = replace(calibration, added=np.array([True, False, False, False]))
    assert not ranking.is_none_of_these
    assert not ranking.restrict(["a", "b"]).is_none_of_these


# -- every policy, every step --------------------------------------------------------------------


@given(policies, available, rankings(), called, costs)
def test_what_is_shown_is_in_order_never_empty_and_has_what_must_be_there(
    policy, names, ranking, history, prices
):
    found = ToolSelector(policy).select(names, ranking, history, costs=prices)

    assert list(found.shown) == [name for name in names if name in found.shown]
    assert list(found.hidden) == [name for name in names if name not in found.shown]
    assert set(found.reasons) == set(found.shown)
    assert set(found.weights) == set(found.shown) - set(FOREIGN)
    assert list(found.weights.values()) == sorted(found.weights.values(), reverse=True)
    assert bool(found.shown) == bool(names)
    if set(names) & set(KNOWN):
        assert set(found.shown) & set(KNOWN)
    needed = set(history) | set(policy.always_include) | set(FOREIGN)
    assert needed & set(names) <= set(found.shown)


@given(st.integers(1, 150), available, rankings(), called, costs)
def test_a_token_budget_holds_unless_what_must_be_shown_breaks_it(
    budget, names, ranking, history, prices
):
    found = ToolSelector(ToolPolicy(token_budget=budget)).select(
        names, ranking, history, costs=prices
    )

    fixed = {name for name in names if name in history or name in FOREIGN}
    best = [name for name in ranking.tools if name in names][:1]
    spent = sum(prices[name] for name in found.shown)
    assert spent <= budget or set(found.shown) == fixed | set(best)


@given(available, rankings(), st.booleans())
def test_without_a_number_at_least_the_five_best_are_shown(names, ranking, calibrated):
    if calibrated:
        held_out = Calibration(held_out=np.linspace(0.9, 1, 50))
        shares = np.array([ranking.probability(name) for name in (*KNOWN, END)])
        ranking = Ranking((*KNOWN, END), shares, calibration=held_out)
    found = ToolSelector().select(names, ranking)
    best = [name for name in ranking.tools if name in names][:5]
    assert set(best) <= set(found.preferred)


# -- sticky sets ---------------------------------------------------------------------------------

walks = st.lists(st.tuples(available, rankings(), called), min_size=1, max_size=6)


@given(policies, walks, costs)
def test_a_growing_set_never_takes_a_tool_away(policy, walk, prices):
    selector = ToolSelector(replace(policy, sticky="grow"))
    seen: set[str] = set()
    for names, ranking, _ in walk:
        found = selector.select(names, ranking, costs=prices)
        assert seen & set(names) <= set(found.shown)
        seen |= set(found.shown)


@given(walks, st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.4]))
def test_a_confident_set_changes_only_for_a_more_probable_one(walk, k, tolerance):
    policy = ToolPolicy(top_k=k, sticky="confidence", tolerance=tolerance)
    selector = ToolSelector(policy)
    former = None
    for names, ranking, _ in walk:
        found = selector.select(names, ranking)
        fresh = ToolSelector(replace(policy, sticky="none")).select(names, ranking).preferred
        if former is not None:
            still = former & set(names)
            mass = sum(ranking.probability(name) for name in still)
            better = sum(ranking.probability(name) for name in fresh) > mass + tolerance
            expected = set(fresh) if better or not still else still
            assert set(found.preferred) == expected
        former = set(selector.kept)


@given(walks, policies, costs)
def test_a_step_depends_on_others_only_if_the_policy_is_sticky(walk, policy, prices):
    selector = ToolSelector(replace(policy, sticky="none"))
    for names, ranking, history in walk:
        found = selector.select(names, ranking, history, costs=prices)
        alone = ToolSelector(selector.policy).select(names, ranking, history, costs=prices)
        assert found == alone


@given(st.integers(1, 3), st.sampled_from(["none", "grow", "confidence"]), st.data())
def test_going_through_a_transcript_gives_what_the_steps_gave(k, sticky, data):
    history = data.draw(st.lists(st.sampled_from(SMALL), max_size=5))
    mask = ToolMask(shared_model(), ToolPolicy(top_k=k, sticky=sticky))
    run = mask.run(QUERY)
    for position in range(len(history) + 1):
        found = run.select(SMALL)
        replayed = mask.select(SMALL, Transcript.of(QUERY, history[:position]))
        assert found.shown == replayed.shown
        if position < len(history):
            run.call(history[position])


def test_one_mask_serves_many_threads_at_once():
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1, sticky="grow"))
    conversations = [Transcript.of(QUERY, SMALL[:size]) for size in range(6)] * 20
    alone = [mask.select(SMALL, transcript) for transcript in conversations]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda item: mask.select(SMALL, item), conversations))
    assert together == alone


# -- failing open --------------------------------------------------------------------------------


@given(policies, available, transcripts)
def test_a_ranker_that_fails_shows_every_tool(policy, names, transcript):
    class Broken(Model):
        def rank_batch(self, runs):
            raise RuntimeError("out of memory")

    mask = ToolMask(Broken(shared_model().ranker), policy)

    found = mask.select(names, transcript)
    assert found.shown == tuple(names)
    assert found.failure == "RuntimeError: out of memory"
    assert set(found.reasons.values()) <= {"open"}


def test_whatever_cannot_be_read_encoded_or_counted_shows_every_tool(caplog):
    def unreadable():
        raise ValueError("no such message")

    assert ToolMask(shared_model()).select(SMALL, unreadable).shown == SMALL
    assert ToolMask(shared_model()).select(SMALL, Transcript()).shown == SMALL
    assert "showing all 6 tools: the transcript has no message of a user" in caplog.text
    run = ToolMask(shared_model()).run("   ")
    assert run.call("weather").select(SMALL).shown == SMALL
    assert run.history == ("weather",)
    found = ToolMask(shared_model(), ToolPolicy(token_budget=10)).select(
        SMALL, Transcript.of(QUERY)
    )
    assert found.shown == SMALL
    assert "needs the costs" in found.failure


def test_names_that_stand_twice_are_an_error_even_where_ranking_would_fail():
    with pytest.raises(InputError, match="two tools are named 'weather'"):
        ToolMask(shared_model()).select(["weather", "weather"], Transcript())
    with pytest.raises(InputError, match="two tools are named 'weather'"):
        ToolMask(shared_model()).run("").select(["weather", "weather"])


# -- misuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"coverage": 1.0}, "coverage is 1.0"),
        ({"sticky": "glue"}, "unknown sticky policy 'glue'"),
        ({"tolerance": 2}, "tolerance is 2"),
        ({"always_include": "weather"}, "always_include must be a list, not 'weather'"),
    ],
)
def test_a_policy_out_of_range_is_refused(given_, message):
    with pytest.raises(InputError, match=message):
        ToolPolicy(**given_)


# -- the guard -----------------------------------------------------------------------------------


def test_the_guard_refuses_what_is_hidden_and_nothing_else():
    found = ToolMask(shared_model(), ToolPolicy(top_k=1)).select(SMALL, Transcript.of(QUERY))
    for name in SMALL:
        assert (found.refusal(name) is None) == (name in found.shown)
    assert found.refusal("a tool that nobody asked about") is None
    assert found.shown[0] in str(found.refusal(found.hidden[0]))


# -- transcripts ---------------------------------------------------------------------------------


def test_a_run_is_the_last_message_of_the_user_and_the_calls_since():
    conversation = conversation_of(
        ("Weather in Rome?", [("weather",)]), ("Text it to Ann", [("find_contact",)])
    )
    run = conversation.run()
    assert (run.query, run.history) == ("Text it to Ann", ("find_contact",))
    assert [
        item.tool if isinstance(item, ToolCall) else (item.role, item.content)
        for item in run.before
    ] == [("user", "Weather in Rome?"), "weather", ("assistant", "There you are.")]
    assert conversation.called == ("weather", "find_contact")


@given(transcripts)
def test_every_answer_and_the_end_of_every_turn_have_a_run_and_the_last_is_the_next_steps(
    conversation,
):
    runs = conversation.runs()
    assert [len(run.calls) for run in runs] == [
        sum(map(len, steps[:done]))
        for _, steps in outline(conversation)
        for done in range(len(steps) + 1)
    ]
    (last,) = conversation.runs(last_only=True)
    assert runs[-1].to_dict() == last.to_dict() == conversation.run().to_dict()


def test_a_call_of_the_end_of_plan_or_of_no_text_is_no_step():
    conversation = Transcript.of("x", ["weather", END, "send\ud800mail"])
    assert conversation.run().history == ("weather", "send?mail")
    assert conversation.called == ("weather", END, "send\ud800mail")


def test_outputs_are_read_and_cut_as_the_importer_does():
    outputs = ['{"flights": []}', "x" * 5_000, '["a", ' + '"b", ' * 2_000 + '"c"]', None]
    calls = [
        ToolCall(str(number), "t", {}, output, "unknown" if output is None else "ok")
        for number, output in enumerate(outputs)
    ]
    conversation = Transcript((Turn("q", (Message("assistant", "y" * 3_000), *calls)), Turn("r")))
    none, text, letters, unknown = conversation.runs()[-2].calls
    assert (none.output, none.status) == ({"flights": []}, "empty")
    assert (len(text.output), text.output_length, text.status) == (2_000, 5_000, "ok")
    assert letters.output[:2] == ["a", "b"]
    assert len(json.dumps(letters.output, separators=(",", ":"))) <= 2_000
    assert (unknown.output, unknown.status) == (None, "unknown")
    assert conversation.run().before[1] == Message("assistant", "y" * 2_000)


def test_arguments_nested_too_deeply_leave_the_call_as_it_is_named():
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    conversation = Transcript((Turn(QUERY, (ToolCall("1", "t", {"a": deep, "b": 1}),)),))
    assert conversation.run().calls[0].arguments["b"] == 1
    assert conversation.by_name().run().calls == [ToolCall("1", "t")]
    assert not ToolMask(shared_model()).select(SMALL, conversation).failure


def test_messages_without_an_answer_are_one_turn_and_the_agents_first_words_come_before_it():
    items = [[UserMessage("Mail Ann")], [UserMessage("and Bob")]]
    assert read_items(items) == Transcript((Turn("Mail Ann\nand Bob"),))
    said: list[Any] = [[AssistantMessage("How can I help?")], [UserMessage("Mail Ann")]]
    run = read_items(said).run()
    assert (run.query, run.before) == ("Mail Ann", (Message("assistant", "How can I help?"),))
