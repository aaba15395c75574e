"""``dtdr predict``: a query and the calls made so far in, the next calls with arguments out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import find_unknown, load_with_run
from dtdr.cli.output import note, plural, print_json, print_table, printable
from dtdr.evaluate.tables import Column, shorten
from dtdr.predict.arguments.prediction import CallPrediction, ValueSource
from dtdr.predict.plans.prediction import PlanPrediction

_ARGUMENT_HEADERS = ("Argument", "Value", "From")
_VALUE_WIDTH = 46


def predict(
    model: Path,
    query: str | None = None,
    *,
    history: options.HISTORY = None,
    run_file: options.RUN = None,
    plans: bool = False,
    top_k: Annotated[int, typer.Option(*options.TOP_K_NAMES)] = 3,
    as_json: options.JSON = False,
) -> None:
    """Predict the next calls with their arguments.

    It asks no LLM. The table also shows where each value comes from.

    Example: dtdr predict model "Mail Ann the summary of q3.pdf"

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        query (QUERY): The user's request; leave it out with --run.
        plans: Predict whole plans: all calls that remain, not only the next one.
        top_k (K): Number of candidates for the next call, or of plans.
    """
    fitted_model, run = load_with_run(model, query, history, run_file)
    find_unknown(run, fitted_model)
    calls = [] if plans else fitted_model.next_calls(run, top_k)
    predicted = fitted_model.plans(run, top_k=top_k) if plans else ()
    if as_json:
        print_json(
            {
                "ranker": fitted_model.name,
                "query": run.query,
                "history": list(run.history),
                "plans" if plans else "calls": [item.to_dict() for item in (*predicted, *calls)],
            }
        )
    elif predicted:
        _print_plans(predicted)
    elif calls:
        _print_calls(calls, len(run.calls))
    else:
        note("no plan is complete; leave out --plans" if plans else "no call can be predicted")


def _print_calls(calls: Sequence[CallPrediction], count: int) -> None:
    rows = []
    for call in calls:
        for row, argument in enumerate(_arguments(call)):
            first = (call.tool, call.probability) if row == 0 else ("", "")
            rows.append((*first, *argument))
    caption = f"After {plural(count, 'call')}; a call is as probable as its tool and all its "
    caption += "arguments."
    print_table(("Next call", "Probability", *_ARGUMENT_HEADERS), rows, caption=caption)


def _print_plans(plans: Sequence[PlanPrediction]) -> None:
    # Only the first plan shows its arguments: the others have most of its calls.
    rows: list[tuple[Any, ...]] = []
    best = plans[0]
    for index, call in enumerate(best.calls):
        for row, argument in enumerate(_arguments(call)):
            plan = (1, best.probability) if index == row == 0 else ("", "")
            filled = "?" if call.unknown else call.probability
            name = f"{best.ids[index]}. {call.tool}"
            rows.append((*plan, *((name, filled) if row == 0 else ("", "")), *argument))
    for rank, item in enumerate(plans, start=1):
        if rank > 1 or not best.calls:
            tools = item.tools or ("nothing is left to do",)
            rows.append((rank, item.probability, tools, "", "", "", ""))
    headers: list[str | Column] = ["Plan", "Probability", Column("Call", is_whole=True)]
    caption = "A plan is as probable as its tools are right."
    if best.has_arguments:
        headers += ["Arguments", *_ARGUMENT_HEADERS]
        caption += " Arguments: the probability that all of a call are right; ? if one is unknown."
    print_table(headers, [row[: len(headers)] for row in rows], caption=caption)


def _arguments(call: CallPrediction) -> Iterator[tuple[str, str, str]]:
    """Name, value and source of each argument; a call without arguments has one empty row."""
    for name, value in call.arguments.items():
        text = shorten(json.dumps(value, ensure_ascii=False), _VALUE_WIDTH)
        yield name, text, "; ".join(dict.fromkeys(map(_describe, call.sources[name])))
    for name in call.unknown:
        known = "; ".join(map(_describe, call.contains.get(name, ())))
        yield name, "?", f"has to be written, with the {known}" if known else "has to be written"
    if not call.arguments and not call.unknown:
        yield "", "", ""


def _describe(source: ValueSource) -> str:
    if source.kind == "query":
        return "the query"
    if source.kind == "message":
        return "an earlier message"
    if source.kind == "constant":
        return "earlier runs"
    pointer = f" {printable(source.path)}" if source.path else ""
    return f"{source.kind}{pointer} of call {printable(source.call)}"
