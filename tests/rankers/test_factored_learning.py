"""dtdr-f after the fit: further demonstrations, and tools that come, go or change their names."""

import itertools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest

from dtdr import Demonstration, Plan, Tool, ToolCall, load
from dtdr.data.calls import END
from dtdr.errors import InputError, ModelError
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers import NAMES, ranker_class
from dtdr.rankers.dtdr_f import demonstrations
from dtdr.rankers.dtdr_f.blocks.relations import Relations
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.factored_model import FactoredStepState
from dtdr.rankers.dtdr_f.model_arrays import checksum, from_arrays, to_arrays
from tests.helpers import RANKER_ONLY, inner
from tests.rankers.test_factored import QUERY, TEST, TOOLS, TRAIN

HALF = TRAIN[: len(TRAIN) // 2]
REST = TRAIN[len(TRAIN) // 2 :]
FEW, MORE = HALF[:16], REST[:12]
BOTH = [*FEW, *MORE]


def block(model, name):
    return next(item for item in inner(model).blocks if item.name == name)


def probabilities(model, items=TEST[:15]):
    return [
        model.rank(item.query, step.history).probabilities
        for item in items
        for step in item.plan.steps()
    ]


def same(left, right):
    return all((one == other).all() for one, other in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def fitted_half():
    return create("dtdr-f").fit(HALF, TOOLS, **RANKER_ONLY)


@pytest.fixture
def half(fitted_half):
    copied = copy(fitted_half)  # changes replace what it holds
    copied.ranker = copy(copied.ranker)
    return copied


@pytest.fixture(scope="module")
def without_taxi():
    kept = [item for item in TRAIN if "book_taxi" not in item.plan.tools]
    return kept, [tool for tool in TOOLS if tool.name != "book_taxi"]


# -- update ----------------------------------------------------------------------------------------


def test_an_update_ranks_as_a_fit_to_all_demonstrations_does_to_the_last_bit(tmp_path):
    updated = create("dtdr-f").fit(FEW, TOOLS, **RANKER_ONLY)
    updated.save(tmp_path / "model")
    restored = load(tmp_path / "model")
    assert restored.can_update
    fitted = create("dtdr-f").fit(BOTH, TOOLS, **RANKER_ONLY)
    for model in (updated, restored):
        assert model.update(MORE) == len(MORE)
        assert same(probabilities(fitted), probabilities(model))
        assert model.training_.demonstrations == len(BOTH)


EVERY = [f"tool_{number}" for number in range(18)]
PARALLEL = [{"id": name, "tool": name, "step": 1} for name in EVERY]
SHAPES: dict[str, list[list[Any]]] = {
    "a run that calls every tool": [PARALLEL, ["tool_1"], ["tool_2", "tool_3"]],
    "nothing but such a run": [PARALLEL],
    "a vocabulary of one tool": [["tool_1"], ["tool_1", "tool_1"]],
    "no calls": [[], []],
    "no calls in all but one": [[], [], ["tool_1"]],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_is_fitted_and_updated_from_runs_of_any_shape(shape):
    runs = [
        Demonstration.from_dict({"id": str(at), "query": f"task {at}", "calls": calls})
        for at, calls in enumerate(SHAPES[shape] * 2)
    ]
    fitted = create("dtdr-f").fit(runs, **RANKER_ONLY)
    assert fitted.update(runs) == len(runs)
    assert fitted.rank("task 1").probabilities.sum() == pytest.approx(1)


def test_weights_are_those_of_the_tools_called_most(monkeypatch):
    monkeypatch.setattr(demonstrations, "MOST_TOOLS", 3)
    often = [(f"task {at}", [f"tool_{at % 3}"]) for at in range(12)]
    once = [(f"other {at}", [f"name_{at}_{call}" for call in range(9)]) for at in range(4)]
    fitted = create("dtdr-f").fit(often, **RANKER_ONLY)
    updated, _ = fitted.update_copy(once)
    assert len(updated.vocabulary) == 3 + 4 * 9 + 1
    for model in (updated, create("dtdr-f").fit([*often, *once], **RANKER_ONLY)):
        assert inner(model).training.seen.size == 3 + 1
        assert model.rank("task 1").best == "tool_1"
        assert model.rank("other 2").probability("name_2_0") > 0


def test_tools_that_nobody_calls_get_more_where_further_runs_call_new_tools():
    rare = [(f"do thing number {n}", [f"tool_{n % 40}"]) for n in range(60)]
    often = [(f"do thing number {n}", [f"tool_{n % 3}"]) for n in range(60)]
    offered = [Tool(f"spare_{number}", f"Paint wall {number}") for number in range(70)]
    mass = []
    for log in (rare, often):
        ranking = create("dtdr-f").fit(log, offered, **RANKER_ONLY).rank("do thing number 99")
        mass.append(sum(chance for tool, chance in ranking if tool.startswith("spare")))
    # 20 of the 60 calls are to tools that are called once; and none.
    assert mass[0] > mass[1]
    assert mass[1] < 0.03


def test_an_open_session_keeps_what_it_was_opened_with(half):
    session, other = half.session(QUERY), half.session(QUERY)
    half.update(REST)
    half.remove_tools(["set_alarm"])
    assert (session.rank().probabilities == other.rank().probabilities).all()
    assert "set_alarm" in session.rank().tools
    session.call("set_alarm").rank()
    assert "set_alarm" not in half.session(QUERY).rank().tools


def test_an_update_without_anything_to_learn_changes_nothing(half):
    before = probabilities(half)
    assert half.update([]) == 0
    assert same(before, probabilities(half))


def test_a_tool_that_an_update_calls_first_is_added_and_learned(half):
    fresh = [
        (f"water the plants in {place}", ["water_plants"])
        for number, place in enumerate(["Rome", "the hall", "my office", "the kitchen"] * 12)
    ]
    half.update(fresh)
    assert "water_plants" in half.vocabulary
    assert half.rank("water the plants in the garden").best == "water_plants"
    assert half.rank("water the plants in the garden", ["water_plants"]).best == END


def test_only_rankers_that_support_updates_have_the_methods():
    models = {name: Model(ranker_class(name).__new__(ranker_class(name))) for name in NAMES}
    assert [name for name in NAMES if models[name].can_update] == ["dtdr-f"]
    assert [name for name in NAMES if models[name].can_change_tools] == ["dtdr-f"]


@pytest.mark.slow
def test_none_of_many_rankings_during_changes_is_wrong():
    """Seven threads rank while an eighth changes the model.

    docs/security.md reports 1,000,000 rankings.
    """
    least = int(os.environ.get("DTDR_TEST_RANKINGS", "10000"))
    spare = Tool("zz_spare", "Nothing that anybody asks for")
    model = create("dtdr-f").fit(FEW, [*TOOLS, spare], **RANKER_ONLY)
    item = TEST[0]
    counts = [0] * 7
    done = Event()

    def moment():
        ranking = model.rank(item.query, ["play_song", "zz_play"])
        return ranking.tools, ranking.probabilities.tobytes()

    def rank(thread):
        seen = set()
        while not done.is_set():
            seen.add(moment())
            counts[thread] += 1
            time.sleep(0.001)  # the thread that changes the model needs time too
        return seen

    moments = {moment()}
    with ThreadPoolExecutor(8) as pool:
        ranked = [pool.submit(rank, number) for number in range(7)]
        try:
            for number in itertools.count():
                if number >= 6 and sum(counts) >= least:
                    break
                model.rename_tool("play_song", "zz_play")
                moments.add(moment())
                if number < 6 or number % 20 == 0:  # fits the model again, as an update does
                    model.remove_tools(["zz_spare"])
                    moments.add(moment())
                    model.add_tools([spare])
                    moments.add(moment())
                model.rename_tool("zz_play", "play_song")
                moments.add(moment())
                if number < 6 or number % 20 == 0:
                    model.update(REST[number % len(REST) : number % len(REST) + 1])
                    moments.add(moment())
                time.sleep(0.01 if number < 6 else 0.05)
        finally:
            done.set()
    wrong = set().union(*(task.result() for task in ranked)) - moments
    sys.stdout.write(f"{sum(counts):,} rankings of {len(moments)} moments, {len(wrong)} wrong\n")
    assert not wrong
    assert sum(counts) >= least


# -- tools that come, go or change their names -----------------------------------------------------


def test_a_new_tool_is_ranked_by_its_description_from_the_moment_it_is_added(without_taxi):
    kept, tools = without_taxi
    model = create("dtdr-f").fit(kept, tools, **RANKER_ONLY)
    steps = [
        (item.query, step.history)
        for item in TEST
        for step in item.plan.steps()
        if "book_taxi" in step.acceptable
    ]
    model.add_tools([Tool("book_taxi", "Call a taxi that drives somebody to a place")])
    places = [model.rank(*step).tools.index("book_taxi") for step in steps]
    assert np.mean(np.array(places) < 5) > 0.8


def test_adding_and_removing_a_tool_leaves_no_trace(half, tmp_path):
    before = probabilities(half)
    half.add_tools([Tool("aaa", "Nothing that anybody asks for")])
    assert half.vocabulary[0] == "aaa"
    half.save(tmp_path / "model")
    assert same(probabilities(half), probabilities(load(tmp_path / "model")))
    half.remove_tools(["aaa"])
    for left, right in zip(before, probabilities(half), strict=True):
        assert left == pytest.approx(right, abs=1e-6)


def test_a_removed_tool_is_never_ranked_and_its_calls_are_unknown_ones(half, tmp_path):
    half.remove_tools(["play_song", "order_food"])
    assert set(half.vocabulary) == {tool.name for tool in TOOLS} - {"play_song", "order_food"} | {
        END
    }
    for item in TEST:
        ranking = half.rank(item.query, ["open_map"])
        assert ranking.probabilities.sum() == pytest.approx(1)
        assert "play_song" not in ranking.tools
        # A run that calls it all the same knows it.
        assert "play_song" in half.rank(item.query, ["play_song"]).tools
    half.save(tmp_path / "model")
    restored = load(tmp_path / "model")
    assert same(probabilities(half), probabilities(restored))
    assert restored.can_update
    restored.update(REST)  # calls that were removed come back with the demonstrations
    assert "play_song" in restored.vocabulary


def test_changed_arrays_are_refused_by_a_load_or_rank(half):
    """Also where the checksum was made to fit."""
    arrays, tools = to_arrays(inner(half)), half.tools_
    with pytest.raises(ModelError, match="damaged"):
        from_arrays(tools, {**arrays, "words.idf": arrays["words.idf"][1:]}, None)
    refused = set()
    for name, array in arrays.items():
        for changed in (array[1:], array.astype(np.float32), array[:0], array[None]):
            crafted = {**arrays, name: changed}
            crafted["checksum"] = checksum(crafted)
            try:
                model = from_arrays(tools, crafted, None)
            except (ModelError, IndexError, TypeError, ValueError):
                refused.add(name)
                continue
            state = FactoredStepState(model.prepare(QUERY), model)
            state.call(0)
            assert state.rank().probabilities.sum() == pytest.approx(1)
    assert {"words.idf", "ranker.low", "asked.weights", "data.flags", "next_tool.query"} <= refused


@pytest.mark.parametrize("size", [-1, 10**12, 2**62])
def test_sizes_that_would_take_all_memory_are_refused(half, size):
    arrays, tools = to_arrays(inner(half)), half.tools_
    names = [name for name in arrays if name.endswith(".sizes")]
    assert names
    for name in names:
        crafted = {**arrays, name: arrays[name].astype(np.int64)}
        crafted[name][0] = size
        crafted["checksum"] = checksum(crafted)
        with pytest.raises(ModelError, match="fit it again"):
            from_arrays(tools, crafted, None)


def test_a_renamed_tool_keeps_what_was_learned_of_it(half):
    names = {"play_song": "zz_play", "send_mail": "aa_mail"}
    expected = [
        {names.get(tool, tool): probability for tool, probability in half.rank(item.query, history)}
        for item in TEST
        for history in [[], ["play_song"]]
    ]
    half.rename_tool("play_song", "zz_play")
    half.rename_tool("send_mail", Tool("aa_mail", TOOLS[1].description))
    found = [dict(half.rank(item.query, history)) for item in TEST for history in [[], ["zz_play"]]]
    # The name's words are part of what is known of a tool, so not to the last bit.
    agree = [
        max(one, key=lambda name: one[name]) == max(other, key=lambda name: other[name])
        for one, other in zip(expected, found, strict=True)
    ]
    assert np.mean(agree) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.add_tools([Tool("play_song")]), "already known"),
        (lambda model: model.remove_tools(["nobody"]), "not known"),
        (lambda model: model.remove_tools([END]), "not known"),
        (lambda model: model.rename_tool("nobody", "somebody"), "not known"),
        (lambda model: model.rename_tool("play_song", "make_note"), "already known"),
    ],
)
def test_changes_that_make_no_sense_are_input_errors_and_change_nothing(half, change, message):
    before = half.vocabulary
    with pytest.raises(InputError, match=message):
        change(half)
    assert half.vocabulary == before


# -- many tools, and relations ---------------------------------------------------------------------


def test_relations_are_what_the_plans_say(half):
    uses = {"after": {"$ref": "0"}}
    plans = [
        Plan((ToolCall("0", "a"), ToolCall("1", "b", uses), ToolCall("2", "a"))),
        Plan((ToolCall("0", "b"), ToolCall("1", "c", uses))),
        Plan((ToolCall("0", "c"),)),
    ]
    index = {name: at for at, name in enumerate("abcdefgh")} | {END: len(TOOLS)}
    data = EncodedDemonstrations.of([Demonstration("1", "", plan) for plan in plans], index)
    relations = Relations(replace(inner(half).training, data=data, reference=0.0))
    assert relations.frequency.tolist() == [2, 2, 2, *[0] * 6]
    together, used_by = zip(relations.pairs(0), relations.pairs(1), strict=True)
    assert used_by[0][1] == used_by[1][2] == pytest.approx(1 / 3)
    assert relations.producers[:3] == pytest.approx([0, 1 / 3, 1 / 3])
    # Tools 1 and 2 stand in one plan of three; by chance in 2/3 * 2/3 * 3.
    assert together[1][2] == pytest.approx(np.log((1.3 + 4 / 3) / (4 / 3 + 0.3)))


def test_of_many_new_tools_those_like_the_query_are_ranked_by_their_texts(half):
    half.add_tools([Tool(f"spare_{number}", f"Nothing number {number}") for number in range(40)])
    half.add_tools([Tool("water_plants", "Water the plants in the garden")])
    ranking = half.rank("water the plants in the garden")
    assert "water_plants" in ranking.tools[:5]
    assert ranking.probabilities.sum() == pytest.approx(1)
