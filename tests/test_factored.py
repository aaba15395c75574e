"""dtdr-f: its parts one by one, and the whole against other retrievers."""

import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dtdr import Demonstration, Plan, Tool, ToolCall, load
from dtdr.calls import END
from dtdr.encoders.lexical import LexicalEncoder, words
from dtdr.errors import InputError, ModelError
from dtdr.retrievers import create
from dtdr.retrievers.factored.blocks import DEFAULT, NAMES, block_types
from dtdr.retrievers.factored.blocks.base import CallEvent
from dtdr.retrievers.factored.blocks.query_position import PARTS, _moves, _QueryPositionState
from dtdr.retrievers.factored.calibration import replace_some_words, replace_words
from dtdr.retrievers.factored.choice import silent_blocks, tools_to_learn
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.fitted_blocks import FittedBlocks
from dtdr.retrievers.factored.held_out import HeldOut
from dtdr.retrievers.factored.query_features import FEW_QUERIES
from dtdr.retrievers.factored.query_text import (
    SURFACE_FEATURES,
    QueryText,
    shape_words,
    stems,
    surface_features,
)
from dtdr.retrievers.factored.ranker import Scorer
from dtdr.retrievers.factored.retriever import DTDRFactored
from dtdr.retrievers.factored.ridge import RidgeRegression
from dtdr.retrievers.factored.step_features import StepFeatures
from dtdr.retrievers.factored.tool_texts import documents_of
from dtdr.retrievers.folds import assign_folds
from dtdr.retrievers.vectors import unit
from dtdr.tools import Parameter

# What can be asked for, the tool that does it, and words that say so.
SKILLS = {
    "open_map": ("show {} on the map", "find the place {}"),
    "send_mail": ("mail {} about it", "write a message to {}"),
    "make_note": ("note that {} is done", "put {} into my notes"),
    "add_event": ("plan a meeting with {}", "add {} to the calendar"),
    "play_song": ("play {}", "let me hear {}"),
    "order_food": ("order {} for dinner", "get me some {}"),
    "book_taxi": ("call a taxi to {}", "drive me to {}"),
    "set_alarm": ("wake me for {}", "set an alarm for {}"),
}
FILLERS = ("Ann", "the old mill", "Rome", "soup", "Monday", "the blue song", "Dai", "my report")
TOOLS = tuple(Tool(name, phrases[0].format("it")) for name, phrases in SKILLS.items())


def generated(size, seed):
    """Requests of two to four things in an order of their own; a group shares its tools."""
    rng = np.random.default_rng(seed)
    names = sorted(SKILLS)
    found = []
    for number in range(size):
        chosen = [names[i] for i in rng.permutation(len(names))[: rng.integers(2, 5)]]
        asked = [
            SKILLS[name][rng.integers(2)].format(FILLERS[rng.integers(len(FILLERS))])
            for name in chosen
        ]
        calls = tuple(
            ToolCall(str(at), name, {"after": {"$ref": str(at - 1)}} if at else {})
            for at, name in enumerate(chosen)
        )
        group = " ".join(sorted(chosen))
        found.append(Demonstration(str(number), ", then ".join(asked), Plan(calls), group=group))
    return found


def split_by_group(demonstrations):
    """Three quarters of the groups, and the others."""
    groups = sorted({item.group for item in demonstrations})
    held = set(groups[::4])
    return (
        [item for item in demonstrations if item.group not in held],
        [item for item in demonstrations if item.group in held],
    )


def mrr(retriever, demonstrations):
    steps = [(item.query, step) for item in demonstrations for step in item.plan.steps()]
    rankings = retriever.rank_batch(
        [query for query, _ in steps], [step.history for _, step in steps]
    )
    return np.mean(
        [
            1 / (1 + min(ranking.tools.index(name) for name in step.acceptable))
            for ranking, (_, step) in zip(rankings, steps, strict=True)
        ]
    )


