"""What a run can measure: one function for each kind."""

from collections.abc import Callable, Mapping
from typing import Any

from dtdr.evaluate.lab.context import Context
from dtdr.evaluate.lab.kinds.llm import make_plans, measure_prompts, select_steps
from dtdr.evaluate.lab.kinds.rank import rank

RANK = "rank"
"""The kind whose result is a run log; that of the others is a JSON object."""

KINDS: dict[str, Callable[[Mapping[str, Any], Context], Any]] = {
    RANK: rank,
    "prompts": measure_prompts,
    "selections": select_steps,
    "plans": make_plans,
}
