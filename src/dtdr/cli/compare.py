"""``dtdr compare``: is one run better than another?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli.output import console, print_json

if TYPE_CHECKING:
    from dtdr.evaluation.run_log import RunLog


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN1", help="A run log, say the baseline's.")],
    second: Annotated[Path, typer.Argument(metavar="RUN2", help="Another, over the same steps.")],
    metric: Annotated[
        str,
        typer.Option(
            "--metric", metavar="NAME", help="A metric as in dtdr evaluate, such as log_mrr."
        ),
    ] = "mrr",
    seed: options.SEED = 0,
    as_json: options.JSON = False,
) -> None:
    """Compare two run logs: the difference, its 95 % interval, a permutation test.

    Example: dtdr compare runs/dr.npz runs/dtdr-c.npz --metric f1
    """
    from dtdr.evaluation.compare import compare as compare_runs
    from dtdr.evaluation.result_tables import metric_title
    from dtdr.evaluation.run_log_file import read_run_log
    from dtdr.evaluation.statistics import PERMUTATIONS
    from dtdr.evaluation.tables import Column, Table, p_value, share

    left, right = read_run_log(first), read_run_log(second)
    comparison = compare_runs(left, right, metric, seed=seed)
    names = [_name(left), _name(right)]
    if as_json:
        print_json({"first_run": str(first), "second_run": str(second), **comparison.to_dict()})
        return
    title = metric_title(metric)
    synthetic = " (synthetic)" if left.header.synthetic else ""
    table = Table(
        [
            Column("Run", "run"),
            Column("Method", "method"),
            Column(f"{title}, mean of steps", "steps", share, numeric=True, best=True),
            Column(f"{title}, mean of plans", "plans", share, numeric=True, best=True),
        ],
        [
            {
                "run": "1",
                "method": names[0],
                "steps": comparison.first,
                "plans": comparison.first_by_plan,
            },
            {
                "run": "2",
                "method": names[1],
                "steps": comparison.second,
                "plans": comparison.second_by_plan,
            },
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
