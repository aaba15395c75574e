"""Function-selection accuracy: ICL method x retriever x selection, on one fixed sample of steps.

    python benchmarks/planning/selection.py --llm gguf:qwen2.5-coder-0.5b.gguf --steps 150

Every cell runs the same steps of the test side, teacher-forced, and writes a run log that an
interrupted run continues. The retriever is fitted on the training side; λ, temperature and the
confidence of ``auto`` are chosen on a fifth of the training side that a second retriever, fitted
on the rest, has not seen. ``auto`` and ``retriever`` need no run of their own: they follow from
the log of ``fused``.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from dtdr import llms
from dtdr.cli.output import console
from dtdr.datasets import load
from dtdr.datasets.splits import default_split
from dtdr.demonstrations import Demonstration, Tool
from dtdr.evaluation.harness import split_sha256
from dtdr.evaluation.planning import (
    PlanningLog,
    choose_steps,
    confidence_for,
    reselect,
    run_selections,
    tune,
)
from dtdr.evaluation.planning.metrics import Share, costs, invalid_name_rate, share
from dtdr.llms import LLM
from dtdr.planning import Fusion, Mask, Planner
from dtdr.retrievers import create
from dtdr.retrievers.base import Retriever

HELD_OUT = 0.2
"""Share of the training side on which λ, temperature and confidence are chosen."""


def main() -> None:
    """Run the cells that are asked for and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--llm", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dataset", default="tinyagent")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--icl", default="none,hard,cached")
    parser.add_argument("--retrievers", default="dr,lr,dtdr-c,dtdr-l")
    parser.add_argument("--select", default="greedy,constrained,fused")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tuning-steps", type=int, default=60)
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/planning"))
    given = parser.parse_args()

    dataset = load(given.dataset, data_dir=given.data_dir)
    split = default_split(dataset, given.data_dir, given.seed)
    train = split.training(dataset.demonstrations)
    test = split.testing(dataset.demonstrations)
    shuffled = list(train)
    random.Random(given.seed).shuffle(shuffled)
    cut = round(len(shuffled) * (1 - HELD_OUT))
    sides = {"test": (train, test), "tuning": (shuffled[:cut], shuffled[cut:])}

    parameters: dict[str, Any] = {}
    if given.llm.startswith("gguf:"):
        parameters = {"threads": given.threads, "context": 4096}
    rows: list[dict[str, Any]] = []
    with llms.create(given.llm, **parameters) as llm:
        for name in given.retrievers.split(","):
            fitted = {
                side: create(name).fit(known, dataset.tools) for side, (known, _) in sides.items()
            }
            for icl in given.icl.split(","):
                if icl == "none" and rows and any(row["icl"] == "none" for row in rows):
                    continue  # without ICL, the retriever changes nothing but fused and auto
                cell = Cell(given, llm, name, icl, fitted, sides, dataset.tools)
                rows += cell.rows()
                show(rows, given)


class Cell:
    """One retriever with one ICL method."""

    def __init__(
        self,
        given: argparse.Namespace,
        llm: LLM,
        name: str,
        icl: str,
        fitted: dict[str, Retriever],
        sides: dict[str, tuple[list[Demonstration], list[Demonstration]]],
        tools: tuple[Tool, ...],
    ) -> None:
        self.given, self.llm, self.name, self.icl = given, llm, name, icl
        self.fitted, self.sides, self.tools = fitted, sides, tools

    def run(self, side: str, select: str, size: int) -> PlanningLog:
        """The log of one selection method on one side."""
        known, unseen = self.sides[side]
        planner = Planner(
            self.fitted[side],
            self.llm,
            icl=self.icl,
            select=select,
            mask=Mask(top_k=self.given.top),
            demonstrations=known,
            seed=self.given.seed,
        )
        model = Path(self.llm.name.rpartition(":")[2]).stem
        path = self.given.runs / f"{model}-{side}-{self.name}-{self.icl}-{select}-{size}.jsonl"
        steps = choose_steps(unseen, size, seed=self.given.seed)
        return run_selections(
            planner,
            steps,
            path,
            dataset=self.given.dataset,
            split_sha256=split_sha256(known, unseen),
            seed=self.given.seed,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row a selection method."""
        found: list[dict[str, Any]] = []
        for select in self.given.select.split(","):
            if select == "fused":
                continue
            log = self.run("test", select, self.given.steps)
            found.append(self.row(select, log, [record["selected"] for record in log]))
        if "fused" not in self.given.select.split(","):
            return found
        fused = self.run("test", "fused", self.given.steps)
        tuning = list(self.run("tuning", "fused", self.given.tuning_steps))
        fusion = tune(tuning)
        scored = [reselect(record, Fusion(0.0, 1.0)) for record in fused]
        found.append(self.row("likelihood", fused, scored))
        chosen = [reselect(record, fusion) for record in fused]
        label = f"fused λ={fusion.weight:g} T={fusion.temperature:g}"
        found.append(self.row(label, fused, chosen))
        confidence = confidence_for([record["confidence"] for record in tuning], 0.5)
        asked = [record["confidence"] < confidence for record in fused]
        automatic = [
            choice if ask else record["best"]
            for record, choice, ask in zip(fused, chosen, asked, strict=True)
        ]
        row = self.row("auto, half the calls", fused, automatic)
        found.append(row | {"llm_calls": sum(asked) / len(asked)})
        best = [record["best"] for record in fused]
        found.append(self.row("retriever", fused, best) | {"llm_calls": 0.0})
        return found

    def row(self, select: str, log: PlanningLog, chosen: list[str | None]) -> dict[str, Any]:
        """One row of the table."""
        right = share(
            name in record["acceptable"] for name, record in zip(chosen, log, strict=True)
        )
        return {
            "retriever": self.name,
            "icl": self.icl,
            "select": select,
            "fsa": right,
            "invalid": invalid_name_rate(log).value if select == "greedy" else 0.0,
            **costs(log),
        }


def show(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Print the table."""
    from rich.table import Table

    table = Table(
        title=f"Function selection, {given.dataset}, {Path(given.llm).name}, {given.steps} steps",
        box=None,
    )
    for heading in ("ICL", "Retriever", "Selection"):
        table.add_column(heading, no_wrap=True)
    for heading in ("FSA %", "95 %", "Invalid %", "Const.", "Var.", "Calls", "s/step"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        fsa: Share = row["fsa"]
        table.add_row(
            row["icl"],
            row["retriever"],
            row["select"],
            f"{100 * fsa.value:.1f}",
            f"{100 * fsa.low:.0f}-{100 * fsa.high:.0f}",
            f"{100 * row['invalid']:.1f}",
            f"{row['constant_tokens']:.0f}",
            f"{row['variable_tokens']:.0f}",
            f"{row['llm_calls']:.2f}",
            f"{row['seconds']:.2f}",
        )
    console().print(table)


if __name__ == "__main__":
    main()
