import json
import re
import subprocess
import sys

import dtdr
from dtdr.datasets.synthetic import generate
from dtdr.demonstration_files import save_demonstrations
from tests.conftest import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")


def block(mark, language):
    found = re.search(rf"<!-- {mark} -->\n```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no {language} block marked {mark!r}"
    return found.group(1)


def test_the_five_lines_of_the_readme_run_as_they_stand(tmp_path):
    code = block("run as a test", "python")
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    save_demonstrations(tmp_path / "demonstrations.jsonl", generate(20, seed=1))
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "model" / "config.json").exists()
    assert run.stdout.startswith("[('")


def test_the_demonstration_in_the_readme_is_one():
    demonstration = dtdr.Demonstration.from_dict(json.loads(block("read as a test", "json")))
    assert [step.acceptable for step in demonstration.plan.steps()] == [
        {"open_file"},
        {"summarize_pdf"},
        {"send_mail"},
        {"end"},
    ]


def test_the_public_names_are_those_of_the_documentation_and_have_docstrings():
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("\n## Public names\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`dtdr\.(\w+)`", " ".join(named))) == sorted(dtdr.__all__)
    assert all(getattr(dtdr, name).__doc__ for name in dtdr.__all__)


def test_importing_and_loading_stays_light(tmp_path):
    dtdr.fit(generate(20, seed=1), retriever="dtdr-l").save(tmp_path / "model")
    code = (
        "import sys, dtdr; dtdr.load(sys.argv[1]).rank('mail it', ['open_file']);"
        "heavy = {'torch', 'transformers', 'sklearn', 'onnxruntime', 'rich'} & {*sys.modules};"
        "sys.exit(', '.join(heavy) or None)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=False)
    assert run.returncode == 0, "something heavy was imported on the way to a ranking"


def test_every_page_the_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (PROJECT / target).exists(), target
