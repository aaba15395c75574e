"""The code blocks of the pages on agents, run as they stand."""

import re
import shlex

from dtdr.cli import run
from tests.conftest import PROJECT

DOCS = PROJECT / "docs"
PAGES = (
    "integrations.md",
    "openai.md",
    "anthropic.md",
    "langchain.md",
    "pydantic-ai.md",
    "openai-agents.md",
    "llama-index.md",
)
TEXT = "\n".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)


def block(name, text=TEXT):
    """The block of code under the mark of that name."""
    found = re.search(rf"<!-- test: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found, f"no page has a block marked {name!r}"
    return found.group(1)


def run_python(name, **names):
    """Run a block with some names given; what it defines is returned."""
    code = compile(block(name), name, "exec")
    exec(code, names)
    return names


def run_shell(name, capsys):
    """Run a block's commands in the current folder, as a user would; returns what they print."""
    printed = []
    for line in block(name).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "dtdr"
        code = run(arguments)
        out, err = capsys.readouterr()
        assert code == 0, err
        printed.append(out)
    return printed
