"""Builds the report of one lab from its manifests and experiments, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dtdr.errors import DtdrError, InputError, check_choice
from dtdr.evaluate.lab.report import llm, rankings
from dtdr.evaluate.lab.report.advice import build_advice, build_runs
from dtdr.evaluate.lab.report.downstream import build_downstream
from dtdr.evaluate.lab.report.page import Block, Page, Section, Text
from dtdr.evaluate.lab.report.results import CITATION, NOT_RUN, Results
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.tables import EMPTY, Cell, Column, Table, number, numeric

SECTIONS: dict[str, Callable[[Results, str], list[Block]]] = {
    "retrieval": rankings.build_retrieval,
    "plan_length": rankings.build_plan_length,
    "ablations": build_ablations,
    "prompts": llm.build_prompts,
    "downstream": build_downstream,
    "icl": llm.build_icl,
    "weights": llm.build_weights,
    "runs": build_runs,
}
"""The function behind each section; a suite names its section."""

BY_KIND = {
    "rank": ("retrieval", ("retrieval", "plan_length", "ablations", "runs")),
    "prompts": ("prompts", ("prompts",)),
    "selections": ("downstream", ("retrieval", "ablations", "downstream", "icl", "weights")),
    "plans": ("downstream", ("downstream",)),
}
"""By kind of experiment: the section that shows it if the suite names none, and all that do."""

OTHER_ENCODER = (
    "Encoder: {used}, not the paper's paraphrase-MiniLM-L6-v2. These figures say nothing about the "
    "paper's, which are left out."
)


def build_report(
    store: Store, lab: str | None = None, suites: Sequence[str] | None = None
) -> tuple[Page, Results]:
    """The report of a lab, and what it was made of.

    Args:
        store: the cache.
        lab: its name; default: the one that was run last.
        suites: those to report; default: those of the command that was run last.

    Raises:
        InputError: no such lab has been run, or what it kept cannot be read.
    """
    labs = store.labs()
    if not labs:
        raise InputError(f"{store.folder} has no lab; run one with: dtdr lab run SUITE")
    if lab is not None:
        check_choice("lab", lab, labs)
    lab = lab or labs[0]
    results = Results(store, lab, store.last_suites(lab) if suites is None else suites)
    sections: list[Section] = []
    for name in results.manifests:
        with _explain_damage(results, f"suite {name!r}"):
            if results.manifests[name]["experiments"]:
                sections.append(_section(results, name))
    with _explain_damage(results, "runs"):
        front = [build_summary(results), build_advice(results), build_left_out(results)]
        sections = [section for section in front if section is not None] + sections
        sections.append(build_reproduction(results))
    page = Page(
        f"dtdr lab: {results.lab}",
        "Which tool comes next, ranked by every method on the same held-out steps. Built from run "
        f"logs alone; figures of the paper are those of {CITATION}.",
        sections,
    )
    return page, results


@contextmanager
def _explain_damage(results: Results, what: str) -> Iterator[None]:
    """Explain in one sentence that the cache is damaged.

    Files of a cache have a format and a version, but no schema.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, DtdrError):
            raise
        raise InputError(
            f"the {what} of lab {results.lab!r} cannot be shown: what is kept of it is damaged "
            f"({type(error).__name__}); run it again with an empty --cache"
        ) from error


def _section(results: Results, name: str) -> Section:
    manifest = results.manifests[name]
    blocks: list[Block] = []
    if manifest["about"]:
        blocks.append(Text(str(manifest["about"])))
    if manifest["differs"] and not manifest.get("own_data"):
        blocks.append(Text(f"What differs from the paper: {manifest['differs']}"))
    for build in _builders(results, name):
        blocks += build(results, name)
    blocks += _failures(results, name)
    return Section(name, str(manifest["title"]), blocks)


def _builders(results: Results, suite: str) -> Iterator[Callable[[Results, str], list[Block]]]:
    """The functions that show a suite: that of its section, and those for other kinds."""
    section = str(results.manifests[suite]["section"])
    if section in SECTIONS:
        yield SECTIONS[section]
    kinds = [
        str(experiment["spec"]["kind"]) for experiment in results.manifests[suite]["experiments"]
    ]
    missing = [BY_KIND[kind][0] for kind in kinds if section not in BY_KIND[kind][1]]
    yield from map(SECTIONS.__getitem__, dict.fromkeys(missing))


def build_left_out(results: Results) -> Section | None:
    """Experiments of the suites that were not run, each reason once; None if all were."""
    suites: dict[str, list[str]] = {}
    for manifest in results.manifests.values():
        for reason in manifest["left_out"]:
            suites.setdefault(reason, []).append(str(manifest["title"]))
    if not suites:
        return None
    rows = [
        [reason, "all" if len(titles) == len(results.manifests) > 1 else ", ".join(titles)]
        for reason, titles in suites.items()
    ]
    table = Table([Column("What, and how to get it"), Column("Of")], rows)
    return Section("left-out", "Not in this report", [table])


