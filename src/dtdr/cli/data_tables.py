"""The tables of ``dtdr data list`` and ``dtdr data stats``."""

from __future__ import annotations

from typing import Any

from dtdr.cli.output import console
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.source import Published, find_file
from dtdr.evaluate.datasets.statistics import Statistics
from dtdr.evaluate.datasets.synthetic import SOURCE
from dtdr.evaluate.tables import Column, Table


def set_rows() -> list[dict[str, Any]]:
    """One row a set that has a name: what it is, and whether it is on this machine."""
    rows: list[dict[str, Any]] = [
        {
            "name": datasets.BUNDLED,
            "title": "desk-and-travel assistant (synthetic)",
            "licence": "Apache-2.0",
            "origin": SOURCE,
            "path": None,
            "here": "yes, generated",
            "synthetic": True,
        }
    ]
    for source in datasets.SOURCES.values():
        title, path = source.title, None
        try:
            path = find_file(source)[1]
            title = source.describe(path)[0]
            here = "yes"
        except InputError:
            here = "dtdr data download" if source.hub else "get it by hand"
        rows.append(
            {
                "name": source.name,
                "title": title,
                "licence": source.licence,
                "origin": source.origin,
                "path": None if path is None else str(path),
                "here": here,
                "synthetic": False,
            }
        )
    return rows


def print_sets(rows: list[dict[str, Any]]) -> None:
    """Print what ``set_rows`` gave."""
    columns = [("Name", "name"), ("Set", "title"), ("Licence", "licence"), ("Here", "here")]
    console().print(Table([Column(*column) for column in columns], rows).to_rich())


def print_statistics(sets: list[Statistics], missing: list[str]) -> None:
    """Print the paper's table of dataset statistics, published figures below the measured ones."""
    rows: list[tuple[str | None, ...]] = []
    for item in sets:
        rows.append(_row(item.title, item))
        if item.published:
            rows.append(_row("  full set, as published", item.published))
        if difference := item.difference:
            rows.append(
                (
                    "  difference",
                    *(difference[key] for key in ("plans", "tools")),
                    *(difference[f"{key}_per_plan"] for key in ("calls", "dependencies")),
                )
            )
    for name in missing:
        source = datasets.find_source(name)
        rows.append((f"{source.title} (not here)", *[None] * 4))
        if source.published:
            rows.append(_row("  full set, as published", source.published))
    numbers = ("Plans", "Tools", "Calls a plan", "Dependencies a plan")
    columns = [Column("Set"), *(Column(title, numeric=True) for title in numbers)]
    caption = "mean ± standard deviation; tools count the end of plan, calls do not"
    console().print(Table(columns, rows, caption=caption).to_rich())
    for item in sets:
        for sentence in (item.note, *item.remarks):
            if sentence:
                console().print(f"{item.title}: {sentence}.")


def _row(title: str, of: Statistics | Published) -> tuple[str, ...]:
    means = (f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in (of.calls, of.dependencies))
    return title, f"{of.plans:,}", f"{of.tools:,}", *means
