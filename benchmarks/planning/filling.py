"""Parameter filling alone: each call of held-out plans after the gold calls before it.

    python benchmarks/planning/filling.py --llm gguf:qwen2.5-coder-0.5b.gguf --calls 60

First calls of a plan are left out: they have nothing to refer to. With --held-out the calls are of
a fifth of the training side, for choices; else of the test side.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import common

from dtdr.cli.output import console
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import track
from dtdr.data.tools import Tool
from dtdr.evaluate.planning import hold_out
from dtdr.evaluate.planning.planning_metrics import similar_arguments
from dtdr.evaluate.statistics import Proportion, proportion
from dtdr.evaluate.tables import Table
from dtdr.llm.planning import fill
from dtdr.llm.planning.filling import FilledParameters
from dtdr.llm.prompting import Examples, FillingPrompts


def main() -> None:
    """Fill the parameters of a sample of calls and print how many are right."""
    given = _arguments()
    data = common.sides(given)
    known, unseen = data.train, data.test
    if given.held_out:
        known, unseen = hold_out(data.train, seed=given.seed)
    chosen = _calls(unseen, {tool.name: tool for tool in data.tools}, given.calls, given.seed)
    prompts = FillingPrompts(data.tools, examples=Examples(known, seed=given.seed))
    side = "held-out" if given.held_out else "test"
    with common.create_llm(given) as llm:
        filled = [
            fill(llm, prompts, item.query, item.plan.calls[:step], tool)
            for item, step, tool in track(chosen, "Filling", len(chosen))
        ]
    gold = [item.plan.calls[step] for item, step, _ in chosen]
    console().print(
        f"{len(chosen)} calls of the {side} side, {given.dataset}, {common.short_name(given.llm)}; "
        "% (95 % interval)."
    )
    _show(gold, filled)


def _arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--held-out", action="store_true")
    return parser.parse_args()


def _calls(
    plans: Sequence[Demonstration], tools: dict[str, Tool], size: int, seed: int
) -> list[tuple[Demonstration, int, Tool]]:
    """A sample of later calls that have parameters: a plan, the call's place, its tool."""
    calls = [
        (item, step, tool)
        for item in plans
        for step, call in enumerate(item.plan.calls)
        if step and (tool := tools[call.tool]).parameters
    ]
    random.Random(seed).shuffle(calls)
    return calls[:size]


def _show(gold: Sequence[ToolCall], filled: Sequence[FilledParameters]) -> None:
    pairs = list(zip(gold, filled, strict=True))
    rows: dict[str, Proportion] = {
        "uses the outputs of the right calls": proportion(
            set(call.references()) == set(ToolCall("", "", filling.arguments).references())
            for call, filling in pairs
        ),
        "arguments similar": proportion(
            similar_arguments(call.arguments, filling.arguments) for call, filling in pairs
        ),
        "arguments equal": proportion(
            dict(call.arguments) == dict(filling.arguments) for call, filling in pairs
        ),
        "could not be read after the repair": proportion(
            bool(filling.problems) for filling in filled
        ),
    }
    cells = [(name, common.percent(one)) for name, one in rows.items()]
    out = console()
    out.print(Table(common.columns(["Calls"], ["%"]), cells).to_rich())
    tokens = [one.prompt_tokens for one in filled if one.prompt_tokens is not None]
    if tokens:
        out.print(f"{sum(tokens) / len(tokens):.0f} prompt tokens a call, repairs included.")


if __name__ == "__main__":
    main()
