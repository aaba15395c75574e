"""``dtdr predict``: a query and the calls made so far in, the next calls with arguments out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dtdr.cli import options
from dtdr.cli.inputs import check_query, find_unknown, read_run_alone, split_history
from dtdr.cli.output import console, note, print_json, printable, shorten
from dtdr.data.run import Run, as_run
from dtdr.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtdr.evaluate.tables import Column
    from dtdr.predict.arguments.prediction import CallPrediction, Source
    from dtdr.predict.model import Model
    from dtdr.predict.plans.prediction import PlanPrediction

_WIDTH = 46


def predict(
    model: Path,
    query: str | None = None,
    *,
    history: options.HISTORY = None,
    run_file: options.RUN = None,
    tool: str | None = None,
    plans: bool = False,
    top: int = 3,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Predict the next calls with their arguments, and where each argument comes from.

    Example: dtdr predict model "Mail Ann the summary of q3.pdf"

    Args:
        model (MODEL): A model folder.
        query (QUERY): The user's request.
        tool (NAME): Fill the arguments of this tool only.
        plans: Predict whole plans, or the rest of a run.
        top (K): Number of calls or plans to predict.
    """
    if query is None and run_file is None:
        raise InputError("give a query, or --run FILE")
    check_query(query)
    if plans and tool is not None:
        raise InputError("--plans predicts all calls, --tool one; leave one of them out")
    run = None if run_file is None else read_run_alone(run_file, query, history)
    from dtdr.api import load

    retriever = load(model)
    if run is None:
        run = as_run(str(query), split_history(history, retriever))
    if unknown := find_unknown(run, retriever):
        note(f"the model never saw {', '.join(map(repr, unknown))}; it predicted anyway")
    items: Sequence[CallPrediction | PlanPrediction]
    if plans:
        kind, items = "plans", retriever.plans(run, k=top)
        nothing = "no plan: none that the model tried comes to an end"
    else:
        kind, items = "calls", _predict_calls(retriever, run, tool, top, model)
        nothing = "no call can be predicted"
    if as_json:
        print_json(
            {
                "retriever": retriever.name,
                "query": run.query,
                "history": list(run.history),
                kind: [item.to_dict() for item in items],
            }
        )
    elif not items:
        note(nothing)
    elif kind == "calls":
        _print_calls(run, cast("list[CallPrediction]", items))
    else:
        _print_plans(cast("list[PlanPrediction]", items))


def _predict_calls(
    retriever: Model, run: Run, tool: str | None, top: int, model: Path
) -> list[CallPrediction]:
    if tool is None:
        return retriever.next_calls(run, top)
    if retriever.index(tool) < 0:
        raise InputError(f"tool {tool!r} is not known to the model; see: dtdr inspect {model}")
    return [retriever.fill(tool, run)]


def _print_calls(run: Run, calls: list[CallPrediction]) -> None:
    from dtdr.evaluate.tables import Column, Table

    rows: list[dict[str, Any]] = []
    for call in calls:
        first = {"tool": printable(call.tool), "probability": call.probability}
        rows += _rows(call, first)
    columns = [
        Column("Next call", "tool"),
        Column("Probability", "probability", _share_or_nothing, numeric=True),
        *_argument_columns(),
    ]
    count = len(run.calls)
    caption = f"after {count} call{'' if count == 1 else 's'}; a call is as probable as its tool "
    caption += "and all its arguments"
    console().print(Table(columns, rows, caption=caption).to_rich())


def _print_plans(predicted: list[PlanPrediction]) -> None:
    from dtdr.evaluate.tables import Column, Table

    # A call that the first plan has too is not said twice: of the others their tools are shown.
    rows: list[dict[str, Any]] = []
    for number, plan in enumerate(predicted, start=1):
        first = {"plan": number, "probability": plan.probability}
        if number > 1 or not plan.calls:
            tools = ",\n".join(map(printable, plan.tools)) or "nothing is left to do"
            blank = {"filled": "", "argument": "", "value": "", "source": ""}
            rows.append({**first, "call": tools, **blank})
            continue
        for place, call in enumerate(plan.calls):
            filled = "?" if call.unknown else call.probability
            about = {"call": f"{plan.ids[place]}. {printable(call.tool)}", "filled": filled}
            rows += _rows(call, {**(first if place == 0 else {}), **about})
    columns = [
        Column("Plan", "plan"),
        Column("Probability", "probability", _share_or_nothing, numeric=True),
        Column("Call", "call", is_whole=True),
    ]
    if predicted[0].has_arguments:
        columns += [Column("Arguments", "filled", _share_or_nothing, numeric=True)]
        columns += _argument_columns()
    caption = "a plan is as probable as its tools are right; a call's arguments have a number of "
    caption += "their own, and ? while one of them is unknown"
    console().print(Table(columns, rows, caption=caption).to_rich())


def _rows(call: CallPrediction, first: dict[str, Any]) -> list[dict[str, Any]]:
    """One row an argument; the first says what call it is."""
    described = [
        {
            "argument": printable(name),
            "value": shorten(printable(json.dumps(value, ensure_ascii=False)), _WIDTH),
            "source": "; ".join(dict.fromkeys(map(_describe, call.sources[name]))),
        }
        for name, value in call.arguments.items()
    ]
    described += [
        {"argument": printable(name), "value": "?", "source": _describe_unknown(call, name)}
        for name in call.unknown
    ]
    calls = ("tool", "plan", "call", "probability", "filled")
    empty = dict.fromkeys((*calls, "argument", "value", "source"), "")
    return [
        {**empty, **(first if number == 0 else {}), **row}
        for number, row in enumerate(described or [{}])
    ]


def _argument_columns() -> list[Column]:
    from dtdr.evaluate.tables import Column

    return [Column("Argument", "argument"), Column("Value", "value"), Column("From", "source")]


def _share_or_nothing(value: float | str) -> str:
    from dtdr.evaluate.tables import share

    return value if isinstance(value, str) else share(value)


def _describe_unknown(call: CallPrediction, name: str) -> str:
    held = "; ".join(map(_describe, call.contains.get(name, ())))
    return f"has to be written, with the {held}" if held else "has to be written"


def _describe(source: Source) -> str:
    if source.kind == "query":
        return "the query"
    if source.kind == "message":
        return "an earlier message"
    if source.kind == "constant":
        return "earlier runs"
    place = f" {printable(source.path)}" if source.path else ""
    return f"{source.kind}{place} of call {printable(source.call)}"
