"""What a model is told of calls beyond their names, and of the conversation before."""

import threading

import numpy as np
import pytest

from dtdr import Run, ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.outputs import OUTPUT_LENGTH
from dtdr.errors import InputError
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers.base import UNKNOWN, IncrementalRanker
from dtdr.rankers.ranking import Ranking
from tests import small_data
from tests.helpers import RANKER_ONLY

SET = small_data.dataset(24)
QUERY = "Mail Ann the summary of q3.pdf"
BEFORE = (
    Message("user", "Who is Ann?"),
    ToolCall("e1", "read_file", {"path": "people.txt"}, {"mail": "ann@x.org"}, "ok"),
    Message("assistant", "Ann works in sales."),
)
BEFORE_JSON = [
    {"role": "user", "content": "Who is Ann?"},
    {
        "role": "call",
        "id": "e1",
        "tool": "read_file",
        "arguments": {"path": "people.txt"},
        "output": {"mail": "ann@x.org"},
        "status": "ok",
    },
    {"role": "assistant", "content": "Ann works in sales."},
]


class RecordedState:
    """Ranks alike always, and writes down what it is told."""

    def __init__(self, ranker, query, before):
        self.ranker, self.query, self.before = ranker, query, tuple(before)
        self.calls = []

    def call(self, tool, call=None):
        self.calls.append((tool, call))

    def rank(self):
        self.ranker.ranked.append((self.query, self.before, tuple(self.calls)))
        names = self.ranker.names
        return Ranking(names, np.full(len(names), 1 / len(names)))

    def copy(self):
        raise NotImplementedError


class ReadsCalls(IncrementalRanker):
    """A ranker that keeps a state, as far as a test can see."""

    def fit(self, demonstrations, tools):
        self.started, self.ranked = [], []
        self.names = [tool.name for tool in tools]

    def prepare(self, query):
        return query

    def probabilities(self, prepared, run):
        raise NotImplementedError

    def explain(self, explanation, run, state):
        raise NotImplementedError

    def held_out(self, demonstrations):
        return iter(())

    def update(self, demonstrations):
        raise NotImplementedError

    def change_tools(self, tools, names):
        raise NotImplementedError

    def add_phrases(self, phrases):
        raise NotImplementedError

    def demonstrated_plans(self):
        return []

    def start(self, prepared, run):
        state = RecordedState(self, run.query, run.before)
        self.started.append(state)
        return state


@pytest.fixture(scope="module")
def names_only():
    return create("dr").fit(SET.demonstrations, SET.tools, **RANKER_ONLY)


@pytest.fixture
def reader():
    return Model(ReadsCalls()).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)


def test_a_state_is_told_what_a_session_is_told(reader):
    session = reader.session(QUERY, before=BEFORE)
    session.call("read_file", {"path": "q3.pdf"}, output="", step=2, id="a")
    session.call("summarize").call("never_seen", status="error")
    (state,) = reader.ranker.started
    assert (state.query, state.before) == (QUERY, BEFORE)
    assert state.calls == [
        (reader.index("read_file"), ToolCall("a", "read_file", {"path": "q3.pdf"}, "", "empty", 2)),
        (reader.index("summarize"), ToolCall("2", "summarize")),
        (UNKNOWN, ToolCall("3", "never_seen", status="error")),
    ]


def test_before_may_be_json(reader):
    reader.session(QUERY, before=BEFORE_JSON)
    reader.rank(QUERY, before=BEFORE_JSON)
    reader.rank(QUERY, before=[BEFORE[0], BEFORE_JSON[1], BEFORE[2]])
    assert [state.before for state in reader.ranker.started] == [BEFORE] * 3


def test_a_history_of_names_calls_and_json_objects_is_told_in_its_order(reader):
    given = ToolCall("1", "read_file", output={"pages": 3}, status="ok")
    history = ["never_seen", given, {"tool": "send_mail", "output": []}, {"id": 7, "tool": "log"}]
    reader.rank(QUERY, history)
    (state,) = reader.ranker.started
    assert state.calls == [
        (UNKNOWN, ToolCall("2", "never_seen")),
        (reader.index("read_file"), given),
        (reader.index("send_mail"), ToolCall("3", "send_mail", {}, [], "empty")),
        (UNKNOWN, ToolCall("7", "log")),
    ]


