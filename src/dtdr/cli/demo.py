"""``dtdr demo``: the main job, start to end, on demonstrations that come with the package."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtdr.cli import options
from dtdr.cli.output import console, dataset_label, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from dtdr.data.demonstrations import Demonstration
    from dtdr.evaluate.datasets import Dataset
    from dtdr.evaluate.datasets.splits import Split
    from dtdr.predict.model import Model

SHOWN_RETRIEVER = "dtdr-f"
"""The default retriever, and the best of the table that follows."""

DEMONSTRATIONS = 1_000
"""Of the bundled 3,200: dtdr-f learns from 700 in well under a minute."""

SHOWN_QUERIES = 3
SHOWN_TOOLS = 3
WIDE = 96
"""Columns that three tools with long names need; narrower terminals get one tool less."""

SHOWN_CALLS = (3, 5)
"""Calls of the plans that are shown: enough that the history matters, and short to read."""


def demo(
    *,
    retriever: str = SHOWN_RETRIEVER,
    seed: options.SEED = 0,
    as_json: options.JSON = False,
) -> None:
    """Learn, rank and evaluate on bundled synthetic demonstrations, without download.

    Args:
        retriever (NAME): What the walk-through shows.
    """
    from dtdr.evaluate import metrics
    from dtdr.evaluate.datasets import BUNDLED, load
    from dtdr.evaluate.datasets.splits import default_split
    from dtdr.evaluate.harness import run
    from dtdr.rankers import NAMES

    shown = options.create_retriever(retriever, seed=seed)
    bundled = load(BUNDLED)
    dataset = replace(bundled, demonstrations=bundled.demonstrations[:DEMONSTRATIONS])
    split = default_split(dataset, seed=seed)
    logs = {retriever: run(shown, dataset, split)}
    walks = [
        (demonstration, _walk(shown, demonstration))
        for demonstration in _choose(split.testing(dataset.demonstrations), seed)
    ]
    out = console()
    if not as_json:
        _print_walks(out, dataset, split, shown, walks)
    names = [name for name in NAMES if not options.needs_llm(name)]
    for name in names:
        if name not in logs:
            logs[name] = run(options.create_retriever(name, seed=seed), dataset, split)
    results = [metrics.summary(logs[name]) for name in dict.fromkeys([*names, retriever])]
    if as_json:
        print_json(
            {
                "dataset": dataset.name,
                "synthetic": dataset.synthetic,
                "split": split.name,
                "retriever": retriever,
                "queries": [
                    {"id": item.id, "query": item.query, "steps": steps} for item, steps in walks
                ],
                "results": results,
            }
        )
        return
    _print_results(out, dataset, split, results, metrics.DEFAULT)


def _choose(held_out: list[Demonstration], seed: int) -> list[Demonstration]:
    """Held-out demonstrations of readable length, drawn without a look at how they are ranked."""
    low, high = SHOWN_CALLS
    readable = [item for item in held_out if low <= len(item.plan) <= high]
    return random.Random(seed).sample(readable, min(SHOWN_QUERIES, len(readable)))


def _walk(retriever: Model, demonstration: Demonstration) -> list[dict[str, Any]]:
    """Each step of the demonstration's own plan, with the top tools."""
    session = retriever.session(demonstration.query)
    steps = []
    for number, step in enumerate(demonstration.plan.steps()):
        ranking = session.rank()
        places = [
            ranking.tools.index(tool) + 1 for tool in step.acceptable if tool in ranking.tools
        ]
        made = demonstration.plan.tools[number] if number < len(demonstration.plan) else None
        steps.append(
            {
                "called_before": list(step.history),
                "acceptable": sorted(step.acceptable),
                "rank_of_first_acceptable": min(places, default=None),
                "top": [
                    {
                        "tool": tool,
                        "probability": round(probability, 4),
                        "acceptable": tool in step.acceptable,
                    }
                    for tool, probability in ranking.top(SHOWN_TOOLS)
                ],
                "called": made,
            }
        )
        if made is not None:
            session.call(made)
    return steps


def _print_walks(
    out: Console,
    dataset: Dataset,
    split: Split,
    retriever: Model,
    walks: list[tuple[Demonstration, list[dict[str, Any]]]],
) -> None:
    from rich.text import Text

    kind = "synthetic demonstrations" if dataset.synthetic else "demonstrations"
    out.print(Text(f"Which tool does the agent need next?  {dataset_label(dataset)}", style="bold"))
    out.print(
        f"{retriever.name} learned from {len(split.train):,} {kind} of "
        f"{len(retriever.tools_) - 1} tools. Below are {len(walks)} of the {len(split.test):,} "
        "queries that it never saw, step by step: the tools that it ranks highest and their "
        "probabilities; [green]✓[/green] marks what the plan accepts next."
    )
    for number, (demonstration, steps) in enumerate(walks, start=1):
        query = " ".join(demonstration.query.split())
        out.print()
        out.print(Text.assemble((f"{number}. ", "bold"), (query, "bold cyan")))
        out.print(_walk_table(steps, SHOWN_TOOLS if out.width >= WIDE else SHOWN_TOOLS - 1))


def _walk_table(steps: list[dict[str, Any]], shown: int) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("After", no_wrap=True)
    for title in ("1st", "2nd", "3rd")[:shown]:
        table.add_column(f"      {title}", no_wrap=True)
    for step in steps:
        cells = []
        for item in step["top"][:shown]:
            mark, style = ("✓", "green") if item["acceptable"] else (" ", "")
            cells.append(Text(f"{_percent(item['probability'])} {mark} {item['tool']}", style))
        before = step["called_before"]
        table.add_row(
            Text(before[-1] if before else "(start)", style="dim"),
            *cells,
        )
    return table


def _percent(probability: float) -> str:
    return "<1%" if 0 < probability < 0.005 else f"{probability:3.0%}"


def _print_results(
    out: Console,
    dataset: Dataset,
    split: Split,
    results: list[dict[str, Any]],
    metrics: tuple[str, ...],
) -> None:
    from dtdr.evaluate.result_tables import retrieval_table

    kind = "synthetic" if dataset.synthetic else "held-out"
    table = retrieval_table(
        results,
        metrics,
        title=f"Every retriever that needs no LLM, on {results[0]['steps']:,} {kind} steps of "
        f"the {len(split.test):,} held-out plans",
        caption="MRR: one over the rank of the first acceptable tool. F1: of the top k, k the "
        "number of acceptable\ntools. Rank: one more step of a session, in microseconds.",
    )
    out.print()
    out.print(table.to_rich())
    out.print()
    out.print(
        "Next, on data of your own:\n"
        "  dtdr fit demonstrations.jsonl -o model\n"
        '  dtdr rank model "what the user asks for" --history tool_a,tool_b\n'
        "  dtdr evaluate demonstrations.jsonl"
    )
