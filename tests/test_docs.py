"""The pages of the documentation: what is generated is complete."""

import re
import sys
from typing import Any

import pytest
import typer

from dtdr.cli import app
from tests.conftest import PROJECT

DOCS = PROJECT / "docs"


@pytest.fixture(scope="module")
def generated():
    sys.path.insert(0, str(DOCS))
    try:
        import generated  # type: ignore[import-not-found]

        return generated
    finally:
        sys.path.remove(str(DOCS))


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


WIDTH = 120
PAGES = [*PROJECT.glob("*.md"), *DOCS.glob("*.md"), *(PROJECT / "examples").glob("*.md")]


@pytest.mark.parametrize(
    "page", [path for path in PAGES if path.name != "cli.md"], ids=lambda path: path.name
)
def test_lines_of_text_fit_an_editor(page):
    """Tables, code and records cannot be wrapped."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    lines = [line for line in text.splitlines() if not re.match(r"\s*\||\s{4,}\S", line)]
    long = [line for line in lines if len(line) > WIDTH and " " in line.strip()]
    assert long == [], f"wrap at {WIDTH} characters"
