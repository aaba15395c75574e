"""The data of a lab: sets by name or file, their hashes, sides of splits, and reported facts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_split, paper_split, time_order, time_split
from dtdr.evaluate.datasets.statistics import measure
from dtdr.logs import open_demonstrations
from dtdr.predict.model import END_TOOL
from dtdr.rankers.selection import count_tokens

LOGS = (".jsonl", ".json", ".ndjson")
"""How the files of a folder end that are read as logs, gzipped or not."""


@dataclass(frozen=True)
class DataLocation:
    """Where a set is, a registered name or a file of the user's own, and how it is read."""

    name: str
    file: str | None = None
    skip_bad: bool = False
    only_known_tools: bool = False


@lru_cache(maxsize=16)
def load(location: DataLocation) -> Dataset:
    """Read a set.

    Raises:
        InputError: no set has that name, or it cannot be read.
    """
    bad = BadRecords() if location.skip_bad else None
    if location.file is None:
        dataset = datasets.load(location.name, bad=bad)
    else:
        path = Path(location.file)
        stream = open_demonstrations(_files(path), bad=bad)
        demonstrations = list(stream)
        dataset = Dataset(
            name=location.name,
            title=path.name,
            demonstrations=demonstrations,
            tools=stream.tools,
            synthetic=all("synthetic" in item.source.lower() for item in demonstrations),
            source=path.name,
            licence="",
            remarks=() if bad is None else datasets.remarks(bad),
        )
    return datasets.keep_known_tools(dataset) if location.only_known_tools else dataset


def _files(path: Path) -> list[Path]:
    """The logs in a folder; a folder without any, and anything else, as it is."""
    if not path.is_dir():
        return [path]
    names = (file for file in path.iterdir() if file.name != "tools.json")
    return sorted(file for file in names if file.name.removesuffix(".gz").endswith(LOGS)) or [path]


def content_sha256(dataset: Dataset) -> str:
    """Hash of the demonstrations and tools as they are learned from, wherever they were read."""
    digest = hashlib.sha256()
    items: list[Demonstration | Tool] = [*dataset.demonstrations, *dataset.tools]
    for item in items:
        line = json.dumps(item.to_dict(), ensure_ascii=False, sort_keys=True) + "\n"
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def describe(dataset: Dataset, sha256: str) -> dict[str, Any]:
    """The facts about a set in a report, as JSON, so that a report needs no data."""
    source = datasets.SOURCES.get(dataset.name)
    statistics = measure(
        dataset.demonstrations,
        dataset.tools,
        name=dataset.name,
        title=dataset.title,
        note=dataset.note,
        published=None if source is None else source.published,
        remarks=dataset.remarks,
    )
    # What it costs to show each tool; of a tool without a definition, its name's tokens.
    costs = {
        name: count_tokens(name) for item in dataset.demonstrations for name in item.plan.tools
    }
    costs |= {tool.name: count_tokens(tool.to_dict()) for tool in (*dataset.tools, END_TOOL)}
    return {
        **statistics.to_dict(),
        "synthetic": dataset.synthetic,
        "source": dataset.source,
        "licence": dataset.licence,
        "sha256": sha256,
        "described": any(tool.description for tool in dataset.tools),
        "tokens": dict(sorted(costs.items())),
    }


@dataclass(frozen=True)
class LabContext:
    """Locations that an experiment needs in addition to its description.

    Attributes:
        locations: where each data set is, by name.
        folder: the cache; planning logs are continued there.
        models: where each LLM is, by the name that experiments use.
    """

    locations: Mapping[str, DataLocation]
    folder: Path
    models: Mapping[str, str]

    def dataset(self, spec: Mapping[str, Any]) -> Dataset:
        """The set of an experiment, cut to the experiment's number of plans."""
        dataset = load(self.locations[str(spec["dataset"])])
        plans = spec.get("plans")
        if plans is None or plans >= len(dataset):
            return dataset
        return replace(dataset, demonstrations=dataset.demonstrations[:plans])


def short_name(llm: str) -> str:
    """The name of a model in experiments, without its folder or address."""
    kind, _, rest = llm.partition(":")
    if kind == "gguf":
        return f"{kind}:{Path(rest).name}"
    if kind == "hf" and rest.startswith(("/", ".", "~")):
        path, mark, options = rest.partition("?")
        return f"{kind}:{Path(path).name}{mark}{options}"
    return f"{kind}:{rest.partition('@')[0]}"


@dataclass(frozen=True)
class TrainTest:
    """Demonstrations to learn from and to test on, and the tools that are known."""

    train: list[Demonstration]
    test: list[Demonstration]
    tools: tuple[Tool, ...]


def train_test(dataset: Dataset, spec: Mapping[str, Any]) -> TrainTest:
    """The two sides of an experiment: the split, then as many demonstrations as it asks for.

    Raises:
        InputError: the set cannot be split.
    """
    split = split_of(dataset, spec)
    train = sample(split.training(dataset.demonstrations), spec)
    return TrainTest(train, split.testing(dataset.demonstrations), dataset.tools)


def split_of(dataset: Dataset, spec: Mapping[str, Any]) -> Split:
    """The split of an experiment: ``time``, or drawn with its seed, ``paper`` or ``group``.

    Raises:
        InputError: the set cannot be split.
    """
    draw = group_split if spec.get("split") == "group" else paper_split
    try:
        if spec.get("split") == "time":
            return time_split(dataset.demonstrations)
        return draw(dataset.demonstrations, int(spec.get("seed", 0)))
    except InputError as error:
        raise InputError(f"dataset {dataset.name!r}: {error}") from error


def sample(train: Sequence[Demonstration], spec: Mapping[str, Any]) -> list[Demonstration]:
    """As many demonstrations as the experiment learns from; more of one seed contain the fewer.

    Of a split by time, the earliest.
    """
    size = spec.get("demonstrations")
    if "share" in spec:
        size = max(1, round(spec["share"] * len(train)))
    order = list(train)
    if size is None or size >= len(order):
        return order
    if spec.get("split") == "time":
        order = [order[at] for at in time_order(order)]
    else:
        random.Random(int(spec.get("seed", 0))).shuffle(order)
    return order[:size]
