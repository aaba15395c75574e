"""``dtdr advise``: what each way to show tools costs in tokens on your own runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from dtdr.cli import options
from dtdr.cli.inputs import choose_split, is_fitted_to, load_dataset
from dtdr.cli.output import note, print_json, print_table, printable, say
from dtdr.data.jsonl import BadRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtdr.agents.advice import Cost

_UNUSED = 8
"""Tools that no run calls which the text names; JSON has all."""


class _Settings(msgspec.Struct, frozen=True):
    """What ``--set`` takes: tokens of the parts of a prompt."""

    system_tokens: int = 500
    result_tokens: int = 200
    tool_tokens: int | None = None


def advise(
    model: Path,
    data: Path | None = None,
    *,
    dataset: options.DATASET = None,
    split: options.SPLIT = None,
    top: options.TOP = None,
    settings: Annotated[
        list[str] | None, options.further_settings(_Settings, "system_tokens=2000")
    ] = None,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
) -> None:
    """Compare ways to show tools on your own runs: tokens, cache hits, recall.

    It also lists the tools that no run calls. With --split, it counts only the test side: the model
    should not have learned from these runs. Cold: each run starts with an empty prompt cache. Warm:
    the cache keeps what earlier runs wrote. It does not count output tokens. By default, it
    measures the tokens of tools on their definitions.

    Example: dtdr advise model demonstrations.jsonl --top 5

    Args:
        model (MODEL): A model folder.
        data (DATA): The runs: demonstrations or an agent's logs.
    """
    from dtdr.agents import ToolPolicy
    from dtdr.agents.advice import Sizes, unused_tools
    from dtdr.agents.advice import advise as compare
    from dtdr.api import load

    sizes = Sizes(*msgspec.structs.astuple(options.read_settings(settings, _Settings)))
    policy = ToolPolicy() if top is None else ToolPolicy(top_k=top)
    retriever = load(model)
    data_set = load_dataset(data, dataset, bad=BadRecords() if skip_bad else None)
    runs = list(data_set.demonstrations)
    if split is not None:
        runs = choose_split(data_set, split).testing(runs)
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
                "sizes": {"system": sizes.system, "result": sizes.result, "tool": sizes.tool},
                "ways": [cost.to_dict() for cost in costs],
            }
        )
        return
    _print(costs, len(runs))
    if unused:
        names = ", ".join(list(unused)[:_UNUSED])
        more = f" and {len(unused) - _UNUSED:,} more" if len(unused) > _UNUSED else ""
        say(
            f"None of {len(data_set.demonstrations):,} runs calls {printable(names)}{more}. "
            f"Listed, they are {sum(unused.values()):,} tokens of every request."
        )


def _print(costs: Sequence[Cost], runs: int) -> None:
    from dtdr.agents.advice import CACHED_PRICE

    print_table(
        ("Way to show tools", "Tools", "Recall", "Any", "Searches", "Tokens", "Cold", "Warm"),
        [
            (
                cost.way.name,
                f"{cost.shown:.1f}",
                float(cost.recall),
                float(cost.hit),
                f"{cost.searches:.1f}",
                *map(round, (cost.tokens, cost.cold_paid, cost.warm_paid)),
            )
            for cost in costs
        ],
        caption=f"Means of {runs:,} runs. Tokens: input. Cold and Warm count a token from the "
        f"prompt cache as {CACHED_PRICE:g}.\n"
        "Recall: acceptable next tools that are shown. Any: steps that show at least one of them.\n"
        "Searches: round trips an agent makes for tools that are not shown, if it can search.",
    )
    for sentence in _conclusions(costs):
        say(sentence)


def _conclusions(costs: Sequence[Cost]) -> list[str]:
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


def _conclusion(label: str, costs: Sequence[Cost], paid: Callable[[Cost], float]) -> str:
    every, best = costs[0], min(costs, key=paid)
    if paid(best) >= paid(every):
        return f"{label}: nothing is cheaper than all tools, always the same."
    saved = 1 - paid(best) / paid(every)
    return (
        f"{label}: {best.way.name} is cheapest, {saved:.0%} below all tools; "
        f"{1 - best.hit:.1%} of the steps show no right tool."
    )
