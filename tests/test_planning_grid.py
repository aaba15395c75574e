"""The table of ICL methods, retrievers and selection methods: one pass of the LLM for all."""

import math
from itertools import pairwise

import pytest

from dtdr.evaluate.planning import choose_steps
from dtdr.evaluate.planning.grid import answer, cell_result, in_cache_order, questions
from dtdr.evaluate.planning.tuning import RETRIEVER_ONLY, reselect, tune
from dtdr.llm.backends import LLMError
from dtdr.llm.backends.replay import Recorder, Replay
from dtdr.llm.prompting import Examples
from dtdr.predict import create
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.scripted_llm import ScriptedLLM

DATASET = small_data.dataset()
STEPS = choose_steps(DATASET.demonstrations[:4])
EXAMPLES = Examples(DATASET.demonstrations)


def asked_by(icl="hard", seed=0, top=3, steps=STEPS):
    retriever = create("random", seed=seed).fit(DATASET.demonstrations, DATASET.tools)
    return questions(retriever, steps, icl=icl, mask=Selection(top_k=top), examples=EXAMPLES)


def model(**options) -> ScriptedLLM:
    """Writes nothing that can be used, chooses nothing, and likes long names."""
    return ScriptedLLM(likelihoods=lambda name: -1.0 / len(name), **options)


def test_a_question_knows_the_right_answers_and_what_is_shown():
    for question, (item, step) in zip(asked_by(), STEPS, strict=True):
        assert question.acceptable == item.plan.acceptable_next(range(step))
        assert len(question.shown) == 3
        assert item.query in question.prompt.variable


def test_questions_that_are_alike_are_asked_once():
    without = asked_by("none", seed=0) + asked_by("none", seed=1)
    assert len(in_cache_order(without)) == len(in_cache_order(asked_by("none")))
    assert len(in_cache_order(asked_by(seed=0) + asked_by(seed=0))) <= len(STEPS)


def test_neighbours_in_cache_order_begin_alike():
    def shared(found) -> int:
        texts = [question.prompt.text for question in found]
        return sum(
            next((n for n, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), 0)
            for pair in pairwise(texts)
        )

    found = asked_by("hard", seed=0) + asked_by("hard", seed=1)
    assert shared(in_cache_order(found)) >= shared(found)


def test_one_pass_answers_for_every_selection_method():
    question = asked_by()[0]
    names = question.writer.choices(question.shown)
    llm = ScriptedLLM(["no such tool", names[1]], likelihoods=lambda name: -float(len(name)))
    record = answer(llm, question)
    assert record["greedy"] is None
    assert record["constrained"] == names[1]
    assert record["likelihoods"] == [-float(len(name)) for name in names]
    assert record["best"] == question.ranking.best
    assert record["acceptable"] == sorted(question.acceptable)


def test_answers_survive_an_interruption_and_none_is_asked_twice(tmp_path):
    path = tmp_path / "answers.jsonl"
    found = in_cache_order(asked_by())
    with Recorder(model(), path) as llm:
        for question in found[:3]:
            answer(llm, question)
    replay = Replay(path)
    kept = [answer(replay, question) for question in found[:3]]
    with pytest.raises(LLMError, match="holds no answer"):
        answer(replay, found[3])
    again = model()
    with Recorder(again, path) as llm:
        assert [answer(llm, question) for question in found[:3]] == kept
    assert again.prompts == []


def test_a_prompt_that_is_too_long_is_counted_and_not_invalid():
    records = [answer(model(context=5), question) for question in asked_by()]
    assert all(record["too_long"] for record in records)
    result = cell_result(records)
    assert result.accuracy["greedy"].value == 0
    assert result.accuracy["retriever"].count == len(STEPS)
    assert math.isnan(result.invalid)


def record(likelihoods, probabilities, right="a", confidence=0.5, **fields) -> dict:
    candidates = ["a", "b", "c"][: len(likelihoods)]
    best = max(zip(probabilities, candidates, strict=True))[1]
    scored = max(zip(likelihoods, candidates, strict=True))[1]
    return {
        "acceptable": [right],
        "selected": scored,
        "greedy": scored,
        "constrained": scored,
        "too_long": False,
        "best": best,
        "confidence": confidence,
        "candidates": candidates,
        "probabilities": probabilities,
        "likelihoods": likelihoods,
        **fields,
    }


def test_every_selection_method_has_its_accuracy():
    llm_knows = record([-0.1, -3.0], [0.4, 0.6], confidence=0.1)
    retriever_knows = record([-2.0, -1.0], [0.99, 0.01], confidence=0.9)
    tuning = [llm_knows, retriever_knows] * 20
    result = cell_result([llm_knows, retriever_knows], tuning, [0.1, 0.9] * 20)
    assert result.accuracy["constrained"].value == 0.5
    assert result.accuracy["retriever"].value == 0.5
    assert result.accuracy["fused"].value == 1
    assert result.accuracy["auto"].value == 1
    assert result.asks["auto"] == 0.5


def test_only_greedy_asks_where_there_is_one_candidate():
    open_step = record([-0.1, -3.0], [0.4, 0.6], confidence=0.1)
    single = record([0.0], [0.6], confidence=0.1)
    result = cell_result([open_step, single], [open_step] * 20, [0.1] * 20, budget=1)
    assert result.asks == {
        "greedy": 1,
        "constrained": 0.5,
        "fused": 0.5,
        "retriever": 0,
        "auto": 0.5,
    }


def test_without_held_out_answers_there_is_no_fused_and_no_auto():
    result = cell_result([record([-1.0, -2.0], [0.5, 0.5])])
    assert set(result.accuracy) == {"greedy", "constrained", "retriever"}
    assert result.fusion is None


def test_invalid_answers_are_counted_among_those_that_were_given():
    invalid = record([-1.0, -2.0], [0.5, 0.5], greedy=None)
    long = invalid | {"too_long": True}
    fine = record([-1.0, -2.0], [0.5, 0.5])
    assert cell_result([invalid, long, fine]).invalid == 0.5


def test_an_llm_that_adds_nothing_leaves_the_retriever_alone():
    """The LLM is right half the time at random; the retriever nearly always."""
    steps = [
        record([-1.0, -1.0 - sign], [0.9, 0.1], right="b" if number % 10 == 0 else "a")
        for number in range(50)
        for sign in (0.5, -0.5)
    ]
    assert tune(steps) == RETRIEVER_ONLY
    assert all(reselect(step, RETRIEVER_ONLY) == "a" for step in steps)


def test_an_llm_that_knows_more_is_not_set_aside():
    steps = [
        record([-0.1, -4.0], [p, 1 - p], right="a")
        if number % 5
        else record([-4.0, -0.1], [p, 1 - p], right="b")
        for number, p in enumerate([0.6, 0.3, 0.5, 0.7] * 15)
    ]
    fusion = tune(steps)
    assert all(reselect(step, fusion) in step["acceptable"] for step in steps)
