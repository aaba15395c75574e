"""``dtdr rank``: a query and the calls made so far in, the next tools out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from dtdr.cli import options
from dtdr.cli.explanation import print_explanation
from dtdr.cli.inputs import check_query, find_unknown, read_run_alone, split_history
from dtdr.cli.output import console, note, print_json, printable, shorten
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Message
from dtdr.data.run import as_run
from dtdr.errors import InputError
from dtdr.predict.model import Model
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection

READ_BYTES = 1 << 16


def rank(
    model: Path,
    query: str | None = None,
    *,
    history: options.HISTORY = None,
    run_file: options.RUN = None,
    top: int = 5,
    threshold: float | None = None,
    why: bool = False,
    tool: str | None = None,
    search: str | None = None,
    skip_bad: bool = False,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Rank the tools for the next step.

    Example: dtdr rank model "Mail Ann the summary of q3.pdf" --history open_file,summarize

    Args:
        model (MODEL): A model folder.
        query (QUERY): The user's request. Without it, the command reads JSON lines {"query": …,
            "history": […]} from standard input and answers each; a call of a history is a name or
            {"tool": …, "output": …}, and "before" has the conversation before the query.
        top (K): Show at most K tools; 0 shows all.
        threshold (P): Show only tools above this probability, at least one.
        why: Explain why the best tool comes before the next best.
        tool (NAME): With --why, explain this tool instead.
        search (TEXT): Show the tools that match this text instead.
        skip_bad: Answer a bad input line with an error line, and continue.
    """
    if top < 0:
        raise InputError(f"--top is {top}; it must be at least 1, or 0 for all")
    if threshold is not None and not 0 <= threshold < 1:
        raise InputError(f"--threshold is {threshold}; it must be in [0, 1)")
    reads_lines = query is None and run_file is None
    if reads_lines and sys.stdin.isatty():
        raise InputError("give a query, or JSON lines on standard input; see: dtdr rank --help")
    if reads_lines and why:
        raise InputError("--why explains one step; give a query, or --run FILE")
    if reads_lines and history:
        raise InputError("--history goes with a query; each line of the input has its own history")
    if search is not None and (why or threshold is not None or reads_lines):
        raise InputError("--search goes with a query or --run FILE, without --why and --threshold")
    if tool is not None and not why:
        raise InputError("--tool names the tool that --why explains; give both")
    check_query(query)
    from dtdr.api import load

    if reads_lines:
        _rank_lines(load(model), sys.stdin.buffer, top, threshold, skip_bad=skip_bad)
        return
    if run_file is None:
        retriever = load(model)
        run = as_run(str(query), split_history(history, retriever))
    else:
        run = read_run_alone(run_file, query, history)
        retriever = load(model)
        if not retriever.uses_calls and (run.before or any(map(_is_told, run.calls))):
            note(
                f"{retriever.name} reads the query and the names of the calls; it ignores their "
                "outputs and the messages before the query"
            )
    ranking = retriever.rank(run)
    unknown = find_unknown(run, retriever)
    if search is None:
        shown = _tools_to_print(ranking, top, threshold)
    else:
        tools = retriever.search(search, run, top or len(ranking))
        shown = [{"tool": name, "score": round(score, 6)} for name, score in tools]
    explanation = ranking.explain(tool) if why else None
    if unknown:
        names = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        note(f"the model never saw {names}; it ranked anyway")
    if not ranking.is_familiar:
        note(
            "the query is unlike the demonstrations, so the ranking may be wrong; masks show all "
            "tools for such a query"
        )
    if as_json:
        print_json(
            {
                "retriever": retriever.name,
                "query": run.query,
                "history": list(run.history),
                "unknown_tools": unknown,
                "familiar": ranking.is_familiar,
                "none_of_these": ranking.is_none_of_these,
                "confidence": round(ranking.confidence, 6),
                "tools": shown,
                **({} if search is None else {"search": search}),
                **({} if explanation is None else {"why": explanation.to_dict()}),
            }
        )
        return
    if not shown:
        note(f"no tool matches {search!r}; describe in other words what the tool should do")
        return
    _print_table(retriever, len(run.calls), shown)
    if explanation is not None:
        print_explanation(explanation)


