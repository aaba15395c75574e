"""The experiments of a lab as a report reads them: manifests, logs, summaries, failures."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, cast

from dtdr.errors import InputError
from dtdr.evaluate import metrics
from dtdr.evaluate.lab.experiments import DatasetSplit, Experiment
from dtdr.evaluate.lab.kinds import RANK
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.lab.suite import PAPER_ENCODER, PAPER_ORDER, names
from dtdr.evaluate.lab.summary import ExperimentSummary, mean_of, summarize
from dtdr.evaluate.run_log import RunLog
from dtdr.evaluate.statistics import Proportion, proportion
from dtdr.rankers import ranker_class
from dtdr.text import encoders

NOT_RUN = "it was not run yet"

CITATION = (
    "Patel, Belli, Jalalirad, Arnold, Ermolov, Major: Dynamic Tool Dependency Retrieval for "
    "Lightweight Function Calling, arXiv 2512.17052"
)

WILSON = "Intervals are Wilson's 95 % intervals over steps or plans."

_PAPER_ROWS = (
    *("none", "random", "bm25", "qts", "tgr", "less-is-more", "dr", "lr", "dtdr-c", "raw"),
    *("dtdr-l", "dtdr-f"),
)


@cache
def paper() -> Mapping[str, Any]:
    """Figures of the paper, by the section that shows them, each with its table."""
    text = resources.files("dtdr.evaluate.lab.report").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)


def paper_row(method: str) -> int:
    """Where the paper's tables have a method."""
    name = method.split(" ")[0]
    return _PAPER_ROWS.index(name) if name in _PAPER_ROWS else len(_PAPER_ROWS)


