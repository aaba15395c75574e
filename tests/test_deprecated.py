"""Old public names still work, and warn."""

from typing import Any

import pytest

import dtdr
from dtdr.agents.mask import ToolMask
from dtdr.llm.planning import Planner

DEMONSTRATIONS = [("Mail Ann", ["open", "mail"]), ("Call Bo", ["call"])] * 3


def test_the_old_word_for_a_ranker_and_a_model_warns():
    with pytest.deprecated_call(match="retriever= is deprecated .* use ranker="):
        model = dtdr.fit(DEMONSTRATIONS, retriever="dr")
    assert (type(model), model.name) == (dtdr.Model, "dr")
    for make in (ToolMask, Planner):
        with pytest.deprecated_call(match="retriever= is deprecated .* use model="):
            renamed = make(retriever=model)  # type: ignore[call-arg]
        with pytest.deprecated_call(match=r"\.retriever is deprecated .* use \.model"):
            assert renamed.retriever is model


def test_old_words_for_a_limit_and_a_restriction_warn():
    # The old keywords are not part of the signatures.
    model: Any = dtdr.fit(DEMONSTRATIONS, ranker="dr", plans=True)
    ranking = model.rank("Mail Ann")
    with pytest.deprecated_call(match=r"\.among\(\) is deprecated .* use \.restrict\(\)"):
        assert ranking.among(["mail"]).tools == ranking.restrict(["mail"]).tools
    with pytest.deprecated_call(match="k= is deprecated .* use top_k="):
        assert model.plans("Mail Ann", k=1) == model.plans("Mail Ann", top_k=1)
    with pytest.deprecated_call(match="among= is deprecated .* use offered="):
        assert model.search("mail", among=["mail"]) == model.search("mail", offered=["mail"])
