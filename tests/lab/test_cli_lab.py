import json

import pytest

from dtdr.cli import run as command
from tests.command_line import dtdr
from tests.lab.labs import in_this_process, write_data

CHEAP = ("--retriever", "random", "--retriever", "dr", "--seeds", "1", "--workers", "1")


@pytest.fixture
def here(capsys):
    """Exit code and output of a command that runs in this process, its cells too."""

    def run(*arguments):
        with in_this_process():
            code = command([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_list_shows_every_suite(capsys):
    assert command(["lab", "list", "--json"]) == 0
    suites = {row["suite"]: row for row in json.loads(capsys.readouterr().out)["suites"]}
    assert suites["retrieval"]["needs"] == ""
    assert suites["downstream"]["needs"] == "an LLM"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    data = write_data(folder)
    arguments = ["lab", "run", "--data", data, *CHEAP, "--cache", folder / "cache"]
    return folder, arguments, dtdr(*arguments, "-o", folder / "report")


def test_own_data_gets_a_table_and_advice_in_one_command(ran):
    folder, _, (code, out, err) = ran
    assert (code, err) == (0, "")
    assert "Use " in out
    assert "95 % of the tools that the log calls next" in " ".join(out.split())
    assert "4 experiments: 0 from the cache, 4 computed, 0 failed" in " ".join(out.split())
    assert all(len(line) <= 100 for line in out.splitlines())
    assert (folder / "report" / "report.html").exists()
    text = (folder / "report" / "report.md").read_text("utf-8")
    for said in ("dtdr lab run --data", "tokens a step instead of", "confuses", "Holm"):
        assert said in text


def test_json_has_the_means_of_every_method(here, ran):
    folder, arguments, _ = ran
    code, out, err = here(*arguments, "-o", folder / "r", "--json")
    assert (code, err, json.loads(out)["cached"]) == (0, "", 4)
    assert {row["method"] for row in json.loads(out)["results"]} == {"random", "dr"}


def test_the_report_needs_neither_data_nor_rankers(here, ran):
    folder, arguments, _ = ran
    assert here(*arguments, "-o", folder / "report")[0] == 0
    (folder / "own.jsonl").rename(folder / "away.jsonl")
    try:
        out = folder / "again"
        code, _, err = here("lab", "report", "--cache", folder / "cache", "-o", out)
        assert (code, err) == (0, "")
        for name in ("report.html", "report.md"):
            assert (out / name).read_bytes() == (folder / "report" / name).read_bytes()
    finally:
        (folder / "away.jsonl").rename(folder / "own.jsonl")


def test_a_dry_run_counts_and_computes_nothing(here, ran, tmp_path):
    _, arguments, _ = ran
    code, out, _ = here(*arguments[:-1], tmp_path, "--dry-run", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["experiments"], found["cached"]) == (4, 0)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_makes_the_exit_code_1(here, ran, tmp_path):
    _, arguments, _ = ran
    raising = ("--retriever", "tests.lab.own_rankers:Raising")
    code, out, err = here(*arguments, *raising, "-o", tmp_path)
    assert code == 1
    assert "no idea what to learn" in err
    assert "2 failed" in out
