"""The pages of the documentation: their code runs, and what is generated is complete."""

import re
import sys
from typing import Any

import pytest
import typer
from examples.hotel.tools import TOOLS

import dtdr
from dtdr.cli import app
from dtdr.logs import open_demonstrations
from tests.conftest import PROJECT

DOCS = PROJECT / "docs"
LOG = PROJECT / "examples" / "hotel" / "openai-chat.jsonl"


@pytest.fixture(scope="module")
def generated():
    sys.path.insert(0, str(DOCS))
    try:
        import generated  # type: ignore[import-not-found]

        return generated
    finally:
        sys.path.remove(str(DOCS))


def blocks(page, name):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(rf"<!-- test: {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found, f"{page} has no block marked {name!r}"
    return found


def run_blocks(page, name, **names):
    for code in blocks(page, name):
        exec(compile(code, f"{page}:{name}", "exec"), names)
    return names


def test_the_first_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = LOG.read_bytes().splitlines(keepends=True)
    (tmp_path / "openai-chat.jsonl").write_bytes(b"".join(lines[:80]))
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "Emi Patel is checking out"}],
        "tools": TOOLS,
    }
    names = run_blocks("start.md", "start", request=request)
    code = "".join(blocks("start.md", "start"))
    promised = re.findall(r"print\(.*\)  # (\w+)$", code, re.MULTILINE)
    shown = [line for line in capsys.readouterr().out.splitlines() if line in promised]
    assert shown == promised == ["search_bookings", "get_invoice"]
    assert len(names["request"]["tool_choice"]["allowed_tools"]["tools"]) == 5
    run_blocks("session.md", "session", model=names["model"])
    assert capsys.readouterr().out == "get_invoice\n"


@pytest.mark.parametrize("name", ["pairs", pytest.param("frames", marks=pytest.mark.slow)])
def test_every_form_of_demonstrations_is_learned_from(name):
    if name == "frames":
        pytest.importorskip("polars", reason="polars is not installed")
        pytest.importorskip("pandas", reason="pandas is not installed")
    run_blocks("import-check.md", name)


def test_what_is_said_of_updates_notebooks_and_event_loops_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    demonstrations = list(open_demonstrations([LOG]))[:40]
    model = dtdr.fit(demonstrations)
    model.save("model")
    run_blocks("session.md", "update", model=model)
    assert "send_sms" in dtdr.load("model").vocabulary
    run_blocks("session.md", "async", model=model)
    assert "find_user" in capsys.readouterr().out


def test_the_reference_of_commands_has_each_with_its_options(generated, tmp_path):
    page = tmp_path / "cli.md"
    generated.write_cli_reference(page)
    text = page.read_text(encoding="utf-8")
    root: Any = typer.main.get_command(app)
    for name in root.commands:
        command = root.get_command(None, name)
        for sub, inner in getattr(command, "commands", {"": command}).items():
            section = text.partition(f"# {f'dtdr {name} {sub}'.strip()}\n")[2].partition("\n#")[0]
            assert section, (name, sub)
            for parameter in inner.params:
                for option in parameter.opts:
                    if option.startswith("--") and option != "--help":
                        assert f"`{option}" in section, (name, sub, option)


def test_the_texts_for_llms_hold_every_page(generated, tmp_path):
    generated.write_cli_reference(DOCS / "cli.md")
    generated.write_llms_files(DOCS, tmp_path)
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    full = (tmp_path / "llms-full.txt").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        if page.stem != "index":
            assert f"({page.stem}.html)" in listed
            assert page.read_text(encoding="utf-8").partition("\n")[0] in full


def test_every_page_in_the_index_is_there():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    lists = "".join(re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL))
    names = re.findall(r"^[a-z-]+$", lists, re.MULTILINE)
    assert "start" in names
    generated_pages = {"cli"}
    assert {name for name in names if not (DOCS / f"{name}.md").exists()} <= generated_pages
