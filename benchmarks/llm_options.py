"""What the benchmarks with an LLM share: options, the two sides of the data, and the LLM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets import load
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.statistics import Proportion
from dtdr.evaluate.tables import Column
from dtdr.llm import backends
from dtdr.llm.backends import LLM, Completion, Decoding
from dtdr.llm.prompting import Prompt
from dtdr.rankers.selection import Selection

SMOKE_PLANS = 60


class FirstChoice(LLM):
    """The LLM of ``--smoke``: it answers the first choice."""

    kind: ClassVar[str] = "smoke"
    name = "smoke:first"

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        text = decoding.choices[0] if decoding.choices else ""
        return Completion(text, self.count_tokens(prompt.text), 0)

    def count_tokens(self, text: str) -> int:
        """Words."""
        return len(text.split())


def parser(about: str | None, *, retriever: str | None = None) -> argparse.ArgumentParser:
    """Options that every such benchmark has; one ranker if a default is given."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--llm")
    made.add_argument("--smoke", action="store_true", help="a quick check that it runs")
    made.add_argument("--threads", type=int, default=1, help="of a model in this process")
    made.add_argument("--dataset", default="tinyagent")
    made.add_argument("--data-dir", type=Path)
    if retriever is not None:
        made.add_argument("--retriever", default=retriever)
    shown = made.add_mutually_exclusive_group()
    shown.add_argument("--top", type=int, default=3, help="tools shown")
    shown.add_argument(
        "--coverage",
        type=float,
        help="as many tools as needed to show a right one at this share of the steps",
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
    dataset = load("bundled" if given.smoke else given.dataset, data_dir=given.data_dir)
    split = default_split(dataset, given.data_dir, given.seed)
    sides = [split.training(dataset.demonstrations), split.testing(dataset.demonstrations)]
    train, test = (side[:SMOKE_PLANS] if given.smoke else side for side in sides)
    return Sides(train, test, dataset.tools)


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
    if given.smoke:
        return FirstChoice()
    if given.llm is None:
        raise SystemExit("name an LLM with --llm")
    if not given.llm.startswith("gguf:"):
        return backends.create(given.llm)
    return backends.create(given.llm, threads=given.threads, context=context)


def short_name(llm: str | None) -> str:
    """The model's name without backend, folder and ending."""
    return "smoke" if llm is None else Path(llm.partition(":")[2]).stem


def columns(texts: Sequence[str], numbers: Sequence[str]) -> list[Column]:
    """Columns of texts, then of numbers."""
    return [
        *(Column(heading) for heading in texts),
        *(Column(heading, numeric=True) for heading in numbers),
    ]


def percent(value: Proportion) -> str:
    """A share in % and its 95 % interval."""
    return f"{100 * value.value:.1f} {100 * value.low:.0f}-{100 * value.high:.0f}"
