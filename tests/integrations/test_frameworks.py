"""What every framework's integration promises, in one battery."""

import pytest

from dtdr.agents import Transcript
from dtdr.errors import InputError
from tests.integrations.frameworks import FRAMEWORKS, Script
from tests.integrations.tools import (
    NAMES,
    NEW,
    QUERY,
    best,
    broken_mask,
    check_two_turns,
    mask,
    record_mask,
)
from tests.mask_strategies import outline

# LlamaIndex's own workflows inspect deprecated attributes of pydantic.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

STEPS = [("read_file",), ("summarize", "find_contact"), ("send_mail",)]
"""Each call is of one of the three tools ranked first by then."""

SECOND = "Text Bob what the weather in Rome is"
HIDDEN = "send_text"

every_way = pytest.mark.parametrize("way", FRAMEWORKS)
VARIANTS = ("-async", "-streamed", "-workflow", "-chat", "-responses")
every_framework = pytest.mark.parametrize(
    "way", [way for way in FRAMEWORKS if not way.endswith(VARIANTS)]
)


@every_way
def test_an_agent_sees_the_tools_that_come_next_and_those_it_called(way):
    script = Script(STEPS)
    assert FRAMEWORKS[way](script, mask(top_k=3)).said == "There you are."

    history: list[str] = []
    for step, shown in enumerate(script.seen):
        assert set(shown) == best(history, 3) | set(history) | {NEW}
        history += STEPS[step] if step < len(STEPS) else ()
    assert len(script.seen) == 4
    assert len(script.seen[0]) < len(NAMES)


@every_framework
def test_each_turn_of_the_user_is_ranked_separately(way):
    script = Script([*STEPS, ()])
    FRAMEWORKS[way](script, mask(top_k=3), (QUERY, SECOND))

    called = {name for step in STEPS for name in step}
    assert set(script.seen[4]) == best([], 3, query=SECOND) | called | {NEW}


@every_way
def test_a_failing_ranker_shows_all_tools_and_says_why(way, caplog):
    script = Script(STEPS)
    assert FRAMEWORKS[way](script, broken_mask()).said == "There you are."
    assert set(script.seen[0]) == {*NAMES, NEW}
    assert "the disk is on fire" in caplog.text


@every_framework
def test_a_token_budget_is_counted_in_definitions(way):
    tight, loose = Script(), Script()
    FRAMEWORKS[way](tight, mask(token_budget=1))
    FRAMEWORKS[way](loose, mask(token_budget=10_000))
    assert set(tight.seen[0]) == best([], 1) | {NEW}
    assert set(loose.seen[0]) == {*NAMES, NEW}


@every_framework
def test_the_ranker_receives_outputs_and_what_was_said_before(way):
    noting = record_mask()
    FRAMEWORKS[way](Script([*STEPS, ()]), noting, (QUERY, SECOND))
    check_two_turns(noting.model.runs, STEPS, SECOND)


@every_framework
def test_the_messages_of_an_agent_are_read_as_its_transcript(way):
    outcome = FRAMEWORKS[way](Script(STEPS), None)
    assert outline(outcome.read()) == [(QUERY, STEPS)]


def test_a_hint_keeps_every_tool_and_the_conversation():
    script = Script(STEPS)
    outcome = FRAMEWORKS["langchain"](script, mask(), form="hint")

    assert set(script.seen[0]) == {*NAMES, NEW}
    for heard in script.heard:
        assert "prefer them" in str(heard[-1])
        assert "prefer them" not in str(heard[:-1])
    assert "prefer them" not in str(outcome.messages)


@pytest.mark.parametrize("way", ["langchain", "pydantic-ai"])
def test_an_unknown_form_is_refused(way):
    with pytest.raises(InputError, match="unknown form 'folded'"):
        FRAMEWORKS[way](Script(), mask(), form="folded")


REFUSING = {
    "langchain": HIDDEN,
    "langchain-async": HIDDEN,
    "pydantic-ai": HIDDEN,
    # These execute every tool that the agent has, so only unknown names are refused.
    "openai-agents": "no_such_tool",
    "llama-index": "no_such_tool",
}
"""The tool whose calls each framework refuses."""


@pytest.mark.parametrize("way", REFUSING)
def test_a_tool_that_is_refused_three_times_is_never_executed_and_no_part_of_the_run(way):
    tool = REFUSING[way]
    assert tool not in best([])
    options = {"guarded": True} if way.startswith("langchain") else {}  # our own guard
    script = Script([(tool,)] * 3)
    outcome = FRAMEWORKS[way](script, mask(), **options)

    assert script.executed == []
    assert [set(shown) for shown in script.seen] == [best([]) | {NEW}] * 4
    assert outline(outcome.read()) == [(QUERY, [])]


@pytest.mark.parametrize("way", ["langchain", "openai-agents", "llama-index"])
def test_without_a_guard_a_hidden_tool_is_executed_and_shown_from_then_on(way):
    script = Script([(HIDDEN,)])
    FRAMEWORKS[way](script, mask())
    assert script.executed == [HIDDEN]
    assert HIDDEN not in script.seen[0]
    assert HIDDEN in script.seen[1]


def test_langchain_s_own_answer_to_an_unknown_tool_is_no_call():
    outcome = FRAMEWORKS["langchain"](Script([("no_such_tool", "read_file")]), mask())
    assert "is not a valid tool" in str(outcome.messages)
    assert outline(outcome.read()) == [(QUERY, [("read_file",)])]


def test_a_deferred_tool_that_is_refused_stays_deferred():
    script = Script([(HIDDEN,)] * 3)
    outcome = FRAMEWORKS["pydantic-ai"](script, mask(), form="deferred")
    assert script.executed == []
    assert "is not available yet" in str(outcome.messages)
    assert outline(outcome.read()) == [(QUERY, [])]


def test_a_loop_that_reports_its_calls_is_refused_as_often_as_it_tries():
    run = mask().run(QUERY)
    names = (*NAMES, NEW)
    for _ in range(3):
        refusal = run.select(names).refusal(HIDDEN)
        assert refusal is not None
        run.call(HIDDEN, output=refusal, status="error")
    assert run.history == ()
    assert run.select(names).shown == mask().select(names, Transcript.of(QUERY)).shown
