"""What the benchmarks on several data sets share: their options, and the sets one by one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.source import Dataset
from dtdr.evaluate.datasets.splits import Split, default_split


def make_parser(about: str | None, sets: Sequence[str]) -> argparse.ArgumentParser:
    """The options; the first line of ``about`` is what help says.

    Args:
        about: the benchmark's own text.
        sets: those that are measured unless others are named.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--datasets", nargs="+", metavar="NAME", default=sets)
    parser.add_argument("--data-dir", type=Path, help="where the published sets are")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--smoke", action="store_true", help="a part of the bundled set; seconds")
    return parser


def load_sets(given: argparse.Namespace, *, smoke: int = 120) -> Iterator[tuple[Dataset, Split]]:
    """Each set with its default split; one that is not there is left out, with a note.

    Args:
        given: the options.
        smoke: demonstrations of the bundled set, where that is asked for.
    """
    for name in [datasets.BUNDLED] if given.smoke else given.datasets:
        try:
            dataset = datasets.load(name, data_dir=given.data_dir)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if given.smoke:
            dataset = replace(dataset, demonstrations=dataset.demonstrations[:smoke])
        yield dataset, default_split(dataset, given.data_dir)
