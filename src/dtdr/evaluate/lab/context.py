"""What runs need in addition to their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.data import DataLocation


@dataclass(frozen=True)
class Context:
    """What a run needs in addition to its description.

    Attributes:
        locations: where each data set is, by name.
        folder: the cache; planning logs are continued there.
        models: where each LLM is, by the name that runs use.
    """

    locations: Mapping[str, DataLocation]
    folder: Path
    models: Mapping[str, str]

    def dataset(self, spec: Mapping[str, Any]) -> Dataset:
        """The set of a run, cut to the run's number of plans."""
        dataset = data.load(self.locations[str(spec["dataset"])])
        return data.first_plans(dataset, spec.get("plans"))


def short_name(llm: str) -> str:
    """The name of a model in runs, without its folder or address."""
    kind, _, rest = llm.partition(":")
    if kind == "gguf":
        return f"{kind}:{Path(rest).name}"
    if kind == "hf" and rest.startswith(("/", ".", "~")):
        path, mark, options = rest.partition("?")
        return f"{kind}:{Path(path).name}{mark}{options}"
    return f"{kind}:{rest.partition('@')[0]}"
