"""``dtdr advise``: which way to show tools is cheapest on one's own runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.inputs import choose_split, load_dataset, report_bad
from dtdr.cli.output import console, note, print_json, printable
from dtdr.errors import InputError
from dtdr.jsonl import BadRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtdr.demonstrations import Demonstration
    from dtdr.evaluation.routing import Route
    from dtdr.integrations.advice import Cost
    from dtdr.integrations.costs import Prices
    from dtdr.integrations.renames import Rename
    from dtdr.retrievers.base import Retriever
    from dtdr.tools import Tool

RUNS = 1000
"""Runs that the table's dollars are for; one run costs too little to read."""


_UNUSED = 8
"""Tools that no run calls, of which the table names so many; JSON has all."""


def advise(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA", help="The runs: a demonstrations.jsonl file.", show_default=False
        ),
    ] = None,
    dataset: options.DATASET = None,
    split: options.SPLIT = None,
    tools: options.TOOLS = None,
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    prices: Annotated[
        str,
        typer.Option(
            "--prices",
            metavar="NAME",
            help="anthropic, openai, or a model (with 'dtdr[prices]').",
        ),
    ] = "anthropic",
    uncached: Annotated[
        float | None,
        typer.Option("--input-price", metavar="USD", help="A million tokens of uncached input."),
    ] = None,
    read: Annotated[
        float | None,
        typer.Option("--read-price", metavar="USD", help="A million tokens read from the cache."),
    ] = None,
    write: Annotated[
        float | None,
        typer.Option("--write-price", metavar="USD", help="A million tokens written to it."),
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option("--minimum-prefix", metavar="N", help="Smallest prefix that is cached."),
    ] = None,
    system: Annotated[
        int, typer.Option("--system-tokens", metavar="N", help="Tokens of the system prompt.")
    ] = 500,
    result: Annotated[
        int, typer.Option("--result-tokens", metavar="N", help="Tokens of a tool's result.")
    ] = 200,
    tool: Annotated[
        int | None,
        typer.Option(
            "--tool-tokens",
            metavar="N",
            help="Tokens of a tool's definition; default: measured on the definitions.",
        ),
    ] = None,
    accuracy: Annotated[
        float,
        typer.Option(
            "--accuracy",
            metavar="SHARE",
            help="How often the best tool must be right where a cheaper LLM is to do.",
        ),
    ] = 0.95,
    apply_renames: Annotated[
        bool,
        typer.Option(
            "--apply-renames", help="Ask about each suggested rename, and write the model."
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --apply-renames: apply them all without asking.")
    ] = False,
    seed: options.SEED = 0,
    data_dir: options.DATA_DIR = None,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Compare ways to show tools on your own runs: tokens, cache hits, cost, recall.

    Beside that: from which confidence on a cheaper LLM would do, tools that nobody calls, and tools
    that seem to have been renamed.

    With --split, only the test side is counted: the model should not have learned from the runs.
    Cold starts every run with an empty cache, warm keeps all that any run wrote. Output tokens,
    which are the same for all ways, are not counted.

    Example: dtdr advise model demonstrations.jsonl --prices openai --top 5
    """
    from dtdr.api import load
    from dtdr.evaluation.routing import StepConfidences
    from dtdr.integrations import ToolPolicy
    from dtdr.integrations.advice import Sizes, unused_tools
    from dtdr.integrations.advice import advise as compare
    from dtdr.integrations.costs import prices_of
    from dtdr.integrations.renames import suggest_renames

    if yes and not apply_renames:
        raise InputError("--yes answers the questions of --apply-renames; give that too")
    if not 0 < accuracy < 1:
        raise InputError(f"--accuracy is {accuracy}; it must be between 0 and 1")
    given: dict[str, Any] = {
        "uncached": uncached,
        "read": read,
        "write": write,
        "minimum": minimum,
    }
    own = {name: value for name, value in given.items() if value is not None}
    charged = prices_of(prices)
    if own:
        charged = replace(charged, **own, source=f"your own, else {charged.source}")
    policy = ToolPolicy(**planning.make_selection(top, threshold, coverage).bounds)
    sizes = Sizes(system, result, tool)
    retriever = load(model)
    bad = BadRecords() if skip_bad else None
    data_set = load_dataset(data=data, dataset=dataset, tools=tools, data_dir=data_dir, bad=bad)
    report_bad(bad)
    runs = list(data_set.demonstrations)
    if split is not None:
        runs = choose_split(data_set, split, data_dir=data_dir, seed=seed).testing(runs)
    if any(_is_fitted_to(retriever, some) for some in (runs, data_set.demonstrations)):
        note(
            "the model learned from these very runs, so recall is too good to be true; "
            "fit and advise with the same --split to count runs that it never saw"
        )
    costs = compare(retriever, runs, data_set.tools, policy=policy, prices=charged, sizes=sizes)
    unused = unused_tools(retriever, data_set.demonstrations, data_set.tools, sizes)
    steps = StepConfidences.of_runs(retriever, runs)
    cheapest = steps.cheapest(accuracy)
    renames = suggest_renames(retriever, data_set.demonstrations, data_set.tools)
    if as_json:
        print_json(
            {
                "runs": len(runs),
                "unused_tools": unused,
                "renames": [rename.to_dict() for rename in renames],
                "routing": {
                    "accuracy": accuracy,
                    "from": None if cheapest is None else cheapest.to_dict(),
                    "steps": [route.to_dict() for route in steps.routes()],
                },
                "prices": _price_list(charged),
                "sizes": {"system": system, "result": result, "tool": tool},
                "ways": [cost.to_dict() for cost in costs],
            }
        )
    else:
        _print(costs, charged, len(runs))
        if unused:
            _print_unused(unused, len(data_set.demonstrations), charged)
        _print_routes(steps.routes(), cheapest, accuracy)
        _print_renames(renames)
    if apply_renames:
        _apply(renames, data_set.tools, retriever, model, yes=yes)


def _is_fitted_to(retriever: Retriever, runs: Sequence[Demonstration]) -> bool:
    """Whether the model was fitted to just these runs."""
    from dtdr.retrievers import create

    if all(run.outcome == "failure" for run in runs):
        return False
    # The cheapest retriever there is; its training data are hashed as any other's.
    return create("random").fit(runs).training_.sha256 == retriever.training_.sha256


def _print(costs: list[Cost], prices: Prices, runs: int) -> None:
    from rich.text import Text

    from dtdr.evaluation.tables import Column, Table, count, share

    columns = [
        Column("Way to show tools", "way"),
        Column("Tools", "shown", lambda value: f"{value:.1f}", numeric=True),
        Column("Recall", "recall", share, numeric=True),
        Column("Any", "hit", share, numeric=True),
        Column("Tokens", "tokens", count, numeric=True),
        Column("Hit cold", "cold_read", count, numeric=True),
        Column("Hit warm", "warm_read", count, numeric=True),
        Column("$ cold", "cold", _dollars, numeric=True),
        Column("$ warm", "warm", _dollars, numeric=True),
    ]
    rows: list[dict[str, Any]] = [
        {
            "way": f"{cost.way.name} {cost.way.provider}".strip(),
            "shown": cost.shown,
            "recall": cost.recall,
            "hit": cost.hit,
            "tokens": cost.tokens,
            "cold_read": cost.cold_read,
            "warm_read": cost.warm_read,
            "cold": cost.cold_dollars * RUNS,
            "warm": cost.warm_dollars * RUNS,
        }
        for cost in costs
    ]
    caption = (
        f"Input tokens and cache hits a run, dollars for {RUNS:,} runs; means of {runs:,} runs.\n"
        "Recall: acceptable next tools that are shown. Any: steps that show at least one of them.\n"
        f"{prices.name}: ${prices.uncached:g} uncached, ${prices.read:g} read, "
        f"${prices.write:g} written, a million tokens; from {prices.minimum:,} tokens on.\n"
        f"Prices: {prices.source}."
    )
    out = console()
    out.print(Table(columns, rows, caption=caption).to_rich())
    for sentence in _conclusions(costs, prices):
        out.print(Text(sentence))


def _print_unused(unused: dict[str, int], runs: int, prices: Prices) -> None:
    from rich.text import Text

    tokens = sum(unused.values())
    names = ", ".join(printable(name) for name in list(unused)[:_UNUSED])
    more = f" and {len(unused) - _UNUSED:,} more" if len(unused) > _UNUSED else ""
    dollars = [_dollars(tokens * price * RUNS / 1e6) for price in (prices.uncached, prices.read)]
    console().print(
        Text(
            f"None of {runs:,} runs calls {names}{more}. Listed, their {tokens:,} tokens cost "
            f"${dollars[0]} in {RUNS:,} requests, ${dollars[1]} read from the cache."
        )
    )


def _print_routes(routes: list[Route], cheapest: Route | None, accuracy: float) -> None:
    from rich.text import Text

    from dtdr.evaluation.tables import Column, Table, count, share

    columns = [
        Column("Confidence from", "confidence", lambda value: f"{value:.2f}", numeric=True),
        Column("Steps", "steps", count, numeric=True),
        Column("Of all", "share", share, numeric=True),
        Column("Best tool right", "right", share, numeric=True),
        Column("95 %", "interval", numeric=True),
    ]
    rows: list[dict[str, Any]] = [
        {
            "confidence": route.confidence,
            "steps": route.right.count,
            "share": route.share,
            "right": route.right.value,
            "interval": f"{route.right.low:.3f} to {route.right.high:.3f}",
        }
        for route in routes
        if route.right.count
    ]
    out = console()
    out.print(Table(columns, rows).to_rich())
    if cheapest is None:
        text = f"At no confidence is the best tool surely right in {accuracy:.0%} of the steps."
    else:
        text = (
            f"From a confidence of {cheapest.confidence:.2f} on the best tool is right in "
            f"{cheapest.right.value:.1%} of the steps ({cheapest.right.low:.1%} at the lower end "
            f"of the interval). There, in {cheapest.share:.0%} of all steps, a cheaper LLM has "
            "little to decide."
        )
    out.print(Text(text))


def _print_renames(renames: Sequence[Rename]) -> None:
    from rich.text import Text

    for rename in renames:
        about = [f"names {rename.name:.2f}"]
        for what, value in (
            ("parameters", rename.parameters),
            ("description", rename.description),
            ("use", rename.use),
        ):
            if value is not None:
                about.append(f"{what} {value:.2f}")
        text = f"{printable(rename.old)} seems to be called {printable(rename.new)} now "
        console().print(Text(f"{text}(probability {rename.probability:.2f}; {', '.join(about)})."))
    if renames:
        console().print(Text("--apply-renames asks about each and writes the model."))


def _apply(
    renames: Sequence[Rename],
    tools: Iterable[Tool],
    retriever: Retriever,
    model: Path,
    *,
    yes: bool,
) -> None:
    """Rename tools of the model, those that the user agrees to; described ones as they are now.

    Raises:
        InputError: the retriever's tools cannot change.
    """
    from dtdr.retrievers import SupportsToolChanges

    if not isinstance(retriever, SupportsToolChanges):
        raise InputError(f"tools of {retriever.name!r} cannot be renamed; fit it again")
    described = {tool.name: tool for tool in tools if tool.description}
    chosen = [
        rename
        for rename in renames
        if yes
        or typer.confirm(f"Rename {printable(rename.old)} to {printable(rename.new)}?", err=True)
    ]
    for rename in chosen:
        retriever.rename_tool(rename.old, described.get(rename.new, rename.new))
    if chosen:
        retriever.save(model, force=True)
    note(f"renamed {len(chosen)} of {len(renames)} tools that were suggested")


def _conclusions(costs: list[Cost], prices: Prices) -> list[str]:
    """What the table says, in words, about the ways that these prices are for."""
    every = costs[0]
    offered = [cost for cost in costs if cost.way.provider in ("", prices.provider)]
    return [
        _conclusion("Cold", every, min(offered, key=_cold), _cold),
        _conclusion("Warm", every, min(offered, key=_warm), _warm),
    ]


def _conclusion(label: str, every: Cost, best: Cost, dollars: Callable[[Cost], float]) -> str:
    if dollars(best) >= dollars(every):
        return f"{label}: nothing is cheaper than all tools, always the same."
    saved = 1 - dollars(best) / dollars(every)
    return (
        f"{label}: {best.way.name} is cheapest, {saved:.0%} below all tools; "
        f"{1 - best.hit:.1%} of the steps show no right tool."
    )


def _cold(cost: Cost) -> float:
    return cost.cold_dollars


def _warm(cost: Cost) -> float:
    return cost.warm_dollars


def _dollars(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def _price_list(prices: Prices) -> dict[str, Any]:
    return {
        "name": prices.name,
        "source": prices.source,
        "dollars_per_million_tokens": {
            "uncached": prices.uncached,
            "read": prices.read,
            "write": prices.write,
        },
        "minimum_prefix_tokens": prices.minimum,
        "cached_in_steps_of": prices.step,
        "at_breakpoints_only": prices.breakpoints,
    }