TRAIN, TEST = split_by_group(generated(200, 5))


WITH_OUTPUTS = [
    replace(item, plan=Plan(tuple(replace(call, output="done") for call in item.plan.calls)))
    for item in TRAIN[:16]
]


@pytest.fixture(scope="module")
def fitted():
    return create("dtdr-f").fit(TRAIN, TOOLS)


def features(retriever, query, calls, name):
    """One feature of every tool after some calls."""
    blocks = retriever.model_.blocks
    step = StepFeatures(blocks, blocks.prepare(query))
    for tool in calls:
        step.call(tool)
    return step.write()[blocks.layout.names.index(name)]


QUERY = "play Rome, then order soup for dinner, then call a taxi to Rome"


def test_it_ranks_unseen_combinations_of_tools_better_than_dr_and_dtdr_c(fitted):
    own = mrr(fitted, TEST)
    for name in ("dr", "dtdr-c"):
        assert own > mrr(create(name).fit(TRAIN, TOOLS), TEST) + 0.1


def test_the_pointer_moves_forward_with_every_call_in_the_order_of_the_query(fitted):
    calls = [fitted.index(name) for name in ("play_song", "order_food", "book_taxi")]
    reached = [features(fitted, QUERY, calls[:count], "pointer")[0] for count in range(4)]
    assert reached[0] == 0
    assert all(np.diff(reached) > 0)
    assert reached[-1] <= 1


def test_unknown_calls_leave_the_pointer_where_it_is(fitted):
    call = fitted.index("order_food")
    with_unknown = features(fitted, QUERY, [-1, call, -1], "pointer")
    without = features(fitted, QUERY, [call], "pointer")
    assert (with_unknown == without).all()
    assert without[0] > 0


def test_each_call_makes_the_next_part_of_the_query_the_likeliest():
    fitted = DTDRFactored(blocks="alignment,query_position", width=8).fit(TRAIN, TOOLS)
    calls = [fitted.index(name) for name in ("play_song", "order_food", "book_taxi")]
    for count, call in enumerate(calls):
        named = features(fitted, QUERY, calls[:count], "named_here")
        assert named[:-1].argmax() == call
        assert features(fitted, QUERY, calls[:count], "relative_named_here").argmax() == call
    at_end = [features(fitted, QUERY, calls[:count], "at_end")[0] for count in range(4)]
    assert all(np.diff(at_end) > 0)
    assert features(fitted, QUERY, calls, "named_here").argmax() == len(TOOLS)  # the end of plan


def test_forward_probabilities_are_those_of_all_ways_through_the_query():
    """Summed over all sequences of parts, as the definition has it."""
    first, moves = _moves(12)
    rng = np.random.default_rng(3)
    likely = rng.random((PARTS + 1, 2)).astype(np.float32)
    named = rng.random((PARTS + 1, 3, 2)).astype(np.float32)
    state = _QueryPositionState(named, likely, None, first, moves, np.zeros((7, 2), np.float32))
    state.call(CallEvent(1, 1, 1))
    state.call(CallEvent(0, 0, 1))
    ways = np.zeros(PARTS + 1)
    for one, two in itertools.product(range(PARTS + 1), repeat=2):
        chance = first[one] * likely[one, 1] * moves[one, two] * likely[two, 0]
        ways += chance * moves[two]
    np.testing.assert_allclose(state._next, ways / ways.sum(), rtol=1e-4)
    np.testing.assert_allclose([first.sum(), *moves.sum(axis=1)], 1, rtol=1e-5)


def test_a_new_tool_changes_nothing_that_the_query_says_of_the_others():
    def named(retriever):
        row = features(retriever, QUERY, [retriever.index("play_song")], "named_here")
        return {tool.name: row[retriever.index(tool.name)] for tool in TOOLS}

    wider = DTDRFactored(blocks="alignment,query_position", width=8).fit(TRAIN[:40], TOOLS)
    before = named(wider)
    wider.add_tools([Tool("a_taxi_again", "call a taxi, order soup for dinner")])
    assert named(wider) == pytest.approx(before, rel=1e-5)
    described = features(wider, QUERY, [wider.index("play_song")], "described_here")
    assert (described > described[wider.index("a_taxi_again")]).sum() < 2


