import pytest

from dtdr.errors import InputError
from dtdr.evaluate.datasets.synthetic import generate, tools
from dtdr.evaluate.lab import fitting
from dtdr.evaluate.lab.fitting import fit_retriever, fit_signature, make_retriever
from dtdr.evaluate.lab.train_test import TrainTest, sample
from dtdr.predict import create

DEMONSTRATIONS = list(generate(60))
DATA = TrainTest(DEMONSTRATIONS[:40], DEMONSTRATIONS[40:], tools())
SPEC = {"kind": "rank", "dataset": "d", "data": "0", "split": "paper", "seed": 3, "retriever": "dr"}


def test_a_share_of_the_demonstrations_becomes_a_number():
    spec = {**SPEC, "retriever": "dtdr-c", "parameters": {"clusters": "n/10"}}
    assert make_retriever(spec, 95).parameters()["clusters"] == 9
    assert (
        make_retriever({**spec, "parameters": {"clusters": "n"}}, 3).parameters()["clusters"] == 3
    )
    assert make_retriever(spec, 4).parameters()["clusters"] == 1


def test_the_seed_of_the_split_is_the_retrievers():
    assert make_retriever({**SPEC, "retriever": "dtdr-l"}, 9).seed == 3


def test_a_parameter_that_the_retriever_does_not_take_is_explained():
    with pytest.raises(InputError) as caught:
        make_retriever({**SPEC, "parameters": {"clusters": 3}}, 9)
    assert "'dr'" in str(caught.value)


def test_a_cut_history_is_the_order_of_chains():
    found = make_retriever({**SPEC, "retriever": "dtdr-c", "history": 1}, 9)
    assert found.parameters()["order"] == 1


@pytest.mark.parametrize("name", ["dr", "dtdr-l"])
def test_without_a_history_every_history_ranks_alike(name):
    spec = {**SPEC, "retriever": name, "history": 0}
    cut, _ = fit_retriever(spec, DATA)
    query, calls = DATA.test[0].query, DATA.test[0].plan.tools
    assert list(cut.rank(query, calls)) == list(cut.rank(query, ()))
    whole, _ = fit_retriever({**spec, "history": 50}, DATA)
    plain = create(name, seed=3) if name == "dtdr-l" else create(name)
    plain.fit(DATA.train, DATA.tools)
    assert list(whole.rank(query, calls)) == list(plain.rank(query, calls))


@pytest.mark.parametrize("name", ["dr", "dtdr-f"])
def test_a_fitted_retriever_is_as_it_was_after_it_ranked_truncated_histories(name):
    query, calls = DATA.test[0].query, DATA.test[0].plan.tools
    fitted, _ = fit_retriever({**SPEC, "retriever": name}, DATA)
    before = type(fitted), fitted.rank(query, calls).probabilities.tolist()
    cut, _ = fit_retriever({**SPEC, "retriever": name, "history": 0}, DATA)
    assert cut.rank(query, calls).tools == fitted.rank(query).tools
    assert (type(fitted), fitted.rank(query, calls).probabilities.tolist()) == before
    assert (cut.name, cut.vocabulary) == (name, fitted.vocabulary)
    assert cut.session(query).call(calls[0]).rank().tools == fitted.rank(query).tools


def test_a_retriever_that_truncates_histories_can_be_fitted_saved_and_measured():
    cut = make_retriever({**SPEC, "history": 1}, 40).fit(DATA.train, DATA.tools)
    plain = create("dr", seed=3).fit(DATA.train, DATA.tools)
    query, calls = DATA.test[0].query, DATA.test[0].plan.tools
    assert cut.rank(query, calls).tools == plain.rank(query, calls[-1:]).tools
    assert cut.parameters() == plain.parameters()


def test_the_last_calls_are_kept_of_a_cut_history():
    spec = {**SPEC, "history": 1}
    cut, _ = fit_retriever(spec, DATA)
    item = max(DATA.test, key=lambda one: len(one.plan))
    assert list(cut.rank(item.query, item.plan.tools)) == list(
        cut.rank(item.query, item.plan.tools[-1:])
    )


def test_cells_that_ask_one_retriever_for_more_share_its_fit(monkeypatch):
    monkeypatch.setattr(fitting, "_last", None)
    fits = []
    real = fitting.make_retriever

    def counted(spec, *arguments):
        fits.append(spec)
        return real(spec, *arguments)

    monkeypatch.setattr(fitting, "make_retriever", counted)
    for more in ({}, {"history": 2}, {"kind": "prompts", "icl": "hard"}):
        fit_retriever({**SPEC, **more}, DATA)
    assert len(fits) == 1
    fit_retriever({**SPEC, "seed": 4}, DATA)
    assert len(fits) == 2


def test_a_retriever_that_learns_cut_histories_shares_no_fit():
    spec = {**SPEC, "retriever": "dtdr-l"}
    assert fit_signature({**spec, "history": 1}) != fit_signature({**spec, "history": 2})
    assert fit_signature({**SPEC, "history": 1}) == fit_signature({**SPEC, "history": 2})


def test_more_demonstrations_of_one_seed_contain_the_fewer():
    few, more = (sample(DATA.train, {**SPEC, "demonstrations": n}) for n in (5, 12))
    assert more[:5] == few
    assert sample(DATA.train, {**SPEC, "demonstrations": 400}) == DATA.train
