"""``dtdr compare-runs``: did the agent change?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import open_data, report_bad
from dtdr.cli.output import note, plural, print_json, print_table
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, check_choice
from dtdr.evaluate.drift import MEASURES, Change, Drift, Kind
from dtdr.evaluate.drift import compare_runs as compare
from dtdr.evaluate.tables import Cell, p_value, shorten

SHOWN = 8
"""Tools and transitions in the tables; --json has all."""


def compare_runs(
    before: Path,
    after: Path,
    *,
    limit: list[str] | None = None,
    alpha: float = 0.05,
    permutations: Annotated[int, typer.Option(min=99)] = 10_000,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
) -> None:
    """Compare an agent's runs before and after a change.

    It compares tools, order, arguments, failures and cost. If both sides have the same queries, it
    compares the runs in pairs.

    Example: dtdr compare-runs main.jsonl branch.jsonl --limit calls=10% --limit tool_mix=0.1

    Args:
        before (BEFORE): Runs before the change: demonstrations or an agent's logs.
        after (AFTER): Runs after the change.
        limit (MEASURE=X): Exit with 1 if a measure changed significantly and by more than X, such
            as 10%; repeatable. Means per run: calls, tokens, failed_calls, failed_runs. Distances
            from 0 (the same) to 1: tool_mix, how often each tool is called; transitions, which tool
            follows which; sources, where arguments come from.
        alpha (P): A change is significant if its corrected p-value is below P; with 1, every change
            is significant.
        permutations (N): Number of permutations per test.
    """
    if not 0 < alpha <= 1:
        raise InputError(f"--alpha is {alpha}; it must be above 0 and at most 1")
    limits = [_Limit(text, list(MEASURES)) for text in limit or ()]
    bad = BadRecords() if skip_bad else None
    runs = [list(open_data([path], bad=bad)) for path in (before, after)]
    report_bad(bad)
    drift = compare(*runs, permutations=permutations)
    changes = {change.name: change for change in drift.of_kind("mean", "distance")}
    exceeded = [
        rule.message(changes[rule.measure])
        for rule in limits
        if rule.measure in changes and rule.is_exceeded(changes[rule.measure], alpha)
    ]
    if as_json:
        print_json({**drift.to_dict(), "alpha": alpha, "exceeded": exceeded})
    else:
        _print(drift, alpha)
        for sentence in exceeded:
            note(sentence)
    if exceeded:
        raise typer.Exit(1)


class _Limit:
    """How much one measure may change."""

    def __init__(self, text: str, measures: Sequence[str]) -> None:
        self.measure, _, amount = (part.strip() for part in text.partition("="))
        self.is_relative = amount.endswith("%")
        try:
            self.amount = float(amount.rstrip("%")) / (100 if self.is_relative else 1)
        except ValueError:
            self.amount = -1.0
        if not 0 <= self.amount < float("inf"):
            raise InputError(f"--limit {text!r} is not MEASURE=X or MEASURE=X%, such as calls=10%")
        check_choice("measure", self.measure, measures)

    def is_exceeded(self, change: Change, alpha: float) -> bool:
        if change.adjusted is not None and change.adjusted >= alpha and alpha < 1:
            return False
        if self.is_relative and change.before is not None:
            return abs(change.change) > self.amount * change.before
        return abs(change.change) > self.amount

    def message(self, change: Change) -> str:
        allowed = f"{100 * self.amount:g}%" if self.is_relative else f"{self.amount:g}"
        return (
            f"{self.measure} changed by {change.change:+.3g} (p: {p_value(change.adjusted)}); "
            f"the limit is {allowed}"
        )


def _print(drift: Drift, alpha: float) -> None:
    how = "the same queries, compared one by one" if drift.paired else "different queries"
    headers = ("Before", "After", "Change", "p")
    print_table(
        ("Measure", *headers),
        [
            (MEASURES[change.name], *_cells(change, alpha))
            for change in drift.of_kind("mean", "distance")
        ],
        title=f"{plural(drift.runs_before, 'run')} before, {drift.runs_after:,} after; {how}",
        caption="Means per run; a change without a mean is a total variation distance, 0 to 1. p: "
        f"permutation test, corrected (Holm); below {alpha:g} in bold.",
    )
    titles: dict[Kind, str] = {
        "source": "Source of arguments, share",
        "tool": "Tool, calls per run",
        "transition": "Transition, share",
    }
    for kind, title in titles.items():
        changes = drift.of_kind(kind)
        rest = f"The {SHOWN} largest of {len(changes):,}; --json has all."
        caption = rest if len(changes) > SHOWN else ""
        if kind == "tool":
            caption = f"Tools that only one side calls come first. {caption}".strip()
        shown = headers if kind == "tool" else headers[:3]  # shares have no test of their own
        cells = [(item.name, _cells(item, alpha)[: len(shown)]) for item in changes[:SHOWN]]
        if cells:
            rows = [(shorten(name, 60), *values) for name, values in cells]
            print_table((title, *shown), rows, caption=caption)


def _cells(change: Change, alpha: float) -> list[Any]:
    sides = (change.before, change.after)
    # Three decimals for small numbers, none for large ones.
    numbers = [side if side is None or abs(side) < 100 else round(side) for side in sides]
    text = f"{change.change:{'' if change.before is None else '+'}.3f}"
    is_significant = change.adjusted is not None and change.adjusted < alpha
    return [*numbers, Cell(text, best=is_significant), p_value(change.adjusted)]