def test_without_the_alignment_nothing_is_said_of_the_position():
    alone = DTDRFactored(blocks="next_tool,query_position", width=8).fit(TRAIN[:20], TOOLS)
    assert not features(alone, QUERY, [0], "position").any()


def test_the_order_of_the_words_decides_which_tool_comes_first(fitted):
    one, other = "play Rome, then order soup for dinner", "order soup for dinner, then play Rome"
    assert fitted.rank(one).best == "play_song"
    assert fitted.rank(other).best == "order_food"
    assert features(fitted, one, [], "centre")[fitted.index("play_song")] < 0.5
    assert features(fitted, other, [], "centre")[fitted.index("play_song")] > 0.5


def test_shuffled_queries_take_away_what_was_learned(fitted):
    order = np.random.default_rng(0).permutation(len(TEST))
    shuffled = [
        replace(item, query=TEST[other].query) for item, other in zip(TEST, order, strict=True)
    ]
    assert mrr(fitted, shuffled) < mrr(fitted, TEST) - 0.2


def test_a_tool_is_expected_less_once_it_was_called_and_the_end_more(fitted):
    calls = [fitted.index(name) for name in ("play_song", "order_food", "book_taxi")]
    for count, call in enumerate(calls):
        before, after = (
            features(fitted, QUERY, calls[:made], "asked_left") for made in (count, count + 1)
        )
        assert before[call] > 0.3
        assert after[call] < before[call] - 0.9
        ends = [
            features(fitted, QUERY, calls[:made], "asked_left_at_end")[-1]
            for made in (count, count + 1)
        ]
        assert ends[1] < ends[0]


@pytest.mark.parametrize("every", [False, True], ids=["default", "every block"])
def test_a_session_ranks_as_the_batch_does_to_the_last_bit(fitted, every):
    retriever = create("dtdr-f", blocks=NAMES).fit(TRAIN[:60], TOOLS) if every else fitted
    calls = [*["play_song", "nobody", "order_food"] * 3, END, "play_song", "book_taxi"]
    session = retriever.session(QUERY)
    for count in range(len(calls) + 1):
        alone = retriever.rank(QUERY, calls[:count]).probabilities
        assert (session.rank().probabilities == alone).all()
        assert (session.rank().probabilities == alone).all()  # asking twice changes nothing
        if count < len(calls):
            session.call(calls[count])


def test_many_sessions_on_many_threads_rank_as_one_does(fitted):
    def ranked(item):
        session = fitted.session(item.query)
        found = [session.rank().probabilities]
        for tool in item.plan.tools:
            found.append(session.call(tool).rank().probabilities)
        return found

    alone = [ranked(item) for item in TEST]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ranked, TEST))
    for left, right in zip(alone, together, strict=True):
        assert all((one == other).all() for one, other in zip(left, right, strict=True))


def test_shape_words_hide_what_varies_between_requests():
    assert shape_words('Mail "my plan.pdf" and "hello" to Ann Lee at 9') == [
        "mail", "QFILE", "and", "QSTR", "to", "CAP", "at", "NUM",
    ]  # fmt: skip


def test_surface_features_have_one_length_and_are_finite_for_any_text():
    for text in ("", "\ud800", '"' * 5_000, "“" * 40_000, "Ann, Bob and Cy. " * 9_000):
        values = surface_features(QueryText.of(text))
        assert values.shape == (SURFACE_FEATURES,)
        assert np.isfinite(values).all()


def test_stems_join_forms_of_a_word():
    assert stems("Meetings, meeting: a BOOK, books") == ["meet", "meet", "book", "book"]


