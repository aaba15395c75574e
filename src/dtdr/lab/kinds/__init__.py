"""One module a kind of cell; each has ``run(spec, context) -> LabLog``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.datasets import Dataset
from dtdr.lab import data
from dtdr.lab.data import DataPlace


@dataclass(frozen=True)
class Context:
    """What a cell needs beside its own description.

    Attributes:
        places: where each set lies, by name.
        folder: where planning logs are continued.
        models: where each LLM is, by the name that cells use.
    """

    places: Mapping[str, DataPlace]
    folder: Path
    models: Mapping[str, str]

    def dataset(self, spec: Mapping[str, Any], key: str = "dataset") -> Dataset:
        """The set that a cell is about, cut where the cell says so."""
        found = data.load(self.places[str(spec[key])])
        return data.first_plans(found, spec.get("plans"))
