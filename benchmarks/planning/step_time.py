"""Seconds of one selection step, cold and warm, for every ICL method, in one run.

    python benchmarks/planning/step_time.py --llm gguf:qwen2.5-coder-0.5b.gguf

Cold: nothing is cached. Warm: the step before was of another query with the same method, so that
the constant part is cached and what varies is read. The answer is constrained to the choices.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from dtdr import llms
from dtdr.cli.output import console
from dtdr.datasets import load
from dtdr.datasets.splits import default_split
from dtdr.evaluation.planning import choose_steps
from dtdr.planning import Mask, Selector
from dtdr.prompting import METHODS, Examples, SelectionPrompts
from dtdr.retrievers import create


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--llm", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dataset", default="tinyagent")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--retriever", default="dtdr-l")
    parser.add_argument("--icl", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    from rich.table import Table

    dataset = load(given.dataset, data_dir=given.data_dir)
    split = default_split(dataset, given.data_dir, given.seed)
    train = split.training(dataset.demonstrations)
    retriever = create(given.retriever).fit(train, dataset.tools)
    steps = choose_steps(split.testing(dataset.demonstrations), given.steps, seed=given.seed)
    mask, examples = Mask(top_k=given.top), Examples(train, seed=given.seed)
    selector = Selector("constrained")
    parameters: dict[str, Any] = {}
    if given.llm.startswith("gguf:"):
        parameters = {"threads": given.threads}
    title = (
        f"Seconds a selection step, median of {len(steps)}, {Path(given.llm).name}, "
        f"{given.threads} thread{'s' if given.threads > 1 else ''}"
    )
    table = Table(box=None)
    for heading in ("ICL", "Cold", "Warm"):
        table.add_column(heading, justify="left" if heading == "ICL" else "right", no_wrap=True)
    with llms.create(given.llm, **parameters) as llm:
        for icl in given.icl.split(","):
            writer = SelectionPrompts(retriever.tools_, icl=icl, examples=examples)
            seconds: dict[str, list[float]] = {"cold": [], "warm": []}
            for temperature, measured in seconds.items():
                for item, step in steps:
                    calls = item.plan.calls[:step]
                    ranking = retriever.rank(item.query, [call.tool for call in calls])
                    shown = mask.shown(ranking)
                    prompt = writer.prompt(item.query, calls, shown)
                    if temperature == "cold":
                        llm.forget()
                    started = time.perf_counter()
                    selector.select(llm, writer, prompt, ranking, shown)
                    measured.append(time.perf_counter() - started)
            # The last cold step left the first warm one's constant part in the cache.
            table.add_row(icl, *(f"{statistics.median(values):.2f}" for values in seconds.values()))
    # A title of the table would be wrapped to the width of its few columns.
    console().print(title)
    console().print(table)


if __name__ == "__main__":
    main()
