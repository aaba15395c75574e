"""The state of a run: its values, the forest on them, and the rules that it learns."""

import json
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import dtdr
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.errors import ModelError
from dtdr.predict import create
from dtdr.rankers.dtdr_f.observations import RunReader
from dtdr.rankers.dtdr_f.value_pairs import choose_loops, choose_pairs
from dtdr.rankers.dtdr_f.value_rules import Rules, find_rules
from dtdr.rankers.dtdr_f.values import IN_QUERY, LENGTH, NUMBER, ValueReader, read_query, to_number
from dtdr.rankers.trees import Forest
from tests.helpers import RANKER_ONLY, change_config, sha256_of

RNG = np.random.default_rng(0)


def claim(number, rng):
    """A claim whose amount decides, two calls later, whether the agent asks for approval."""
    amount = round(float(np.exp(rng.normal(9.2, 1.0))), 2)
    limit = round(float(amount * np.exp(rng.normal(0.4, 0.6))), 2)
    claim = {"id": f"C-{number}", "amount": amount}
    calls = [
        ToolCall("1", "get_claim", {"id": f"C-{number}"}, claim, "ok", 1),
        ToolCall("2", "get_policy", {}, {"limit": limit, "state": "active"}, "ok", 2),
        ToolCall("3", "get_notes", {}, {"hits": int(rng.integers(4))}, "ok", 3),
    ]
    if amount > 10_000:
        calls.append(ToolCall("4", "request_approval", {}, {"done": True}, "ok", 4))
    calls.append(ToolCall("5", "cap" if amount > limit else "pay", {}, {"done": True}, "ok", 5))
    return Demonstration(str(number), f"Settle claim C-{number}", Plan(tuple(calls)))


CLAIMS = [claim(number, RNG) for number in range(120)]


@pytest.fixture(scope="module")
def model():
    return create("dtdr-f").fit(CLAIMS, **RANKER_ONLY)


def numbers_of(value):
    """The number that a call with this output gives."""
    values = ValueReader("").read(None, {"it": value})
    return values.values[(values.keys >> 20) == NUMBER >> 20].tolist()


def test_dates_are_whole_days_at_any_time_and_numbers_have_four_digits():
    start = date(2000, 1, 1)
    for text in ("1951-03-02", "2026-05-18", "2027-06-15", "2099-12-31", "2027-06-15T08:00:00Z"):
        days = float((date.fromisoformat(text[:10]) - start).days)
        assert numbers_of(text) == [days]
        assert read_query(f"Leave on {text}").values.tolist()[0] == days
    for value, kept in ((48_213, 48_210), (8_123_456, 8_123_000), ("48213.7", 48_210), (7.5, 7.5)):
        assert numbers_of(value) == [kept]
    assert 48_210 in read_query("Pay 48213 euros").values


@pytest.mark.parametrize(("value", "is_asked"), [(48_213, 1), (48_210, 0), ("48213", 1)])
def test_a_long_number_is_in_the_query_if_all_its_digits_are(value, is_asked):
    values = ValueReader("Pay 48213 euros").read(None, {"amount": value})
    assert values.values[(values.keys >> 20) == IN_QUERY >> 20].tolist() == [is_asked]


def test_rules_on_numbers_of_earlier_calls_are_learned(model):
    """Amounts against a constant and against another value, each two or three calls before."""
    right = []
    for item in (claim(1_000 + number, RNG) for number in range(40)):
        for done in range(3, len(item.plan)):
            run = Run(item.query, calls=item.plan.calls[:done])
            right.append(model.rank(run).tools[0] == item.plan.tools[done])
    assert np.mean(right) >= 0.8


def test_a_saved_model_ranks_by_the_state_to_the_last_bit(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = dtdr.load(tmp_path / "model")
    for item in CLAIMS[:5]:
        run = Run(item.query, calls=item.plan.calls[:3])
        assert (loaded.rank(run).probabilities == model.rank(run).probabilities).all()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("rule_columns", lambda array: array[1].fill(0)),  # counts no tool's calls
        ("rule_order", lambda array: array.fill(1e9)),  # no logarithm of a probability
        ("rule_bounds", None),
    ],
)
def test_changed_conditions_are_refused_when_a_model_is_loaded(model, tmp_path, part, change):
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    (name,) = (name for name in arrays if name.endswith(part))
    if change is None:
        arrays[name] = arrays[name][:, 1:]
    else:
        change(arrays[name])
    save_file(arrays, path)
    change_config(tmp_path / "model", tensors_sha256=sha256_of(path))
    with pytest.raises(ModelError, match="damaged; fit it again"):
        dtdr.load(tmp_path / "model")


