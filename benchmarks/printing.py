"""Prints what a benchmark measures, a row at a time; used by the benchmarks beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from dtdr.evaluate.tables import Column, Table


def print_rows(
    measured: Iterable[dict[str, Any]],
    columns: Sequence[Column],
    *,
    as_json: bool,
    caption: str,
    title: str = "",
) -> None:
    """Print one table, or each row as a line of JSON as soon as it is measured."""
    if as_json:
        for row in measured:
            print(json.dumps(row), flush=True)
        return
    Console(width=100).print(Table(columns, list(measured), title=title, caption=caption).to_rich())
