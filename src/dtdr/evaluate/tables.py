"""Tables of results: for a terminal of 100 columns, as Markdown, HTML, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from dtdr.evaluate.statistics import Interval, Proportion

if TYPE_CHECKING:
    from rich.console import Group

LONG = 60
"""Characters from which a cell may be broken into lines on a page, and is cut on a terminal where
a table asks for it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: the content.
        hover: more about it, on a page.
        value: the number behind the text, if the best of the column is marked.
        best: whether it is the best, with or without the column's ``best``.
        aside: whether it is a published figure, or otherwise secondary.
    """

    text: str
    hover: str = ""
    value: float | None = None
    best: bool = False
    aside: bool = False


EMPTY = Cell("-")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, the key of a row that it shows, and how.

    With ``best``, the column's highest value is bold. The key is for rows that are
    mappings; rows that are sequences are in the order of the columns. On a narrow terminal cells of
    a column that ``is_whole`` stay on their lines, and others are wrapped.
    """

    title: str
    key: str = ""
    show: Callable[[Any], str] = str
    numeric: bool = False
    best: bool = False
    is_whole: bool = False


def numeric(*titles: str, best: bool = False) -> list[Column]:
    """Columns of numbers, set to the right; the best of each is compared by three decimals."""
    return [Column(title, show=share, numeric=True, best=best) for title in titles]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values or cells; the lines of the caption are notes below the table."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any] | Sequence[Any]]
    title: str = ""
    caption: str = ""

    def cells(self) -> list[list[Cell]]:
        """The cells of each row, the best of a column marked."""
        rows = [self._cells(row) for row in self.rows]
        for index, column in enumerate(self.columns):
            values = [row[index].value for row in rows]
            known = [value for value in values if value is not None]
            if not (column.best and len(known) > 1):
                continue
            # Compared as shown: two methods that print the same figure are both best.
            best = column.show(max(known))
            for row, value in zip(rows, values, strict=True):
                if value is not None and column.show(value) == best:
                    row[index] = replace(row[index], best=True)
        return rows

    def _cells(self, row: Mapping[str, Any] | Sequence[Any]) -> list[Cell]:
        if isinstance(row, Mapping):
            row = [row.get(column.key) for column in self.columns]
        return [_cell(*pair) for pair in zip(row, self.columns, strict=True)]

    def to_rich(self, *, cut: bool = False) -> Group:
        """The title, the table and the caption for a terminal; ``cut`` shortens long cells."""
        from rich import box
        from rich.console import Group, RenderableType
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if column.numeric else "left"
            table.add_column(column.title, justify=justify, no_wrap=column.is_whole)
        for row in self.cells():
            texts = [shorten(cell.text) if cut else cell.text for cell in row]
            styles = ["bold green" if cell.best else "" for cell in row]
            table.add_row(*map(Text, texts, styles))
        # Not the table's own title and caption: those are as narrow as the table.
        parts: list[RenderableType] = [table]
        if self.title:
            parts.insert(0, Text(self.title, style="bold"))
        if self.caption:
            parts.append(Text(self.caption, style="dim"))
        return Group(*parts)

    def to_markdown(self) -> str:
        """The table as GitHub markdown, without its title and caption."""
        lines = [
            _markdown_row(column.title for column in self.columns),
            _markdown_row("---:" if column.numeric else "---" for column in self.columns),
            *(_markdown_row(map(_markdown_cell, row)) for row in self.cells()),
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The titles of the columns and the texts of all rows, as RFC 4180 has them."""
        stream = io.StringIO()
        writer = csv.writer(stream)
        writer.writerow(column.title for column in self.columns)
        writer.writerows([cell.text for cell in row] for row in self.cells())
        return stream.getvalue()

    def to_latex(self) -> str:
        """A ``table`` environment for the package booktabs, with the caption's lines as notes."""
        layout = "".join("r" if column.numeric else "l" for column in self.columns)
        head = " & ".join(_latex_text(column.title) for column in self.columns)
        body = [" & ".join(map(_latex_cell, row)) + r" \\" for row in self.cells()]
        caption = " ".join([self.title.rstrip(".") + ".", *self.caption.splitlines()])
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_latex_text(caption)}}}",
                rf"\begin{{tabular}}{{{layout}}}",
                r"\toprule",
                rf"{head} \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        return f'<div style="text-align:left">{self.to_html()}</div>'

    def to_html(self) -> str:
        """The title, the table and the notes, as elements of a page."""
        head = "".join(
            f"<th{_class('num' if column.numeric else '')}>{escape(column.title)}</th>"
            for column in self.columns
        )
        body = "".join(
            f"<tr>{''.join(map(_html_cell, row, self.columns))}</tr>" for row in self.cells()
        )
        title = f"<h3>{escape(self.title)}</h3>" if self.title else ""
        notes = "".join(f"<li>{prose_to_html(note)}</li>" for note in self.caption.splitlines())
        return (
            f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
            + (f'<ul class="notes">{notes}</ul>' if notes else "")
        )


