import pytest

from dtdr.datasets.synthetic import generate, tools
from dtdr.errors import InputError
from dtdr.lab import fitting
from dtdr.lab.fitting import fit_signature, fitted_retriever, make_retriever, some_of
from dtdr.lab.shifts import SHIFTS, Sides, shifted
from dtdr.retrievers import create

DEMONSTRATIONS = list(generate(60))
SIDES = Sides(DEMONSTRATIONS[:40], DEMONSTRATIONS[40:], tools())
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
    cut, _ = fitted_retriever(spec, SIDES)
    query, calls = SIDES.test[0].query, SIDES.test[0].plan.tools
    assert list(cut.rank(query, calls)) == list(cut.rank(query, ()))
    whole, _ = fitted_retriever({**spec, "history": 50}, SIDES)
    plain = create(name, seed=3) if name == "dtdr-l" else create(name)
    plain.fit(SIDES.train, SIDES.tools)
    assert list(whole.rank(query, calls)) == list(plain.rank(query, calls))


def test_the_last_calls_are_kept_of_a_cut_history():
    spec = {**SPEC, "history": 1}
    cut, _ = fitted_retriever(spec, SIDES)
    item = max(SIDES.test, key=lambda one: len(one.plan))
    assert list(cut.rank(item.query, item.plan.tools)) == list(
        cut.rank(item.query, item.plan.tools[-1:])
    )


def test_cells_that_ask_one_retriever_for_more_share_its_fit(monkeypatch):
    monkeypatch.setattr(fitting, "_last", None)
    fits = []
    real = fitting.make_retriever

    def counted(spec, train, **options):
        fits.append(spec)
        return real(spec, train, **options)

    monkeypatch.setattr(fitting, "make_retriever", counted)
    for more in ({}, {"history": 2}, {"queries": "other"}, {"kind": "prompts", "icl": "hard"}):
        fitted_retriever({**SPEC, **more}, SIDES)
    assert len(fits) == 1
    fitted_retriever({**SPEC, "seed": 4}, SIDES)
    assert len(fits) == 2


def test_a_retriever_that_learns_cut_histories_shares_no_fit():
    spec = {**SPEC, "retriever": "dtdr-l"}
    assert fit_signature({**spec, "history": 1}) != fit_signature({**spec, "history": 2})
    assert fit_signature({**SPEC, "history": 1}) == fit_signature({**SPEC, "history": 2})


def test_more_demonstrations_of_one_seed_contain_the_fewer():
    few, more = (some_of(SIDES.train, {**SPEC, "demonstrations": n}) for n in (5, 12))
    assert more[:5] == few
    assert some_of(SIDES.train, {**SPEC, "demonstrations": 400}) == SIDES.train


@pytest.mark.parametrize("name", SHIFTS)
def test_a_shift_repeats_and_leaves_something_on_both_sides(name):
    first, second = (shifted(SIDES, name, 1) for _ in range(2))
    assert first == second
    assert first.train
    assert first.test
    assert first != SIDES


def test_opaque_names_keep_plans_and_descriptions():
    found = shifted(SIDES, "opaque-names", 0)
    names = {name for item in found.train + found.test for name in item.plan.tools}
    assert all(name.startswith("tool_") for name in names)
    assert [tool.description for tool in found.tools] == [tool.description for tool in SIDES.tools]
    assert [len(item.plan) for item in found.test] == [len(item.plan) for item in SIDES.test]


def test_unseen_tools_are_in_the_catalogue_but_in_no_demonstration():
    found = shifted(SIDES, "unseen-tools", 0)
    learned = {name for item in found.train for name in item.plan.tools}
    tested = {name for item in found.test for name in item.plan.tools}
    assert not learned & tested
    assert tested <= {tool.name for tool in found.tools}


def test_long_plans_are_tested_after_short_ones():
    found = shifted(SIDES, "short-to-long", 0)
    assert max(len(item.plan) for item in found.train) < min(len(item.plan) for item in found.test)


def test_an_unknown_shift_names_the_choices():
    with pytest.raises(InputError) as caught:
        shifted(SIDES, "sideways", 0)
    assert "opaque-names, rare-tools" in str(caught.value)