class Results:
    """Everything a report is made of; it reads each experiment once and keeps its summary."""

    def __init__(self, store: Store, lab: str, suites: Sequence[str] | None = None) -> None:
        self._store = store
        self.lab = lab
        manifests = store.manifests(lab)
        kept = [name for name in manifests if suites is None or name in suites]
        order = {name: at for at, name in enumerate(names())}
        kept.sort(key=lambda name: (order.get(name, len(order)), name))
        self.manifests = {name: manifests[name] for name in kept}
        self._values: dict[str, Any] = {}
        self._failures: dict[str, str] = {}

    def experiments(self, suite: str, kind: str | None = None) -> list[Experiment]:
        """The experiments of a suite that can be read."""
        return [
            experiment
            for experiment in self._all_experiments([suite])
            if kind in (None, experiment.kind) and self._is_readable(experiment)
        ]

    def by_dataset_split(
        self, suite: str
    ) -> dict[DatasetSplit, dict[str, list[ExperimentSummary]]]:
        """Measurements of rankings, without ablations, by data set and split, and by method.

        Methods are sorted by MRR, those of the paper's settings as in the paper.
        """
        by_split: dict[DatasetSplit, dict[str, list[ExperimentSummary]]] = {}
        for experiment in self.experiments(suite, RANK):
            if experiment.is_plain:
                methods = by_split.setdefault(experiment.dataset_split, {})
                methods.setdefault(experiment.method, []).append(self.value(experiment))

        def order(item: tuple[str, list[ExperimentSummary]]) -> float:
            name, values = item
            return paper_row(name) if suite in PAPER_ORDER else -mean_of(values, "mrr").value

        return {p: dict(sorted(methods.items(), key=order)) for p, methods in by_split.items()}

    def log(self, experiment: Experiment) -> RunLog:
        """The log of an experiment that ranks."""
        return cast(RunLog, self._store.read(experiment.key))

    def value(self, experiment: Experiment) -> Any:
        """The ``ExperimentSummary`` of an experiment that ranks; the result of any other."""
        self._is_readable(experiment)
        return self._values[experiment.key]

    def header(self, experiment: Experiment) -> Mapping[str, Any]:
        """Versions, parameters and the number of plans learned from, if it has them."""
        if not self._is_readable(experiment):
            return {"versions": {}}
        value = self.value(experiment)
        if experiment.kind != RANK:
            return cast(Mapping[str, Any], value)
        header = value.header
        return {
            "versions": header.versions,
            "parameters": header.parameters,
            "train": header.split["train"],
        }

    def all_experiments(self) -> list[Experiment]:
        """Every experiment of every suite, once."""
        return list(
            {
                experiment.key: experiment for experiment in self._all_experiments(self.manifests)
            }.values()
        )

    def failures(self, suite: str | None = None) -> list[tuple[Experiment, str]]:
        """Experiments of one suite, or of all, that cannot be read, and why."""
        experiments = self.all_experiments() if suite is None else self._all_experiments([suite])
        return [
            (experiment, self._failures[experiment.key])
            for experiment in experiments
            if not self._is_readable(experiment)
        ]

    def _all_experiments(self, suites: Iterable[str]) -> list[Experiment]:
        listed = [
            experiment for name in suites for experiment in self.manifests[name]["experiments"]
        ]
        return [Experiment(experiment["spec"], experiment["key"]) for experiment in listed]

    def _is_readable(self, experiment: Experiment) -> bool:
        key = experiment.key
        if key not in self._values and key not in self._failures:
            try:
                value = self._store.read(key)
                self._values[key] = (
                    summarize(cast(RunLog, value)) if experiment.kind == RANK else value
                )
            except InputError as error:
                reason = str(error) if self._store.path(key) else NOT_RUN
                self._failures[key] = self._store.failure(key) or reason
        return key in self._values

    def few_plans(self) -> int | None:
        """How many plans of each set were used; None where one was used whole."""
        sizes = {experiment.spec.get("plans") for experiment in self.all_experiments()}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def may_judge(self) -> bool:
        """Whether the experiments are enough to judge a method or a claim."""
        is_quick = any(manifest["quick"] for manifest in self.manifests.values())
        return not is_quick and self.few_plans() is None

    def encoders(self, suite: str) -> list[str]:
        """The encoders that the experiments of a suite used, by name."""
        specs = (experiment.spec for experiment in self._all_experiments([suite]))
        used = {
            str(spec.get("encoder", encoders.DEFAULT))
            for spec in specs
            if ranker_class(str(spec["retriever"])).uses_encoder
        }
        return sorted(used)

    def is_comparable(self, suite: str) -> bool:
        """Whether figures of a suite can be compared with the paper's.

        Those of a suite with the paper's settings only if its encoder was used, too.
        """
        return suite not in PAPER_ORDER or set(self.encoders(suite)) <= {PAPER_ENCODER}

    def dataset(self, name: str) -> Mapping[str, Any]:
        """The properties of a data set."""
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

    def split_title(self, dataset_split: DatasetSplit, suite: str = "") -> str:
        """A data set and its split; for a suite of the paper, also the encoder if it is another."""
        split = {"paper": "", "group": ", split by group", "time": ", split by time"}.get(
            dataset_split[1], f", split {dataset_split[1]}"
        )
        title = self.title(dataset_split[0]) + split
        if suite and not self.is_comparable(suite):
            title += f", encoder {' and '.join(self.encoders(suite))}"
        return title


def group_experiments(
    experiments: Iterable[Experiment], key: Callable[[Experiment], Any]
) -> dict[Any, list[Experiment]]:
    """Experiments by a key, in their order."""
    groups: dict[Any, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(key(experiment), []).append(experiment)
    return groups


def of_last(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The last experiment and those that differ from it in the seed of their split alone."""
    settings = [{**experiment.spec, "seed": None} for experiment in experiments]
    pairs = zip(experiments, settings, strict=True)
    return [experiment for experiment, setting in pairs if setting == settings[-1]]


def records_of(results: Results, experiments: Iterable[Experiment]) -> list[Mapping[str, Any]]:
    """The records of several experiments, one after the other."""
    return [record for experiment in experiments for record in results.value(experiment)["records"]]


def share_of(records: Iterable[Mapping[str, Any]], key: str) -> Proportion:
    """The share of records in which a key is true."""
    return proportion(bool(record[key]) for record in records)


def method_means(results: Results, suite: str) -> list[dict[str, Any]]:
    """Every method's means, for ``--json``."""
    return [
        {
            "suite": suite,
            "dataset": dataset_split[0],
            "split": dataset_split[1],
            "method": name,
            "encoders": results.encoders(suite),
            "splits": len(splits),
            **{
                metric: round(metrics.mean(split.means[metric] for split in splits), 6)
                for metric in metrics.DEFAULT
            },
        }
        for dataset_split, methods in results.by_dataset_split(suite).items()
        for name, splits in methods.items()
    ]
