"""Tools are ranked by their descriptions as long as there is no demonstration."""

import json
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

import dtdr
from dtdr import Tool
from dtdr.data.demonstrations import Message
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.hand_over import HandOver
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.rankers.zero_shot.words import clauses_of, hash_words
from tests import small_data
from tests.command_line import shown_by

QUERY = "Open the file q3.pdf, summarize its long text, and send an e-mail about it to Ann"
DEFINITIONS = [
    {"type": "function", "function": {"name": "send_mail", "description": "Send an e-mail"}},
    {
        "name": "read_file",
        "description": "Open a file and return its text",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
    {
        "name": "summarize",
        "description": "Summarize a long text",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
]


@pytest.fixture(scope="module")
def model():
    return Model.of(small_data.TOOLS)


def test_clauses_are_served_one_after_the_other(model):
    session, plan = model.session(QUERY), []
    for _ in range(3):
        plan.append(session.rank().calls[0])
        session.call(plan[-1])
    assert plan == ["read_file", "summarize", "send_mail"]
    assert session.rank().best == "end"


def test_a_single_word_belongs_to_the_clause_before_it():
    clauses = clauses_of(QueryText.of("Buy green apples, pears and milk. Then mail Ann the bill"))
    assert [set(clause.tolist()) for clause in clauses] == [
        set(hash_words(words).tolist())
        for words in ("buy green apples pears milk", "mail ann bill")
    ]


def test_definitions_of_every_provider_are_tools():
    model = dtdr.fit([], DEFINITIONS)
    assert model.vocabulary == ("read_file", "send_mail", "summarize", "end")
    assert model.rank("Mail the report to Ann").best == "send_mail"
    assert model.tools_[0].parameters[0].name == "path"


def test_everything_that_ranks_agrees_to_the_last_bit(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = dtdr.load(tmp_path / "model")
    history = ["read_file", "never_seen", "summarize"]
    wanted = model.rank(QUERY, history).scores
    session = model.session(QUERY)
    for name in history:
        session.call(name)
    runs = [dtdr.Run(QUERY).with_calls(history[:done]) for done in range(4)]
    others = (
        model.prepare(QUERY)(history),
        session.rank(),
        loaded.rank(QUERY, history),
        model.rank_batch(runs[::-1])[0],
    )
    agree = [np.array_equal(wanted, other.scores) for other in others]
    assert all(agree), agree
    # The ranker of this name does the same, without the hand-over.
    alone = dtdr.fit([], small_data.TOOLS, ranker="zero-shot").rank(QUERY, history)
    np.testing.assert_allclose(alone.scores, wanted, rtol=1e-12)
    assert wanted.sum() == pytest.approx(1)


def test_nothing_ends_before_its_first_call(model):
    assert model.rank(QUERY).probability("end") == 0


def test_a_query_about_something_else_is_none_of_these(model):
    assert not model.rank(QUERY).is_none_of_these
    ranking = model.rank("Prune my apple trees in spring")
    assert ranking.is_none_of_these
    assert ranking.confidence < model.rank(QUERY).confidence
    assert model.search("prune apple trees") == []


def test_a_later_turn_is_never_unfamiliar(model):
    before = [Message("user", QUERY), Message("assistant", "Shall I?")]
    assert model.rank("Yes", before=before).is_familiar


def test_a_sure_ranking_is_believed_with_caution(model):
    ranking = model.rank("Tell me the weather of a city")
    assert ranking.best == "weather"
    assert 0.2 < ranking.confidence < ranking[0][1]


def test_it_explains_itself_by_the_words_that_a_tool_shares(model):
    explanation = model.rank(QUERY, ["read_file", "summarize"]).explain(
        "send_mail", against="read_file"
    )
    assert "by its name and description (“mail”" in explanation.note
    adds = {item.block: item.adds for item in explanation.contributions}
    assert adds["clauses"] > 1


def test_search_finds_a_tool_in_other_words(model):
    assert model.search("write a message to somebody's phone")[0][0] == "send_text"


def test_the_first_runs_update_it():
    model = Model.of(small_data.TOOLS)
    runs = list(map(small_data.demonstration, range(6)))
    assert model.update(runs) == 6
    assert model.training_.demonstrations == 6
    whole = dtdr.fit(runs, small_data.TOOLS, plans=False)
    assert np.array_equal(model.rank(QUERY).scores, whole.rank(QUERY).scores)


def test_its_tools_can_change():
    model = Model.of(small_data.TOOLS)
    model.add_tools([Tool("lock_door", "Lock a door")])
    assert model.rank("Lock the door").best == "lock_door"
    model.rename_tool("lock_door", "shut_gate")
    model.remove_tools(["weather"])
    assert model.vocabulary[4:] == ("shut_gate", "summarize", "end")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("帮我搜索明天去上海的航班", "flights"),
        ("necesito un hotel en Madrid", "hotels"),
        ("je voudrais réserver une chambre", "rooms"),
    ],
)
def test_descriptions_may_be_in_any_language(query, wanted):
    tools = [
        Tool("flights", "根据出发地和目的地搜索航班"),
        Tool("hotels", "Busca un hotel en la ciudad"),
        Tool("rooms", "Réserver une chambre d'hôtel"),
    ]
    assert Model.of(tools).rank(query).best == wanted


def test_one_tool_and_tools_without_descriptions_are_ranked():
    assert Model.of([Tool("a")]).rank("do it").tools == ("a", "end")
    tools = [Tool("book_flight"), Tool("cancelFlight"), Tool("get_weather")]
    assert Model.of(tools).rank("Cancel my flight").best == "cancelFlight"
    assert Model.of(tools).rank("").probabilities.sum() == pytest.approx(1)


def test_tools_of_one_server_follow_each_other():
    names = ("files", "mails")
    tools = [Tool(f"{name}__{verb}", "") for name in names for verb in ("get", "list", "move")]
    ranking = Model.of(tools).rank("tidy up", ["mails__list"])
    assert ranking.probability("mails__get") > ranking.probability("files__get")


def test_what_is_missing_is_said():
    with pytest.raises(InputError, match="give at least one, or tools"):
        dtdr.fit([], [])
    with pytest.raises(InputError, match="'dr' learns from demonstrations, and there are none"):
        dtdr.fit([], small_data.TOOLS, ranker="dr")
    with pytest.raises(InputError, match="two tools are named 'a'"):
        Model.of([Tool("a"), Tool("a")])


def test_fit_takes_tools_alone(capsys, tmp_path):
    tools, model = tmp_path / "tools.json", tmp_path / "model"
    tools.write_text(json.dumps(DEFINITIONS))
    summary = shown_by(capsys, "fit", "--tools", tools, "-o", model, "--json").json()
    assert (summary["demonstrations"], summary["tools"]) == (0, 3)
    shown = shown_by(capsys, "fit", "--tools", tools, "-o", model, "--force")
    assert "fitted dtdr-f on the descriptions of 3 tools" in shown.out
    assert dtdr.load(model).rank(QUERY).best == "read_file"


def test_weights_ship_in_less_than_a_kilobyte():
    weights = resources.files("dtdr.rankers.zero_shot").joinpath("weights.json")
    assert len(weights.read_bytes()) < 1_000


def test_one_demonstration_ranks_as_none_does(model):
    fitted = Model.of(small_data.TOOLS)
    fitted.update([small_data.demonstration(2)])
    for history in ((), ("read_file",), ("read_file", "summarize")):
        known, none = fitted.rank(QUERY, history), model.rank(QUERY, history)
        assert known.calls == none.calls
        tools = none.calls
        expected = [none.probability(tool) for tool in tools]
        assert [known.probability(tool) for tool in tools] == pytest.approx(expected)


def test_descriptions_count_less_with_each_demonstration():
    encoded = EncodedDemonstrations.of(
        [small_data.demonstration(number) for number in range(91)],
        {tool.name: at for at, tool in enumerate((*small_data.TOOLS, Tool("end")))},
    )
    shares = [HandOver.of(encoded.subset(np.arange(count))).share for count in (1, 11, 91)]
    assert shares == pytest.approx([1, 0.5, 0.1])


def test_few_demonstrations_are_believed_with_caution():
    demonstrations = list(map(small_data.demonstration, range(4)))
    fitted = dtdr.fit(demonstrations, small_data.TOOLS, plans=False)
    ranking = fitted.rank(small_data.demonstration(0).query)
    assert ranking.calibration.has_coverage
    assert ranking.confidence < 0.9


def test_a_tool_without_demonstrations_is_raised_where_texts_and_counts_expect_it():
    """By P^.75 L^.25 of a step, and not at all where no demonstrations are believed yet."""
    model = ZeroShotModel((*small_data.TOOLS, Tool("end")))
    state = model.start(model.prepare("Tell the weather of a city")).state
    texts, last = state.tools(), len(small_data.TOOLS) - 1
    assert texts.argmax() == last
    learned = np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05, 0.0])
    new = np.array([last])
    raised = texts[last] ** 0.75 * 0.05**0.25
    mixed = HandOver(0.0, new).mix(learned, state)
    assert mixed[last] == pytest.approx((1 - raised) * 0.05 + raised)
    assert mixed.sum() == pytest.approx(1)
    assert HandOver(0.0, new[:0]).mix(learned, state) == pytest.approx(learned)
    assert HandOver(1.0, new).mix(learned, state)[:-1] == pytest.approx(texts)


@pytest.mark.parametrize(
    "forms",
    [
        "drive drives driving",
        "image images",
        "query queries",
        "city cities",
        "movie movies",
        "create creates created creating",
        "note notes",
        "address addresses",
        "box boxes",
        "play plays played",
    ],
)
def test_forms_of_a_word_have_one_stem(forms):
    assert len(hash_words(forms)) == 1


def test_a_note_is_no_negation():
    assert len(hash_words("note not")) == 2


def test_no_tool_is_newer_than_the_others_before_the_first_run():
    model = Model.of(small_data.TOOLS)
    assert model.rank("Tell the weather").new_tool(["weather"]) is None


def test_tools_are_ranked_without_demonstrations_before_scipy_is_imported():
    """Its import takes as long as that of all of dtdr, and a client waits for the first list."""
    program = (
        "import sys, dtdr; model = dtdr.Model.of([dtdr.Tool('weather', 'Tell the weather')]);"
        "print(model.rank('weather in Rome').best, 'scipy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["weather", "False"]
