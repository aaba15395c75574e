import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab.compute import run_lab
from dtdr.evaluate.lab.data import short_name
from dtdr.evaluate.lab.report import build_report
from dtdr.evaluate.lab.report.downstream import llm_means
from dtdr.evaluate.lab.report.page import to_markdown, write_report
from dtdr.evaluate.lab.resolve import Options
from dtdr.evaluate.lab.store import Store
from tests.fake_llm_server import fake_server
from tests.lab.hub_copy import scripted
from tests.lab.labs import in_this_process

SUITES = ("downstream", "prompts", "paper-icl", "paper-weights")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The suites that ask an LLM, with a server that always names a listed tool."""
    store = Store(tmp_path_factory.mktemp("cache"))
    with fake_server() as server, in_this_process():
        server.context = 1_000_000
        options = Options(
            quick=True,
            plans=30,
            datasets=["bundled"],
            encoders=["lexical"],
            llms=[f"openai:m@{server.url}"],
        )
        found = run_lab(SUITES, options, lab="llm", store=store, command="x")
        again = run_lab(SUITES, options, lab="llm", store=store, command="x")
    return store, found, again


def test_llm_suites_run_and_are_kept_and_their_tables_have_intervals(lab):
    store, found, again = lab
    assert (found.failed, found.computed, again.computed) == ([], found.experiments, 0)
    text = to_markdown(build_report(store, "llm")[0])
    assert "Wilson's 95 %" in text
    assert "| openai:m | dtdr-c, " in text
    assert "## Paper: in-context methods by model" in text
    assert "none above 0.3" in text


def test_a_model_is_named_without_where_it_is():
    assert short_name("gguf:/home/ann/models/q.gguf") == "gguf:q.gguf"
    assert short_name("openai:qwen3@http://10.0.0.1:80/v1") == "openai:qwen3"
    assert short_name("hf:Qwen/Qwen3-0.6B?dtype=float16") == "hf:Qwen/Qwen3-0.6B?dtype=float16"
    assert short_name("hf:/home/ann/models/own?dtype=float16") == "hf:own?dtype=float16"
    assert short_name("hf:./own") == "hf:own"


def test_without_a_model_a_suite_shows_what_needs_none_and_says_what_it_left_out(tmp_path):
    store = Store(tmp_path)
    options = Options(quick=True, plans=30, datasets=["bundled"], encoders=["lexical"])
    with in_this_process():
        found = run_lab(["paper-retrieval"], options, lab="l", store=store, command="x")
    assert found.failed == []
    text = to_markdown(build_report(store, "l")[0])
    assert "| dtdr-c (paper) | 0." in text
    assert "the experiments that ask an LLM: name one with --llm" in text
    with pytest.raises(InputError, match="name one with --llm"):
        run_lab(["downstream"], options, lab="l", store=store, command="x")


def test_with_gold_tools_every_plan_calls_the_right_functions(tmp_path):
    suite = tmp_path / "one.toml"
    suite.write_text(
        'section = "downstream"\n[[experiments]]\nkind = "plans"\n'
        'dataset = "bundled"\nsplit = "paper"\n'
        'seed = 0\nplans = 30\nretriever = "dtdr.evaluate.lab.oracle:Oracle"\nicl = "hard"\n'
        'size = 3\nselect = ["retriever", "greedy"]\nloop = ["own", "gold"]\n'
    )
    store = Store(tmp_path)
    with fake_server() as server, in_this_process():
        server.context, server.script = 1_000_000, scripted
        options = Options(llms=[f"openai:m@{server.url}"])
        assert run_lab([str(suite)], options, lab="l", store=store, command="x").failed == []
    page, results = build_report(store, "l")
    for one in results.experiments("one"):
        tools = [record["stopped"] == "end" for record in results.value(one)["records"]]
        assert all(tools), one.spec
    text = to_markdown(page)
    assert "| openai:m | perfect ranking |" in text
    assert "| openai:m | gold tools |" in text


def test_without_a_section_every_kind_of_run_is_shown_and_methods_keep_their_rows(tmp_path):
    suite = tmp_path / "own.toml"
    grid = (
        'dataset = "bundled"\nsplit = "paper"\nseed = [0, 1]\nplans = 30\nretriever = "dr"\n'
        'size = 3\nicl = ["hard", "soft", "hard-weighted"]\n'
    )
    suite.write_text(f'[[experiments]]\nkind = ["selections", "plans"]\n{grid}')
    other = tmp_path / "earlier.toml"
    other.write_text(
        '[[experiments]]\ndataset = "bundled"\nsplit = "paper"\nretriever = "dr"\nplans = 30\n'
    )
    store = Store(tmp_path)
    with fake_server() as server, in_this_process():
        server.context, server.script = 1_000_000, scripted
        options = Options(llms=[f"openai:m@{server.url}"])
        run_lab([str(other)], Options(), lab="l", store=store, command="a")
        summary = run_lab([str(suite)], options, lab="l", store=store, command="b")
    assert summary.failed == []
    page, results = build_report(store, "l")
    text = to_markdown(page)
    for icl in ("hard", "soft", "hard-weighted"):
        assert f"| openai:m | dr, {icl} |" in text
    assert "earlier" not in text, "a report is about the suites of its command"
    rows = llm_means(results, "own")
    assert {(row["kind"], row["icl"]) for row in rows} == {
        (kind, icl) for kind in ("selections", "plans") for icl in ("hard", "soft", "hard-weighted")
    }
    steps = [row for row in rows if row["kind"] == "selections"]
    assert all({"exact", "lenient", "tokens", "seconds"} <= row.keys() for row in steps)
    assert all({"strict", "names"} <= row.keys() for row in rows if row["kind"] == "plans")
    folder = tmp_path / "report"
    write_report(page, folder)
    (table,) = (path.read_text() for path in (folder / "tables").glob("own-*.csv"))
    assert table.startswith("Model,Method,FSA %")
    assert "Ranker alone %,Tokens,Step s" in table
    # A cell counts the steps of both splits.
    exact = [row["exact"] for row in steps if row["icl"] == "soft"]
    assert len(exact) == 2
    assert f'"dr, soft",{50 * sum(exact):.1f} ' in table
    assert r"\toprule" in (folder / "tables.tex").read_text()
