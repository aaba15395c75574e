"""``dtdr inspect``: what is in a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtdr.cli import options
from dtdr.cli.output import plural, print_json, print_table, print_unwrapped, say
from dtdr.data.calls import END
from dtdr.errors import ModelError
from dtdr.rankers import saved_class
from dtdr.rankers.model_folder import describe

SHOWN_TOOLS = 12


def inspect(
    model: Path,
    *,
    graph: bool = False,
    cluster: int = 0,
    dot: bool = False,
    verbose: bool = False,
    as_json: options.JSON = False,
) -> None:
    """Check a model folder and show what it contains.

    Example: dtdr inspect model

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        graph: Show the tool dependency graph instead: which tools followed each history.
        cluster (N): Cluster of dtdr-c whose graph is shown; the first is 0.
        dot: Print the graph in the DOT language of Graphviz.
        verbose: Also list the arrays of the model.
    """
    if graph or dot:
        _show_graph(model, cluster, dot=dot, as_json=as_json)
        return
    description = describe(model)
    ranker = saved_class(model, description["ranker"])
    description["needs_descriptions"] = ranker.needs_descriptions
    if as_json:
        print_json(description)
        return
    arguments = description.get("arguments")
    try:
        facts = _facts(description)
        names = ("exact", "probability", "calls")
        filled = [] if arguments is None else arguments["thresholds"]
        thresholds = [[float(item[name]) for name in names] for item in filled]
        values = [] if arguments is None else list(_values(arguments))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the configuration of {model} is damaged; fit it again") from error
    print_table(("Model", str(model)), facts.items())
    tensors = description["tensors"]
    if verbose and tensors:
        print_table(
            ("Array", "Shape", "Type", "Bytes"),
            [
                (name, " × ".join(map(str, about["shape"])), about["dtype"], about["bytes"])
                for name, about in tensors.items()
            ],
        )
    if thresholds:
        title = "Calls that are filled exactly, on held-out runs"
        print_table(("Exact", "From a probability of", "Calls"), thresholds, title=title)
    if values:
        title = "Values of arguments in the model"
        print_table(("Tool", "Argument", "Values"), values, title=title)
    elif arguments is not None:
        say("The model has no values of arguments.")


def _show_graph(folder: Path, cluster: int, *, dot: bool, as_json: bool) -> None:
    """Keys and values of the graph G (paper, Table 6), weighted and not."""
    from dtdr.api import load
    from dtdr.rankers.dependency_graph import dependency_graph, to_dot

    entries = dependency_graph(load(folder).ranker, cluster)
    if dot:
        print_unwrapped(to_dot(entries).rstrip())
    elif as_json:
        print_json({"cluster": cluster, "graph": [entry.to_dict() for entry in entries]})
    else:
        rows = [
            (
                ", ".join(entry.history) or "(any)",
                ", ".join(entry.probabilities),
                ", ".join(f"{share:.3f}" for share in entry.probabilities.values()),
            )
            for entry in entries
        ]
        print_table(("After", "Next", "Probability"), rows, title=f"Graph of cluster {cluster}")


def _values(arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The constants of each argument, the fields of objects, and the paths into outputs."""
    today = {learned: name for name, learned in arguments["names"].items()}
    for tool, names in arguments["constants"].items():
        for name, about in names.items():
            values = [json.dumps(value, ensure_ascii=False) for value in about["values"]]
            if fields := ", ".join(about.get("fields", ())):
                values.append(f"{{{fields}}}" if name else fields)
            if values:
                shown = today.get(tool, tool) if tool else "(any tool)"
                yield shown, name or "(its output)", ", ".join(values)


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
        "ranker": description["ranker"],
        "parameters": _pairs(description["parameters"]),
        "encoder": "none" if encoder is None else _pairs(encoder, first="name"),
        "seed": str(description["seed"]),
        "learned from": plural(training["demonstrations"], "demonstration")
        + (f", {failed:,} of them failed" if (failed := training.get("failures")) else "")
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
    """How the model chooses the first whole plan, and the counts that decided it."""
    if not plans or "held_out" not in plans:
        return {}
    check = {name: int(count) for name, count in plans["held_out"].items()}
    first = "ranked" if check["ranked"] > check["greedy"] else "the best tool of each step"
    right = f"{check['ranked']:,} right of {check['plans']:,} held out"
    return {"plans": f"{first}: {right}, {check['greedy']:,} by the best tool of each step"}


def _pairs(values: dict[str, Any], first: str = "") -> str:
    """``key value`` pairs; the value of ``first`` comes first, without its key."""
    parts = [str(values[first])] if first in values else []
    parts += [f"{key} {value}" for key, value in values.items() if key != first]
    return ", ".join(parts) or "none"