def test_weights_of_words_are_those_of_the_primal_ridge_regression():
    rng = np.random.default_rng(3)
    words = (rng.random((40, 12)) * (rng.random((40, 12)) < 0.3)).astype(np.float32)
    called = (rng.random((40, 3)) < 0.3).astype(float)
    importance = rng.random(40) + 0.5
    weights = RidgeRegression(csr_array(words), importance).learn(csr_array(called))
    above = called - np.average(called, axis=0, weights=importance)
    kernel = words.T @ (words * importance[:, None]) + 0.3 * np.eye(12)
    expected = np.linalg.solve(kernel, words.T @ (above * importance[:, None]))
    assert weights == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "text", ["Mail Ann q3.pdf, then ring 030-1234!", "Покажи PDF", "予定を見せて"]
)
def test_words_are_replaced_by_others_of_the_same_shape(text):
    replaced = replace_words(text)
    assert replace_words(text) == replaced
    assert not set(words(text)) & {word for word in words(replaced) if word.isalpha()}
    for one, other in zip(text, replaced, strict=True):
        assert one == other if not one.isalpha() else one.isupper() == other.isupper()


def test_confidence_is_that_of_unknown_words_where_no_word_is_known():
    # With ``coverage`` or ``query_position`` the ranker itself is less sure of unknown words.
    train, test = split_by_group(generated(300, 5))
    fitted = DTDRFactored(width=16, blocks=DEFAULT).fit(train, TOOLS)
    calibration = fitted.calibration_
    right = [
        (ranking.best in step.acceptable, ranking)
        for item in test
        for step in item.plan.steps()
        for ranking in [fitted.rank(replace_words(item.query), step.history)]
    ]
    for _, ranking in right:
        assert ranking.confidence <= calibration.confidence_of(float(ranking.scores.max()))
    # On requests that it cannot read, it says less than half as much too much as it would else.
    right_share = np.mean([is_right for is_right, _ in right])
    said = np.mean([ranking.confidence for _, ranking in right])
    boast = np.mean([calibration.confidence_of(float(r.scores.max())) for _, r in right])
    assert boast - right_share > 0.2
    assert abs(said - right_share) < (boast - right_share) / 2


def test_encoded_plans_give_the_acceptable_tools_of_plans():
    demonstrations = [
        Demonstration(
            "1",
            "Do a and b, then c",
            Plan(
                (ToolCall("1", "a"), ToolCall("2", "b"), ToolCall("3", "c", {"x": {"$ref": "1"}}))
            ),
        ),
        Demonstration("2", "Nothing", Plan(())),
        *TRAIN[:20],
    ]
    names = sorted({name for item in demonstrations for name in item.plan.tools})
    index = {name: position for position, name in enumerate([*names, END])}
    encoded = EncodedPlans.of(demonstrations, index)
    restored = EncodedPlans.restore(encoded.arrays(), len(index))
    order = np.random.default_rng(0).permutation(len(demonstrations))
    shuffled = encoded.subset(order).subset(np.argsort(order))
    halves = encoded.subset(np.arange(9)).concatenate(encoded.subset(np.arange(9, len(encoded))))
    expected = [
        (number, step.history, step.acceptable)
        for number, item in enumerate(demonstrations)
        for step in item.plan.steps()
    ]
    vocabulary = [*names, END]
    for each in (encoded, restored, shuffled, halves):
        assert [
            (
                step.plan,
                tuple(vocabulary[tool] for tool in step.history),
                frozenset(vocabulary[tool] for tool in step.acceptable),
            )
            for step in each.steps()
        ] == expected


