"""``efficiency``: what a retriever costs (paper, Section Experimental Setup, "Metrics")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dtdr.lab.fresh import measured, model_folder
from dtdr.lab.kinds import Context
from dtdr.lab.log import LabLog
from dtdr.model_folder import versions


def run(spec: Mapping[str, Any], context: Context) -> LabLog:
    """Numbers learned, bytes, memory, time to fit and to rank; two fresh processes a cell.

    Raises:
        DtdrError: a process failed.
    """
    places = {name: asdict(place) for name, place in context.places.items()}
    with model_folder() as folder:
        model = str(Path(folder) / "model")
        fitted = measured({"do": "fit", "spec": dict(spec), "places": places, "model": model})
        queries = fitted.pop("queries")
        ranked = measured({"do": "rank", "model": model, "queries": queries})
    result = {
        "numbers": fitted["numbers"],
        "model_kb": fitted["model_kb"],
        "measured": {**fitted["measured"], **ranked},
    }
    return LabLog({"kind": "efficiency", "versions": versions(), "result": result})