def test_steps_of_one_run_in_their_order_start_once(reader):
    calls = [ToolCall(str(n), "read_file", output={"n": n}, status="ok") for n in range(4)]
    run = Run(QUERY, BEFORE, calls)
    reader.rank_batch([run.first(count) for count in range(5)])
    assert len(reader.ranker.started) == 1
    assert [len(told) for _, _, told in reader.ranker.ranked] == [0, 1, 2, 3, 4]
    reader.rank_batch([Run(QUERY, (), calls), Run(QUERY, (), calls[1:])])
    reader.rank_batch([Run(QUERY, (), calls), run])
    assert len(reader.ranker.started) == 5


def test_an_output_is_cut_wherever_it_comes_in(reader):
    long = "word " * 200_000
    reader.session(QUERY).call("read_file", output=long)
    reader.rank(QUERY, [{"tool": "read_file", "output": {"text": [long, long]}}])
    reader.rank(QUERY, before=[{"role": "call", "id": "1", "tool": "log", "output": long}])
    reader.rank(Run.from_dict({"query": QUERY, "calls": [{"tool": "log", "output": long}]}))
    outputs = [
        call.output
        for state in reader.ranker.started
        for call in (*state.before, *(call for _, call in state.calls))
    ]
    assert len(outputs) == 4
    assert all(len(str(output)) <= OUTPUT_LENGTH for output in outputs)


def test_a_session_keeps_its_calls_however_they_were_told(names_only):
    session = names_only.session(QUERY, before=BEFORE)
    session.call("read_file").call("end").call("searché")
    session.call("summarize", output=[1, 2])
    session.call("send_mail")
    assert session.run.history == ("read_file", "searché", "summarize", "send_mail")
    assert [call.id for call in session.run.calls] == ["1", "2", "3", "4"]
    assert session.run.before == BEFORE
    assert session.run.calls[2].status == "ok"
    run = Run(QUERY)
    names_only.session(run).call("read_file")
    assert not run.calls, "a session has its own run"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"tool": 3}, "has no 'tool'"),
        ({"tool": "log", "id": "e1"}, "share the id"),
        ({"tool": "", "output": 1}, "has no 'tool'"),
    ],
)
def test_a_call_that_is_not_one_leaves_a_session_as_it_was(names_only, call, words):
    session = names_only.session(QUERY, before=BEFORE).call("read_file")
    before = session.rank().probabilities
    with pytest.raises(InputError, match=words):
        session.call(**call)
    assert session.run.history == session.history == ("read_file",)
    assert (session.rank().probabilities == before).all()


def test_a_whole_call_says_what_its_parts_say(reader):
    call = ToolCall("a", "read_file", {"path": "q3.pdf"}, {"pages": 3}, "error", 2)
    whole = reader.session(QUERY).call("summarize").call(call)
    parts = reader.session(QUERY).call("summarize")
    parts.call("read_file", {"path": "q3.pdf"}, output={"pages": 3}, status="error", step=2, id="a")
    assert whole.run.calls == parts.run.calls
    assert reader.ranker.started[0].calls == reader.ranker.started[1].calls
    for name in ("arguments", "output", "status", "step", "id"):
        with pytest.raises(InputError, match="give it alone"):
            whole.call(ToolCall("b", "log"), **{name: 0})
    with pytest.raises(InputError, match="share the id"):
        whole.call(call)
    assert whole.run.history == ("summarize", "read_file")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"query": 3}, "a query must be text"),
        ({"query": QUERY, "history": "log"}, "history must be a list, not"),
        ({"query": QUERY, "history": [3]}, "names of tools, calls and their JSON objects, not int"),
        ({"query": QUERY, "history": [{"output": 3}]}, "no 'tool'"),
        ({"query": QUERY, "history": [ToolCall("1", "a"), ToolCall("1", "b")]}, "share the id"),
        ({"query": QUERY, "before": "Hello"}, "'before' must be a list"),
        ({"query": QUERY, "before": ["Hello"]}, "needs the role user, assistant or call"),
        ({"query": Run(QUERY), "history": ["log"]}, "give the run alone"),
        ({"query": Run(QUERY), "before": BEFORE}, "give the run alone"),
    ],
)
def test_what_is_not_a_run_is_refused(reader, names_only, given, words):
    for model in (reader, names_only):
        with pytest.raises(InputError, match=words):
            model.rank(**given)
    if "history" not in given:
        with pytest.raises(InputError, match=words):
            names_only.session(**given)


def test_calls_of_many_threads_are_all_kept(names_only):
    session = names_only.session(QUERY)

    def tell():
        for number in range(50):
            session.call("read_file", output={"n": number} if number % 2 else None)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.run.calls) == 200
    assert len({call.id for call in session.run.calls}) == 200
