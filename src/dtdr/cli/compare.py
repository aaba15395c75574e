"""``dtdr compare``: is one run better than another?"""

from __future__ import annotations

from pathlib import Path

from dtdr.cli import options
from dtdr.cli.output import print_json, print_table, say
from dtdr.evaluate import compare as compare_runs
from dtdr.evaluate.result_tables import metric_title
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.run_log_file import read_run_log
from dtdr.evaluate.statistics import PERMUTATIONS
from dtdr.evaluate.tables import p_value


def compare(
    first: Path,
    second: Path,
    *,
    metric: str = "mrr",
    as_json: options.JSON = False,
) -> None:
    """Test whether two rankers differ by more than chance.

    Example: dtdr compare runs/dr.npz runs/dtdr-c.npz --metric f1

    Args:
        first (RUN1): The baseline's results, a log that dtdr evaluate --runs wrote.
        second (RUN2): The other ranker's results on the same steps.
        metric (NAME): A metric of dtdr evaluate, such as log_mrr.
    """
    logs = [read_run_log(first), read_run_log(second)]
    comparison = compare_runs(logs[0], logs[1], metric)
    if as_json:
        print_json({"first_run": str(first), "second_run": str(second), **comparison.to_dict()})
        return
    title, header = metric_title(metric), logs[0].header
    rows = [
        (1, _name(logs[0]), comparison.first, comparison.first_by_plan),
        (2, _name(logs[1]), comparison.second, comparison.second_by_plan),
    ]
    print_table(
        ("Run", "Method", f"{title}, mean of steps", f"{title}, mean of plans"),
        rows,
        title=f"{header.dataset}{' (synthetic)' if header.synthetic else ''}, split "
        f"{header.split.get('name')}: {comparison.steps:,} steps of {comparison.plans:,} plans",
    )
    p = p_value(comparison.p_value)
    say(
        f"Run 2 - run 1 (mean of plans): {comparison.difference:+.4f}, 95 % interval "
        f"{comparison.low:+.4f} to {comparison.high:+.4f}, p {p if p[0] == '<' else f'= {p}'}; "
        f"paired permutation test and bootstrap over plans, {PERMUTATIONS:,} each."
    )


def _name(log: RunLog) -> str:
    encoder = log.header.encoder
    return log.header.ranker + ("" if encoder is None else f" ({encoder.get('name')})")
