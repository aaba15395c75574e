"""Why a tool stands where it stands: contributions, similar demonstrations, chains."""

import json
import math

import numpy as np
import pytest

from dtdr import Ranking, Tool, fit, load
from dtdr.cli import run
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from dtdr.predict import create
from dtdr.rankers.dtdr_f.blocks import LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import StepFeatures
from tests import small_data
from tests.helpers import RANKER_ONLY, inner
from tests.small_data import TOOLS

SET = small_data.dataset(60)
QUERY = "Mail Ann the summary of q3.pdf"


@pytest.fixture(scope="module")
def factored():
    return create("dtdr-f").fit(SET.demonstrations, SET.tools, **RANKER_ONLY)


def log_odds(explanation):
    return math.log(explanation.probability / explanation.rival_probability)


@pytest.mark.parametrize("history", [(), ("read_file",), ("read_file", "summarize", "unknown")])
def test_a_block_adds_what_the_log_odds_lose_without_it(factored, history):
    model = inner(factored)
    ranking = factored.rank(QUERY, history)
    for tool in [name for name in ranking.tools if name in factored.vocabulary][:4]:
        explanation = ranking.explain(tool)
        assert explanation.rank == ranking.tools.index(tool) + 1
        assert explanation.rival == next(name for name in ranking.tools if name != tool)
        tools = [factored.index(name) for name in (tool, explanation.rival)]
        step = StepFeatures(model.prepare(QUERY))
        for name in history:
            step.call(factored.index(name))
        whole = step.write().copy()
        for rows, item in zip(LAYOUT.rows, explanation.contributions, strict=True):
            table = whole.copy()
            table[rows] = model.ranker.mean[rows, None]
            rest = model.probabilities(step, table)
            one, two = np.log(rest[tools])
            assert item.adds == pytest.approx(log_odds(explanation) - (one - two), abs=1e-3)
            assert item.probability_without == pytest.approx(rest[tools[0]], abs=1e-6)
            assert item.best_without == factored.vocabulary[int(rest.argmax())]


def test_similar_demonstrations_are_those_with_the_same_words(factored):
    similar = factored.rank(QUERY).explain().similar
    by_id = {demonstration.id: demonstration for demonstration in SET.demonstrations}
    assert similar[0].similarity == pytest.approx(max(item.similarity for item in similar))
    for item in similar:
        demonstration = by_id[item.id]
        assert item.tools == tuple(demonstration.plan.tools)
        words = demonstration.query.lower()
        assert item.terms
        assert all(word in words for term in item.terms for word in term.split())
    assert factored.rank("qwxz").explain().similar == ()


def test_similar_demonstrations_have_the_calls_in_the_order_of_the_log(tmp_path):
    weather, mail = (ToolCall(str(at), tool, step=1) for at, tool in enumerate(("weather", "mail")))
    run_ids = [f"Lauf-{at}-ä" for at in range(12)]
    demonstrations = [
        Demonstration(run_id, "Mail Ann the weather", Plan((weather, mail))) for run_id in run_ids
    ]
    model = create("dtdr-f").fit(demonstrations[:6], **RANKER_ONLY)
    model.update(demonstrations[6:])
    model.save(tmp_path / "model")
    for fitted in (model, load(tmp_path / "model")):
        similar = fitted.rank("Mail Ann the weather").explain().similar
        assert {item.tools for item in similar} == {("weather", "mail")}
        assert {item.id for item in similar} < set(run_ids)


def test_an_explanation_is_of_the_step_that_was_ranked(factored):
    session = factored.session(QUERY)
    first = session.rank()
    expected = first.explain()
    session.call("read_file").call("summarize", output={"text": "short"})
    assert first.explain() == expected == factored.rank(QUERY).explain()
    assert session.rank().explain() == factored.rank(session.run).explain()
    prepared = factored.prepare(QUERY)(["read_file"])
    assert prepared.explain() == factored.rank(QUERY, ["read_file"]).explain()


def test_an_explanation_is_of_the_model_that_ranked():
    model = create("dtdr-f").fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    ranking = model.rank(QUERY)
    before = ranking.explain()
    model.update([("Mail Ann the summary of q3.pdf", ["weather"])] * 40)
    assert ranking.explain() == before
    assert model.rank(QUERY).explain() != before


def test_a_tool_without_demonstrations_is_explained_by_its_description():
    model = create("dtdr-f").fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    model.add_tools([Tool("translate", "Translate a text into another language")])
    ranking = model.rank("Translate the notes into French")
    explanation = ranking.explain("translate")
    assert "No demonstration calls 'translate'" in explanation.note
    adds = {item.block: item.adds for item in explanation.contributions}
    assert adds["descriptions"] > 0
    other = ranking.explain("weather", against="translate")
    assert any(item.adds for item in other.contributions)


