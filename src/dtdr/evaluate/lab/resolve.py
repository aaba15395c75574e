"""From suites and a user's options to runs, and what is left out with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtdr.errors import DtdrError, InputError, MissingExtraError, unknown_choice
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.source import canonical_name
from dtdr.evaluate.lab import data
from dtdr.evaluate.lab.data import DataLocation, short_name
from dtdr.evaluate.lab.fitting import learns_truncated, needs_llm
from dtdr.evaluate.lab.kinds import RANK
from dtdr.evaluate.lab.runs import Run, unique
from dtdr.evaluate.lab.suite import ALL, ORDER, PAPER, PAPER_ORDER, Suite, read_suite
from dtdr.rankers import retriever_class
from dtdr.text import encoders

PAPER_SETS = (
    "tinyagent",
    "taskbench_dailylife",
    "taskbench_huggingface",
    "taskbench_multimedia",
)

PAPER_ENCODER = "sentence-transformers"
"""Whose default model is the paper's, paraphrase-MiniLM-L6-v2."""

NEAREST_ENCODERS = ("minilm", encoders.DEFAULT)
"""Replacements, if it is not installed."""


@dataclass(frozen=True)
class Options:
    """What a user chose besides the suites; None leaves the choices of the suite.

    Attributes:
        quick: the suites' small form.
        file: a demonstrations.jsonl file that replaces every data set.
        datasets: names of published sets.
        seeds: how many splits.
        retrievers: names, or ``module:Class``.
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
    retrievers: Sequence[str] | None = None
    encoders: Sequence[str] | None = None
    llms: Sequence[str] = ()
    plans: int | None = None
    full: bool = False
    skip_bad: bool = False
    only_known_tools: bool = False


@dataclass
class ResolvedSuite:
    """A suite, its runs, and what was left out of it, with the reason."""

    suite: Suite
    runs: list[Run] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class DataLibrary:
    """The data sets of a lab, each read and hashed once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._names: dict[str, str] = {}
        self._hashes: dict[str, str] = {}
        self.locations: dict[str, DataLocation] = {}
        self.missing: dict[str, str] = {}

    def name_of(self, name: str) -> str:
        """A set's name as runs have it; those of other packages as they are."""
        if name not in self._names:
            own = datasets.has_plugin(name)
            self._names[name] = name if own else canonical_name(name)
        return self._names[name]

    def get(self, name: str) -> Dataset | None:
        """A set; None where a suite names one that is not there.

        Raises:
            InputError: the user named the set and it is missing, or it cannot be read.
        """
        name = self.name_of(name)
        if name in self.missing:
            return None
        if name in self.locations:
            return data.load(self.locations[name])
        options = self._options
        is_own = options.file is not None and name == own_name(options.file)
        if not is_own and name not in datasets.NAMES and not datasets.has_plugin(name):
            raise unknown_choice("dataset", name, datasets.NAMES)
        file = str(options.file) if is_own else None
        location = DataLocation(name, file, options.skip_bad, options.only_known_tools)
        try:
            dataset = data.load(location)
        except InputError as error:
            is_named = options.file or name in map(canonical_name, options.datasets or ())
            if is_named or "was not found" not in str(error):
                raise
            self.missing[name] = f"dataset {name}: it is not here ({_where(name)})"
            return None
        self.locations[name] = location
        return dataset

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Numbers of plans and tools of the sets read so far."""
        loaded = {name: data.load(location) for name, location in self.locations.items()}
        return {name: (len(dataset), len(dataset.tools)) for name, dataset in loaded.items()}

    def sha256(self, name: str) -> str:
        """Content hash of a set that ``get`` has read."""
        name = self.name_of(name)
        if name not in self._hashes:
            self._hashes[name] = data.content_sha256(data.load(self.locations[name]))
        return self._hashes[name]


def own_name(file: Path) -> str:
    """What a file of the user's own is called in tables."""
    name = canonical_name(file.stem)
    return f"{name}_file" if name in datasets.NAMES else name


