import pytest

from dtdr.errors import InputError
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.harness import score_model
from dtdr.evaluate.lab.data import TrainTest, sample
from dtdr.evaluate.lab.fitting import fit_model, make_model
from dtdr.predict import create
from synthetic_runs import generate, tools
from tests.helpers import RANKER_ONLY

DEMONSTRATIONS = list(generate(60))
DATA = TrainTest(DEMONSTRATIONS[:40], DEMONSTRATIONS[40:], tools())
SPEC = {"kind": "rank", "dataset": "d", "data": "0", "split": "paper", "seed": 3, "retriever": "dr"}


@pytest.mark.parametrize(
    ("given", "demonstrations", "name", "expected"),
    [
        ({"parameters": {"clusters": "n/10"}}, 95, "clusters", 9),
        ({"parameters": {"clusters": "n/10"}}, 4, "clusters", 1),
        ({"parameters": {"clusters": "n"}}, 3, "clusters", 3),
        ({}, 9, "seed", 3),  # that of the split
        ({"parameters": {"seed": 5}}, 9, "seed", 5),
        ({"history": 1}, 9, "order", 1),
    ],
)
def test_a_run_says_what_its_ranker_is_given(given, demonstrations, name, expected):
    found = make_model({**SPEC, "retriever": "dtdr-c", **given}, demonstrations)
    assert found.parameters()[name] == expected


def test_a_parameter_that_the_ranker_does_not_take_is_explained():
    with pytest.raises(InputError) as caught:
        make_model({**SPEC, "parameters": {"clusters": 3}}, 9)
    assert "'dr'" in str(caught.value)


def test_without_a_history_dtdr_l_ranks_every_history_alike():
    spec = {**SPEC, "retriever": "dtdr-l", "history": 0}
    cut, _ = fit_model(spec, DATA)
    query, calls = DATA.test[0].query, DATA.test[0].plan.tools
    assert list(cut.rank(query, calls)) == list(cut.rank(query, ()))
    whole, _ = fit_model({**spec, "history": 50}, DATA)
    plain = create("dtdr-l", seed=3).fit(DATA.train, DATA.tools, **RANKER_ONLY)
    assert list(whole.rank(query, calls)) == list(plain.rank(query, calls))


@pytest.mark.parametrize(("name", "calls"), [("dr", 1), ("dtdr-f", 0), ("dtdr-f", 2)])
def test_other_rankers_rank_by_the_last_calls_alone(name, calls):
    model, _ = fit_model({**SPEC, "retriever": name}, DATA)
    dataset = Dataset("d", "d", DATA.test, DATA.tools, True, "", "")
    log = score_model(model, dataset, history=calls)
    for number in range(0, len(log), 7):
        item = DATA.test[log.plan[number]]
        history = item.plan.tools[: log.step[number]]
        ranking = model.rank(item.query, history[max(0, len(history) - calls) :])
        assert log.names[log.best[number]] == ranking.best


def test_more_demonstrations_of_one_seed_contain_the_fewer():
    few, more = (sample(DATA.train, {**SPEC, "demonstrations": n}) for n in (5, 12))
    assert more[:5] == few
    assert sample(DATA.train, {**SPEC, "demonstrations": 400}) == DATA.train
