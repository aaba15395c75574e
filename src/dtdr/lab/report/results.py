"""The runs of one lab as a report reads them: manifests, logs, summaries, failures."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeAlias, cast

from dtdr.errors import InputError
from dtdr.evaluation.run_log import RunLog
from dtdr.evaluation.statistics import Proportion, proportion
from dtdr.lab.fitting import asks_llm
from dtdr.lab.kinds import OWN_RANKS, RANKS
from dtdr.lab.store import Store
from dtdr.lab.summary import RunSummary, mean_of, summarize

Place: TypeAlias = tuple[str, str]
"""Data set and kind of split: what one table is about."""

NOT_RUN = "it was not run yet"

CITATION = (
    "Patel, Belli, Jalalirad, Arnold, Ermolov, Major: Dynamic Tool Dependency Retrieval for "
    "Lightweight Function Calling, arXiv 2512.17052"
)


WILSON = "Intervals are Wilson's 95 % intervals over steps or plans."


@cache
def paper() -> Mapping[str, Any]:
    """Figures of the paper, by the section that shows them, each with its table."""
    text = resources.files("dtdr.lab.report").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class Run:
    """One cell as a manifest lists it."""

    key: str
    spec: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """One of ``dtdr.lab.kinds.KINDS``."""
        return str(self.spec["kind"])

    @property
    def place(self) -> Place:
        """Data set and kind of split: what one table is about."""
        return str(self.spec["dataset"]), str(self.spec.get("split", ""))

    @property
    def method(self) -> str:
        """What a row is called: the retriever and what is not its default."""
        spec = self.spec
        parts = [str(spec.get("retriever") or spec.get("peer") or spec.get("encoder", ""))]
        details = []
        for name, value in spec.get("parameters", {}).items():
            if name == "recipe":
                details.append(str(value))
            elif value is True:
                details.append(name)
            else:
                details.append(f"{name} {value}")
        if "retriever" in spec and "encoder" in spec:
            details.append(str(spec["encoder"]))
        if "llm" in spec and "retriever" in spec and asks_llm(spec):
            details.append(str(spec["llm"]))
        if details:
            parts.append(f"({', '.join(details)})")
        return " ".join(parts)


class Results:
    """Everything a report is made of; a run is read once, and of its log the summary is kept."""

    def __init__(self, store: Store, lab: str) -> None:
        self._store = store
        self.lab = lab
        self.manifests = store.manifests(lab)
        self._read: dict[str, RunSummary | Mapping[str, Any]] = {}
        self._failures: dict[str, str] = {}

    def suites_of(self, section: str) -> list[str]:
        """Names of the suites that a section shows."""
        return [name for name, item in self.manifests.items() if item["section"] == section]

    def runs(self, suite: str, kind: str | None = None) -> list[Run]:
        """The runs of a suite that can be read."""
        return [
            run
            for run in self._runs_of([suite])
            if kind in (None, run.kind, OWN_RANKS.get(run.kind)) and self._is_readable(run)
        ]

    def by_place(
        self, suite: str, kind: str | None = "rank"
    ) -> dict[Place, dict[str, list[RunSummary]]]:
        """Summaries of a suite's plain runs, by place and by method, best MRR first."""
        places = {}
        for place, runs in by_place(plain(self.runs(suite, kind))).items():
            methods = {
                name: [self.summary(run) for run in same] for name, same in by_method(runs).items()
            }
            ordered = sorted(methods, key=lambda name: -mean_of(methods[name], "mrr").value)
            places[place] = {name: methods[name] for name in ordered}
        return places

    def log(self, run: Run) -> RunLog:
        """The log of a run that ranks."""
        return self._store.read_log(run.key)

    def summary(self, run: Run) -> RunSummary:
        """The summary of a run that ranks."""
        self._is_readable(run)
        return cast(RunSummary, self._read[run.key])

    def result(self, run: Run) -> Mapping[str, Any]:
        """The result of any other run."""
        self._is_readable(run)
        return cast(Mapping[str, Any], self._read[run.key])

    def count_learned(self, run: Run) -> int:
        """How many plans the retriever of a run learned from."""
        is_ranked = run.kind in RANKS
        return int(
            self.summary(run).header.split["train"] if is_ranked else self.result(run)["train"]
        )

    def parameters(self, run: Run) -> Mapping[str, Any]:
        """Of a run's fitted retriever."""
        parameters: Mapping[str, Any] = (
            self.summary(run).header.parameters
            if run.kind in RANKS
            else self.result(run)["parameters"]
        )
        return parameters

    def versions(self, run: Run) -> Mapping[str, str]:
        """Versions of the packages that a run depends on; empty where it cannot be read."""
        if not self._is_readable(run):
            return {}
        versions: Mapping[str, str] = (
            self.summary(run).header.versions if run.kind in RANKS else self.result(run)["versions"]
        )
        return versions

    def all_runs(self) -> list[Run]:
        """Every run of every suite, once."""
        return list({run.key: run for run in self._runs_of(list(self.manifests))}.values())

    def failures(self, suite: str | None = None) -> list[tuple[Run, str]]:
        """Runs of one suite, or of all, that cannot be read, and why."""
        suites = list(self.manifests) if suite is None else [suite]
        return [
            (run, self._failures[run.key])
            for run in {run.key: run for run in self._runs_of(suites)}.values()
            if not self._is_readable(run)
        ]

    def _runs_of(self, suites: Sequence[str]) -> Iterator[Run]:
        for name in suites:
            for cell in self.manifests[name]["cells"]:
                yield Run(cell["key"], cell["spec"])

    def _is_readable(self, run: Run) -> bool:
        key = run.key
        if key not in self._read and key not in self._failures:
            try:
                self._read[key] = (
                    summarize(self._store.read_log(key))
                    if run.kind in RANKS
                    else self._store.read_result(key)
                )
            except InputError as error:
                failure = self._store.failure(key)
                reason = str(error) if self._store.path(key) else NOT_RUN
                self._failures[key] = str(failure["reason"]) if failure else reason
        return key in self._read

    def dataset(self, name: str) -> Mapping[str, Any]:
        """What is known of a data set."""
        for manifest in self.manifests.values():
            if name in manifest["datasets"]:
                dataset: Mapping[str, Any] = manifest["datasets"][name]
                return dataset
        return {"name": name, "title": name}

    def title(self, name: str) -> str:
        """A data set's title; synthetic ones say so."""
        dataset = self.dataset(name)
        title = str(dataset["title"])
        hidden = dataset.get("synthetic") and "synthetic" not in title.lower()
        return f"{title} (synthetic)" if hidden else title

    def place_title(self, place: Place) -> str:
        """A data set and its split."""
        split = {"paper": "", "group": ", split by group"}.get(place[1], f", split {place[1]}")
        return self.title(place[0]) + split

    def dataset_summary(self, name: str) -> Mapping[str, Any] | None:
        """Queries and costs of tools of a data set."""
        sha256 = self.dataset(name).get("sha256")
        return None if sha256 is None else self._store.dataset_summary(str(sha256))


def by_place(runs: Sequence[Run]) -> dict[Place, list[Run]]:
    """Runs by data set and split, in their order."""
    places: dict[Place, list[Run]] = {}
    for run in runs:
        places.setdefault(run.place, []).append(run)
    return places


def by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by method, in their order: one run a split."""
    methods: dict[str, list[Run]] = {}
    for run in runs:
        methods.setdefault(run.method, []).append(run)
    return methods


def plain(runs: Sequence[Run]) -> list[Run]:
    """Runs without an ablation or a shift."""
    special = ("history", "demonstrations", "shift", "queries")
    return [run for run in runs if not any(key in run.spec for key in special)]


def accuracy(results: Results, run: Run) -> Proportion:
    """Function selection accuracy of a run."""
    return share_of(results.result(run)["records"], "right")


def share_of(records: Iterable[Mapping[str, Any]], key: str) -> Proportion:
    """The share of records in which a key is true."""
    return proportion(bool(record[key]) for record in records)
