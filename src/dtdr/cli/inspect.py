"""``dtdr inspect``: what is in a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dtdr.cli import options
from dtdr.cli.output import console, print_json, printable
from dtdr.data.calls import END
from dtdr.errors import ModelError

SHOWN_TOOLS = 12


def inspect(
    model: Path,
    *,
    as_json: options.JSON = False,
) -> None:
    """Check a model folder and show what it contains.

    Example: dtdr inspect model

    Args:
        model (MODEL): A model folder.
    """
    from dtdr.rankers import saved_class
    from dtdr.rankers.model_folder import describe

    description = describe(model)
    ranker = saved_class(model, description["retriever"])
    description["needs_descriptions"] = ranker.needs_descriptions
    if as_json:
        print_json(description)
        return
    from rich.table import Table as RichTable
    from rich.text import Text

    from dtdr.evaluate.tables import Column, Table, count, share

    facts = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for name, value in _facts(description).items():
        facts.add_row(name, Text(printable(value)))
    tensors = [
        (printable(name), " × ".join(map(str, about["shape"])), about["dtype"], about["bytes"])
        for name, about in description["tensors"].items()
    ]
    arguments = description.get("arguments")
    out = console()
    out.print(Text(str(model), style="bold"))
    out.print(facts)
    if tensors:
        columns = [
            Column("Array"),
            Column("Shape", numeric=True),
            Column("Type"),
            Column("Bytes", show=count, numeric=True),
        ]
        out.print(Table(columns, tensors).to_rich())
    if arguments is not None:
        thresholds = _thresholds(arguments)
        if thresholds:
            columns = [
                Column("Exact", "exact", share, numeric=True),
                Column("From a probability of", "probability", share, numeric=True),
                Column("Calls", "calls", share, numeric=True),
            ]
            title = "Calls that are filled exactly, on held-out runs"
            out.print(Table(columns, thresholds, title=title).to_rich())
        values = _values(arguments)
        title = "Values of arguments in the model"
        if values:
            columns = [
                Column("Tool", "tool"),
                Column("Argument", "name"),
                Column("Values", "values"),
            ]
            out.print(Table(columns, values, title=title).to_rich())
        else:
            out.print(Text("The model has no values of arguments."))


def _values(arguments: dict[str, Any]) -> list[dict[str, str]]:
    """The constants of each argument; a stranger's folder may have anything in it."""
    try:
        today = {learned: name for name, learned in arguments["names"].items()}
        return [
            {
                "tool": printable(today.get(tool, tool)) if tool else "(any tool)",
                "name": printable(name),
                "values": printable(", ".join(values)),
            }
            for tool, names in arguments["constants"].items()
            for name, about in names.items()
            if (values := _list_values(about))
        ] + [
            {
                "tool": printable(today.get(tool, tool)),
                "name": "(its output)",
                "values": printable(", ".join(paths)),
            }
            for tool, paths in arguments.get("paths", {}).items()
            if paths
        ]
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelError("the model's record of arguments is damaged; fit it again") from error


def _list_values(about: dict[str, Any]) -> list[str]:
    """The values of one argument, and the fields of objects."""
    values = [json.dumps(value, ensure_ascii=False) for value in about["values"]]
    fields = about.get("fields")
    return [*values, "{" + ", ".join(fields) + "}"] if fields else values


def _thresholds(arguments: dict[str, Any]) -> list[dict[str, float]]:
    """How sure a call has to be; a stranger's folder may have anything in it."""
    try:
        return [
            {name: float(item[name]) for name in ("exact", "probability", "calls")}
            for item in arguments["thresholds"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError("the model's record of arguments is damaged; fit it again") from error


def _facts(description: dict[str, Any]) -> dict[str, str]:
    training = description["training_data"]
    tools = [tool for tool in description["tools"] if tool["name"] != END]
    names = [tool["name"] for tool in tools]
    described = sum(bool(tool["description"]) for tool in tools)
    failures, sampled = training["skipped_failures"], training.get("sampled")
    erased = training.get("erased", 0)
    more = f", … ({len(names) - SHOWN_TOOLS:,} more)" if len(names) > SHOWN_TOOLS else ""
    encoder = description["encoder"]
    return {
        "retriever": description["retriever"],
        "parameters": _pairs(description["parameters"]),
        "encoder": "none" if encoder is None else _pairs(encoder, first="name"),
        "seed": str(description["seed"]),
        "learned from": f"{training['demonstrations']:,} demonstrations"
        + (f", {failures:,} failures left out" if failures else "")
        + (f"; counted all, learned from a sample of {sampled:,}" if sampled else "")
        + (f"; {erased:,} were erased from the data since: fit it again" if erased else ""),
        "data sha256": training["sha256"],
        "tools": f"{len(names):,}, {described:,} with a description",
        "names": ", ".join(names[:SHOWN_TOOLS]) + more,
        **_plans(description.get("plans")),
        "size": f"{description['bytes']:,} bytes on disk",
        "written by": _pairs(description["versions"]),
        "format": f"{description['format']} {description['format_version']}",
    }


def _plans(plans: dict[str, Any] | None) -> dict[str, str]:
    """What the first whole plan is; a stranger's folder may have anything in it."""
    if not plans or "held_out" not in plans:
        return {}
    try:
        check = {name: int(number) for name, number in plans["held_out"].items()}
        rivals = f"{check['ranked']:,} right of {check['plans']:,} held out, "
        rivals += f"{check['greedy']:,} by the best tool of each step"
        is_ranked = check["ranked"] > check["greedy"]
        return {"plans": f"{'ranked' if is_ranked else 'the best tool of each step'}: {rivals}"}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError("the model's record of plans is damaged; fit it again") from error


def _pairs(values: dict[str, Any], first: str = "") -> str:
    """``key value`` pairs; the value of ``first`` comes first, without its key."""
    parts = [str(values[first])] if first in values else []
    parts += [f"{key} {value}" for key, value in values.items() if key != first]
    return ", ".join(parts) or "none"