def _failures(results: Results, suite: str) -> list[Block]:
    """Experiments that failed, by reason; those that were never run are only counted."""
    experiments: dict[str, list[str]] = {}
    for experiment, reason in results.failures(suite):
        experiments.setdefault(reason, []).append(experiment.label)
    blocks: list[Block] = []
    waiting = len(experiments.pop(NOT_RUN, ()))
    if waiting:
        blocks.append(
            Text(f"{waiting:,} experiments of this suite were not run yet; run it again.")
        )
    if experiments:
        rows = [
            [labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else ""), why]
            for why, labels in experiments.items()
        ]
        columns = [Column("Experiment"), Column("Why there is no result")]
        blocks.append(Table(columns, rows, "Experiments that failed"))
    return blocks


def build_summary(results: Results) -> Section | None:
    """Why nothing is concluded: a small form of the suites, or another encoder than the paper's.

    None where the suites were run whole with their own encoder.
    """
    other = {
        name
        for suite in results.manifests
        if not results.is_comparable(suite)
        for name in results.encoders(suite)
    }
    encoder = [Text(OTHER_ENCODER.format(used=" and ".join(sorted(other))))] if other else []
    if results.may_judge:
        return Section("summary", "In short", [*encoder]) if encoder else None
    plans = results.few_plans()
    data = "A small form of each suite was run"
    if plans is not None:
        data = f"Only the first {plans:,} plans of each set were used"
    text = f"{data}: enough to see that everything works, too little to judge a method or a claim."
    return Section("summary", "In short", [Text(text), *encoder])


def build_reproduction(results: Results) -> Section:
    """How to get the same report: commands, data sets with their hashes, versions, seeds."""
    blocks: list[Block] = [_commands(results), _data(results), _versions(results)]
    reasons = [reason for _, reason in results.failures()]
    waiting = reasons.count(NOT_RUN)
    for count, what in ((len(reasons) - waiting, "failed"), (waiting, "were not run yet")):
        if count:
            blocks.append(Text(f"{count:,} experiments {what}; each section lists its own."))
    return Section("reproduce", "How to reproduce this", blocks)


def _commands(results: Results) -> Table:
    rows = []
    for name, manifest in results.manifests.items():
        specs = [experiment["spec"] for experiment in manifest["experiments"]]
        if not specs:
            continue
        seeds = sorted({int(spec["seed"]) for spec in specs if "seed" in spec})
        shown = ", ".join(map(str, seeds)) or "-"
        rows.append([name, f"`{manifest['command']}`", number(len(specs)), shown])
    columns = [Column("Suite"), Column("Command"), *numeric("Experiments"), Column("Seeds")]
    caption = (
        "The seed draws the split and is the ranker's own seed. An experiment is kept under the "
        "hash of its data, split, ranker, parameters and code; what changed is computed "
        "again, the rest is read."
    )
    return Table(columns, rows, "Commands", caption)


def _data(results: Results) -> Table:
    """Size and shape of each set (paper, Table 5), the paper's row below it, and its source."""
    names = (name for manifest in results.manifests.values() for name in manifest["datasets"])
    rows: list[list[Any]] = []
    notes = ["Tools: described or called, and the end of the plan. ±: standard deviation."]
    for name in dict.fromkeys(names):
        about = results.dataset(name)
        source = [f"`{about['sha256']}`", str(about["source"]), str(about["licence"] or "-")]
        rows.append([results.title(name), *_sizes(about), *source])
        if about["published"]:
            sizes = _sizes(about["published"], aside=True)
            rows.append([Cell("  in the paper", aside=True), *sizes, EMPTY, EMPTY, EMPTY])
        sentences = (about["note"], *about["remarks"])
        notes += [f"{about['title']}: {sentence}" for sentence in sentences if sentence]
    columns = [
        Column("Set"),
        *numeric("Plans", "Tools", "Calls a plan", "Dependencies a plan"),
        *map(Column, ("SHA-256 of its content", "From", "Licence")),
    ]
    return Table(columns, rows, "Data", "\n".join(notes))


def _sizes(values: Mapping[str, Any], *, aside: bool = False) -> list[Cell]:
    texts = [f"{values[key]:,}" for key in ("plans", "tools")]
    for key in ("calls_per_plan", "dependencies_per_plan"):
        texts.append(f"{values[key]['mean']:.1f} ± {values[key]['sd']:.1f}")
    return [Cell(text, aside=aside) for text in texts]


def _versions(results: Results) -> Table:
    versions: dict[str, set[str]] = defaultdict(set)
    for experiment in results.all_experiments():
        for package, version in results.header(experiment)["versions"].items():
            versions[package].add(str(version))
    rows = [[name, ", ".join(sorted(versions[name]))] for name in sorted(versions)]
    caption = "More than one version in a row: several installations share the cache."
    return Table([Column("Package"), Column("Version")], rows, "Versions", caption)
