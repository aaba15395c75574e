"""Published sets of demonstrations, splits, and the bundled synthetic set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, unknown_choice
from dtdr.evaluate.datasets import (
    agent_runs,
    t_eval,
    taskbench,
    tinyagent,
    traject_bench,
    ultratool,
)
from dtdr.evaluate.datasets.source import Dataset, Source, canonical_name, find_file
from dtdr.evaluate.plugins import DATASETS, find_plugin

BUNDLED = "bundled"

# One line a source: adding a set is adding a file and a line here.
SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        tinyagent.SOURCE,
        t_eval.SOURCE,
        ultratool.SOURCE,
        traject_bench.SOURCE,
        *agent_runs.SOURCES,
        *taskbench.SOURCES,
    )
}

NAMES = (BUNDLED, *SOURCES)
"""Every set by the name that users type; hyphens are accepted for underscores."""


def load(
    name: str, *, data_dir: str | Path | None = None, bad: BadRecords | None = None
) -> Dataset:
    """A set of demonstrations with its tools.

    Args:
        name: one of ``NAMES``; ``bundled`` is generated on the spot and needs no file. Or of an
            entry point in the group ``dtdr.datasets``, or ``module:function``.
        data_dir: the folder with published sets; without it, ``DTDR_DATA_DIR``; then the
            download cache.
        bad: given, records that cannot be used are counted there and left out. Fixed splits refer
            to record positions, so they need a set that was read without leaving any out.

    Raises:
        InputError: no set has that name, its file is nowhere, or a record cannot be used.
    """
    if (make := find_own(name)) is not None:
        dataset = make()
        if not isinstance(dataset, Dataset):
            raise InputError(f"dataset {name!r} is not a dtdr.evaluate.datasets.Dataset")
        return replace(dataset, name=name)
    name = canonical_name(name)
    if name == BUNDLED:
        from dtdr.evaluate.datasets.synthetic import bundled_dataset

        return bundled_dataset()
    source = find_source(name)
    folder, path = find_file(source, data_dir)
    title, note = source.describe(path)
    seen = BadRecords(is_strict=bad is None)
    demonstrations = list(source.read(path, seen))
    test_from = None
    test_file = path.with_name(source.test_file.get(path.name, path.name))
    if test_file != path and test_file.is_file():
        test_from = len(demonstrations)
        # Two files may count their records alike.
        demonstrations += [
            replace(item, id=f"test-{item.id}") for item in source.read(test_file, seen)
        ]
    if bad is not None:
        bad.update(seen)
    return Dataset(
        name=source.name,
        title=title,
        demonstrations=demonstrations,
        tools=source.tools(path),
        synthetic=False,
        source=source.origin,
        licence=source.licence,
        note=note,
        folder=folder,
        test_from=test_from,
        remarks=remarks(seen),
    )


def find_own(name: str) -> Callable[..., Any] | None:
    """The function of another package that gives a set; None if there is none, or dtdr has the set.

    Raises:
        InputError: the name is of another package's, which cannot be imported.
    """
    return None if canonical_name(name) in NAMES else find_plugin(DATASETS, name)


def remarks(seen: BadRecords) -> tuple[str, ...]:
    """Sentences about records that were left out or repaired."""
    counts = {
        "records left out that cannot be used": seen.count,
        **dict(sorted(seen.repairs.items())),
    }
    return tuple(f"{what}: {count:,}" for what, count in counts.items() if count)


def keep_known_tools(dataset: Dataset) -> Dataset:
    """The set without the plans that call a tool which it does not list; all if it lists none."""
    known = {tool.name for tool in dataset.tools}
    if not known:
        return dataset
    is_kept = [known.issuperset(item.plan.tools) for item in dataset.demonstrations]
    left_out = len(is_kept) - sum(is_kept)
    if not left_out:
        return dataset
    test_from = dataset.test_from
    return replace(
        dataset,
        demonstrations=list(compress(dataset.demonstrations, is_kept)),
        test_from=None if test_from is None else sum(is_kept[:test_from]),
        remarks=(
            *dataset.remarks,
            f"records left out that call a tool which the set does not describe: {left_out:,}",
        ),
    )


def find_source(name: str) -> Source:
    """The published set of that name.

    Raises:
        InputError: there is none.
    """
    source = SOURCES.get(canonical_name(name))
    if source is None:
        raise unknown_choice("dataset", name, NAMES)
    return source


__all__ = [
    "BUNDLED",
    "NAMES",
    "SOURCES",
    "Dataset",
    "Source",
    "find_own",
    "find_source",
    "keep_known_tools",
    "load",
    "remarks",
]