def test_the_forest_predicts_as_scikit_learn_does():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rows = RNG.normal(size=(300, 6)).astype(np.float32)
    wanted = (rows[:, 0] > 0).astype(int) + 2 * (rows[:, 3] > rows[:, 1])
    forest = Forest.fit(rows, wanted, 5, weights=None, seed=3)
    restored = Forest.restore(forest.arrays(), 6, 5)
    for width, classes in ((2, 5), (6, 4)):
        with pytest.raises(ModelError, match="fit it again"):
            Forest.restore(forest.arrays(), width, classes)
    other = ensemble.RandomForestClassifier(60, max_features=0.3, max_depth=24, random_state=3)
    expected = np.zeros((300, 5))
    expected[:, :4] = other.fit(rows, wanted).predict_proba(rows)
    for row, shares in zip(rows, expected, strict=True):
        assert np.allclose(forest.predict(row), shares, atol=2e-3)
        assert (restored.predict(row) == forest.predict(row)).all()


def test_numbers_dates_and_times_are_read_and_names_are_not():
    assert to_number("1,234.5") == 1234.5
    assert to_number("$30") == 30
    assert to_number("2000-01-31") == 30
    assert to_number("2000-01-02T12:00:00Z") == 1.5
    assert to_number("14:30") == 14.5
    for text in ("", "-", "R7", "007", "2000-99-99", "12345678901", "1-2", "abc", "٣x", "1e999"):
        assert to_number(text) is None
    assert read_query("Move 2 of 30 nights to 2000-01-05").values.max() == 30


def test_a_value_is_compared_with_the_query_and_with_earlier_steps():
    reader = ValueReader("The customer Ann Weber expects 250 euros")
    first = reader.read({}, {"name": "Ann Weber", "kind": "water"})
    second = reader.read({}, {"covers": ["fire", "water"], "limit": 250, "who": "Bo Lindt"})
    in_query = {kind for kind in (first.keys >> 20).tolist() if kind == IN_QUERY >> 20}
    assert in_query
    asked = second.values[(second.keys >> 20) == IN_QUERY >> 20]
    assert sorted(asked.tolist()) == [0, 0, 1]
    other = ValueReader("").read({}, {"covers": ["fire", "storm"], "limit": 250, "who": "Bo Lindt"})
    assert len(second.keys) > len(other.keys)


@pytest.mark.parametrize(
    "output",
    [
        "x" * 1_000_000,
        json.loads("[" * 100 + "]" * 100),
        {"a": float("nan"), "b": float("inf"), "c": 10**400, "d": -0.0},
        {"a/b": {"~1": 1}, "": {"": ""}, "\ud800": "\udfff"},
        [{"id": number} for number in range(10_000)],
        {str(number): number for number in range(10_000)},
        {"$ref": "1"},
        "key: value\n" * 10_000,
        "1" * 10_000 + ": 5",
        b"bytes".decode(),
        "2024-13-45",
        [[], {}, None, True, 0],
    ],
)
def test_any_output_is_read_within_bounds(output):
    values = ValueReader("q").read({"x": output}, output)
    assert len(values.keys) <= 256
    assert (np.diff(values.keys) > 0).all()
    assert np.isfinite(values.values).all()
    call = ToolCall("1", "get", {"x": 1}, output if output != {"$ref": "1"} else None)
    RunReader([], "q").read(call)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(0, 40)
    | st.floats(1, 1e8)
    | st.sampled_from(["Open", "open", "12", "2024-05-01", "Ann", "id-7", "", "x" * 30])
)
OUTPUTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=9)
        | st.dictionaries(st.sampled_from("abcd"), inner)
        | st.lists(st.fixed_dictionaries({"a": LEAVES, "b": LEAVES}), max_size=70)
    ),
    max_leaves=30,
)


@given(st.lists(st.tuples(OUTPUTS, OUTPUTS, st.booleans()), min_size=1, max_size=4))
def test_values_read_path_by_path_are_those_read_part_by_part(calls):
    fast = ValueReader("Ann asks about 12 open cases")
    slow = fast.copy()
    slow._read_columns = lambda whole: None  # type: ignore[method-assign]
    for output, argument, is_parallel in calls:
        one, other = (
            reader.read({"x": argument}, output, is_parallel=is_parallel) for reader in (fast, slow)
        )
        assert one.keys.tolist() == other.keys.tolist()
        assert one.values.tolist() == other.values.tolist()


