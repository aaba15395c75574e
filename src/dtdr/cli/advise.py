"""``dtdr advise``: what each way to show tools costs in tokens on your own runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dtdr.agents import ToolPolicy
from dtdr.agents.advice import CACHED_PRICE, Cost, Sizes, unused_tools, verdict
from dtdr.agents.advice import advise as compare
from dtdr.api import load
from dtdr.cli import options
from dtdr.cli.inputs import choose_split, is_fitted_to, load_dataset
from dtdr.cli.output import note, print_json, print_table, printable, say
from dtdr.data.jsonl import BadRecords

_UNUSED = 8
"""Tools that no run calls which the text names; JSON has all."""


def advise(
    model: Path,
    data: Path | None = None,
    *,
    dataset: options.DATASET = None,
    split: options.SPLIT = None,
    top_k: options.TOP_K = None,
    settings: Annotated[
        list[str] | None, options.further_settings(Sizes, "system_tokens=2000", "evaluate")
    ] = None,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
) -> None:
    """Compare the tokens that ways to show tools cost.

    Give runs that the model did not learn from. If you fitted it with --split, give the same
    --split, and the command counts only the test side. In the column Cold, each run starts with an
    empty prompt cache; in Warm, the cache keeps the prompts of earlier runs. Output tokens do not
    count. The command also lists the tools that no run calls.

    Example: dtdr advise model demonstrations.jsonl --top-k 5

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        data (DATA): The runs: demonstrations or an agent's logs.
    """
    sizes = options.read_settings(settings, Sizes)
    policy = ToolPolicy() if top_k is None else ToolPolicy(top_k=top_k)
    fitted_model = load(model)
    data_set = load_dataset(data, dataset, bad=BadRecords() if skip_bad else None)
    runs = list(data_set.demonstrations)
    if split is not None:
        runs = choose_split(data_set, split).testing(runs)
    if any(is_fitted_to(fitted_model, some) for some in (runs, data_set.demonstrations)):
        note(
            "the model learned from these very runs, so too many next tools are shown; "
            "fit and advise with the same --split to count runs that it never saw"
        )
    costs = compare(fitted_model, runs, data_set.tools, policy=policy, sizes=sizes)
    unused = unused_tools(fitted_model, data_set.demonstrations, data_set.tools, sizes)
    if as_json:
        print_json(
            {
                "runs": len(runs),
                "unused_tools": unused,
                "sizes": msgspec.structs.asdict(sizes),
                "verdict": verdict(costs),
                "ways": [_rounded(cost) for cost in costs],
            }
        )
        return
    _print(costs, len(runs))
    if unused:
        names = ", ".join(list(unused)[:_UNUSED])
        more = f" and {len(unused) - _UNUSED:,} more" if len(unused) > _UNUSED else ""
        say(
            f"None of {len(data_set.demonstrations):,} runs calls {printable(names)}{more}. "
            f"If listed, they add {sum(unused.values()):,} tokens to every request."
        )
    say(verdict(costs))


def _rounded(cost: Cost) -> dict[str, Any]:
    values = msgspec.structs.asdict(cost)
    return {key: round(item, 4) if key != "way" else item for key, item in values.items()}


def _print(costs: Sequence[Cost], runs: int) -> None:
    print_table(
        ("Way to show tools", "Tools", "Next shown", "Searches", "Tokens", "Cold", "Warm"),
        [
            (
                cost.way,
                f"{cost.tools_shown:.1f}",
                float(cost.next_shown),
                f"{cost.searches_per_run:.1f}",
                round(cost.tokens_per_run),
                round(cost.cold_paid_tokens_per_run),
                round(cost.warm_paid_tokens_per_run),
            )
            for cost in costs
        ],
        caption=f"Means of {runs:,} runs. Tokens: input. Cold and Warm count a token from the "
        f"prompt cache as {CACHED_PRICE:g}.\n"
        "Next shown: of the tools that the agent's next message called, the share that was shown.\n"
        "Searches: round trips an agent makes for tools that are not shown, if it can search.",
    )
