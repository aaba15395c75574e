"""The report as Markdown: the same sections, with the values of figures as tables."""

from __future__ import annotations

from collections.abc import Iterable

from dtdr.lab.report.blocks import Block, Cell, Page, Table, Text


def to_markdown(page: Page) -> str:
    """The whole report."""
    parts = [f"# {page.title}", page.lead]
    for section in page.sections:
        parts.append(f"## {section.title}")
        parts.extend(map(_block, section.blocks))
    return "\n\n".join(part for part in parts if part) + "\n"


def table_to_markdown(table: Table) -> str:
    """One table with its title and notes."""
    parts = [f"### {table.title}"] if table.title else []
    lines = [
        _row(column.title for column in table.columns),
        _row("---:" if column.numeric else "---" for column in table.columns),
        *(_row(map(_cell, row)) for row in table.rows),
    ]
    parts.append("\n".join(lines))
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts)


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f"**{block.text}**" if block.strong else block.text
    if isinstance(block, Table):
        return table_to_markdown(block)
    values = [one.values for one in block.figures if one.values is not None]
    return "\n\n".join(map(table_to_markdown, values))


def _cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|").replace("\n", " ")
    if cell.best:
        return f"**{text}**"
    return f"*{text}*" if cell.aside and text not in ("", "-") else text


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
