"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

import re
from html import escape

from dtdr.lab.report.blocks import Block, Cell, Column, Figure, Figures, Page, Table, Text
from dtdr.lab.report.style import css, script, series_class

LONG = 60
"""Characters from which a cell may be broken into lines."""


def to_html(page: Page) -> str:
    """The whole page."""
    links = "".join(f'<a href="#{item.id}">{escape(item.title)}</a>' for item in page.sections)
    body = [f"<h1>{escape(page.title)}</h1>", f"<p>{_prose(page.lead)}</p>", f"<nav>{links}</nav>"]
    for section in page.sections:
        body.append(f'<section id="{section.id}"><h2>{escape(section.title)}</h2>')
        body.extend(map(_block, section.blocks))
        body.append("</section>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{css()}\n</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f'\n<div id="tip" role="status"></div>\n<script>\n{script()}\n</script>\n'
        + "</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    if isinstance(block, Text):
        kind = ' class="strong"' if block.strong else ""
        return f"<p{kind}>{_prose(block.text)}</p>"
    if isinstance(block, Table):
        return _table(block)
    return _figures(block)


def _figures(block: Figures) -> str:
    names = list(dict.fromkeys(name for one in block.figures for name in one.legend))
    legend = "".join(
        f'<button type="button" aria-pressed="true" data-series="{escape(name)}">'
        f'<i class="{series_class(name)}{" dashed" if "(" in name else ""}"></i>'
        f"{escape(name)}</button>"
        for name in names
    )
    shown = "".join(map(_figure, block.figures))
    values = "".join(_table(one.values) for one in block.figures if one.values is not None)
    if values:
        values = f"<details><summary>The values as tables</summary>{values}</details>"
    return (
        f'<div class="group"><div class="legend">{legend if len(names) > 1 else ""}</div>'
        f'<div class="figures">{shown}</div>{values}</div>'
    )


def _figure(figure: Figure) -> str:
    caption = f"<figcaption>{_prose(figure.caption)}</figcaption>" if figure.caption else ""
    return f"<figure><h4>{escape(figure.title)}</h4>{figure.svg}{caption}</figure>"


def _table(table: Table) -> str:
    head = "".join(_head(column) for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(*pair) for pair in zip(row, table.columns, strict=True))}</tr>"
        for row in table.rows
    )
    notes = "".join(f"<li>{_prose(note)}</li>" for note in table.notes)
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    return (
        f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _head(column: Column) -> str:
    return f"<th{_class('num' if column.numeric else '')}>{escape(column.title)}</th>"


def _cell(cell: Cell, column: Column) -> str:
    names = [
        name
        for name, wanted in (
            ("num", column.numeric),
            ("best", cell.best),
            ("aside", cell.aside),
            ("wrap", not column.numeric and len(cell.text) > LONG),
        )
        if wanted
    ]
    hover = f' data-tip="{escape(cell.hover)}"' if cell.hover else ""
    return f"<td{_class(*names)}{hover}>{_prose(cell.text)}</td>"


def _class(*names: str) -> str:
    found = " ".join(name for name in names if name)
    return f' class="{found}"' if found else ""


def _prose(text: str) -> str:
    """Escaped text, with what stands between backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
