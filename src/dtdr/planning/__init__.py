"""Planning with an LLM: select the next function, fill its parameters, until the end of plan."""

from dtdr.planning.cache import CacheStatistics, PlanCache
from dtdr.planning.filling import FilledParameters, Filler, fill
from dtdr.planning.planner import Planner
from dtdr.planning.results import PlannedStep, PlanResult
from dtdr.planning.selector import METHODS, Fusion, Selected, Selector

__all__ = [
    "METHODS",
    "CacheStatistics",
    "FilledParameters",
    "Filler",
    "Fusion",
    "PlanCache",
    "PlanResult",
    "PlannedStep",
    "Planner",
    "Selected",
    "Selector",
    "fill",
]
