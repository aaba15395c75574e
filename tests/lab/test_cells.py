import importlib
import sys

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab import code_version
from dtdr.evaluate.lab.cells import Cell
from dtdr.evaluate.lab.kinds import KINDS
from dtdr.rankers import retriever_class

SPEC = {"kind": "rank", "dataset": "d", "data": "0", "split": "paper", "seed": 0, "retriever": "dr"}


def test_a_key_depends_on_every_part_of_the_description():
    keys = {Cell.of(SPEC).key}
    for name, value in (
        ("data", "1"),
        ("seed", 1),
        ("split", "group"),
        ("retriever", "lr"),
        ("parameters", {"weighted": False}),
        ("history", 2),
        ("demonstrations", 10),
        ("encoder", "minilm"),
    ):
        keys.add(Cell.of({**SPEC, name: value}).key)
    assert len(keys) == 9


def test_a_key_depends_neither_on_the_order_of_the_parts_nor_on_absent_ones():
    assert Cell.of(dict(reversed(SPEC.items()))).key == Cell.of(SPEC).key
    assert Cell.of({**SPEC, "encoder": None}).key == Cell.of(SPEC).key


def test_retrievers_depend_on_their_own_code():
    factored = code_version._closure(("dtdr.rankers.dtdr_f.retriever",))
    assert "dtdr.rankers.dtdr_f.ranker" in factored
    assert "dtdr.rankers.base" in factored
    assert "dtdr.rankers.dtdr_f.ranker" not in code_version._closure(("dtdr.rankers.bm25",))


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("prompts", "dtdr.llm.prompting.selection"),
        ("prompts", "dtdr.llm.prompting.prompt"),
        ("selections", "dtdr.llm.planning.planner"),
        ("plans", "dtdr.llm.prompting.filling"),
        ("plans", "dtdr.evaluate.planning.planning_metrics"),
    ],
)
def test_code_behind_a_package_that_only_passes_names_on_counts(kind, module):
    assert module in code_version._closure((KINDS[kind].partition(":")[0],))


@pytest.fixture
def version_of(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def version(text):
        (tmp_path / "lab_code_of_a_test.py").write_text(text)
        importlib.invalidate_caches()
        for name in ("code_version", "_imports", "_code", "_path"):
            getattr(code_version, name).cache_clear()
        sys.modules.pop("lab_code_of_a_test", None)
        return code_version.code_version("lab_code_of_a_test")

    return version


def test_code_counts_but_comments_and_docstrings_do_not(version_of):
    plain = version_of("def f(x):\n    return x + 1\n")
    explained = version_of('"""Adds."""\ndef f(x):\n    """One."""\n    return x + 1  # more\n')
    changed = version_of("def f(x):\n    return x + 2\n")
    assert plain == explained
    assert plain != changed


def test_a_class_of_the_users_own_is_found_by_module_and_name():
    assert retriever_class("tests.lab.own_retrievers:Raising").name == "raising"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dtdr-x", "choose one of bm25, dr, dtdr-c"),
        ("no_such_module:Thing", "cannot be imported"),
        ("tests.lab.own_retrievers:NOT_A_RETRIEVER", "not a subclass of"),
    ],
)
def test_a_retriever_that_is_none_is_explained(name, said):
    with pytest.raises(InputError) as caught:
        retriever_class(name)
    assert said in str(caught.value)
