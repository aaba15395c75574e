"""Sections of a report, written as one HTML page or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from dtdr.data.files import replace_file
from dtdr.evaluate import charts
from dtdr.evaluate.tables import Column, Table, numeric, prose_to_markdown

_ASSETS = "lab/report/report"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart, and the values that it shows as a table.

    Attributes:
        title: above it.
        svg: the chart.
        caption: below it.
        legend: names of the series, in the order of the chart.
        values: what is drawn, which replaces the chart in Markdown.
    """

    title: str
    svg: str
    caption: str
    legend: Sequence[str]
    values: Table


Block: TypeAlias = Text | Table | Sequence[Figure]
"""Figures stand side by side where there is room, with one legend."""


@dataclass
class Section:
    """A part of the report."""

    id: str
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    lead: str
    sections: Sequence[Section]


def method_table(
    methods: Mapping[str, Any],
    columns: Mapping[str, Callable[[Any], Any]],
    title: str,
    caption: str = "",
    *,
    best: bool = False,
    head: str = "Method",
) -> Table:
    """A row for each method.

    Args:
        methods: what each of them measured.
        columns: by title, a cell or a number of what a method measured.
        title: above the table.
        caption: below it.
        best: whether the best of each column is marked.
        head: title of the first column.
    """
    rows = [
        [name, *(cell(measured) for cell in columns.values())] for name, measured in methods.items()
    ]
    return Table([Column(head), *numeric(*columns, best=best)], rows, title, caption)


def to_html(page: Page) -> str:
    """The report as one HTML page that needs nothing else.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    return charts.render(
        f"{_ASSETS}.html.jinja",
        page=page,
        style="\n".join(map(charts.read_asset, ("charts.css", f"{_ASSETS}.css"))),
        script=charts.read_asset(f"{_ASSETS}.js"),
        kind_of=lambda block: type(block).__name__,
    )


def to_markdown(page: Page) -> str:
    """The report as Markdown, with the values of figures as tables."""
    parts = [f"# {prose_to_markdown(page.title)}", prose_to_markdown(page.lead)]
    for section in page.sections:
        parts.append(f"## {prose_to_markdown(section.title)}")
        for block in section.blocks:
            if isinstance(block, Text):
                text = prose_to_markdown(block.text)
                parts.append(f"**{text}**" if block.strong else text)
            else:
                parts.extend(map(_markdown_table, tables_of(block)))
    return "\n\n".join(part for part in parts if part) + "\n"


def tables_of(block: Block) -> list[Table]:
    """The tables of a block, those of the values of figures included."""
    if isinstance(block, Table):
        return [block]
    return [] if isinstance(block, Text) else [figure.values for figure in block]


def write_report(page: Page, folder: Path) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` into a folder; returns their paths.

    Every table is also in ``tables/`` as CSV, and all of them in ``tables.tex`` for booktabs.

    Raises:
        MissingExtraError: Jinja is not installed.
    """
    paths = (folder / "report.html", folder / "report.md")
    texts = dict(zip(paths, (to_html(page), to_markdown(page)), strict=True))
    latex = []
    for section in page.sections:
        tables = [table for block in section.blocks for table in tables_of(block)]
        for table_index, table in enumerate(tables, start=1):
            texts[folder / "tables" / f"{section.id}-{table_index}.csv"] = table.to_csv()
            latex.append(table.to_latex())
    texts[folder / "tables.tex"] = "\n".join(latex)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as stream:
            stream.write(text)
    return paths


def _markdown_table(table: Table) -> str:
    parts = [f"### {prose_to_markdown(table.title)}"] if table.title else []
    parts.append(table.to_markdown().rstrip())
    if table.caption:
        notes = prose_to_markdown(table.caption).splitlines()
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts)