def _tools_to_print(ranking: Ranking, top: int, threshold: float | None) -> list[dict[str, Any]]:
    """The tools to print; their probabilities are those over all tools."""
    selection = Selection(top_k=top or len(ranking), threshold=threshold, fallback=False)
    shown: list[dict[str, Any]] = ranking.to_dict(len(ranking.select(selection)))["tools"]
    return shown


def _print_table(retriever: Model, calls: int, shown: list[dict[str, Any]]) -> None:
    from dtdr.evaluate.tables import Column, Table, share

    names = {tool.name: tool.description for tool in retriever.tools_}
    rows = [
        {
            **item,
            "tool": printable(item["tool"]),
            "about": printable(" ".join(names[item["tool"]].split())),
        }
        for item in shown
    ]
    searched = any("score" in row for row in rows)
    columns = [
        Column("Matching tool" if searched else "Next tool", "tool"),
        Column("Score", "score", share, numeric=True)
        if searched
        else Column("Probability", "probability", share, numeric=True),
    ]
    if any(row["about"] for row in rows):
        columns.append(Column("What it does", "about", lambda text: shorten(text, 56)))
    rest = len(set(retriever.vocabulary) - {END, *(item["tool"] for item in shown)})
    after = f"after {calls} call{'' if calls == 1 else 's'}"
    caption = f"{retriever.name}, {after}; {rest:,} more tools not shown" if rest else ""
    console().print(Table(columns, rows, caption=caption).to_rich())


def _rank_lines(
    retriever: Model,
    stream: IO[bytes],
    top: int,
    threshold: float | None,
    *,
    skip_bad: bool,
) -> None:
    skipped = 0
    for batch in _line_batches(stream):
        answers: list[dict[str, Any] | None] = []
        good: list[_Request] = []
        failure: InputError | None = None
        for number, line in batch:
            try:
                good.append(_request(line))
                answers.append(None)
            except InputError as error:
                if not skip_bad:
                    failure = InputError(
                        f"standard input, line {number}: {error}; fix it or pass --skip-bad"
                    )
                    break
                answers.append({"line": number, "error": str(error)})
                skipped += 1
        queries, histories, befores = map(list, zip(*good, strict=True)) if good else ([], [], [])
        rankings = iter(retriever.rank_batch(queries, histories, befores))
        for answer in answers:
            print_json(answer or {"tools": _tools_to_print(next(rankings), top, threshold)})
        if failure is not None:
            raise failure
    if skipped:
        note(f"{skipped} bad line{'' if skipped == 1 else 's'} answered with an error")


def _line_batches(stream: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as many at once as have arrived.

    A program that writes one line and waits gets its answer; a file is ranked in batches.
    """
    number = 0
    rest: list[bytes] = []
    read: Any = getattr(stream, "read1", stream.read)
    while chunk := read(READ_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest.append(chunk)
            continue
        lines = (b"".join(rest) + head).split(b"\n")
        rest = [tail]
        yield [pair for pair in enumerate(lines, start=number + 1) if pair[1].strip()]
        number += len(lines)
    last = b"".join(rest)
    if last.strip():
        yield [(number + 1, last)]


class _Request(NamedTuple):
    """What ``rank`` takes."""

    query: str
    history: Sequence[str | ToolCall]
    before: Sequence[Message | ToolCall] = ()


def _request(line: bytes) -> _Request:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("this is not a line of JSON") from error
    if not isinstance(record, dict):
        raise InputError('this is not a JSON object such as {"query": "…", "history": ["…"]}')
    query, before = record.get("query"), record.get("before", [])
    calls = record.get("history", record.get("calls", []))
    if not isinstance(query, str) or not query.strip():
        raise InputError("'query' is missing, empty or not text")
    if not isinstance(calls, list) or not all(isinstance(call, (str, dict)) for call in calls):
        raise InputError("'history' must be a list of tool names and calls")
    if not before and all(isinstance(call, str) for call in calls):
        return _Request(query, calls)
    run = as_run(query, calls, before)
    return _Request(query, run.calls, run.before)


def _is_told(call: ToolCall) -> bool:
    """Whether more than the tool's name is known of a call."""
    return call != ToolCall(call.id, call.tool)
