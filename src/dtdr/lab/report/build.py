"""Builds the report of one lab from its manifests and runs, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtdr.errors import DtdrError, InputError, unknown_choice
from dtdr.evaluation.tables import Cell, Column, Table
from dtdr.files import replace_file
from dtdr.lab.report import arguments, facts, llm, retrieval, thresholds, variations
from dtdr.lab.report.advice import build_advice
from dtdr.lab.report.claims import build_claims
from dtdr.lab.report.page import Block, Page, Section, Text, to_html, to_markdown
from dtdr.lab.report.results import CITATION, NOT_RUN, Results
from dtdr.lab.store import Store
from dtdr.lab.suite import names

SECTIONS: dict[str, Callable[[Results, str], list[Block]]] = {
    "retrieval": retrieval.build_retrieval,
    "plan_length": retrieval.build_plan_length,
    "thresholds": thresholds.build_thresholds,
    "peers": retrieval.build_peers,
    "ablations": variations.build_ablations,
    "encoders": variations.build_encoders,
    "shifts": variations.build_shifts,
    "arguments": arguments.build_arguments,
    "prompts": llm.build_prompts,
    "downstream": llm.build_downstream,
    "icl": llm.build_icl,
    "weights": llm.build_weights,
    "datasets": facts.build_datasets,
    "efficiency": facts.build_efficiency,
    "whole_plans": facts.build_whole_plans,
}
"""What writes each section; a suite says by name which one shows it."""


def build_report(
    store: Store, lab: str | None = None, *, times: bool = True
) -> tuple[Page, Results]:
    """The report of a lab, and what it was made of.

    Args:
        store: the cache.
        lab: its name; default: the one that was run last.
        times: False leaves out what was measured in seconds and megabytes, so that two reports of
            the same runs are the same bytes wherever they were made.

    Raises:
        InputError: no such lab has been run, or what it kept cannot be read.
    """
    labs = store.labs()
    if not labs:
        raise InputError(f"{store.folder} holds no lab; run one with: dtdr lab run SUITE")
    if lab is not None and lab not in labs:
        raise unknown_choice("lab", lab, labs)
    results = Results(store, lab or labs[0])
    suites = sorted(results.manifests, key=lambda name: (_place(name), name))
    with _explain_damage(results, "list of what was left out"):
        shared = _find_common_reasons(results)
    sections: list[Section] = []
    for name in suites:
        with _explain_damage(results, f"suite {name!r}"):
            sections.append(_section(results, name, results.manifests[name], shared))
    with _explain_damage(results, "runs"):
        own = [name for name in suites if results.manifests[name].get("own_data")]
        if own:
            sections.insert(0, build_advice(results, own))
        if judged := build_claims(results):
            sections.insert(0, judged)
        if front := retrieval.build_front(results):
            sections.insert(0, front)
            front.blocks += _few_plans(results)
        if shared:
            reasons: list[Block] = [Text(f"{reason}.") for reason in shared]
            sections.insert(
                1 if front else 0, Section("left-out", "Left out of several suites", reasons)
            )
        sections.append(facts.build_reproduction(results))
    if not times:
        for section in sections:
            section.blocks = [
                block.without_times() if isinstance(block, Table) else block
                for block in section.blocks
            ]
    page = Page(
        f"dtdr lab: {results.lab}",
        "Which tool comes next, ranked by every method on the same held-out steps. Built from run "
        f"logs alone; figures of the paper are those of {CITATION}.",
        sections,
    )
    return page, results


def write_report(page: Page, folder: Path) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` into a folder; returns their paths."""
    paths = (folder / "report.html", folder / "report.md")
    for path, text in zip(paths, (to_html(page), to_markdown(page)), strict=True):
        with replace_file(path) as stream:
            stream.write(text)
    return paths


@contextmanager
def _explain_damage(results: Results, what: str) -> Iterator[None]:
    """Say in one sentence that what is kept is not what a lab keeps.

    Files of a cache have a format and a version, but no schema that would tell each value's type.
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


def _place(name: str) -> int:
    order = names()
    return order.index(name) if name in order else len(order)


def _find_common_reasons(results: Results) -> list[str]:
    """Reasons that more than one suite gives, which are said once for all."""
    counted = Counter(reason for item in results.manifests.values() for reason in item["left_out"])
    return [reason for reason, suites in counted.items() if suites > 1]


def _few_plans(results: Results) -> list[Block]:
    """That no set was used whole, where that is so."""
    sizes = {run.spec.get("plans") for run in results.all_runs() if run.kind != "statistics"}
    if len(sizes) != 1 or (plans := sizes.pop()) is None:
        return []
    return [
        Text(
            f"Only the first {plans:,} plans of each set were used: enough to see that "
            "everything works, too few to judge a method or a claim."
        )
    ]


def _section(
    results: Results, name: str, manifest: Mapping[str, Any], shared: Sequence[str]
) -> Section:
    build = SECTIONS.get(str(manifest["section"]), retrieval.build_retrieval)
    blocks: list[Block] = []
    if manifest["about"]:
        blocks.append(Text(str(manifest["about"])))
    if manifest["differs"] and not manifest.get("own_data"):
        blocks.append(Text(f"What differs from the paper: {manifest['differs']}"))
    shown = [*build(results, name), *_failures(results, name)]
    blocks += shown
    # A section without results says why, what is said of all suites too.
    left_out = [reason for reason in manifest["left_out"] if not (shown and reason in shared)]
    if left_out:
        blocks.append(Text("Left out: " + "; ".join(left_out) + "."))
    return Section(name, str(manifest["title"]), blocks)


def _failures(results: Results, suite: str) -> list[Block]:
    """Runs that failed, by reason; those that were never run are only counted."""
    runs: dict[str, list[str]] = {}
    for run, reason in results.failures(suite):
        name = f"{run.method} on {' '.join(run.place)}-{run.spec.get('seed', '')}"
        runs.setdefault(reason, []).append(name)
    blocks: list[Block] = []
    waiting = len(runs.pop(NOT_RUN, ()))
    if waiting:
        blocks.append(Text(f"{waiting:,} runs of this suite were not run yet; run it again."))
    if runs:
        rows = [
            [Cell(names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")), Cell(why)]
            for why, names in runs.items()
        ]
        columns = [Column("Run"), Column("Why there is no result")]
        blocks.append(Table(columns, rows, "Runs that failed"))
    return blocks
