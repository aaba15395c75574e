"""What a run can measure: one function a kind, and one registry line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.data import DataLocation

RANK = "rank"
"""The kind that keeps a run log; the others keep JSON objects."""

KINDS = {
    RANK: "dtdr.evaluate.lab.kinds.rank:rank",
    "prompts": "dtdr.evaluate.lab.kinds.llm:measure_prompts",
    "selections": "dtdr.evaluate.lab.kinds.llm:select_steps",
    "plans": "dtdr.evaluate.lab.kinds.llm:make_plans",
}
"""Name of each kind, and the function ``(spec, context) -> RunLog | JSON object`` behind it."""


@dataclass(frozen=True)
class Context:
    """What a run needs in addition to its description.

    Attributes:
        locations: where each set lies, by name.
        folder: of the cache; planning logs are continued there.
        models: where each LLM is, by the name that runs use.
    """

    locations: Mapping[str, DataLocation]
    folder: Path
    models: Mapping[str, str]

    def dataset(self, spec: Mapping[str, Any]) -> Dataset:
        """The set that a run is about, truncated where the run says so."""
        dataset = data.load(self.locations[str(spec["dataset"])])
        return data.first_plans(dataset, spec.get("plans"))


def short_name(llm: str) -> str:
    """What runs call a model: a folder or an address says nothing about it."""
    kind, _, rest = llm.partition(":")
    if kind in ("gguf", "replay"):
        return f"{kind}:{Path(rest).name}"
    if kind == "hf" and rest.startswith(("/", ".", "~")):
        path, mark, options = rest.partition("?")
        return f"{kind}:{Path(path).name}{mark}{options}"
    return f"{kind}:{rest.partition('@')[0]}"
