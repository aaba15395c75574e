"""``dtdr compare-runs``: did the agent change?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli.inputs import open_data, report_bad
from dtdr.cli.output import console, note, print_json, printable
from dtdr.errors import InputError, unknown_choice

if TYPE_CHECKING:
    from dtdr.evaluate.drift import Change, Drift
    from dtdr.evaluate.tables import Table

SHOWN = 8
"""Tools, groups and transitions in the tables; --json has all."""


def compare_runs(
    before: Path,
    after: Path,
    *,
    limit: list[str] | None = None,
    alpha: float = 0.05,
    permutations: Annotated[int, typer.Option(min=99)] = 10_000,
    seed: options.SEED = 0,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
) -> None:
    """Compare two sets of an agent's runs: tools, order, arguments, failures, cost.

    Runs with the same ids and queries are compared one by one.

    Example: dtdr compare-runs main.jsonl branch.jsonl --limit calls=10% --limit tool_mix=0.1

    Args:
        before (BEFORE): Runs before the change (JSON lines).
        after (AFTER): Runs after the change.
        limit (MEASURE=X): Exit with 1 if a measure changed by more than X, or by more than X%, and
            not by chance; repeatable. Measures: calls, tokens, failed_calls,
            failed_runs (all per run), tool_mix, transitions, sources (0: same, 1: nothing in
            common).
        alpha (P): Significance level of the corrected p-value; 1 tests only the limits.
        permutations (N): Permutations of each test.
    """
    from dtdr.data.jsonl import BadRecords
    from dtdr.evaluate.drift import MEASURES
    from dtdr.evaluate.drift import compare_runs as compare

    if not 0 < alpha <= 1:
        raise InputError(f"--alpha is {alpha}; it must be above 0 and at most 1")
    limits = [_Limit(text, list(MEASURES)) for text in limit or ()]
    bad = BadRecords() if skip_bad else None
    runs = [list(open_data([path], bad=bad)) for path in (before, after)]
    report_bad(bad)
    drift = compare(*runs, seed=seed, permutations=permutations)
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
        if self.measure not in measures:
            raise unknown_choice("measure", self.measure, measures)

    def is_exceeded(self, change: Change, alpha: float) -> bool:
        if change.adjusted >= alpha and alpha < 1:
            return False
        if self.is_relative and change.before is not None:
            return abs(change.change) > self.amount * change.before
        return abs(change.change) > self.amount

    def message(self, change: Change) -> str:
        allowed = f"{100 * self.amount:g}%" if self.is_relative else f"{self.amount:g}"
        return (
            f"{self.measure} changed by {change.change:+.3g} (p = {change.adjusted:.2g}); "
            f"the limit is {allowed}"
        )


def _print(drift: Drift, alpha: float) -> None:
    from dtdr.evaluate.drift import MEASURES
    from dtdr.evaluate.tables import Column, Table, count, numeric

    how = "the same queries, compared one by one" if drift.is_paired else "different queries"
    title = f"{drift.before:,} runs before, {drift.after:,} after; {how}"
    measured = drift.of_kind("mean", "distance")
    tables = [
        _changes_table(
            "Measure",
            measured,
            alpha,
            title=title,
            names=MEASURES,
        ),
        Table(
            [Column("Source of arguments"), *numeric("Before", "After")],
            [(source, *pair) for source, pair in drift.sources.items()],
        ),
        Table(
            [
                Column("Tool that only one side calls"),
                *(
                    Column(f"Calls {side}", show=count, numeric=True)
                    for side in ("before", "after")
                ),
            ],
            [(printable(tool), *pair) for tool, pair in list(drift.one_sided.items())[:SHOWN]],
            caption=_rest(len(drift.one_sided), "tools"),
        ),
        _changes_table(
            "Tool, calls a run",
            [change for change in drift.of_kind("tool") if change.name not in drift.one_sided],
            alpha,
        ),
        _changes_table("Group, calls a run", drift.of_kind("group"), alpha),
        Table(
            [Column("Transition"), *numeric("Before", "After")],
            [
                (" → ".join(map(printable, pair)), *shares)
                for pair, *shares in drift.transitions[:SHOWN]
            ],
            caption=_rest(len(drift.transitions), "transitions"),
        ),
    ]
    out = console()
    for table in tables:
        if table.rows:
            out.print(table.to_rich(cut=True))


def _changes_table(
    header: str,
    changes: Sequence[Change],
    alpha: float,
    *,
    title: str = "",
    names: Mapping[str, str] | None = None,
) -> Table:
    from dtdr.evaluate.tables import Cell, Column, Table, p_value

    shown = changes if names else changes[:SHOWN]
    rows = [
        (
            (names or {}).get(change.name, printable(change.name)),
            change.before,
            change.after,
            Cell(
                f"{change.change:{'' if change.before is None else '+'}.3f}",
                best=change.adjusted < alpha,
            ),
            p_value(change.adjusted),
        )
        for change in shown
    ]
    columns = [
        Column(header),
        *(Column(side, show=_number, numeric=True) for side in ("Before", "After")),
        *(Column(title, numeric=True) for title in ("Change", "p")),
    ]
    caption = (
        f"Means of a run; a change without a mean is a total variation distance, 0 to 1. p: "
        f"permutation test, corrected (Holm); below {alpha:g} in bold."
        if names
        else _rest(len(changes), "changes")
    )
    return Table(columns, rows, title=title, caption=caption)


def _number(value: float) -> str:
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _rest(number: int, what: str) -> str:
    return f"The {SHOWN} largest of {number:,} {what}; --json has all." if number > SHOWN else ""