def test_a_loaded_model_has_the_same_rankings_and_guide_to_the_last_bit(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    restored = load(tmp_path / "model")
    for item in TEST[:20]:
        for step in item.plan.steps():
            left, right = (each.rank(item.query, step.history) for each in (fitted, restored))
            assert left.tools == right.tools
            assert (left.probabilities == right.probabilities).all()
            assert left.confidence == right.confidence
            assert left.select(coverage=0.9).tools == right.select(coverage=0.9).tools
    assert (fitted.calibration_.tokens == restored.calibration_.tokens).all()


def test_a_model_of_an_earlier_version_is_to_be_fitted_again(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["config_sha256"]  # which earlier versions did not write
    config["parameters"]["need"] = True
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="parameter 'need' of another version; fit it again"):
        load(tmp_path / "model")


def test_loading_and_ranking_import_neither_scikit_learn_nor_onnxruntime(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    script = (
        "import sys, dtdr; dtdr.load(sys.argv[1]).rank('play it');"
        "print(sorted({'sklearn', 'onnxruntime', 'networkx'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_prediction_sets_cover_about_as_often_as_asked(fitted):
    _, fresh = split_by_group(generated(300, 6))
    steps = [(item.query, step) for item in fresh for step in item.plan.steps()]
    covered = [
        bool(step.acceptable & set(fitted.rank(query, step.history).select(coverage=0.8).tools))
        for query, step in steps
    ]
    assert np.mean(covered) > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_every_block_can_be_left_out(name, tmp_path):
    others = [other for other in NAMES if other != name]
    smaller = DTDRFactored(blocks=others, width=8).fit(WITH_OUTPUTS, TOOLS)
    smaller.add_tools([Tool("take_photo", "Take a photo of somebody")])
    assert smaller.model_.blocks.layout.names == tuple(
        feature for block in block_types(others) for feature in block.names
    )
    smaller.save(tmp_path / "model")
    left = smaller.rank(QUERY, ["play_song"])
    right = load(tmp_path / "model").rank(QUERY, ["play_song"])
    assert (left.probabilities == right.probabilities).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_block_alone_ranks(name):
    alone = create("dtdr-f", blocks=name, width=8).fit(WITH_OUTPUTS, TOOLS)
    assert alone.rank(QUERY, ["play_song"]).probabilities.sum() == pytest.approx(1)


def test_words_that_no_demonstration_holds_say_what_words_with_the_same_parts_say():
    plans = [("Translate the letter", "translate"), ("Print the letter", "print")] * 6
    items = [(f"{query} {number}", [tool]) for number, (query, tool) in enumerate(plans)]
    model = DTDRFactored(blocks="subwords", width=8).fit(items)
    prepared = model.model_.prepare("Retranslating it").prepared
    expected = dict(zip(model.vocabulary, prepared.table[0], strict=True))
    assert expected["translate"] > expected["print"] + 0.1
    nothing = model.model_.prepare("4711").prepared.table[0]
    assert nothing[:2] == pytest.approx([0.5, 0.5], abs=0.05)


def test_what_fills_a_parameter_fits_tools_with_such_parameters_that_never_followed():
    tools = [
        Tool("find_person", "Find a person", ()),
        Tool("mail", "Send mail", (Parameter("person", "string"), Parameter("text", "string"))),
        Tool("call", "Ring up", (Parameter("person", "string"),)),
        Tool("weather", "Tell the weather", (Parameter("city", "string"),)),
        Tool("find_city", "Look a city up", ()),
    ]

    def two(first, second):
        calls = (ToolCall("1", first), ToolCall("2", second, {"x": {"$ref": "1"}}))
        return Plan(calls)

    plans = [two("find_person", "mail"), two("find_city", "weather")] * 4
    items = [Demonstration(str(n), f"Request {n}", plan) for n, plan in enumerate(plans)]
    model = DTDRFactored(blocks="next_tool,data_flow", width=8).fit(items, tools)
    step = StepFeatures(model.model_.blocks, model.model_.prepare("Request").prepared)
    step.call(model.index("find_person"))
    rows = [step.layout.names.index(name) for name in ("fills", "fills_any")]
    fills, _ = step.write()[rows]
    assert fills[model.index("call")] > fills[model.index("weather")] + 0.5
    step.call(model.index("find_city"))
    fills, fills_any = step.write()[
        [list(step.layout.names).index(n) for n in ("fills", "fills_any")]
    ]
    assert fills[model.index("call")] < fills[model.index("weather")]
    assert fills_any[model.index("call")] > 0


def test_the_calls_of_a_plan_say_how_long_a_run_is_and_what_follows_again():
    plans = [["search", "details", "details", "reviews", "reviews"]] * 6
    items = [(f"Compare two hotels in town {number}", plan) for number, plan in enumerate(plans)]
    model = DTDRFactored(blocks="next_tool,rhythm", width=8).fit(items)
    step = StepFeatures(model.model_.blocks, model.model_.prepare("Compare three").prepared)
    rows = [step.layout.names.index(name) for name in ("shorter_run_than_before", "followed_last")]

    def after(*calls):
        for name in calls:
            step.call(model.index(name) if name else -1)
        return [
            {model.vocabulary[at]: row[at] for at in np.flatnonzero(row)}
            for row in step.write()[rows]
        ]

    assert after("search") == [{}, {}]
    assert after("details") == [{}, {}]
    assert after("details", "details") == [{"details": -2}, {"details": 1}]
    assert after("reviews") == [{"reviews": 2}, {}]
    assert after("reviews", "reviews") == [{}, {"reviews": 1}]
    assert after("details") == [{"details": 2}, {"reviews": 1}]
    assert after("") == [{}, {}]
    assert after("details") == [{}, {}]  # a call of an unknown tool followed it


def test_blocks_about_repeated_calls_are_left_out_where_plans_repeat_none():
    index = {"a": 0, "b": 1, END: 2}

    def silent(*plans):
        calls = [tuple(ToolCall(str(at), name) for at, name in enumerate(plan)) for plan in plans]
        items = [Demonstration(str(n), "", Plan(each)) for n, each in enumerate(calls)]
        encoded = EncodedPlans.of(items, index)
        silent = silent_blocks(encoded, has_encoder=True)
        assert silent_blocks(encoded, has_encoder=False) == (*silent, "clauses")
        return silent

    assert silent("ab", "ba") == ("rhythm",)
    assert silent("abab", "ba") == ()
    for plan, is_taken in ((["a", "b"], False), (["a", "b", "a"], True)):
        fitted = DTDRFactored(width=8).fit([(f"Request {number}", plan) for number in range(6)])
        assert any(block.name == "rhythm" for block in fitted.model_.blocks.blocks) == is_taken


def test_blocks_have_names_of_their_own():
    blocks = block_types(NAMES)
    features = [feature for block in blocks for feature in block.names]
    assert len(set(features)) == len(features)
    assert set(DEFAULT.split(",")) < set(NAMES)


def test_blocks_that_do_not_exist_are_input_errors():
    with pytest.raises(InputError, match="unknown block 'need'"):
        create("dtdr-f", blocks="next_tool,need")
    with pytest.raises(InputError, match="blocks is empty"):
        create("dtdr-f", blocks=[])


def test_more_tools_than_a_shortlist_holds_are_all_ranked():
    many = [*TOOLS, *(Tool(f"spare_{number}", "Never used") for number in range(60))]
    ranking = create("dtdr-f").fit(TRAIN[:60], many).rank(QUERY)
    assert len(ranking) == len(many) + 1
    assert (ranking.probabilities[:-1] > 0).all()
    assert not ranking.best.startswith("spare")


@pytest.mark.parametrize("text", [[""], ["Nothing to do"] * 4], ids=["one", "four"])
def test_queries_without_any_call_can_be_learned_from(text):
    demonstrations = [
        Demonstration(str(number), query, Plan(())) for number, query in enumerate(text)
    ]
    ranking = create("dtdr-f").fit(demonstrations).rank("anything", ["unknown"])
    assert ranking.tools == (END,)
    assert ranking.probabilities.tolist() == [1.0]


def test_grouped_folds_keep_each_group_together():
    fold = assign_folds(TRAIN, folds=3, grouped=True, seed=0)
    by_group: dict[str, set[int]] = {}
    for item, number in zip(TRAIN, fold, strict=True):
        by_group.setdefault(item.group, set()).add(int(number))
    assert all(len(numbers) == 1 for numbers in by_group.values())
    assert len(set(fold.tolist())) == 3


@pytest.mark.parametrize("options", [{"width": 0}, {"folds": 1}, {"ranker_seeds": 0}])
def test_numbers_out_of_range_are_input_errors(options):
    with pytest.raises(InputError, match="at least"):
        create("dtdr-f", **options)


def test_held_out_plans_stand_there_again_in_partly_unknown_words(fitted):
    model = fitted.model_
    plans = model.blocks.training.plans.subset(np.arange(12))
    held = HeldOut(model.blocks.layout, len(TOOLS) + 1, 60, 0)
    for _ in range(2):
        held.add(model.blocks, [item.query for item in TRAIN[:12]], plans)
    held.add_reworded()
    by_plan = {step.plan: step for step in held.steps if step.is_first}
    again = [step for step in held.reworded if step.is_first]
    assert [step.plan for step in again] == list(by_plan) == list(range(24))
    pairs = [(step, by_plan[step.plan]) for step in again]
    assert all((one.right == other.right).all() for one, other in pairs)
    # Now and then no word of a short query is replaced.
    assert sum(bool((one.table != other.table).any()) for one, other in pairs) > 12


def test_only_a_query_in_other_words_is_ranked_by_the_rankers_of_such(fitted, tmp_path):
    model = fitted.model_
    assert len(model.reworded_rankers) == 2
    other = " ".join(["Kindly", *TRAIN[0].query.split()[::2], "thereafter"])
    for query, rankers in ((TRAIN[0].query, model.rankers), (other, model.reworded_rankers)):
        step = StepFeatures(model.blocks, model.prepare(query).prepared)
        assert step.query.is_reworded == (rankers is model.reworded_rankers)
        assert model.rankers_of(step) is rankers
        scores = Scorer(rankers).scores(step.write())
        found = fitted.rank(query).scores
        assert int(np.argmax(found[:-1])) == int(np.argmax(scores[:-1]))
    fitted.save(tmp_path / "model")
    restored = load(tmp_path / "model")
    np.testing.assert_array_equal(restored.rank(other).scores, fitted.rank(other).scores)
    assert fitted.rank(other).explain().contributions


def test_some_words_are_replaced_and_all_else_stays():
    text = 'Text Ann, "Q3 report.pdf" at 10:30, that the train is late and will not come today'
    found = {replace_some_words(text, np.random.default_rng(seed)) for seed in range(5)}
    assert len(found) == 5
    for other in found:
        pairs = list(zip(text.split(), other.split(), strict=True))
        assert 0 < sum(one != two for one, two in pairs) < len(pairs)
        assert [len(two) for _, two in pairs] == [len(one) for one, _ in pairs]
        assert "10:30," in other


def fit_blocks(demonstrations, names):
    index = {name: at for at, name in enumerate((*(tool.name for tool in TOOLS), END))}
    return FittedBlocks.fit(
        names,
        (*TOOLS, Tool(END)),
        [item.query for item in demonstrations],
        EncodedPlans.of(demonstrations, index),
        encoder=None,
        width=8,
        reference=0.0,
        seed=0,
        advance=lambda: None,
    )


def test_descriptions_count_the_less_the_more_plans_there_are():
    generator = np.random.default_rng(0)
    rows = unit(generator.random((400, 6)))
    called = csr_array((rows[:, :2] > 0.4).astype(float))
    described = csr_array(np.eye(2, 6, 4))  # two words that queries hold, and each names a tool

    def moved(plans):
        queries, ones = csr_array(rows[:plans]), np.ones(plans)
        regressions = (
            RidgeRegression(queries, ones, described=described),
            RidgeRegression(queries, ones),
        )
        with_texts, without = (each.learn(csr_array(called[:plans])) for each in regressions)
        return with_texts.astype(float)[[4, 5], [0, 1]] - without.astype(float)[[4, 5], [0, 1]]

    few, more, many = moved(4), moved(40), moved(400)
    assert (few > more).all()
    assert (more > many).all()
    assert (many > 0).all()
    assert many.max() < few.min() / 3


def test_words_of_descriptions_count_among_few_demonstrations_alone():
    demonstrations = generated(FEW_QUERIES, 8)
    few, many = demonstrations[:12], demonstrations
    fitted = {len(part): fit_blocks(part, ["expected_calls"]) for part in (few, many)}
    described = set(words(" ".join(documents_of((*TOOLS, Tool(END))))))
    assert described <= fitted[len(few)].training.featurizer.words.vocabulary_.keys()
    training = fitted[len(many)].training
    texts = [item.query for item in many]
    assert training.featurizer.words.vocabulary_ == LexicalEncoder(min_df=2).fit(texts).vocabulary_
    plain = RidgeRegression(training.queries.word_vectors, training.plans.weights)
    counts = csr_array(training.plans.called[:, training.seen])
    assert (fitted[len(many)].blocks[0].weights == plain.learn(counts)).all()


def test_all_tools_are_learned_where_plans_probably_call_others():
    index = {name: at for at, name in enumerate((*SKILLS, END))}

    def plans(*names):
        calls = [Plan((ToolCall("0", name),)) for name in names]
        return EncodedPlans.of([Demonstration("", "x", plan) for plan in calls], index)

    twice = plans("open_map", "open_map", "send_mail", "send_mail")
    assert tools_to_learn(twice) is None
    once = plans("open_map", "open_map", "send_mail")
    every = tools_to_learn(once)
    assert every is not None
    assert every.tolist() == list(range(len(index)))
    assert tools_to_learn(plans(*["open_map"] * 150, "send_mail")) is None
    assert tools_to_learn(once.renumber(range(once.tools), 65)) is None  # not all are ranked


def test_a_tool_that_ten_demonstrations_never_call_is_ranked_by_its_description(tmp_path):
    called = set(list(SKILLS)[:5])
    few = [item for item in generated(200, 9) if called.issuperset(item.plan.tools)][:10]
    asked = {
        "book_taxi": "drive to the old mill by taxi",
        "set_alarm": "set an alarm for Monday",
        "order_food": "order some soup for dinner",
    }
    tools = [
        *TOOLS[:5],
        *(Tool(name, SKILLS[name][0].format("it")) for name in asked),
    ]
    fitted = create("dtdr-f").fit(few, tools)
    fitted.save(tmp_path / "model")
    for each in (fitted, load(tmp_path / "model")):
        for name, query in asked.items():
            ranking = each.rank(query)
            others = [ranking.probability(other) for other in asked if other != name]
            assert ranking.probability(name) > max(others)


def test_words_of_a_query_are_those_of_the_lexical_encoder(fitted):
    featurizer = fitted.model_.blocks.training.featurizer
    texts = [*(item.query for item in TRAIN), *documents_of((*TOOLS, Tool(END)))]
    again = LexicalEncoder(min_df=2).fit(texts[: len(TRAIN)])
    again = again.extend(word for text in texts for word in words(text) if word.isalpha())
    assert featurizer.words.vocabulary_ == again.vocabulary_
    for item in TEST:
        row, expected = featurizer.read(item.query).words, again.encode_one(item.query)
        assert (row[0] == expected[0]).all()
        assert (row[1] == expected[1]).all()
