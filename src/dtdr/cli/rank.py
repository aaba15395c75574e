"""``dtdr rank``: a query and the calls made so far in, the next tools out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import find_unknown, load_with_run
from dtdr.cli.output import note, plural, print_json, print_table, printable, say
from dtdr.data.calls import END, ToolCall
from dtdr.data.run import Run
from dtdr.errors import InputError
from dtdr.evaluate.tables import shorten
from dtdr.predict.model import Model
from dtdr.rankers.explanation import Explanation

_NAME = 34
"""Columns of a tool's name in the tables of an explanation."""


def rank(
    model: Path,
    query: str | None = None,
    *,
    history: options.HISTORY = None,
    run_file: options.RUN = None,
    top_k: Annotated[int, typer.Option(*options.TOP_K_NAMES)] = 5,
    why: bool = False,
    as_json: options.JSON = False,
) -> None:
    """Rank the tools for the next step.

    Example: dtdr rank model "Mail Ann the summary of q3.pdf" --history open_file,summarize

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        query (QUERY): The user's request; leave it out with --run.
        top_k (K): Show at most K tools; 0 shows all.
        why: Explain why the best tool is more probable than the second.
    """
    if top_k < 0:
        raise InputError(f"--top-k is {top_k}; it must be at least 1, or 0 for all")
    fitted_model, run = load_with_run(model, query, history, run_file)
    has_more = run.before or any(call != ToolCall(call.id, call.tool) for call in run.calls)
    if has_more and not fitted_model.uses_calls:
        note(
            f"{fitted_model.name} reads the query and the names of the calls; it ignores their "
            "outputs and the messages before the query"
        )
    ranking = fitted_model.rank(run)
    unknown = find_unknown(run, fitted_model)
    if not ranking.is_familiar:
        note(
            "the query is unlike the demonstrations, so the ranking may be wrong; masks show all "
            "tools for such a query"
        )
    shown = ranking.to_dict(top_k or len(ranking))["tools"]
    explanation = ranking.explain() if why else None
    if as_json:
        print_json(
            {
                "ranker": fitted_model.name,
                "query": run.query,
                "history": list(run.history),
                "unknown_tools": unknown,
                "familiar": ranking.is_familiar,
                "none_of_these": ranking.is_none_of_these,
                "confidence": round(ranking.confidence, 6),
                "tools": shown,
                **({} if explanation is None else {"why": explanation.to_dict()}),
            }
        )
        return
    _print(fitted_model, run, shown)
    if explanation is not None:
        _print_explanation(explanation)


def _print(model: Model, run: Run, shown: Sequence[dict[str, Any]]) -> None:
    about = {tool.name: shorten(tool.description, 56) for tool in model.tools_}
    rows = [[item["tool"], item["probability"], about[item["tool"]]] for item in shown]
    headers = ["Next tool", "Probability"]
    if any(row[2] for row in rows):
        headers.append("What it does")
    known = set(model.vocabulary).intersection(run.offered or model.vocabulary)
    rest = len(known - {END, *(item["tool"] for item in shown)})
    calls = plural(len(run.calls), "call")
    caption = f"{model.name}, after {calls}; {plural(rest, 'more tool')} not shown"
    rows = [row[: len(headers)] for row in rows]
    print_table(headers, rows, caption=caption if rest else "")


def _print_explanation(why: Explanation) -> None:
    tool, rival = (shorten(printable(name), _NAME) for name in (why.tool, why.rival))
    say(
        f"\nWhy {tool} (rank {why.rank}, {why.probability:.3f}) and not {rival} "
        f"({why.rival_probability:.3f})",
        style="bold",
    )
    if why.note:
        say(printable(why.note))
    for item in why.evidence:
        strength = f"{item.adds:+.2f}"
        say(f"  {strength}  {shorten(printable(item.text), 88)}")
    if why.evidence:
        say("What the log odds lose without each; block by block with --json.", style="dim")
    if why.similar:
        print_table(
            ("Run", "Similarity", "Calls", "Same words"),
            [
                (
                    shorten(printable(item.id), 24),
                    f"{item.similarity:.2f}",
                    shorten(" → ".join(item.tools), 46),
                    shorten(", ".join(item.terms), 24),
                )
                for item in why.similar
            ],
            caption="The demonstrations with the most similar queries.",
        )
