"""dtdr-f: its parts one by one, and the whole against other rankers."""

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dtdr import Demonstration, Plan, Run, Tool, ToolCall, load
from dtdr.data.calls import END
from dtdr.predict import create
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import CallEvent, StepFeatures
from dtdr.rankers.dtdr_f.blocks.position import PARTS, PositionRows, _moves, _PositionState
from dtdr.rankers.dtdr_f.candidate_ranker import RankerFit, Steps
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.encoding import encode_texts
from dtdr.rankers.dtdr_f.queries import QueryFeaturizer
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.dtdr_f.word_weights import WordWeights
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.text.encoders.lexical import LexicalEncoder
from dtdr.text.words import name_words
from tests.helpers import RANKER_ONLY, inner, mean_reciprocal_rank

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


TRAIN, TEST = split_by_group(generated(200, 5))


@pytest.fixture(scope="module")
def fitted():
    return create("dtdr-f").fit(TRAIN, TOOLS, **RANKER_ONLY)


def features(model, query, calls, name):
    """One feature of every tool after some calls."""
    step = StepFeatures(inner(model).prepare(query))
    for tool in calls:
        step.call(tool)
    return step.write()[LAYOUT.names.index(name)]


QUERY = "play Rome, then order soup for dinner, then call a taxi to Rome"


def test_it_ranks_unseen_combinations_of_tools_better_than_dr_and_dtdr_c(fitted):
    own = mean_reciprocal_rank(fitted, TEST)
    for name in ("dr", "dtdr-c"):
        assert own > mean_reciprocal_rank(create(name).fit(TRAIN, TOOLS, **RANKER_ONLY), TEST) + 0.1


def test_each_call_makes_the_next_part_of_the_query_the_likeliest(fitted):
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
    rows = PositionRows(np.zeros((15, 2), np.float32))
    state = _PositionState(rows.table, likely, np.arange(2), moves, first)
    by_texts = ZeroShotModel(TOOLS).start(ZeroShotModel(TOOLS).prepare("")).state
    for tool in (1, 0):
        state = state.call(CallEvent(tool, 1, by_texts), rows)
    ways = np.zeros(PARTS + 1)
    for one, two in itertools.product(range(PARTS + 1), repeat=2):
        chance = first[one] * likely[one, 1] * moves[one, two] * likely[two, 0]
        ways += chance * moves[two]
    np.testing.assert_allclose(state.at, ways / ways.sum(), rtol=1e-4)
    np.testing.assert_allclose([first.sum(), *moves.sum(axis=1)], 1, rtol=1e-5)