def test_a_path_may_be_a_number_in_one_run_and_a_text_in_another():
    items = [
        Demonstration(
            str(n),
            "Go on",
            Plan(
                (
                    ToolCall("1", "get", {}, {"x": n if n % 2 else f"word {n % 3}"}, "ok", 1),
                    ToolCall("2", "even" if n % 2 else "odd", {}, None, "unknown", 2),
                )
            ),
        )
        for n in range(30)
    ]
    model = create("dtdr-f").fit(items, **RANKER_ONLY)
    for output, tool in (({"x": 7}, "even"), ({"x": "word 1"}, "odd")):
        run = Run("Go on", calls=[ToolCall("1", "get", {}, output, "ok", 1)])
        assert model.rank(run).tools[0] == tool


def test_lists_have_lengths_and_numbers_their_least_and_greatest():
    values = ValueReader("").read(None, {"items": [{"n": 3}, {"n": 9}, {"n": 5}]})
    kinds = dict(zip((values.keys >> 20).tolist(), values.values.tolist(), strict=True))
    assert kinds == {NUMBER >> 20: 3, 1: 9, LENGTH >> 20: 3}


def test_a_difference_that_decides_is_chosen():
    rng = np.random.default_rng(1)
    table = rng.normal(100, 20, (400, 4)).astype(np.float32)
    wanted = (table[:, 1] > table[:, 2] + 5).astype(int)
    pairs = choose_pairs(table, np.arange(4), np.float32(-1e8), np.zeros(400, int), wanted)
    assert pairs[:, 0].tolist() == [1, 2]
    few = table[:5], np.arange(4), np.float32(-1e8), np.zeros(5, int), wanted[:5]
    assert choose_pairs(*few).shape == (2, 0)


def test_a_condition_that_says_whether_a_tool_is_still_called_is_found():
    rng = np.random.default_rng(2)
    rows, run_of = [], []
    for run in range(60):
        amount = rng.uniform(0, 20_000)
        # A call that has nothing to do with it comes before the approval or after it.
        asks = [amount > 10_000, rng.random() < 0.5]
        for done in range(1 + sum(asks)):
            called = asks[0] and done > (asks[1] and run % 2)
            rows.append([amount if run % 10 else -1e8, rng.normal(), float(called)])
            run_of.append(run)
    table, runs = np.array(rows, np.float32), np.array([run_of, run_of])
    columns, counts = np.array([0, 1]), np.array([2])
    no_loops = np.array([-1, -1])
    rules = find_rules(table, columns, np.float32(-1e8), counts, runs, no_loops)
    assert (rules.columns.tolist(), rules.counts.tolist()) == ([0], [2])
    assert rules.low[0] == pytest.approx(10_000, rel=0.1)
    amounts = np.array([[20_000, 0, 0], [20_000, 0, 1], [500, 0, 0], [-1e8, 0, 0]], np.float32)
    assert rules.read(amounts)[:, 0].tolist() == [1, 0, 0, 0]
    few = table[:9], columns, np.float32(-1e8), counts, runs[:, :9], no_loops
    assert not len(find_rules(*few).low)
    assert find_rules(*few).read(table).shape == (len(table), 0)


def read_documents(reads):
    """Steps of 40 runs: unread documents, another number, calls of tool 0 and 1; last, next."""
    rows, last, wanted, run_of = [], [], [], []
    for run in range(40):
        unread = run % 4
        for done in range(reads(unread) + 1):
            rows.append([unread, run % 3, done, 0])
            last.append(0 if done else -1)
            wanted.append(0 if done < reads(unread) else 1)
            run_of.append(run)
    return np.array(rows, np.float32), np.array(last), np.array(wanted), np.array([run_of, run_of])


def test_a_call_for_each_item_is_due_until_no_item_is_left():
    table, last, wanted, runs = read_documents(lambda unread: unread)
    values, counts = np.array([0, 1]), np.array([2, 3])
    loops = choose_loops(table, values, counts, last, wanted)
    assert loops.tolist() == [[0], [2]]
    table = np.concatenate([table, table[:, loops[0]] - table[:, loops[1]]], axis=1)
    lowered_by = np.array([-1, -1, 2])
    rules = find_rules(table, np.array([0, 1, 4]), np.float32(-1e8), counts, runs, lowered_by)
    assert (rules.columns[0], rules.counts[0], rules.are_left[0]) == (4, 2, True)
    due = rules.read(table)[:, 0]
    assert due.tolist() == (wanted == 0).tolist()