def test_tools_outside_the_shortlist_say_so():
    many = [Tool(f"tool_{number}", f"Does thing {number}") for number in range(100)]
    called = [
        Demonstration(f"m{number}", f"Do thing {number}", Plan((ToolCall("1", tool.name),)))
        for number, tool in enumerate(many[:60])
    ]
    model = fit([*SET.demonstrations[:20], *called], [*TOOLS, *many], **RANKER_ONLY)
    ranking = model.rank(QUERY)
    explained = [ranking.explain(tool.name) for tool in many]
    assert all(item.probability > 0 for item in explained)
    for reason in ("candidates of this step", "No demonstration calls"):
        assert any(reason in item.note for item in explained), reason
    assert all(item.contributions for item in explained)


def test_other_rankers_say_that_they_give_no_reasons():
    explanation = (
        fit(SET.demonstrations, SET.tools, ranker="bm25", **RANKER_ONLY).rank(QUERY).explain()
    )
    assert explanation.note == "bm25 gives no reasons for its probabilities."
    assert (*explanation.contributions, *explanation.similar) == ()


def test_a_selection_is_explained_against_all_tools(factored):
    ranking = factored.rank(QUERY, ["read_file"])
    assert ranking.select(top_k=1).explain() == ranking.explain()


def test_the_end_that_cannot_come_first_says_so(factored):
    explanation = factored.rank(QUERY).explain("end")
    assert explanation.probability == 0
    assert "cannot end before the first call" in explanation.note


def test_what_cannot_be_explained_is_refused(factored):
    ranking = factored.rank(QUERY)
    with pytest.raises(InputError, match="weathr"):
        ranking.explain("weathr")
    with pytest.raises(InputError, match="compared with itself"):
        ranking.explain("weather", against="weather")
    with pytest.raises(InputError, match="that a ranker made"):
        Ranking(["a", "b"], np.array([0.5, 0.5])).explain()


# -- on the command line -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["dtdr-f", "dtdr-c", "bm25"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("why") / "model"
    fit(SET.demonstrations, SET.tools, ranker=request.param, **RANKER_ONLY).save(folder)
    return str(folder)


def test_why_prints_tables_of_at_most_100_columns(model, capsys):
    assert run(["rank", model, QUERY, "--history", "read_file", "--why"]) == 0
    out, err = capsys.readouterr()
    assert "\nWhy " in out
    assert err == ""
    assert max(map(len, out.splitlines())) <= 100


def test_why_is_part_of_the_json(model, capsys):
    assert run(["rank", model, QUERY, "--why", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["why"]["tool"] == answer["tools"][0]["tool"] != answer["why"]["rival"]


def test_evidence_names_the_words_calls_and_values_that_decide():
    runs = []
    for number in range(60):
        amount = 48_000 if number % 2 else 90
        calls = [
            ToolCall("1", "get_claim", {"id": number}, output={"amount": amount, "id": number})
        ]
        calls.append(ToolCall("2", "ask_manager" if number % 2 else "pay_claim", {}))
        runs.append(Demonstration(f"c{number}", f"Pay out claim {number}", Plan(tuple(calls))))
    model = fit(runs, **RANKER_ONLY)
    session = model.session("Pay out claim 71")
    session.call("get_claim", {"id": 71}, output={"amount": 48_000, "id": 71})
    ranking = session.rank()
    assert ranking.best == "ask_manager"
    evidence = ranking.explain(against="pay_claim").evidence
    assert "get_claim: amount 48,000" in [item.text for item in evidence[:2]]
    signs = [item.adds > 0 for item in evidence]
    assert signs == sorted(signs, reverse=True)
    assert all(abs(item.adds) >= 0.05 for item in evidence)


def test_the_command_shows_six_pieces_at_most_and_no_zero(tmp_path, capsys):
    small = fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    small.save(tmp_path / "model")
    history = ["--history", "read_file", "--history", "summarize"]
    assert run(["rank", str(tmp_path / "model"), QUERY, *history, "--why"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [float(line[0]) for line in lines if line and line[0][:1] in "+-" and len(line[0]) > 2]
    assert 1 <= len(shown) <= 6
    assert shown == [*sorted(x for x in shown if x > 0)[::-1], *sorted(x for x in shown if x < 0)]
    assert "-0.00" not in str(lines)
