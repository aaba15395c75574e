"""Pages that are made from the program and from other pages: the commands, ``llms.txt``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from dtdr.cli import app

_TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


_INTRODUCTION = """Made from the program: every command, its arguments and its options, as
`dtdr COMMAND --help` shows them. A command with `--json` prints one JSON object. Exit codes: 0; 2
for misuse, 1 for other errors.
"""


def write_cli_reference(path: Path) -> None:
    """Write the page of all commands and their options, unless it says so already."""
    text = "\n".join(_cli_reference())
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _cli_reference() -> Iterator[str]:
    yield "# Command line\n"
    yield _INTRODUCTION
    root: Any = typer.main.get_command(app)
    for name in root.commands:
        command = root.get_command(None, name)
        inner = getattr(command, "commands", None)
        if inner is None:
            yield from _command(f"dtdr {name}", command, "##")
            continue
        yield f"## dtdr {name}\n"
        yield f"{_prose(command.help)}\n"
        for sub, subcommand in inner.items():
            yield from _command(f"dtdr {name} {sub}", subcommand, "###")


def _command(name: str, command: Any, level: str) -> Iterator[str]:
    yield f"{level} {name}\n"
    yield f"{_prose(command.help)}\n"
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            spelled = f"`{parameter.metavar or parameter.name.upper()}`"
        else:
            names = [*parameter.opts, *parameter.secondary_opts]
            value = "" if parameter.is_flag else f" {_metavar(parameter)}"
            spelled = ", ".join(f"`{option}{value}`" for option in names).replace("|", "\\|")
        rows.append(f"| {spelled} | {_cell(parameter.help or '')}{_default(parameter)} |")
    if rows:
        yield "| | |\n| --- | --- |"
        yield from rows
    yield ""


def _metavar(option: Any) -> str:
    if option.metavar:
        return str(option.metavar)
    annotation = option.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(choice.value for choice in annotation)
    return getattr(annotation, "__name__", "value").upper()


def _default(option: Any) -> str:
    value = option.default
    if value is None or callable(value) or not option.show_default or isinstance(value, bool):
        return ""
    if value in ("", [], ()) or option.param_type_name == "argument":
        return ""
    return f" Default: `{getattr(value, 'value', value)}`."


def _prose(text: str | None) -> str:
    lines = []
    for line in inspect.cleandoc(text or "").replace("\f", "").splitlines():
        label, colon, command = line.partition(": dtdr ")
        lines.append(f"{_escape(label)}: `dtdr {command}`  " if colon else _escape(line))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _escape(text: str) -> str:
    """Text as Markdown: nothing in it is a tag or emphasis."""
    return re.sub(r"([<>*_])", r"\\\1", text)


def write_llms_files(source: Path, target: Path) -> None:
    """Write ``llms.txt``, a list of the pages, and ``llms-full.txt``, all of their text."""
    index = (source / "index.md").read_text(encoding="utf-8")
    names = [*_listed(index), *pages_not_listed(source)]
    pages = {name: (source / f"{name}.md").read_text(encoding="utf-8") for name in names}
    lines = ["# dtdr", "", f"> {_first_paragraph(index)}", ""]
    for name, text in pages.items():
        title = re.search(r"^# (.*)$", text, re.MULTILINE)
        lines.append(f"- [{title[1] if title else name}]({name}.html): {_first_paragraph(text)}")
    (target / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    full = [index.partition("```{toctree}")[0], *pages.values()]
    text = "\n\n".join(re.sub(r"<!--.*?-->\n", "", page) for page in full)
    (target / "llms-full.txt").write_text(text, encoding="utf-8")


def _listed(index: str) -> list[str]:
    return [
        line.strip()
        for block in _TOCTREE.findall(index)
        for line in block.splitlines()
        if line.strip() and not line.startswith(":")
    ]


def pages_not_listed(source: Path) -> list[str]:
    """Pages that no list of the index names; they come last."""
    listed = {"index", *_listed((source / "index.md").read_text(encoding="utf-8"))}
    return sorted({path.stem for path in source.glob("*.md")} - listed)


def _first_paragraph(page: str) -> str:
    """The first paragraph under the title, without markup."""
    for block in page.split("\n\n"):
        text = " ".join(block.split())
        if text and not text.startswith(("#", "<!--", "```", "|", ":::", "![")):
            return re.sub(r"\[([^\]]*)\]\([^)]*\)|[*`]", r"\1", text)
    return ""
