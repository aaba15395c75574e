"""From suites and a user's options to experiments, and what is left out with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from dtdr.errors import DtdrError, InputError, MissingExtraError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.source import canonical_name
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.data import DataLocation, short_name
from dtdr.evaluate.lab.experiments import Experiment, unique
from dtdr.evaluate.lab.fitting import learns_truncated, needs_llm
from dtdr.evaluate.lab.kinds import RANK
from dtdr.evaluate.lab.suite import (
    ALL,
    ORDER,
    PAPER,
    PAPER_ENCODER,
    PAPER_ORDER,
    Suite,
    read_suite,
)
from dtdr.rankers import ranker_class
from dtdr.text import encoders

PAPER_SETS = (
    "tinyagent",
    "taskbench_dailylife",
    "taskbench_huggingface",
    "taskbench_multimedia",
)

NEAREST_ENCODERS = ("minilm", encoders.DEFAULT)
"""Replacements, if it is not installed; the last one is learned from the demonstrations."""


@dataclass(frozen=True)
class Options:
    """Choices of the user besides the suites; None keeps those of the suite.

    Attributes:
        quick: the suites' small form.
        file: a demonstrations.jsonl file that replaces every data set.
        datasets: names of published sets.
        seeds: how many splits.
        rankers: names, or ``module:Class``.
        encoders: names.
        llms: names of models.
        plans: use only the first n plans of each set.
        full: every held-out step and plan.
        skip_bad: leave out records that cannot be used.
        only_known_tools: leave out plans that call a tool which their set does not describe.
    """

    quick: bool = False
    file: Path | None = None
    datasets: Sequence[str] | None = None
    seeds: int | None = None
    rankers: Sequence[str] | None = None
    encoders: Sequence[str] | None = None
    llms: Sequence[str] = ()
    plans: int | None = None
    full: bool = False
    skip_bad: bool = False
    only_known_tools: bool = False


@dataclass
class ResolvedSuite:
    """A suite, its experiments, and what was left out of it, with the reason."""

    suite: Suite
    experiments: list[Experiment] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class DataLibrary:
    """The data sets of a lab, each read and hashed once.

    Attributes:
        locations: where each set is that was read, by name.
        missing: names of sets that are not here.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._hashes: dict[str, str] = {}
        self.locations: dict[str, DataLocation] = {}
        self.missing: set[str] = set()

    def get(self, name: str) -> Dataset | None:
        """A set; None where a suite names one that is not there.

        Raises:
            InputError: the user named the set and it is missing, or it cannot be read.
        """
        name = set_name(name)
        if name in self.missing:
            return None
        options = self._options
        is_own = options.file is not None and name == own_name(options.file)
        file = str(options.file) if is_own else None
        location = DataLocation(name, file, options.skip_bad, options.only_known_tools)
        try:
            dataset = data.load(location)
        except InputError as error:
            is_named = options.file or name in map(canonical_name, options.datasets or ())
            if is_named or name not in datasets.SOURCES or "was not found" not in str(error):
                raise
            self.missing.add(name)
            return None
        self.locations[name] = location
        return dataset

    def sha256(self, name: str) -> str:
        """Content hash of a set that ``get`` has read."""
        if name not in self._hashes:
            self._hashes[name] = data.content_sha256(data.load(self.locations[name]))
        return self._hashes[name]


@cache
def set_name(name: str) -> str:
    """A set's name as experiments have it; those of other packages as they are."""
    return name if datasets.find_own(name) else canonical_name(name)


def own_name(file: Path) -> str:
    """The name of a user's own file in tables."""
    name = canonical_name(file.stem)
    return f"{name}_file" if name in datasets.NAMES else name


def resolve_suites(
    asked: Sequence[str], options: Options, library: DataLibrary
) -> list[ResolvedSuite]:
    """The chosen suites, with their runs.

    Raises:
        InputError: a name is unknown, or nothing is left to run.
    """
    is_all, of_paper = ALL in asked, PAPER in asked
    names = list(ORDER) if is_all else []
    names += [item for name in asked for item in (PAPER_ORDER if name == PAPER else [name])]
    names = [name for name in dict.fromkeys(names) if name != ALL]
    stand_ins: list[str] = []
    if not options.encoders and any(name in PAPER_ORDER for name in names):
        options = _paper_encoder(options, stand_ins)
    no_data_named = options.file is None and not options.datasets
    if of_paper and no_data_named and not any(map(library.get, PAPER_SETS)):
        options = replace(options, datasets=[datasets.BUNDLED])
        stand_ins.append(
            "every set of the paper, replaced by the synthetic one: none of them is here"
        )
    resolved = []
    for name in names:
        suite = read_suite(name, quick=options.quick)
        lacks_llm = suite.needs_llm and not options.llms
        if lacks_llm and is_all:
            continue
        if lacks_llm and not (of_paper and name in PAPER_ORDER):
            raise InputError(
                f"suite {name!r} asks an LLM; name one with --llm gguf:PATH or openai:NAME@URL"
            )
        suite_experiments = _runs(_with_options(suite, options), options, library)
        if name in PAPER_ORDER:
            suite_experiments.left_out = [*stand_ins, *suite_experiments.left_out]
        resolved.append(suite_experiments)
    if not any(item.experiments for item in resolved):
        reasons = "; ".join(dict.fromkeys(reason for item in resolved for reason in item.left_out))
        raise InputError(f"there is nothing to run: {reasons or 'no suite has an experiment'}")
    return resolved


