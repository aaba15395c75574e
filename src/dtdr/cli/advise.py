"""``dtdr advise``: what each way to show tools costs in tokens on your own runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.inputs import choose_split, is_fitted_to, load_dataset, report_bad
from dtdr.cli.output import console, note, print_json, printable
from dtdr.data.jsonl import BadRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtdr.agents.advice import Cost

_UNUSED = 8
"""Tools that no run calls which the table names; JSON has all."""


def advise(
    model: Path,
    data: Path | None = None,
    *,
    dataset: options.DATASET = None,
    split: options.SPLIT = None,
    tools: options.TOOLS = None,
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    system: Annotated[int, typer.Option("--system-tokens")] = 500,
    result: Annotated[int, typer.Option("--result-tokens")] = 200,
    tool: Annotated[int | None, typer.Option("--tool-tokens")] = None,
    seed: options.SEED = 0,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Compare ways to show tools on your own runs: tokens, cache hits, recall.

    Also lists tools that no run calls. With --split, it counts only the test side: the model should
    not have learned from these runs. Cold: each run starts with an empty prompt cache. Warm: the
    cache keeps what earlier runs wrote. Output tokens are not counted.

    Example: dtdr advise model demonstrations.jsonl --top 5

    Args:
        model (MODEL): A model folder.
        data (DATA): The runs: a demonstrations.jsonl file.
        system (N): Tokens of the system prompt.
        result (N): Tokens of a tool's result.
        tool (N): Tokens of a tool's definition; default: measured on the definitions.
    """
    from dtdr.agents import ToolPolicy
    from dtdr.agents.advice import Sizes, unused_tools
    from dtdr.agents.advice import advise as compare
    from dtdr.api import load

    policy = ToolPolicy(**planning.make_selection(top, threshold, coverage).bounds)
    sizes = Sizes(system, result, tool)
    retriever = load(model)
    bad = BadRecords() if skip_bad else None
    data_set = load_dataset(data=data, dataset=dataset, tools=tools, bad=bad)
    report_bad(bad)
    runs = list(data_set.demonstrations)
    if split is not None:
        runs = choose_split(data_set, split, seed=seed).testing(runs)
    if any(is_fitted_to(retriever, some) for some in (runs, data_set.demonstrations)):
        note(
            "the model learned from these very runs, so recall is too good to be true; "
            "fit and advise with the same --split to count runs that it never saw"
        )
    costs = compare(retriever, runs, data_set.tools, policy=policy, sizes=sizes)
    unused = unused_tools(retriever, data_set.demonstrations, data_set.tools, sizes)
    if as_json:
        print_json(
            {
                "runs": len(runs),
                "unused_tools": unused,
                "sizes": {"system": system, "result": result, "tool": tool},
                "ways": [cost.to_dict() for cost in costs],
            }
        )
    else:
        _print(costs, len(runs))
        if unused:
            _print_unused(unused, len(data_set.demonstrations))


def _print(costs: list[Cost], runs: int) -> None:
    from rich.text import Text

    from dtdr.agents.advice import CACHED_PRICE
    from dtdr.evaluate.tables import Column, Table, count, share

    columns = [
        Column("Way to show tools", "way"),
        Column("Tools", "shown", lambda value: f"{value:.1f}", numeric=True),
        Column("Recall", "recall", share, numeric=True),
        Column("Any", "hit", share, numeric=True),
        Column("Searches", "searches", lambda value: f"{value:.1f}", numeric=True),
        Column("Tokens", "tokens", count, numeric=True),
        Column("Cold", "cold", count, numeric=True),
        Column("Warm", "warm", count, numeric=True),
    ]
    rows: list[dict[str, Any]] = [
        {
            "way": cost.way.name,
            "shown": cost.shown,
            "recall": cost.recall,
            "hit": cost.hit,
            "searches": cost.searches,
            "tokens": cost.tokens,
            "cold": cost.cold_paid,
            "warm": cost.warm_paid,
        }
        for cost in costs
    ]
    caption = (
        f"Means of {runs:,} runs. Tokens: input. Cold and Warm count a token from the prompt cache "
        f"as {CACHED_PRICE:g}.\n"
        "Recall: acceptable next tools that are shown. Any: steps that show at least one of them.\n"
        "Searches: round trips an agent makes for tools that are not shown, if it can search."
    )
    out = console()
    out.print(Table(columns, rows, caption=caption).to_rich())
    for sentence in _conclusions(costs):
        out.print(Text(sentence))


def _print_unused(unused: dict[str, int], runs: int) -> None:
    from rich.text import Text

    tokens = sum(unused.values())
    names = ", ".join(printable(name) for name in list(unused)[:_UNUSED])
    more = f" and {len(unused) - _UNUSED:,} more" if len(unused) > _UNUSED else ""
    console().print(
        Text(
            f"None of {runs:,} runs calls {names}{more}. Listed, they are {tokens:,} tokens "
            "of every request."
        )
    )


def _conclusions(costs: list[Cost]) -> list[str]:
    """What the table says, in words."""
    deferred, growing = (
        next(cost for cost in costs if cost.way.name == name)
        for name in ("deferred, searched", "filtered, growing")
    )
    return [
        _conclusion("Cold", costs, lambda cost: cost.cold_paid),
        _conclusion("Warm", costs, lambda cost: cost.warm_paid),
        f"Searches: {deferred.searches:.1f} a run if every tool is deferred, "
        f"{growing.searches:.1f} with a growing list.",
    ]


def _conclusion(label: str, costs: list[Cost], paid: Callable[[Cost], float]) -> str:
    every, best = costs[0], min(costs, key=paid)
    if paid(best) >= paid(every):
        return f"{label}: nothing is cheaper than all tools, always the same."
    saved = 1 - paid(best) / paid(every)
    return (
        f"{label}: {best.way.name} is cheapest, {saved:.0%} below all tools; "
        f"{1 - best.hit:.1%} of the steps show no right tool."
    )
