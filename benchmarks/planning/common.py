"""What the planning benchmarks share: options, the two sides of the data, and the LLM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets import load
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.statistics import Proportion
from dtdr.evaluate.tables import Column
from dtdr.llm import backends
from dtdr.llm.backends import LLM
from dtdr.rankers.selection import Selection


def parser(
    about: str | None, *, retriever: str | None = None, needs_llm: bool = True
) -> argparse.ArgumentParser:
    """Options that every planning benchmark has; one retriever where a default is given."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--llm", required=needs_llm)
    made.add_argument("--threads", type=int, default=1, help="of a model in this process")
    made.add_argument("--dataset", default="tinyagent")
    made.add_argument("--data-dir", type=Path)
    if retriever is not None:
        made.add_argument("--retriever", default=retriever)
    shown = made.add_mutually_exclusive_group()
    shown.add_argument("--top", type=int, default=3, help="tools shown")
    shown.add_argument(
        "--coverage", type=float, help="the fewest tools that hold a right one this often"
    )
    made.add_argument("--seed", type=int, default=0)
    return made


@dataclass(frozen=True)
class Sides:
    """The data set's default split."""

    train: list[Demonstration]
    test: list[Demonstration]
    tools: tuple[Tool, ...]


def sides(given: argparse.Namespace) -> Sides:
    """What is learned from and what is tested."""
    dataset = load(given.dataset, data_dir=given.data_dir)
    split = default_split(dataset, given.data_dir, given.seed)
    return Sides(
        split.training(dataset.demonstrations), split.testing(dataset.demonstrations), dataset.tools
    )


def mask(given: argparse.Namespace) -> Selection:
    """Which tools are shown."""
    if given.coverage is None:
        return Selection(top_k=given.top)
    return Selection(coverage=given.coverage)


def mask_text(given: argparse.Namespace) -> str:
    """The same in words."""
    if given.coverage is None:
        return f"the {given.top} best tools shown"
    return f"shown tools hold a right one at {100 * given.coverage:g} % of steps"


def create_llm(given: argparse.Namespace, context: int = 4096) -> LLM:
    """The backend; threads and context are those of a model in this process."""
    if not given.llm.startswith("gguf:"):
        return backends.create(given.llm)
    return backends.create(given.llm, threads=given.threads, context=context)


def short_name(llm: str) -> str:
    """The model's name without backend, folder and ending."""
    return Path(llm.partition(":")[2]).stem


def columns(texts: Sequence[str], numbers: Sequence[str]) -> list[Column]:
    """Columns of texts, then of numbers."""
    return [
        *(Column(heading) for heading in texts),
        *(Column(heading, numeric=True) for heading in numbers),
    ]


def percent(value: Proportion) -> str:
    """A share in % and its 95 % interval."""
    return f"{100 * value.value:.1f} {100 * value.low:.0f}-{100 * value.high:.0f}"