def _paper_encoder(options: Options, stand_ins: list[str]) -> Options:
    """The options with the nearest encoder that is here, where the paper's is not.

    Raises:
        InputError: everything is to be run, and the paper's encoder is not here.
    """
    reason = _cannot_encode(PAPER_ENCODER)
    if not reason:
        return options
    if options.full:
        raise InputError(
            f"the paper's encoder cannot be used ({reason}); fix that, or name another with "
            "--encoder"
        )
    # The last one needs nothing but dtdr.
    *pretrained, default = NEAREST_ENCODERS
    other = next((name for name in pretrained if not _cannot_encode(name)), default)
    stand_ins.append(f"the paper's encoder, replaced by {other}: {reason}")
    return replace(options, encoders=[other])


def _cannot_encode(name: str) -> str:
    """Why a pretrained encoder cannot be used; empty if it can."""
    try:
        encoders.create(name, cache=False).encode(["a text"])
    except DtdrError as error:
        return str(error)
    return ""


def _with_options(suite: Suite, options: Options) -> Suite:
    user_data = None if options.file is None else [own_name(options.file)]
    for name in options.rankers or ():
        ranker_class(name)
    for name in options.encoders or ():
        encoders.encoder_class(name)
    if options.full:
        suite = suite.without_samples()
    return suite.with_choices(
        dataset=user_data or options.datasets,
        seed=None if options.seeds is None else list(range(options.seeds)),
        retriever=options.rankers,
        encoder=options.encoders,
        plans=None if options.plans is None else [options.plans],
    )


def _runs(suite: Suite, options: Options, library: DataLibrary) -> ResolvedSuite:
    left_out: dict[str, None] = {}
    missing: dict[str, None] = {}
    experiments: list[Experiment] = []
    for spec in suite.specs():
        models: Sequence[str] = options.llms if needs_llm(spec) else [""]
        if spec["kind"] == "prompts":
            models = options.llms or [""]  # without one, tokens are a share of the bytes
        dataset = library.get(spec["dataset"])
        if not models:
            left_out["the experiments that ask an LLM: name one with --llm"] = None
        elif dataset is None:
            missing[set_name(spec["dataset"])] = None
        elif reason := _cannot_run(spec, dataset):
            left_out[reason] = None
        elif spec.get("split") != "group" or len({i.group for i in dataset.demonstrations}) > 1:
            complete = _complete(spec, library)
            asked = [{"llm": short_name(name)} if name else {} for name in models]
            experiments += [Experiment.of({**complete, **llm}) for llm in asked]
    if missing:
        absent = ", ".join(missing)
        left_out[f"{absent}: not here (dtdr data download NAME gets each, or says where)"] = None
    return ResolvedSuite(suite, unique(experiments), list(left_out))


def _cannot_run(spec: Mapping[str, Any], dataset: Dataset) -> str:
    """Why an experiment cannot be; empty where it can."""
    ranker = ranker_class(spec["retriever"])
    if ranker.needs_descriptions and not any(tool.description for tool in dataset.tools):
        return f"{spec['retriever']} on {dataset.name}: there are no tool descriptions"
    if "history" in spec and spec["kind"] != RANK and not learns_truncated(spec):
        return f"{spec['retriever']} with an LLM: it does not learn from a cut history"
    if spec.get("encoder") == "endpoint":
        return "encoder endpoint: it needs the address of a server"
    try:
        encoders.create(spec.get("encoder", encoders.DEFAULT), cache=False)
    except MissingExtraError as error:
        return str(error)
    return ""


def _complete(spec: Mapping[str, Any], library: DataLibrary) -> dict[str, Any]:
    """The spec with what a result depends on, and without what changes nothing."""
    name = set_name(spec["dataset"])
    complete = {**spec, "dataset": name, "data": library.sha256(name)}
    if not ranker_class(spec["retriever"]).uses_encoder or (
        spec.get("encoder") == encoders.DEFAULT
    ):
        # The same experiment in every suite.
        complete.pop("encoder", None)
    if not complete.get("parameters"):
        complete.pop("parameters", None)
    return complete