def resolve_suites(
    asked: Sequence[str], options: Options, library: DataLibrary
) -> list[ResolvedSuite]:
    """The chosen suites, with their runs.

    Raises:
        InputError: a name is unknown, or nothing is left to run.
    """
    everything = ALL in asked
    names = list(ORDER) if everything else []
    names += [item for name in asked for item in (PAPER_ORDER if name == PAPER else [name])]
    names = [name for name in dict.fromkeys(names) if name != ALL]
    of_paper = PAPER in asked
    stand_ins: list[str] = []
    if not options.encoders and any(name in PAPER_ORDER for name in names):
        options, stand_ins = _paper_encoder(options)
    if of_paper and options.file is None and not options.datasets:
        options, sentence = _paper_sets(options, library)
        stand_ins += sentence
    resolved = []
    for name in names:
        suite = read_suite(name, quick=options.quick)
        if everything and suite.needs_llm and not options.llms:
            continue
        if suite.needs_llm and not options.llms and not (of_paper and name in PAPER_ORDER):
            raise InputError(
                f"suite {name!r} asks an LLM; name one with --llm gguf:PATH or openai:NAME@URL"
            )
        chosen = _runs(_with_options(suite, options), options, library)
        if name in PAPER_ORDER:
            chosen.left_out = [*stand_ins, *chosen.left_out]
        resolved.append(chosen)
    if not any(item.runs for item in resolved):
        reasons = "; ".join(dict.fromkeys(reason for item in resolved for reason in item.left_out))
        raise InputError(f"there is nothing to run: {reasons or 'no suite has a run'}")
    return resolved


def _paper_encoder(options: Options) -> tuple[Options, list[str]]:
    """The options with the nearest encoder that is here, where the paper's is not.

    Raises:
        InputError: everything is to be run, and the paper's encoder is not here.
    """
    reason = _cannot_encode(PAPER_ENCODER)
    if not reason:
        return options, []
    if options.full:
        raise InputError(
            f"the paper's encoder cannot be used ({reason}); fix that, or name another with "
            "--encoder"
        )
    other = next(name for name in NEAREST_ENCODERS if not _cannot_encode(name))
    return replace(options, encoders=[other]), [
        f"the paper's encoder, replaced by {other}: {reason}"
    ]


def _cannot_encode(name: str) -> str:
    try:
        encoders.create(name, cache=False).encode(["a text"])
    except DtdrError as error:
        return str(error)
    return ""


def _paper_sets(options: Options, library: DataLibrary) -> tuple[Options, list[str]]:
    """The options with the synthetic set, where none of the paper's is here."""
    if any(library.get(name) is not None for name in PAPER_SETS):
        return options, []
    return replace(options, datasets=[datasets.BUNDLED]), [
        "every set of the paper, replaced by the synthetic one: none of them is here"
    ]


def _with_options(suite: Suite, options: Options) -> Suite:
    own = None if options.file is None else [own_name(options.file)]
    for name in options.retrievers or ():
        retriever_class(name)
    for name in options.encoders or ():
        encoders.encoder_class(name)
    if options.full:
        suite = suite.without_samples()
    return suite.with_choices(
        dataset=own or options.datasets,
        seed=None if options.seeds is None else list(range(options.seeds)),
        retriever=options.retrievers,
        encoder=options.encoders,
        plans=None if options.plans is None else [options.plans],
    )


def _runs(suite: Suite, options: Options, library: DataLibrary) -> ResolvedSuite:
    left_out: dict[str, None] = {}
    runs: list[Run] = []
    for spec in suite.specs():
        models = options.llms if needs_llm(spec) else ()
        if spec["kind"] == "prompts":
            models = options.llms or [""]  # without one, tokens are a share of the bytes
        dataset = library.get(spec["dataset"])
        if needs_llm(spec) and not options.llms:
            left_out["the runs that ask an LLM: name one with --llm"] = None
        elif dataset is None:
            left_out[library.missing[library.name_of(spec["dataset"])]] = None
        elif reason := _cannot_run(spec, dataset):
            left_out[reason] = None
        elif _has_split(spec, dataset):
            asked = [{"llm": short_name(name)} if name else {} for name in models or [""]]
            runs += [Run.of({**_complete(spec, library), **llm}) for llm in asked]
    return ResolvedSuite(suite, unique(runs), list(left_out))


def _cannot_run(spec: Mapping[str, Any], dataset: Dataset) -> str:
    """Why a run cannot be; empty where it can."""
    chosen = retriever_class(spec["retriever"])
    if chosen.needs_descriptions and not any(tool.description for tool in dataset.tools):
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


def _has_split(spec: Mapping[str, Any], dataset: Dataset) -> bool:
    is_grouped = len({item.group for item in dataset.demonstrations}) > 1
    return spec.get("split") != "group" or is_grouped


def _complete(spec: Mapping[str, Any], library: DataLibrary) -> dict[str, Any]:
    """The spec with what a result depends on, and without what changes nothing."""
    complete = {**spec, "dataset": library.name_of(spec["dataset"])}
    complete["data"] = library.sha256(spec["dataset"])
    chosen = retriever_class(spec["retriever"])
    if not chosen.uses_encoder or spec.get("encoder") == encoders.DEFAULT:
        # The same run in every suite.
        complete.pop("encoder", None)
    if not complete.get("parameters"):
        complete.pop("parameters", None)
    return complete


def _where(name: str) -> str:
    source = datasets.SOURCES.get(name)
    return "" if source is None else f"get it from {source.origin}"
