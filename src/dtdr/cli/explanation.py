"""An explanation as tables: what ``dtdr rank --why`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdr.cli.output import console, printable, shorten

if TYPE_CHECKING:
    from dtdr.rankers.explanation import Explanation

_NAME = 34
"""Columns of a tool's name in a table."""


def print_explanation(explanation: Explanation) -> None:
    """Print why a tool has its probability."""
    out = console()
    tool, rival = (
        shorten(printable(name), _NAME) for name in (explanation.tool, explanation.rival)
    )
    out.print()
    out.print(
        f"Why {tool} (place {explanation.rank}, {explanation.probability:.3f}) and not {rival} "
        f"({explanation.rival_probability:.3f})",
        style="bold",
        markup=False,
    )
    if explanation.note:
        out.print(printable(explanation.note), markup=False)
    for table in (_contributions, _similar, _chain):
        made = table(explanation)
        if made is not None:
            out.print(made)


def _contributions(explanation: Explanation) -> object:
    from dtdr.evaluate.tables import Column, Table

    if not explanation.contributions:
        return None
    rows = [
        (
            item.block,
            item.about,
            f"{item.adds:+.2f}",
            f"{item.probability_without:.3f}",
            shorten(printable(item.best_without), _NAME),
        )
        for item in sorted(explanation.contributions, key=lambda item: -abs(item.adds))
    ]
    columns = [
        *map(Column, ("Block", "Reads")),
        Column("Adds", numeric=True),
        Column("Without it", numeric=True),
        Column("Best then"),
    ]
    caption = (
        "adds: what the log odds lose without the block; little if another block knows the same"
    )
    return Table(columns, rows, caption=caption).to_rich()


def _similar(explanation: Explanation) -> object:
    from dtdr.evaluate.tables import Column, Table

    if not explanation.similar:
        return None
    rows = [
        (
            str(item.position + 1),
            f"{item.similarity:.2f}",
            shorten(printable(" → ".join(item.tools)), 46),
            shorten(printable(", ".join(item.terms)), 24),
        )
        for item in explanation.similar
    ]
    columns = [
        Column("Run", numeric=True),
        Column("Similarity", numeric=True),
        *map(Column, ("Calls", "Same words")),
    ]
    return Table(
        columns, rows, caption="the demonstrations with the most similar queries"
    ).to_rich()


def _chain(explanation: Explanation) -> object:
    from dtdr.evaluate.tables import Column, Table

    if not explanation.chain:
        return None
    rows = [
        (
            "all" if item.cluster is None else str(item.cluster),
            item.demonstrations,
            shorten(printable(" → ".join(item.after)) or "anything", 40),
            item.count,
            item.rival_count,
            item.total,
        )
        for item in explanation.chain
    ]
    columns = [
        Column("Cluster"),
        Column("Runs", numeric=True),
        Column("After"),
        *(Column(title, numeric=True) for title in ("This tool", "The other", "Any")),
    ]
    caption = "how often a tool came next after the last calls, nearest cluster first"
    return Table(columns, rows, caption=caption).to_rich()
