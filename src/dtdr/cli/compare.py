"""``dtdr compare``: is one run better than another?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dtdr.cli import options
from dtdr.cli.output import console, print_json

if TYPE_CHECKING:
    from dtdr.evaluate.run_log import RunLog


def compare(
    first: Path,
    second: Path,
    *,
    metric: str = "mrr",
    seed: options.SEED = 0,
    as_json: options.JSON = False,
) -> None:
    """Compare two run logs: the difference, its 95 % interval, a permutation test.

    Example: dtdr compare runs/dr.npz runs/dtdr-c.npz --metric f1

    Args:
        first (RUN1): A run log, say the baseline's.
        second (RUN2): Another, over the same steps.
        metric (NAME): A metric as in dtdr evaluate, such as log_mrr.
    """
    from dtdr.evaluate.compare import compare as compare_runs
    from dtdr.evaluate.result_tables import metric_title
    from dtdr.evaluate.run_log_file import read_run_log
    from dtdr.evaluate.statistics import PERMUTATIONS
    from dtdr.evaluate.tables import Column, Table, numeric, p_value

    left, right = read_run_log(first), read_run_log(second)
    comparison = compare_runs(left, right, metric, seed=seed)
    if as_json:
        print_json({"first_run": str(first), "second_run": str(second), **comparison.to_dict()})
        return
    title = metric_title(metric)
    synthetic = " (synthetic)" if left.header.synthetic else ""
    table = Table(
        [
            Column("Run"),
            Column("Method"),
            *numeric(f"{title}, mean of steps", f"{title}, mean of plans", best=True),
        ],
        [
            ("1", _name(left), comparison.first, comparison.first_by_plan),
            ("2", _name(right), comparison.second, comparison.second_by_plan),
        ],
        title=f"{left.header.dataset}{synthetic}, split {left.header.split.get('name')}: "
        f"{comparison.steps:,} steps of {comparison.plans:,} plans",
    )
    p = p_value(comparison.p_value)
    out = console()
    out.print(table.to_rich())
    out.print(
        f"run 2 - run 1 (mean of plans): [bold]{comparison.difference:+.4f}[/bold], "
        f"95 % interval {comparison.low:+.4f} to {comparison.high:+.4f}, "
        f"p {p if p.startswith('<') else f'= {p}'}"
    )
    out.print(
        f"[dim]paired permutation test and bootstrap over plans, {PERMUTATIONS:,} each, "
        f"seed {seed}[/dim]"
    )


def _name(log: RunLog) -> str:
    encoder = log.header.encoder
    return log.header.retriever + ("" if encoder is None else f" ({encoder.get('name')})")
