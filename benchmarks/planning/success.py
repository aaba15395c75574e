"""Success rate of whole plans: ICL method x retriever, on one fixed sample of plans.

    python benchmarks/planning/success.py --llm gguf:qwen2.5-coder-0.5b.gguf --plans 40

Each cell plans the same queries of the test side from the start, parameters included, and writes
a run log that an interrupted run continues.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dtdr import llms
from dtdr.cli.output import console
from dtdr.datasets import load
from dtdr.datasets.splits import default_split
from dtdr.evaluation.harness import split_sha256
from dtdr.evaluation.planning import choose_plans, run_plans, success_rate
from dtdr.planning import Mask, Planner
from dtdr.retrievers import create


def main() -> None:
    """Run the cells that are asked for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--llm", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dataset", default="tinyagent")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cells", default="none:dtdr-l,hard:dr,hard:lr,hard:dtdr-l")
    parser.add_argument("--select", default="constrained")
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/planning"))
    given = parser.parse_args()

    from rich.table import Table

    dataset = load(given.dataset, data_dir=given.data_dir)
    split = default_split(dataset, given.data_dir, given.seed)
    train, test = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
    plans = choose_plans(test, given.plans, seed=given.seed)
    parameters: dict[str, Any] = {}
    if given.llm.startswith("gguf:"):
        parameters = {"threads": given.threads}
    title = (
        f"Success rate in %, {given.dataset}, {Path(given.llm).name}, {len(plans)} plans, "
        f"{given.select}"
    )
    table = Table(box=None)
    for heading in ("ICL", "Retriever", "Names", "Similar", "Strict", "Ended"):
        table.add_column(heading, no_wrap=True)
    with llms.create(given.llm, **parameters) as llm:
        for cell in given.cells.split(","):
            icl, _, name = cell.partition(":")
            planner = Planner(
                create(name).fit(train, dataset.tools),
                llm,
                icl=icl,
                select=given.select,
                mask=Mask(top_k=given.top),
                demonstrations=train,
                seed=given.seed,
            )
            model = Path(llm.name.rpartition(":")[2]).stem
            stem = f"{model}-plans-{name}-{icl}-{given.select}-{given.plans}"
            log = run_plans(
                planner,
                plans,
                given.runs / f"{stem}.jsonl",
                dataset=given.dataset,
                split_sha256=split_sha256(train, test),
                seed=given.seed,
            )
            ended = sum(record["stopped"] == "end" for record in log) / len(plans)
            rates = [success_rate(log, reading) for reading in ("names", "similar", "strict")]
            table.add_row(
                icl,
                name,
                *(f"{100 * one.value:.0f} ({100 * one.low:.0f}-{100 * one.high:.0f})"
                  for one in rates),
                f"{100 * ended:.0f}",
            )  # fmt: skip
    # A title of the table would be wrapped to the width of its few columns.
    console().print(title)
    console().print(table)


if __name__ == "__main__":
    main()
