"""Every suite runs from a base install with one more extra, by the encoder that is there."""

import json

import pytest

from tests import base_install

RUN_ALL = """
from pathlib import Path

from dtdr.evaluate.lab.compute import run_lab
from dtdr.evaluate.lab.report import build_report, write_report
from dtdr.evaluate.lab.resolve import Options
from dtdr.evaluate.lab.store import Store

options = Options(quick=True, plans=12, seeds=1, rankers=["random", "dr", "dtdr-c"])
store = Store(Path("lab"))
summary = run_lab(["all", "paper"], options, lab="p", store=store, command="x", workers=1)
assert not summary.failed, summary.failed
page, results = build_report(store, "p")
write_report(page, Path("report"))
"""


def test_every_suite_runs_with_the_extra_for_reports_alone(tmp_path):
    done = base_install.run(["-c", RUN_ALL], "lab", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    sections = text.split("\n## ")
    papers = [section for section in sections if section.startswith("Paper: ")]
    assert len(papers) >= 4
    assert "Encoder: lexical, not the paper's paraphrase-MiniLM-L6-v2." in sections[1]
    for section in papers:
        assert "encoder lexical" in section
        assert "The paper finds" not in section
        assert ", paper |" not in section
    retrieval = next(section for section in papers if section.startswith("Paper: retrieval"))
    assert "Bundled" in retrieval or "bundled" in retrieval


ENCODERS = {"lab": "lexical", "static": "lexical", "minilm": "minilm"}
NOT_INSTALLED = ("sentence-transformers", "transformers")


@pytest.mark.parametrize(
    "extra",
    [
        name if name in ENCODERS else pytest.param(name, marks=pytest.mark.slow)
        for name in base_install.NAMES
        if name not in NOT_INSTALLED
    ],
)
def test_a_dry_run_of_every_suite_names_the_encoder_that_is_there(extra, tmp_path):
    arguments = ["-m", "dtdr", "lab", "run", "all", "paper", "--quick", "--dry-run", "--json"]
    done = base_install.run(arguments, extra, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["experiments"] > 50
    encoder = ENCODERS.get(extra, "lexical")
    assert f"the paper's encoder, replaced by {encoder}: " in done.stderr