def test_items_that_are_read_until_the_right_one_is_there_are_no_loop():
    rng = np.random.default_rng(0)
    table, last, wanted, _ = read_documents(lambda unread: int(rng.integers(unread + 1)))
    counts = np.array([2, 3])
    assert choose_loops(table, np.array([0, 1]), counts, last, wanted).shape == (2, 0)
    nothing = table[:0], np.array([0, 1]), counts, last[:0], wanted[:0]
    assert choose_loops(*nothing).shape == (2, 0)


def test_of_the_tools_that_are_due_the_one_that_runs_call_first_is_first():
    """Ten runs call the tool of column 2, then that of column 1, and end."""
    low, high = np.array([[5, 5], [1e11, 1e11]], np.float32)
    order = np.zeros((2, 2), np.float32)
    rules = Rules(np.array([0, 0]), np.array([1, 2]), low, high, np.zeros(2, bool), order)
    assert rules.first(np.ones((1, 2), np.float32)).tolist() == [[0.5, 0.5]]
    table = np.array([[9, 0, 0], [9, 0, 1], [9, 1, 1]] * 10, np.float32)
    called, runs = np.array([2, 1, -1] * 10), np.repeat(np.arange(10), 3)
    rules = rules.with_order(rules.read(table), called, np.ones(30, np.float32), runs)
    first = rules.first(np.array([[1, 1], [1, 0], [0, 0]], np.float32))
    assert first[0, 1] > 0.9
    assert first.sum(axis=1).tolist() == pytest.approx([1, 1, 0])


def test_a_tool_that_a_run_called_is_a_candidate_of_this_run_alone():
    items = [
        Demonstration(
            str(n),
            "Look at every file",
            Plan(tuple(ToolCall(str(at), f"tool_{n % 7}", {}, step=at) for at in range(5))),
        )
        for n in range(40)
    ]
    model = create("dtdr-f").fit(items, **RANKER_ONLY)
    ranking = model.rank("Look at every file", ["other__read", "other__read"])
    assert ranking.tools[0] == "other__read"
    assert ranking.probabilities.sum() == pytest.approx(1)
    assert ranking.confidence <= 1
    assert not ranking.is_none_of_these
    session = model.session("Look at every file")
    session.call("other__read").call("other__read")
    assert (session.rank().probabilities == ranking.probabilities).all()
    assert "is not in the model" in ranking.explain("other__read").note
    assert "other__read" not in model.rank("Look at every file").tools
    assert "other__read" not in ranking.restrict(["tool_1"]).tools
    before = [ToolCall("1", "other__read"), ToolCall("2", "other__list")]
    assert "other__list" in model.rank("Look at every file", before=before).tools
    assert ranking.select(token_budget=100).calls


def spoken(number):
    """A run whose query says nothing, and whose texts say which tool comes next."""
    rng = np.random.default_rng(number)
    calls = []
    for at in range(3):
        tool = ("read_file", "send_mail", "list_events")[rng.integers(3)]
        text = {"read_file": "Let me open it.", "send_mail": "Now I write to them."}.get(tool)
        calls.append(ToolCall(str(at), tool, step=at, text=text or "I look at the calendar."))
    return Demonstration(str(number), "Go on", Plan(tuple(calls)))


def test_what_the_agent_wrote_decides_where_it_is_known():
    model = create("dtdr-f").fit(list(map(spoken, range(60))), **RANKER_ONLY)
    right = []
    for item in map(spoken, range(100, 120)):
        for done, call in enumerate(item.plan.calls):
            run = Run(item.query, calls=item.plan.calls[:done], text=call.text)
            ranking = model.rank(run)
            right.append(ranking.best == call.tool)
            session = model.session(Run(item.query, calls=item.plan.calls[:done])).say(call.text)
            assert (session.rank().probabilities == ranking.probabilities).all()
            silent = model.rank(Run(item.query, calls=item.plan.calls[:done]))
            assert (session.say(None).rank().probabilities == silent.probabilities).all()
    assert np.mean(right) >= 0.95
    session = model.session("Go on")
    unsaid = session.rank().probabilities
    assert session.search("read the file")
    assert (session.rank().probabilities == unsaid).all()
    assert (session.say("Let me open it.").rank().probabilities != unsaid).any()
    session.call("read_file")
    assert session.run.calls[0].text == "Let me open it."
    expected = model.rank("Go on", [session.run.calls[0]]).probabilities
    assert (session.rank().probabilities == expected).all()
    batch = [Run("Go on", text="Let me open it."), Run("Go on"), Run("Go on", text=" ")]
    with_text, without, blank = (item.probabilities for item in model.rank_batch(batch))
    assert (with_text != without).any()
    assert (blank == without).all()
    assert (model.rank("Go on", text="Let me open it.").probabilities == with_text).all()
