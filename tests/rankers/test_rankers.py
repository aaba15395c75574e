"""The shared battery: what every ranker of the registry must do, present and future."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dtdr import Demonstration, Plan, Tool, ToolCall, load
from dtdr.data.calls import END
from dtdr.data.run import Run
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.predict import create
from dtdr.rankers import NAMES, ranker_class
from tests import small_data
from tests.helpers import RANKER_ONLY, change_config, sha256_of

SET = small_data.dataset(18)
SLOW_FITS = ("dtdr-f", "dtdr-l", "dtdr-c", "forest")
"""Rankers of which one fit beside others ranks a hundred times."""
STEPS = [
    (demonstration.query, step.history)
    for demonstration in SET.demonstrations[:9]
    for step in demonstration.plan.steps()
]
QUERY = "Mail Ann the summary of q3.pdf"


def ideal_tools(prompt):
    return "Opens a file and returns its text.\nSends an e-mail."


def given(name):
    """Constructor keywords that are no JSON."""
    return {"llm": ideal_tools} if "llm" in ranker_class(name).not_saved else {}


def make(name, demonstrations=SET.demonstrations, tools=SET.tools, **parameters):
    return create(name, **given(name), **parameters).fit(demonstrations, tools, **RANKER_ONLY)


def same(left, right):
    return left.tools == right.tools and bool((left.probabilities == right.probabilities).all())


def demonstrate(query, *tools, **more):
    calls = tuple(ToolCall(str(number), tool) for number, tool in enumerate(tools))
    return Demonstration("1", query, Plan(calls), **more)


def ranking_of(ranking):
    return ranking.tools, ranking.probabilities.tobytes()


def iter_then_fail():
    yield SET.demonstrations[0]
    raise KeyError("the reader broke")


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return make(name)


@pytest.fixture(scope="module")
def fitted_with_empty_plans(name):
    empty = [Demonstration(f"empty-{n}", "Danke, das ist alles.", Plan(())) for n in range(6)]
    return make(name, [*SET.demonstrations, *empty])


def check(ranking, vocabulary):
    assert sorted(ranking.tools) == sorted(vocabulary)
    assert np.isfinite(ranking.probabilities).all()
    assert (ranking.probabilities >= 0).all()
    assert ranking.probabilities.sum() == pytest.approx(1)
    assert (np.diff(ranking.probabilities) <= 0).all()


def test_it_can_be_fitted_again_to_other_demonstrations(name):
    refitted = make(name).fit(
        [demonstrate("Ring the bell", "ring")], [Tool("ring", "Ring it")], **RANKER_ONLY
    )
    assert refitted.vocabulary == ("ring", END)
    assert same(
        refitted.rank("Ring"),
        make(name, [demonstrate("Ring the bell", "ring")], [Tool("ring", "Ring it")]).rank("Ring"),
    )


def test_few_runs_of_many_tools_are_learned_without_a_warning(name):
    calls = [ToolCall("1", f"tool_{n}", {}, {"amount": n, "kind": "a"}) for n in range(24)]
    runs = [Demonstration(str(n), f"Do {n}", Plan((call,))) for n, call in enumerate(calls)]
    tools = [Tool(call.tool, f"Does {call.id}") for call in calls]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(name, runs, tools).rank("Do 3", ["tool_4"])


def test_an_unfitted_ranker_says_so(name):
    with pytest.raises(DtdrError, match="not fitted"):
        create(name, **given(name)).rank(QUERY)


def test_an_unknown_parameter_is_an_input_error(name):
    with pytest.raises(InputError, match="no_such_parameter"):
        create(name, **given(name), no_such_parameter=1)


def test_probabilities_cover_the_vocabulary_and_sum_to_one(model):
    assert model.vocabulary == (*sorted(tool.name for tool in SET.tools), END)
    for query, history in STEPS:
        check(model.rank(query, history), model.vocabulary)


@pytest.mark.parametrize(
    "history",
    [
        ("read_file", "never_seen"),
        ("never_seen", "read_file", "never_seen_2"),
        ("x", "y", "z"),
        ("",),
        (END,),
        ("read_file", "summarize") * 5_000,
        ("never_seen",) * 10_000,
    ],
    ids=["unknown-last", "unknown-between", "all-unknown", "empty-name", "end", "10000", "unknown"],
)
def test_any_history_still_ranks(model, history):
    ranking = model.rank(QUERY, history)
    # dtdr-f also ranks the tools that only this run called.
    check(ranking, {*model.vocabulary, *(set(history) & set(ranking.tools))})


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n\t",
        "Mail Zoë 東京の要約 📎",
        "zxqj",
        "\ud800",
        "read the file " * 75_000,
        "x" * 1_000_000,
    ],
    ids=["empty", "blank", "non-ascii", "no-known-word", "surrogate", "1MB", "1MB-word"],
)
def test_any_query_still_ranks(model, query):
    check(model.rank(query, ["read_file"]), model.vocabulary)


@pytest.mark.parametrize(
    "demonstrations",
    [
        [demonstrate("Read it", "read_file", "read_file")],
        [demonstrate("Read it", "read_file")] * 30,
        [demonstrate("Do nothing")],
        [demonstrate(f"Read {number}", "read_file", "send_mail") for number in range(30)],
    ],
    ids=["one", "identical", "no-calls", "same-plan"],
)
def test_few_or_equal_demonstrations_are_enough(name, demonstrations):
    fitted = make(name, demonstrations)
    for history in ((), ("read_file",), ("send_mail", "read_file")):
        check(fitted.rank("Read it", history), fitted.vocabulary)


def test_a_single_tool_is_ranked_with_the_end(name):
    fitted = make(name, [demonstrate("Read it", "read_file")], [Tool("read_file", "Read a file")])
    check(fitted.rank("Read it"), ("read_file", END))


def test_undescribed_tools_are_known_by_their_names(name):
    fitted = make(name, SET.demonstrations, [Tool("weather", "Tell the weather")])
    check(fitted.rank(QUERY), [*(tool.name for tool in SET.tools), END])


def test_descriptions_are_asked_for_only_where_they_are_needed(name):
    if ranker_class(name).needs_descriptions:
        with pytest.raises(InputError, match="needs tool descriptions"):
            make(name, tools=None)
    else:
        fitted = make(name, tools=None)
        check(fitted.rank(QUERY), fitted.vocabulary)


def test_the_same_seed_gives_the_same_rankings(name):
    left, right = make(name, seed=3), make(name, seed=3)
    assert all(same(left.rank(*step), right.rank(*step)) for step in STEPS)


def test_batches_and_sessions_rank_as_single_calls(model):
    batch = model.rank_batch([Run(query).with_calls(history) for query, history in STEPS])
    assert all(same(one, model.rank(*step)) for one, step in zip(batch, STEPS, strict=True))
    session = model.session(QUERY)
    prepared = model.prepare(QUERY)
    called: list[str] = []
    for tool in ("read_file", "never_seen", "summarize", "read_file"):
        assert same(prepared(called), model.rank(QUERY, called))
        assert same(session.rank(), model.rank(QUERY, called))
        session.call(tool)
        called.append(tool)
    assert same(session.rank(), model.rank(QUERY, called))


def test_static_rankers_keep_their_ranking_and_the_others_follow_the_history(name, model):
    first, second, third = (
        model.rank(QUERY, history) for history in ([], ["read_file"], ["read_file", "summarize"])
    )
    is_static = ranker_class(name).static
    assert same(second, third) is is_static
    # Before the first call too, but for the end of plan, which cannot come yet.
    assert not is_static or first.calls == second.calls


@pytest.mark.parametrize("query", [QUERY, "", "abc xx", "Danke, das ist alles."])
def test_a_plan_ends_at_once_only_where_one_was_demonstrated(model, fitted_with_empty_plans, query):
    for ranking in (model.rank(query), model.session(query).rank()):
        assert ranking.probability(END) == 0
    assert model.rank(query, ["read_file"]).probability(END) > 0
    assert fitted_with_empty_plans.rank(query).probability(END) > 0


def test_failures_are_learned_from_unless_they_are_left_out(name, model):
    failed = [demonstrate("Read it", "explode", outcome="failure")] * 5
    every = make(name, [*SET.demonstrations, *failed])
    assert (every.training_.failures, every.training_.skipped_failures) == (5, 0)
    assert "explode" in every.vocabulary
    fitted = create(name, **given(name)).fit(
        [*SET.demonstrations, *failed], SET.tools, failures=False, **RANKER_ONLY
    )
    assert (fitted.training_.failures, fitted.training_.skipped_failures) == (None, 5)
    assert "explode" not in fitted.vocabulary
    assert all(same(fitted.rank(*step), model.rank(*step)) for step in STEPS)


def test_rankings_beside_a_fit_in_another_thread_are_those_of_one_fit(name, model):
    """Other tools, another encoder, another number of clusters: half of each would show."""
    tools = [Tool("aaa", "Does nothing"), Tool("read_file", "Reads"), Tool("zzz", "Sleeps")]
    demonstrations = [demonstrate(f"Read it {n}", "read_file", "zzz") for n in range(9)]
    steps = STEPS[::9]
    expected = [
        [ranking_of(each.rank(*step)) for step in steps]
        for each in (model, make(name, demonstrations, tools))
    ]
    shared = copy.copy(model)
    done = Event()

    def rank(number):
        wrong, count = [], 0
        while not done.wait(0.001) or not count:
            place = (number + count) % len(steps)
            count += 1
            if number % 2:
                ranking = shared.rank(*steps[place])
            else:
                query, history = steps[place]
                ranking = shared.prepare(query)(history)
            if ranking_of(ranking) not in (expected[0][place], expected[1][place]):
                wrong.append(ranking)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        ranked = [pool.submit(rank, number) for number in range(7)]
        try:
            for _ in range(1 if name in SLOW_FITS else 3):
                shared.fit(demonstrations, tools, **RANKER_ONLY)
                shared.fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
        finally:
            done.set()
    assert [task.result() for task in ranked] == [[]] * 7


def test_a_fit_that_fails_leaves_the_ranker_as_it_was(model):
    fitted = copy.copy(model)
    before = [fitted.rank(*step) for step in STEPS[:3]]
    with pytest.raises(InputError):
        fitted.fit([], **RANKER_ONLY)
    with pytest.raises(KeyError):
        fitted.fit(iter_then_fail(), **RANKER_ONLY)
    assert all(same(fitted.rank(*step), one) for step, one in zip(STEPS[:3], before, strict=True))


def test_a_copy_of_a_ranker_ranks_alike(model):
    names = [tool.name for tool in SET.tools]
    # What was computed for earlier rankings must not keep a model from being copied.
    before = [(ranking := model.rank(*step), ranking.new_tool(names)) for step in STEPS[:3]]
    pickled = pickle.loads(pickle.dumps(model))
    for twin in (copy.copy(model), copy.deepcopy(model), pickled):
        for step, (ranking, new) in zip(STEPS, before, strict=False):
            assert same(twin.rank(*step), ranking)
            assert twin.rank(*step).new_tool(names) == new


def test_two_rankers_given_one_encoder_do_not_spoil_each_other(name):
    if not ranker_class(name).uses_encoder:
        pytest.skip(f"{name} takes no encoder")
    from dtdr.text.encoders import create as create_encoder

    shared = create_encoder("lexical")
    first = make(name, encoder=shared)
    before = [first.rank(*step) for step in STEPS]
    make(name, [demonstrate("Quite other words", "weather")] * 3, encoder=shared)
    assert all(same(first.rank(*step), one) for step, one in zip(STEPS, before, strict=True))


# -- parameters --------------------------------------------------------------------------------


def changed_params(name):
    """Another value for each parameter of numbers and switches."""
    current = create(name, **given(name)).get_params()
    changed: dict[str, float] = {"seed": 3}
    if "threshold" in current:
        changed["threshold"] = 0.25
    for key, value in (("order", 2), ("epochs", 3)):
        if key in current:
            changed[key] = value
    return changed


def test_scikit_learn_can_clone_it(name, model):
    from sklearn.base import clone

    for original in (create(name, **given(name), **changed_params(name)), model):
        for twin in (clone(original), original.clone()):
            assert type(twin) is type(original)
            assert twin.get_params() == original.get_params()
            with pytest.raises(DtdrError, match="not fitted"):
                twin.rank(QUERY)
    twin = clone(model).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    assert all(same(twin.rank(*step), model.rank(*step)) for step in STEPS[:5])


def test_its_repr_shows_what_is_not_the_default(name):
    if not given(name):
        assert repr(create(name)) == f"{ranker_class(name).__name__}()"
    text = repr(create(name, **given(name), seed=3))
    assert text.startswith(f"{ranker_class(name).__name__}(")
    assert text.endswith("seed=3)")


def test_objects_and_pairs_are_demonstrations_too(name, model):
    fitted = make(name, [item.to_dict() for item in SET.demonstrations])
    assert all(same(fitted.rank(*step), model.rank(*step)) for step in STEPS[:3])
    pairs = [(item.query, list(item.plan.tools)) for item in SET.demonstrations]
    check(make(name, pairs).rank(QUERY), model.vocabulary)


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_changed", [False, True], ids=["default", "changed"])
def test_a_saved_model_ranks_alike_to_the_last_bit(name, model, tmp_path, is_changed):
    if is_changed:
        takes = create(name, **given(name)).get_params()
        model = make(name, **({"recipe": "paper"} if "recipe" in takes else {"seed": 7}))
    model.save(tmp_path / "model")
    restored = load(tmp_path / "model", **given(name))
    assert restored.vocabulary == model.vocabulary
    assert restored.parameters() == model.parameters()
    assert all(same(restored.rank(*step), model.rank(*step)) for step in STEPS)
    left, right = restored.rank(QUERY), model.rank(QUERY)
    assert (left.confidence, left.familiarity) == (right.confidence, right.familiarity)
    assert left.is_familiar is right.is_familiar


def rewrite(folder, arrays):
    """Put other arrays into a model folder, with the hash that belongs to them."""
    save_file(arrays, folder / "model.safetensors")
    change_config(folder, tensors_sha256=sha256_of(folder / "model.safetensors"))


def test_arrays_that_are_cut_missing_foreign_or_for_fewer_tools_are_a_model_error(
    name, model, tmp_path
):
    folder = tmp_path / "model"
    model.save(folder)
    arrays = load_file(folder / "model.safetensors")
    learned = [key for key in arrays if not key.startswith("encoder.")]
    own = {key: array for key, array in arrays.items() if key not in learned}
    damaged = [{**own, "foreign": np.zeros(3, np.float32)}]
    for key in learned:
        damaged.append({other: array for other, array in arrays.items() if other != key})
        if arrays[key].size:
            damaged.append({**arrays, key: np.ascontiguousarray(arrays[key][:-1])})
    for changed in damaged:
        rewrite(folder, changed)
        with pytest.raises(ModelError) as caught:
            load(folder, **given(name))
        assert "\n" not in str(caught.value)
    if learned:
        rewrite(folder, arrays)
        tools = [tool.to_dict() for tool in model.tools_]
        change_config(folder, tools=tools[:2] + tools[3:])
        with pytest.raises(ModelError):
            load(folder, **given(name))
