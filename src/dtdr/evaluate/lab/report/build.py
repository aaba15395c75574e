"""Builds the report of one lab from its manifests and runs, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dtdr.errors import DtdrError, InputError, unknown_choice
from dtdr.evaluate.lab.report import llm, rankings
from dtdr.evaluate.lab.report.advice import build_advice, build_runs
from dtdr.evaluate.lab.report.front import build_claims, build_reproduction, build_summary
from dtdr.evaluate.lab.report.page import Block, Page, Section, Text
from dtdr.evaluate.lab.report.results import CITATION, NOT_RUN, Results
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.lab.suite import names
from dtdr.evaluate.tables import Column, Table

SECTIONS: dict[str, Callable[[Results, str], list[Block]]] = {
    "retrieval": rankings.build_retrieval,
    "plan_length": rankings.build_plan_length,
    "ablations": build_ablations,
    "prompts": llm.build_prompts,
    "downstream": llm.build_downstream,
    "icl": llm.build_icl,
    "weights": llm.build_weights,
    "runs": build_runs,
}
"""The function behind each section; a suite names its section."""


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
        raise InputError(f"{store.folder} has no lab; run one with: dtdr lab run SUITE")
    if lab is not None and lab not in labs:
        raise unknown_choice("lab", lab, labs)
    results = Results(store, lab or labs[0])
    order = {name: place for place, name in enumerate(names())}
    suites = sorted(results.manifests, key=lambda name: (order.get(name, len(order)), name))
    with _explain_damage(results, "list of what was left out"):
        reasons = [r for item in results.manifests.values() for r in item["left_out"]]
        shared = [reason for reason, count in Counter(reasons).items() if count > 1]
    sections: list[Section] = []
    for name in suites:
        with _explain_damage(results, f"suite {name!r}"):
            sections.append(_section(results, name, shared))
    with _explain_damage(results, "runs"):
        repeated: list[Block] = [Text(f"{reason}.") for reason in shared]
        left_out = Section("left-out", "Left out of several suites", repeated)
        front = [
            build_summary(results),
            left_out if shared else None,
            build_claims(results),
            build_advice(results),
        ]
        sections = [section for section in front if section is not None] + sections
        sections.append(build_reproduction(results))
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


def _section(results: Results, name: str, shared: Sequence[str]) -> Section:
    manifest = results.manifests[name]
    build = SECTIONS.get(str(manifest["section"]), rankings.build_retrieval)
    blocks: list[Block] = []
    if manifest["about"]:
        blocks.append(Text(str(manifest["about"])))
    if manifest["differs"] and not manifest.get("own_data"):
        blocks.append(Text(f"What differs from the paper: {manifest['differs']}"))
    shown = [*build(results, name), *_failures(results, name)]
    blocks += shown
    # A section without results gives all reasons, shared ones too.
    left_out = [reason for reason in manifest["left_out"] if not (shown and reason in shared)]
    if left_out:
        blocks.append(Text("Left out: " + "; ".join(left_out) + "."))
    return Section(name, str(manifest["title"]), blocks)


def _failures(results: Results, suite: str) -> list[Block]:
    """Runs that failed, by reason; those that were never run are only counted."""
    runs: dict[str, list[str]] = {}
    for run, reason in results.failures(suite):
        runs.setdefault(reason, []).append(run.label)
    blocks: list[Block] = []
    waiting = len(runs.pop(NOT_RUN, ()))
    if waiting:
        blocks.append(Text(f"{waiting:,} runs of this suite were not run yet; run it again."))
    if runs:
        rows = [
            [labels[0] + (f" and {len(labels) - 1} more" if len(labels) > 1 else ""), why]
            for why, labels in runs.items()
        ]
        columns = [Column("Run"), Column("Why there is no result")]
        blocks.append(Table(columns, rows, "Runs that failed"))
    return blocks
