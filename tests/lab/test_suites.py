import ast

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab.fitting import make_model
from dtdr.evaluate.lab.kinds import KINDS
from dtdr.evaluate.lab.report.build import SECTIONS
from dtdr.evaluate.lab.suite import _GRID, ORDER, names, read_suite
from tests.conftest import PROJECT


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("quick", [False, True])
def test_every_bundled_suite_names_known_kinds_parameters_and_a_section(name, quick):
    suite = read_suite(name, quick=quick)
    specs = list(suite.specs())
    assert specs
    assert {spec["kind"] for spec in specs} <= KINDS.keys()
    for retriever, text in {(one["retriever"], repr(one.get("parameters"))) for one in specs}:
        spec = {"retriever": retriever, "parameters": ast.literal_eval(text) or {}}
        make_model(spec, 100, lambda prompt: "")
    assert suite.section in SECTIONS
    assert suite.about


@pytest.mark.parametrize("name", ORDER)
def test_quick_suites_need_no_published_data(name):
    for spec in read_suite(name, quick=True).specs():
        assert spec["dataset"] == "bundled"
        assert spec.get("plans", 0) <= 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiments = 3", "has no [[experiments]]"),
        ("[[experiments]]\nseeds = 1", "unknown key 'seeds'"),
        ('[[experiments]]\nseed = "0"', "'seed' must be one or more of int"),
        ("[[experiments]]\nseed = []", "'seed' must be one or more of int"),
        ('[[experiments]]\nkind = "rang"', "unknown kind of experiment"),
        ('[[experiments]]\nsplit = "half"', "choose one of group, paper"),
        ('[[experiments]]\ndataset = "bundled"', "without a 'retriever'"),
        ("[[experiments]", "is not TOML"),
        ('color = "red"\n[[experiments]]', "unknown key 'color'"),
    ],
)
def test_a_suite_file_that_is_wrong_is_explained(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_suite(str(path))
    assert said in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_suite_with_the_old_key_is_read(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[runs]]\ndataset = "bundled"\nretriever = "dr"')
    assert [spec["retriever"] for spec in read_suite(str(path)).specs()] == ["dr"]


def test_another_ranker_takes_no_place_among_parameters_that_are_not_its_own():
    suite = read_suite("ablations").with_choices(retriever=["dtdr-l", "bm25"])
    for spec in suite.specs():
        if "clusters" in spec.get("parameters", {}):
            raise AssertionError(f"{spec} gives clusters to {spec['retriever']}")
    assert {spec["retriever"] for spec in suite.specs()} == {"dtdr-l", "bm25"}


def test_a_ranker_of_the_users_own_is_added_to_a_suite_of_the_paper():
    suite = read_suite("paper-retrieval")
    published = {spec["retriever"] for spec in suite.specs()}
    added = suite.with_choices(retriever=["dtdr-f"])
    assert {spec["retriever"] for spec in added.specs()} == published | {"dtdr-f"}
    chosen = suite.with_choices(retriever=["dr", "dtdr-f"])
    assert {spec["retriever"] for spec in chosen.specs()} == {"dr", "dtdr-f"}
    downstream = read_suite("paper-downstream").with_choices(retriever=["dtdr-f"])
    selects = {spec["select"] for spec in downstream.specs() if spec["retriever"] == "dtdr-f"}
    assert selects == {"greedy"}, "it is no upper bound"


def test_the_suite_of_the_documentation_can_be_read(tmp_path):
    page = (PROJECT / "docs" / "reproduce.md").read_text("utf-8")
    text = page.partition("<!-- read as a suite by a test -->\n```toml\n")[2].partition("```")[0]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    specs = list(read_suite(str(path)).specs())
    assert len(specs) == 2 * 5 * 3
    assert read_suite(str(path)).section == ""


def test_the_documentation_names_every_key_of_a_suite():
    page = (PROJECT / "docs" / "reproduce.md").read_text("utf-8")
    for key in _GRID.keys() - {"llm"}:
        assert f"`{key}`" in page or f"\n{key} = " in page, key
