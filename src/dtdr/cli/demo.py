"""``dtdr demo``: the main job, start to end, on demonstrations that come with the package."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtdr.cli import options
from dtdr.cli.output import console, print_json, print_table, say
from dtdr.rankers import DEFAULT, NAMES

if TYPE_CHECKING:
    from dtdr.data.demonstrations import Demonstration
    from dtdr.predict.model import Model

DEMONSTRATIONS = 1_000
"""Of the bundled 3,200: dtdr-f learns from 700 in well under a minute."""

SHOWN_QUERIES = 3
SHOWN_TOOLS = 3

SHOWN_CALLS = (3, 5)
"""Calls of the plans that are shown: enough that the history matters, and short to read."""


def demo(
    *,
    retriever: str = DEFAULT,
    as_json: options.JSON = False,
) -> None:
    """Learn, rank and evaluate on bundled synthetic demonstrations, without download.

    Args:
        retriever (NAME): The retriever that ranks the example queries.
    """
    from dtdr.evaluate import metrics
    from dtdr.evaluate.datasets import BUNDLED, load
    from dtdr.evaluate.datasets.splits import default_split
    from dtdr.evaluate.harness import run
    from dtdr.evaluate.result_tables import retrieval_table

    shown = options.create_retriever(retriever, {})
    bundled = load(BUNDLED)
    dataset = replace(bundled, demonstrations=bundled.demonstrations[:DEMONSTRATIONS])
    split = default_split(dataset)
    logs = {retriever: run(shown, dataset, split)}
    # Drawn without a look at how they are ranked.
    low, high = SHOWN_CALLS
    held_out = split.testing(dataset.demonstrations)
    readable = [item for item in held_out if low <= len(item.plan) <= high]
    chosen = random.Random(0).sample(readable, min(SHOWN_QUERIES, len(readable)))
    walks = [(item, list(_walk(shown, item))) for item in chosen]
    if not as_json:
        say(f"Which tool does the agent need next?  {dataset.title}", "bold")
        say(
            f"{shown.name} learned from {len(split.train):,} synthetic demonstrations of "
            f"{len(shown.tools_) - 1} tools. Below are {len(walks)} of the {len(split.test):,} "
            "queries that it never saw, step by step: the tools that it ranks highest and their "
            "probabilities; ✓ marks what the plan accepts next."
        )
        for number, (item, steps) in enumerate(walks, start=1):
            say(f"\n{number}. {' '.join(item.query.split())}", "bold cyan")
            _print_walk(steps)
    for name in NAMES:
        if name not in logs and not options.needs_llm(name):
            logs[name] = run(options.create_retriever(name, {}), dataset, split)
    order = sorted(logs, key=[*NAMES, retriever].index)
    results = [metrics.summary(logs[name]) for name in order]
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
    table = retrieval_table(
        results,
        metrics.DEFAULT,
        title=f"Every retriever that needs no LLM, on {results[0]['steps']:,} synthetic steps of "
        f"the {len(split.test):,} held-out plans",
        caption="MRR: one over the rank of the first acceptable tool. F1: of the top k, k the "
        "number of acceptable\ntools. Rank: one more step of a session, in microseconds.",
    )
    console().print("\n", table.to_rich())
    say(
        "\nNext, on data of your own:\n"
        "  dtdr fit demonstrations.jsonl -o model\n"
        '  dtdr rank model "what the user asks for" --history tool_a,tool_b\n'
        "  dtdr evaluate demonstrations.jsonl"
    )


def _walk(model: Model, demonstration: Demonstration) -> Iterator[dict[str, Any]]:
    """Each step of the demonstration's own plan, with the top tools."""
    session = model.session(demonstration.query)
    for step, called in zip(
        demonstration.plan.steps(), [*demonstration.plan.tools, None], strict=True
    ):
        ranking = session.rank()
        yield {
            "called_before": list(step.history),
            "acceptable": sorted(step.acceptable),
            "top": [
                {
                    "tool": tool,
                    "probability": round(probability, 4),
                    "acceptable": tool in step.acceptable,
                }
                for tool, probability in ranking.top(SHOWN_TOOLS)
            ],
            "called": called,
        }
        if called is not None:
            session.call(called)


def _print_walk(steps: Sequence[dict[str, Any]]) -> None:
    rows = []
    for step in steps:
        cells = [
            f"{item['probability']:.3f} {'✓' if item['acceptable'] else ' '} {item['tool']}"
            for item in step["top"]
        ]
        rows.append(((["(start)"] + step["called_before"])[-1], *cells))
    print_table(("After", "1st", "2nd", "3rd"), rows)