def test_a_copy_of_a_run_goes_on_alone(fitted):
    def start(calls):
        state = fitted.steps.state_of(Run(QUERY))
        for call in calls:
            state.call(fitted.index(call.tool), call)
        return state

    tools = ("play_song", "play_song", "order_food", "book_taxi", "add_event")
    calls = [
        ToolCall(str(at), tool, {"what": "soup"}, output=["soup", "Rome"], step=at // 2)
        for at, tool in enumerate(tools)
    ]
    ranked = [start(calls[:count]).rank().scores for count in range(len(calls) + 1)]
    states = [start(())]
    for at, call in enumerate(calls):
        states.append(states[-1].copy())
        states[-1].call(fitted.index(call.tool), call)
        for state, scores in zip(states, ranked[: at + 2], strict=True):
            np.testing.assert_array_equal(state.rank().scores, scores)


def test_a_new_tool_changes_nothing_that_the_query_says_of_the_others():
    def named(model):
        row = features(model, QUERY, [model.index("play_song")], "named_here")
        return {tool.name: row[model.index(tool.name)] for tool in TOOLS}

    wider = create("dtdr-f").fit(TRAIN[:40], TOOLS, **RANKER_ONLY)
    before = named(wider)
    wider.add_tools([Tool("a_taxi_again", "call a taxi, order soup for dinner")])
    assert named(wider) == pytest.approx(before, rel=1e-5)
    described = features(wider, QUERY, [wider.index("play_song")], "described_here")
    assert (described > described[wider.index("a_taxi_again")]).sum() < 2


def test_the_order_of_the_words_decides_which_tool_comes_first(fitted):
    one, other = "play Rome, then order soup for dinner", "order soup for dinner, then play Rome"
    assert fitted.rank(one).best == "play_song"
    assert fitted.rank(other).best == "order_food"
    assert features(fitted, one, [], "centre")[fitted.index("play_song")] < 0.5
    assert features(fitted, other, [], "centre")[fitted.index("play_song")] > 0.5


def test_weights_of_words_are_those_of_the_primal_ridge_regression():
    singles = [
        Demonstration(f"{name} {filler}", phrase.format(filler), Plan((ToolCall("1", name),)))
        for name, phrases in SKILLS.items()
        for phrase, filler in zip(phrases, FILLERS, strict=False)
    ]
    index = {tool.name: at for at, tool in enumerate(TOOLS)} | {END: len(TOOLS)}
    tools = [*TOOLS, Tool(END, "")]
    plans = EncodedDemonstrations.of(singles, index)
    featurizer = QueryFeaturizer.fit(encode_texts([item.query for item in singles]), [])
    rows, sizes = featurizer.parts
    assert (sizes == 1).all()
    learned = WordWeights.fit(featurizer, plans, tools, np.arange(len(tools)), 0)
    texts = [f"{name_words(tool.name)} {tool.description}" for tool in TOOLS]
    words = np.concatenate([rows.toarray(), featurizer.encode_words(texts).toarray()])
    called = plans.called.toarray()
    above = np.concatenate([called, np.eye(len(TOOLS), len(tools))])
    above -= called.mean(axis=0)
    kernel = words.T @ words + np.eye(words.shape[1])
    expected = np.linalg.solve(kernel, words.T @ above)
    assert learned.weights[:, 0] == pytest.approx(expected, abs=2e-3)


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
    encoded = EncodedDemonstrations.of(demonstrations, index)
    restored = EncodedDemonstrations.restore(encoded.arrays(), len(index))
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


@pytest.mark.parametrize("text", [[""], ["Nothing to do"] * 4], ids=["one", "four"])
def test_queries_without_any_call_can_be_learned_from(text):
    demonstrations = [
        Demonstration(str(number), query, Plan(())) for number, query in enumerate(text)
    ]
    model = create("dtdr-f").fit(demonstrations, **RANKER_ONLY)
    ranking = model.rank("anything")
    assert ranking.tools == (END,)
    assert ranking.probabilities.tolist() == [1.0]
    # The run called another tool, which is a candidate of it then.
    assert set(model.rank("anything", ["unknown"]).tools) == {END, "unknown"}


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
    fitted = create("dtdr-f").fit(few, tools, **RANKER_ONLY)
    fitted.save(tmp_path / "model")
    for each in (fitted, load(tmp_path / "model")):
        for name, query in asked.items():
            ranking = each.rank(query)
            others = [ranking.probability(other) for other in asked if other != name]
            assert ranking.probability(name) > max(others)


def test_vectors_of_queries_are_those_of_the_lexical_encoder():
    texts = [item.query for item in TRAIN]
    featurizer = QueryFeaturizer.fit(encode_texts(texts * 2), ["play a song"])
    expected = LexicalEncoder().fit(texts * 2).encode(texts[:20]).toarray()
    rows = featurizer.vectors[:20].toarray()
    assert rows @ rows.T == pytest.approx(expected @ expected.T, abs=1e-5)
    for text, row in zip(texts[:20], rows, strict=True):
        columns, values = featurizer.read(QueryText.of(text)).words
        assert row[columns] == pytest.approx(values, abs=1e-6)


def test_a_query_without_a_known_word_is_ranked_by_what_comes_first(fitted):
    counts = {f"tool_{number}": 1 + number % 7 for number in range(12)} | {"tool_0": 20}
    log = [
        (f"open the document of department {tool[5:]}", [tool, "close"])
        for tool, count in counts.items()
        for _ in range(count)
    ]
    tools = [Tool(name, name.replace("_", " ")) for name in (*counts, "close", "never")]
    model = create("dtdr-f").fit(log, tools, **RANKER_ONLY)
    for query in ("", "what can you do?"):
        ranking = model.rank(query)
        first = [counts[tool] for tool in ranking.calls if tool in counts]
        assert first == sorted(counts.values(), reverse=True)
        assert ranking.calls[0] == "tool_0"
        assert ranking.calls[-1] == "never"
        assert not ranking.is_familiar
        assert ranking.confidence == 0
        assert model.rank(query, ["tool_3"]).best == "close"
    assert model.rank("open the document of department 5").best == "tool_5"
    assert fitted.rank("qwxz zwirbel").confidence < fitted.rank(QUERY).confidence


@pytest.mark.parametrize(
    ("row", "familiarity", "expected"),
    [
        ((0.4, 0.3, 0.3), 0.1, True),
        ((0.9, 0.1, 0.0), 0.1, True),  # whatever its probability
        ((0.9, 0.1, 0.0), 0.45, False),
        ((0.6, 0.4, 0.0), 0.9, False),
    ],
)
def test_a_ranking_of_an_unfamiliar_query_can_say_that_no_tool_is_wanted(
    row, familiarity, expected
):
    calibration = Calibration(familiarity_threshold=0.5)
    ranking = Ranking(
        ("a", "b", END), np.array(row), calibration=calibration, familiarity=familiarity
    )
    assert ranking.is_none_of_these is expected


def test_runs_without_a_query_are_ranked_by_the_last_two_calls():
    rng = np.random.default_rng(4)
    after = {("a", "b"): "c", ("b", "a"): "d", ("a", "a"): "b", ("b", "b"): "a"}

    def run():
        calls = list(rng.choice(["a", "b"], 2))
        for _ in range(2):
            calls.append(after.get(tuple(calls[-2:]), "a" if calls[-1] == "c" else "b"))
        return calls

    items = []
    for number in range(60):
        names = run()
        calls = tuple(ToolCall(str(at), name, step=at) for at, name in enumerate(names))
        items.append(Demonstration(str(number), "run", Plan(calls)))
    model = create("dtdr-f").fit(items, **RANKER_ONLY)
    for last, expected in after.items():
        assert model.rank("run", list(last)).best == expected


def outputs(frozen, approvals, order=(0, 1)):
    """A step of two parallel calls: whether to merge hangs on both outputs."""
    calls = (
        ToolCall("f", "check_freeze", output={"frozen": frozen}, step=0),
        ToolCall("p", "get_approvals", output={"approvals": approvals}, step=0),
    )
    return tuple(calls[at] for at in order)


def test_a_rule_on_all_outputs_of_the_last_step_is_learned_whatever_their_order():
    rng = np.random.default_rng(5)
    items = []
    for number in range(48):
        frozen, approvals = bool(rng.integers(2)), int(rng.integers(6))
        after = "wait" if frozen else "merge" if approvals >= 2 else "ask_review"
        order = (0, 1) if rng.integers(2) else (1, 0)
        calls = (*outputs(frozen, approvals, order), ToolCall("x", after, step=1))
        items.append(Demonstration(str(number), f"merge request {number}", Plan(calls)))
    model = create("dtdr-f").fit(items, **RANKER_ONLY)
    right = 0
    for frozen in (False, True):
        for approvals in range(6):
            one, other = (
                model.rank("merge request 99", outputs(frozen, approvals, order))
                for order in ((0, 1), (1, 0))
            )
            assert (one.probabilities == other.probabilities).all()
            after = "wait" if frozen else "merge" if approvals >= 2 else "ask_review"
            right += one.best == after
    assert right >= 10


def test_folds_keep_half_of_the_groups_together():
    index = {name: at for at, name in enumerate((*sorted(SKILLS), END))}
    groups = [replace(item, group=f"g{at % 20}") for at, item in enumerate(TRAIN[:120])]
    encoded = EncodedDemonstrations.of(groups, index)
    fold = encoded.assign_folds(3, 0)
    folds_of = [len(set(fold[encoded.groups == group])) for group in set(encoded.groups.tolist())]
    assert sorted(set(fold.tolist())) == [0, 1, 2]
    assert 8 <= sum(count == 1 for count in folds_of) <= 12
    halves = encoded.halves
    assert all(len(set(halves[encoded.groups == group])) == 1 for group in encoded.groups)


def test_a_feature_outside_of_its_range_in_training_counts_as_the_end_of_that_range():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 5, 3)).astype(np.float32)
    features[:, :, 1] *= 1e-3  # it hardly varies: a value of 2 is two thousand deviations away
    right = np.eye(5, dtype=np.float32)[rng.integers(5, size=60)]
    steps = Steps.of(features, right, np.zeros((60, 5), np.bool_))
    linear = np.ones(3, np.float32)
    scorer = RankerFit.of(steps, linear, tools=5, seed=0).mix(0.5, 1.0)

    def scores(value):
        table = np.concatenate([features[0].T, np.ones((1, 5), np.float32)])
        table[1] = value
        return scorer.scores(table)

    least, most = features[:, :, 1].min(), features[:, :, 1].max()
    assert np.array_equal(scores(2), scores(most))
    assert np.array_equal(scores(-2), scores(least))
    assert not np.array_equal(scores(most), scores(least))
