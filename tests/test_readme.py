import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import dtdr
from dtdr.cli import run
from synthetic_runs import generate
from tests.conftest import PROJECT
from tests.helpers import RANKER_ONLY

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def block(mark, language):
    found = re.search(rf"<!-- {mark} -->\n```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no {language} block marked {mark!r}"
    return found.group(1)


def test_the_readme_is_a_script_that_runs_twice(tmp_path, monkeypatch, capsys):
    log = Path("examples", "hotel", "openai-chat.jsonl")
    lines = (PROJECT / log).read_bytes().splitlines(keepends=True)
    (tmp_path / log).parent.mkdir(parents=True)
    (tmp_path / log).write_bytes(b"".join(lines[:12]))  # learned from in a fraction of the time
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(sh|python)\n(.*?)```", README, re.DOTALL)
    commands = [
        shlex.split(line)[1:]
        for language, text in blocks
        if language == "sh"
        for line in text.splitlines()
        if line.startswith("dtdr ")
    ]
    (code,) = [text for language, text in blocks if language == "python"]
    assert len(commands) == 5
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    for again in (False, True):
        # What a command wrote does not stop it from running again; the others write nothing.
        for command in commands[:3] if again else commands:
            assert run(command) == 0, capsys.readouterr().err
            shown = capsys.readouterr().out
            assert [line for line in shown.splitlines() if len(line) > 100] == []
            if command[0] == "rank":
                rows = [line.split() for line in shown.splitlines() if line.strip()]
                assert rows[2][0] == "search_bookings"
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[('search_bookings', 0.")


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 122
    assert [command for command in ("make demo", "make test") if command not in README] == []


def test_the_demonstration_in_the_readme_is_one():
    demonstration = dtdr.Demonstration.from_dict(json.loads(block("read as a test", "json")))
    assert [step.acceptable for step in demonstration.plan.steps()] == [
        {"open_file"},
        {"summarize_pdf"},
        {"send_mail"},
        {"end"},
    ]


def test_the_public_names_are_those_of_the_documentation_and_have_docstrings():
    page = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r":: dtdr\.(\w+)$", page, re.MULTILINE)) == sorted(dtdr.__all__)
    assert all(getattr(dtdr, name).__doc__ for name in dtdr.__all__)


def test_importing_and_loading_stays_light(tmp_path):
    dtdr.fit(generate(20, seed=1), ranker="dtdr-l", **RANKER_ONLY).save(tmp_path / "model")
    code = (
        "import sys, dtdr; dtdr.load(sys.argv[1]).rank('mail it', ['open_file']);"
        "heavy = {'torch', 'transformers', 'sklearn', 'onnxruntime', 'rich'} & {*sys.modules};"
        "sys.exit(', '.join(heavy) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=False)
    assert done.returncode == 0, "something heavy was imported on the way to a ranking"


def test_every_page_the_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (PROJECT / target.partition("#")[0]).exists(), target
