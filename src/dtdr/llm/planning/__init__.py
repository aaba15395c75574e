"""Planning with an LLM: select the next function, fill its parameters, until the end of plan."""

from dtdr.llm.planning.filling import FilledParameters, Filler, fill
from dtdr.llm.planning.planner import Planner
from dtdr.llm.planning.results import PlannedStep, PlanResult
from dtdr.llm.planning.selector import METHODS, Selected, Selector

__all__ = [
    "METHODS",
    "FilledParameters",
    "Filler",
    "PlanResult",
    "PlannedStep",
    "Planner",
    "Selected",
    "Selector",
    "fill",
]
