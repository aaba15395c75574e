"""Metrics, the harness, run logs and comparisons."""

from dtdr.evaluate.compare import Comparison, compare
from dtdr.evaluate.harness import run
from dtdr.evaluate.metrics import by_plan_length, by_step, mean_score
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.run_log_file import read_run_log, write_run_log

__all__ = [
    "Comparison",
    "RunLog",
    "by_plan_length",
    "by_step",
    "compare",
    "mean_score",
    "read_run_log",
    "run",
    "write_run_log",
]
