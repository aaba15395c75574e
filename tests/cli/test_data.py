"""``dtdr data``: what each command prints, writes and refuses."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import synthetic_runs
from dtdr import read_demonstrations
from dtdr.cli.data import app
from dtdr.data.demonstration_files import read_tools, save_demonstrations, save_tools
from dtdr.errors import DtdrError, InputError, OutputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.download import download


def run(*arguments):
    """Standard output of a command; errors come up as they would reach ``main``."""
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments):
    return json.loads(run(*arguments, "--json"))


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    """A machine without any published set."""
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DTDR_DATA_DIR", str(tmp_path / "none"))
    return tmp_path


@pytest.fixture
def small(tmp_path):
    """A canonical file of 30 synthetic demonstrations, and its tools."""
    path = tmp_path / "small" / "demonstrations.jsonl"
    path.parent.mkdir()
    save_demonstrations(path, synthetic_runs.generate(30, 47, 0))
    save_tools(path.with_name("tools.json"), synthetic_runs.tools())
    return path


def test_list_names_every_set_and_says_what_is_here(nothing_here):
    listed = run_json("list")["sets"]
    assert [item["name"] for item in listed] == list(datasets.NAMES)
    assert [item["name"] for item in listed if item["here"] == "yes"] == ["bundled"]
    text = run("list")
    assert "(synthetic)" in text
    assert "get it by hand" in text
    assert max(map(len, text.splitlines())) <= 100


def test_stats_of_the_example_bank_has_the_papers_figures_beside_it(data_dir, monkeypatch):
    monkeypatch.setenv("DTDR_DATA_DIR", str(data_dir))
    listed = {item["name"]: item for item in run_json("list")["sets"]}
    assert listed["tinyagent"]["path"] == str(data_dir / "tinyagent" / "examples.json")
    (found,) = run_json("stats", "tinyagent")["sets"]
    assert (found["plans"], found["tools"]) == (1512, 17)
    assert found["calls_per_plan"]["mean"] == pytest.approx(7961 / 1512, abs=1e-4)
    assert found["published"]["plans"] == 39874
    assert found["published"]["dependencies_per_plan"] == {"mean": 1.9, "sd": 1.8}
    text = run("stats", "tinyagent")
    assert "39,874" in text
    assert "not the 39,874 plans" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_stats_can_leave_out_plans_with_tools_that_the_set_does_not_describe(tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_DATA_DIR", str(tmp_path))
    path = tmp_path / "taskbench" / "data_multimedia" / "data.json"
    path.parent.mkdir(parents=True)
    odd = {**HUB, "id": "2", "task_nodes": '[{"task": "invented"}]'}
    path.write_text(json.dumps(HUB) + "\n" + json.dumps(odd) + "\n")
    path.with_name("tool_desc.json").write_text('{"nodes": [{"id": "a", "desc": "does a"}]}')
    (known,) = run_json("stats", "taskbench_multimedia", "--only-known-tools")["sets"]
    assert (known["plans"], known["tools"]) == (1, 2)
    (remark,) = known["remarks"]
    assert "does not describe: 1" in remark


def test_stats_without_names_shows_the_published_table_for_what_is_missing(nothing_here):
    found = run_json("stats")
    assert [item["name"] for item in found["sets"]] == ["bundled"]
    assert set(found["missing"]) == set(datasets.NAMES) - {"bundled"}
    text = run("stats")
    assert "TaskBench HuggingFace (not here)" in text
    assert "1.1 ± 1.5" in text
    assert "(synthetic)" in text
    with pytest.raises(InputError, match="dtdr data download taskbench_dailylife"):
        run("stats", "taskbench-dailylife")


def test_stats_of_a_file_counts_what_a_hand_count_counts(tmp_path):
    path = tmp_path / "two.jsonl"
    call = {"tool": "a", "arguments": {}}
    second = {"id": "2", "tool": "b", "arguments": {"x": {"$ref": "1"}, "y": {"$ref": "1"}}}
    records = [
        {"id": "p", "query": "q", "calls": [{"id": "1", **call}, second]},
        {"id": "r", "query": "q", "calls": [{"id": "1", **call}]},
    ]
    path.write_text("\n".join(map(json.dumps, records)) + "\n{\n")
    with pytest.raises(InputError, match=r"two.jsonl:3"):
        run("stats", path)
    found = run_json("stats", path, "--skip-bad")
    assert found["skipped"] == 1
    (two,) = found["sets"]
    assert (two["name"], two["title"], two["plans"], two["tools"]) == ("two", "two.jsonl", 2, 3)
    assert two["calls_per_plan"] == {"mean": 1.5, "sd": 0.5}
    assert two["dependencies_per_plan"] == {"mean": 0.5, "sd": 0.5}


@pytest.mark.parametrize("name", ["tinyagent", "t_eval", "ultratool", "traject-bench"])
def test_convert_writes_the_same_demonstrations_that_load_gives(
    name, data_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv("DTDR_DATA_DIR", str(data_dir))
    dataset = datasets.load(name)
    output, tools = tmp_path / "d.jsonl", tmp_path / "tools.json"
    found = run_json("convert", name, "-o", output)
    assert found["demonstrations"] == len(dataset)
    assert found["skipped"] == 0
    assert list(read_demonstrations(output)) == dataset.demonstrations
    assert read_tools(tools) == dataset.tools


def test_convert_copies_a_canonical_file_and_keeps_what_is_there_without_force(small, tmp_path):
    output, tools = tmp_path / "copy.jsonl", tmp_path / "tools.json"
    tools.write_text("precious")
    assert "30 demonstrations" in run("convert", small, "-o", output)
    assert output.read_bytes() == small.read_bytes()
    assert tools.read_text() == "precious"
    with pytest.raises(OutputError, match="--force"):
        run("convert", small, "-o", output)
    run("convert", small, "-o", output, "--force")
    assert read_tools(tools) == read_tools(small.with_name("tools.json"))


def test_convert_stops_at_a_bad_record_and_writes_nothing(small, tmp_path):
    with small.open("a") as stream:
        stream.write('{"id": "x"}\n')
    output = tmp_path / "copy.jsonl"
    with pytest.raises(InputError, match=r"demonstrations.jsonl:31: .* no 'query'"):
        run("convert", small, "-o", output)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    found = run_json("convert", small, "-o", output, "--skip-bad")
    assert (found["demonstrations"], found["skipped"]) == (30, 1)


# -- download ------------------------------------------------------------------------------------

HUB = {"id": "1", "user_request": "x", "task_nodes": '[{"task": "a"}]', "task_links": "[]"}


class EntryNotFoundError(Exception):
    pass


class Hub:
    """In place of ``huggingface_hub.hf_hub_download``: gives files, or raises an error."""

    def __init__(self, files=None):
        tools = '{"nodes": [{"id": "a", "desc": "does a"}]}'
        self.files = {"data.json": json.dumps(HUB), "tool_desc.json": tools, **(files or {})}
        self.asked = []

    def __call__(self, *, repo_id, filename, repo_type, local_dir):
        assert (repo_id, repo_type) == ("microsoft/Taskbench", "dataset")
        path = Path(local_dir) / filename
        self.asked.append(path.name)
        content = self.files.get(path.name, EntryNotFoundError())
        if isinstance(content, Exception):
            raise content
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)


MULTIMEDIA = datasets.find_source("taskbench_multimedia")


def test_downloaded_set_is_loaded_from_the_cache(nothing_here):
    files = download(MULTIMEDIA, fetch=Hub())
    assert all(file.is_relative_to(nothing_here / "cache" / "datasets") for file in files)
    dataset = datasets.load("taskbench_multimedia")
    assert dataset.demonstrations[0].plan.tools == ("a",)
    assert dataset.tools[0].description == "does a"
    other = Hub({"data.json": json.dumps({**HUB, "id": "2"})})
    with pytest.raises(OutputError, match="pass --force"):
        download(MULTIMEDIA, fetch=other)
    download(MULTIMEDIA, fetch=other, force=True)
    assert datasets.load("taskbench_multimedia").demonstrations[0].id == "2"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"tool_desc.json": ConnectionError("no route")}, "cannot be reached (ConnectionError)"),
        ({"data.json": '{"id": 1}\n'}, "not in its published format"),
        ({"data.json": EntryNotFoundError()}, "the hub does not have it"),
    ],
)
def test_a_download_that_fails_leaves_nothing(nothing_here, files, said):
    with pytest.raises(DtdrError, match=re.escape(said)):
        download(MULTIMEDIA, fetch=Hub(files))
    assert [path for path in (nothing_here / "cache").rglob("*") if path.is_file()] == []