def share(value: float) -> str:
    """A number from 0 to 1 as the tables of the paper write it: three decimals."""
    return f"{value:.3f}"


def count(value: float) -> str:
    """A whole number with separators of thousands."""
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds with significant digits only."""
    return f"{seconds:.3f}" if seconds < 1 else f"{seconds:.1f}"


def number(value: float | None, digits: int = 0) -> Cell:
    """A number with separators of thousands."""
    return EMPTY if value is None else Cell(f"{value:,.{digits}f}")


def significant(value: float | None) -> Cell:
    """A number with about three digits that matter."""
    size = abs(value or 0)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return number(value, digits)


def interval(mean: Interval | None, *, short: bool = False) -> Cell:
    """A number from 0 to 1 with half of its interval; ``short`` leaves that to the hover text."""
    if mean is None:
        return EMPTY
    half = mean.half_width
    if half is None:
        return Cell(share(mean.value), value=mean.value)
    hover = f"95 % interval {mean.low:.4f} to {mean.high:.4f}"
    text = share(mean.value) if short else f"{mean.value:.3f} ± {half:.3f}"
    return Cell(text, hover, mean.value)


def percent(value: Proportion | None) -> Cell:
    """A share in per cent with its interval."""
    if value is None or not value.count:
        return EMPTY
    text = f"{100 * value.value:.1f} ({100 * value.low:.0f} to {100 * value.high:.0f})"
    return Cell(text, f"{value.count:,} cases")


def p_value(value: float | None) -> str:
    """A p-value as people write it."""
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def prose_to_html(text: str) -> str:
    """Escaped text; backquotes enclose code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def prose_to_markdown(text: str) -> str:
    """Text that may have code in backquotes, but no element, image or link."""
    return text.replace("<", "&lt;").replace("](", "]\\(")


def _cell(value: Any, column: Column) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return EMPTY
    return Cell(column.show(value), value=value if column.best else None)


def shorten(text: str, width: int = LONG) -> str:
    """Text on one line, cut to a number of columns, at the end of a word if one is near.

    >>> shorten("guest, booking, checkout, invoice", 24)
    'guest, booking…'
    """
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    words, _, rest = flat[:width].rpartition(" ")
    # Half a long word, such as a file name, says more than none.
    is_near = len(rest) <= width // 2
    return (words if is_near else flat[: width - 1]).rstrip(" ,;:→") + "…"


def _markdown_cell(cell: Cell) -> str:
    if cell.best:
        return f"**{cell.text}**"
    text = cell.text.strip()  # a space after the asterisk would end the emphasis
    return f"*{text}*" if cell.aside and text not in ("", "-") else cell.text


def _markdown_row(cells: Iterable[str]) -> str:
    flat = (prose_to_markdown(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(flat)} |"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "µ": r"$\mu$",
    "`": "",
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text.replace("\n", " "))


def _latex_cell(cell: Cell) -> str:
    text = _latex_text(cell.text.strip())
    if cell.best:
        return rf"\textbf{{{text}}}"
    return rf"\textit{{{text}}}" if cell.aside and text not in ("", "-") else text


def _html_cell(cell: Cell, column: Column) -> str:
    is_long = not column.numeric and len(cell.text) > LONG
    flags = {"num": column.numeric, "best": cell.best, "aside": cell.aside, "wrap": is_long}
    hover = f' data-tip="{escape(cell.hover)}"' if cell.hover else ""
    names = _class(*(name for name, is_set in flags.items() if is_set))
    return f"<td{names}{hover}>{prose_to_html(cell.text)}</td>"


def _class(*names: str) -> str:
    joined = " ".join(name for name in names if name)
    return f' class="{joined}"' if joined else ""
