import importlib
import sys

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab.experiments import Experiment, code_version
from dtdr.rankers import ranker_class

SPEC = {"kind": "rank", "dataset": "d", "data": "0", "split": "paper", "seed": 0, "retriever": "dr"}


def test_a_key_depends_on_every_part_of_the_description():
    keys = {Experiment.of(SPEC).key}
    for name, value in (
        ("data", "1"),
        ("seed", 1),
        ("split", "group"),
        ("retriever", "lr"),
        ("parameters", {"threshold": 0.25}),
        ("history", 2),
        ("demonstrations", 10),
        ("encoder", "minilm"),
    ):
        keys.add(Experiment.of({**SPEC, name: value}).key)
    assert len(keys) == 9
    # Neither the order of the parts counts, nor those that are absent.
    assert Experiment.of(dict(reversed(SPEC.items()))).key == Experiment.of(SPEC).key
    assert Experiment.of({**SPEC, "encoder": None}).key == Experiment.of(SPEC).key


def test_the_code_of_dtdr_and_of_the_users_own_ranker_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    versions = {code_version()}
    for text in ("FIRST = 1\n", "SECOND = 22\n"):
        (tmp_path / "lab_code_of_a_test.py").write_text(text)
        importlib.invalidate_caches()
        sys.modules.pop("lab_code_of_a_test", None)
        importlib.import_module("lab_code_of_a_test")
        code_version.cache_clear()
        versions.add(code_version("lab_code_of_a_test"))
    assert len(versions) == 3
    assert code_version("dtdr.rankers.bm25") == code_version() in versions


def test_the_code_of_the_users_own_icl_method_counts(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    keys = set()
    for text in ("one", "another"):
        (tmp_path / "icl_of_a_test.py").write_text(
            f"def write(shown, tools):\n    return {text!r}\n"
        )
        importlib.invalidate_caches()
        sys.modules.pop("icl_of_a_test", None)
        code_version.cache_clear()
        keys.add(Experiment.of({**SPEC, "icl": "icl_of_a_test:write"}).key)
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dtdr-x", "choose one of bm25, dr, dtdr-c"),
        ("no_such_module:Thing", "cannot be imported"),
        ("tests.lab.own_rankers:NOT_A_RANKER", "not a subclass of"),
    ],
)
def test_a_ranker_that_is_none_is_explained(name, said):
    with pytest.raises(InputError) as caught:
        ranker_class(name)
    assert said in str(caught.value)
