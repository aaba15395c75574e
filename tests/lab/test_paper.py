"""``dtdr lab run paper``: the paper's own settings, from download to report."""

import json
import re
from typing import Any

import pytest

from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.compute import run_lab
from dtdr.evaluate.lab.kinds.llm import ALPHAS
from dtdr.evaluate.lab.report import build_report
from dtdr.evaluate.lab.report.page import to_markdown
from dtdr.evaluate.lab.resolve import DataLibrary, Options, resolve_suites
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.lab.suite import PAPER, PAPER_ORDER, read_suite
from dtdr.rankers import ranker_class
from tests.command_line import dtdr
from tests.fake_llm_server import fake_server
from tests.lab.hub_copy import PAPER_SETS, TITLES, fetch_from, scripted, write_hub
from tests.lab.labs import in_this_process


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """No published set, and a cache of its own."""
    monkeypatch.setenv("DTDR_DATA_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    data.load.cache_clear()  # what another test read from another folder
    return tmp_path


@pytest.fixture
def small_hub(nothing_here, monkeypatch):
    """A hub-shaped copy in a data folder."""
    hub = nothing_here / "hub"
    write_hub(hub, 700)
    data = nothing_here / "data"
    (data / "tinyagent").mkdir(parents=True)
    for file in (hub / "squeeze-ai-lab" / "TinyAgent-dataset").iterdir():
        (data / "tinyagent" / file.name).write_bytes(file.read_bytes())
    (hub / "microsoft" / "Taskbench").rename(data / "taskbench")
    monkeypatch.setenv("DTDR_DATA_DIR", str(data))


def test_without_anything_the_synthetic_set_stands_in_and_it_is_said(nothing_here):
    options = Options(quick=True, encoders=["lexical"])
    resolved = resolve_suites([PAPER], options, DataLibrary(options))
    assert [item.suite.name for item in resolved] == list(PAPER_ORDER)
    assert {cell.spec["dataset"] for item in resolved for cell in item.experiments} == {"bundled"}
    reasons = {reason for item in resolved for reason in item.left_out}
    assert any("the synthetic one" in reason for reason in reasons)
    assert "the experiments that ask an LLM: name one with --llm" in reasons


def test_the_papers_encoder_is_not_replaced_where_everything_is_to_be_run(
    nothing_here, monkeypatch
):
    monkeypatch.setattr("dtdr.evaluate.lab.resolve._cannot_encode", lambda name: "it is away")
    options = Options(full=True)
    with pytest.raises(InputError, match=r"it is away.*--encoder"):
        resolve_suites([PAPER], options, DataLibrary(options))


def test_the_nearest_encoder_stands_in_and_it_is_said(nothing_here, monkeypatch):
    monkeypatch.setattr(
        "dtdr.evaluate.lab.resolve._cannot_encode",
        lambda name: "" if name == "lexical" else "it is away",
    )
    options = Options(quick=True)
    resolved = resolve_suites([PAPER], options, DataLibrary(options))
    assert any(
        "replaced by lexical: it is away" in reason for item in resolved for reason in item.left_out
    )


@pytest.mark.parametrize("name", PAPER_ORDER)
def test_every_run_has_the_papers_recipe_and_encoder(name):
    suite = read_suite(name)
    assert suite.about
    assert suite.differs
    for spec in suite.specs():
        if "retriever" not in spec:
            continue
        chosen = ranker_class(spec["retriever"])
        if chosen.uses_encoder:
            assert spec["encoder"] == "sentence-transformers"
            assert spec["parameters"]["recipe"] == "paper"
        if spec["kind"] in ("selections", "plans"):
            assert spec["mask"] == "paper"


def test_rows_are_in_the_order_of_the_papers_tables(nothing_here):
    options = Options(quick=True, encoders=["lexical"], datasets=["bundled"], plans=30)
    store = Store(nothing_here / "lab")
    with in_this_process():
        suites = ["paper-retrieval", "paper-plan-length"]
        run_lab(suites, options, lab="p", store=store, command="x")
    _, results = build_report(store, "p")
    (methods,) = results.by_dataset_split("paper-retrieval").values()
    names = [name.split(" ")[0] for name in methods]
    assert names == ["random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l"]


def test_an_encoder_of_the_user_holds_in_every_suite(nothing_here):
    options = Options(quick=True, encoders=["minilm"], rankers=["dtdr-l", "dr"])
    (resolved,) = resolve_suites(["retrieval"], options, DataLibrary(options))
    assert {(c.spec["retriever"], c.spec.get("encoder")) for c in resolved.experiments} == {
        ("dtdr-l", "minilm"),
        ("dr", None),
    }


@pytest.mark.usefixtures("small_hub")
def test_thresholds_are_chosen_on_the_training_side_and_dtdr_c_needs_none(nothing_here):
    suite = nothing_here / "one.toml"
    suite.write_text(
        '[[experiments]]\nkind = "selections"\ndataset = "tinyagent"\nsplit = "paper"\nseed = 0\n'
        'retriever = ["lr", "dtdr-c"]\nparameters = [{recipe = "paper"}]\nicl = "hard"\n'
        'select = "greedy"\nmask = "paper"\nsize = 6\n'
    )
    store = Store(nothing_here / "lab")
    with fake_server() as server, in_this_process():
        server.context, server.script = 10**6, scripted
        options = Options(llms=[f"openai:m@{server.url}"], skip_bad=True)
        found = run_lab([str(suite)], options, lab="one", store=store, command="x")
    assert found.failed == []
    results = build_report(store, "one")[1]
    for one in results.experiments("one"):
        result = results.value(one)
        if one.spec["retriever"] == "dtdr-c":
            assert "alpha" not in result
            continue
        accuracies = {float(alpha): value for alpha, value in result["alpha_accuracy"].items()}
        assert accuracies.keys() == set(ALPHAS)
        assert accuracies[result["alpha"]] == max(accuracies.values())
        assert result["alpha"] == min(
            alpha for alpha, value in accuracies.items() if value == max(accuracies.values())
        )


@pytest.mark.usefixtures("small_hub")
def test_records_that_cannot_be_used_end_a_lab_unless_they_are_skipped(nothing_here):
    options: dict[str, Any] = {"datasets": ["taskbench_huggingface"], "seeds": 1}
    options["rankers"] = ["random"]
    store = Store(nothing_here / "lab")
    with in_this_process():
        with pytest.raises(InputError, match="is missing"):
            run_lab(["retrieval"], Options(**options), lab="a", store=store, command="x")
        run_lab(
            ["retrieval"],
            Options(**options, skip_bad=True, only_known_tools=True),
            lab="a",
            store=store,
            command="x",
        )
    text = to_markdown(build_report(store, "a")[0])
    assert "records left out that cannot be used: 1" in text
    assert re.search(r"records left out that call a tool which the set does not describe: \d", text)
    assert "links dropped that name a tool" in text


@pytest.mark.slow
def test_the_whole_paper_runs_from_download_to_report(nothing_here, monkeypatch):
    write_hub(nothing_here / "hub", 2000)
    fetch = fetch_from(nothing_here / "hub")
    monkeypatch.setattr("dtdr.evaluate.datasets.download._hub_download", lambda: fetch)
    for name in PAPER_SETS:
        assert run(["data", "download", name]) == 0
    with fake_server() as server:
        server.context, server.script = 10**6, scripted
        code, out, err = dtdr(
            *("lab", "run", "paper", "--full", "--skip-bad", "--only-known-tools"),
            *("--encoder", "lexical", "--llm", f"openai:m@{server.url}", "--json", "--seeds", "1"),
            *("--cache", nothing_here / "lab", "-o", nothing_here / "report"),
        )
    assert code == 0, err
    found = json.loads(out)
    assert (found["failed"], found["left_out"]) == ([], [])
    assert found["computed"] == found["experiments"] > 100
    assert {row["dataset"] for row in found["results"]} == set(PAPER_SETS)
    text = (nothing_here / "report" / "report.md").read_text("utf-8")
    for title in TITLES.values():
        assert f"### {title}" in text
    assert "example bank" not in text
    for expected in (
        "FSA %, openai:m",
        "| less-is-more (paper, openai:m) |",
        "SR %, strict, gold history",
        "### FSA, openai:m by history length, TinyAgent",
        "### FSA, openai:m by number of clusters, TinyAgent",
        "### FSA, openai:m by number of demonstrations, TinyAgent",
        "records left out that cannot be used",
        "arguments read as outputs of the calls that they name",
    ):
        assert expected in text
    assert "| *Qwen3 0.6B, paper* |" not in text, "another encoder than the paper's"
    # Its figures are next to ours only with its encoder, whose weights are not here.
    monkeypatch.setattr("dtdr.evaluate.lab.report.results.PAPER_ENCODER", "lexical")
    page, _ = build_report(Store(nothing_here / "lab"), "paper")
    assert "| *Qwen3 0.6B, paper* |" in to_markdown(page)
    html = (nothing_here / "report" / "report.html").read_text("utf-8")
    for label in ("table:", "tab:", "fig:", "app:", "sec:"):
        assert label not in text.replace("stable:", "")
        assert f">{label}" not in html
