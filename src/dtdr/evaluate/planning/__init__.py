"""Does the ranking help an LLM? Teacher-forced selections and whole plans, from run logs."""

from dtdr.evaluate.planning.harness import (
    choose_plans,
    choose_steps,
    hold_out,
    run_plans,
    run_selections,
)
from dtdr.evaluate.planning.planning_metrics import (
    function_selection_accuracy,
    success_rate,
)
from dtdr.evaluate.planning.run_log import PlanningLog, read_planning_log

__all__ = [
    "PlanningLog",
    "choose_plans",
    "choose_steps",
    "function_selection_accuracy",
    "hold_out",
    "read_planning_log",
    "run_plans",
    "run_selections",
    "success_rate",
]
