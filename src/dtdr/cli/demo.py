"""``dtdr demo``: the main job, start to end, on demonstrations that come with the package."""

from __future__ import annotations

import random
from dataclasses import replace

from dtdr.cli import options
from dtdr.cli.output import console, print_table, say
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate import metrics
from dtdr.evaluate.datasets import BUNDLED, load
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.harness import run
from dtdr.evaluate.result_tables import retrieval_table
from dtdr.predict.model import Model
from dtdr.rankers import DEFAULT, NAMES

DEMONSTRATIONS = 1_000
"""Demonstrations taken of the bundled 3,200: dtdr-f learns from 700 in under a minute."""

SHOWN_QUERIES = 3
SHOWN_TOOLS = 3

SHOWN_CALLS = range(3, 6)
"""Calls of the plans that are shown: enough that the history matters, and short to read."""


def demo(
    *,
    retriever: str = DEFAULT,
) -> None:
    """Learn, rank and evaluate on bundled synthetic runs.

    Args:
        retriever (NAME): The ranker that ranks the example queries.
    """
    shown = options.create_model(retriever, {})
    bundled = load(BUNDLED)
    dataset = replace(bundled, demonstrations=bundled.demonstrations[:DEMONSTRATIONS])
    split = default_split(dataset)
    logs = {retriever: run(shown, dataset, split)}
    held_out = split.testing(dataset.demonstrations)
    # Drawn without a look at how they are ranked.
    readable = [item for item in held_out if len(item.plan) in SHOWN_CALLS]
    examples = random.Random(0).sample(readable, min(SHOWN_QUERIES, len(readable)))
    say(f"Which tool does the agent need next?  {dataset.title}", "bold")
    say(
        f"{shown.name} learned from {len(split.train):,} synthetic demonstrations of "
        f"{len(shown.tools_) - 1} tools. Below are {len(examples)} of the {len(split.test):,} "
        "queries that it never saw, step by step: the tools that it ranks highest and their "
        "probabilities; ✓ marks what the plan accepts next."
    )
    for position, demonstration in enumerate(examples, start=1):
        say(f"\n{position}. {' '.join(demonstration.query.split())}", "bold cyan")
        _print_steps(shown, demonstration)
    for name in NAMES:
        if name not in logs and not options.needs_llm(name):
            logs[name] = run(options.create_model(name, {}), dataset, split)
    order = sorted(logs, key=[*NAMES, retriever].index)
    results = [metrics.summary(logs[name]) for name in order]
    table = retrieval_table(
        results,
        metrics.DEFAULT,
        title=f"Every ranker that needs no LLM, on {results[0]['steps']:,} synthetic steps of "
        f"the {len(split.test):,} held-out plans",
        caption="MRR: one over the rank of the first acceptable tool. F1: of the top k, k the "
        "number of acceptable\ntools. Rank: one more step of a session, in microseconds.",
    )
    console().print("\n", table.to_rich())
    say(
        "\nNext, on your own data:\n"
        "  dtdr fit demonstrations.jsonl -o model\n"
        '  dtdr rank model "what the user asks for" --history tool_a,tool_b\n'
        "  dtdr evaluate demonstrations.jsonl"
    )


def _print_steps(model: Model, demonstration: Demonstration) -> None:
    """Print the top tools at each step of the demonstration's own plan."""
    session = model.session(demonstration.query)
    rows = []
    for step in demonstration.plan.steps():
        if step.history:
            session.call(step.history[-1])
        cells = (
            f"{probability:.3f} {'✓' if tool in step.acceptable else ' '} {tool}"
            for tool, probability in session.rank().top(SHOWN_TOOLS)
        )
        rows.append((step.history[-1] if step.history else "(start)", *cells))
    print_table(("After", "1st", "2nd", "3rd"), rows)
