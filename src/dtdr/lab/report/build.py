"""Builds the report of one lab from its manifests and run logs, and nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtdr.errors import InputError, unknown_choice
from dtdr.files import replacing_file
from dtdr.lab.paper import CITATION
from dtdr.lab.report.blocks import Block, Cell, Column, Page, Section, Table, Text
from dtdr.lab.report.html import to_html
from dtdr.lab.report.markdown import to_markdown
from dtdr.lab.report.results import NOT_RUN, Results
from dtdr.lab.report.sections import MODULES
from dtdr.lab.store import Store
from dtdr.lab.suite import ORDER


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
    sections = []
    names = sorted(results.manifests, key=lambda name: (_place(name), name))
    for name in names:
        manifest = results.manifests[name]
        sections.append(_section(results, name, manifest))
    own = [name for name in names if results.manifests[name].get("own_data")]
    if own:
        from dtdr.lab.report.sections import own_data

        sections.insert(0, own_data.section(results, own))
    from dtdr.lab.report.sections import reproduce, summary

    front = summary.section(results)
    if front is not None:
        sections.insert(0, front)
    sections.append(reproduce.section(results))
    if not times:
        for section in sections:
            section.blocks = [_without_times(block) for block in section.blocks]
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
        with replacing_file(path) as stream:
            stream.write(text)
    return paths


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _section(results: Results, name: str, manifest: Mapping[str, Any]) -> Section:
    kind = str(manifest["section"])
    module = importlib.import_module(
        f"dtdr.lab.report.sections.{MODULES.get(kind, MODULES['retrieval'])}"
    )
    blocks: list[Block] = []
    if manifest["about"]:
        blocks.append(Text(str(manifest["about"])))
    if manifest["differs"] and not manifest.get("own_data"):
        blocks.append(Text(f"What differs from the paper: {manifest['differs']}"))
    blocks.extend(module.build(results, name))
    blocks.extend(_failures(results, name))
    if manifest["left_out"]:
        blocks.append(Text("Left out: " + "; ".join(manifest["left_out"]) + "."))
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
        blocks.append(Table("Runs that failed", columns, rows))
    return blocks


def _without_times(block: Block) -> Block:
    if not isinstance(block, Table):
        return block
    rows = [
        [Cell("-", measured=True) if cell.measured else cell for cell in row] for row in block.rows
    ]
    return Table(block.title, block.columns, rows, block.notes)
