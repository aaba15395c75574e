"""``dtdr rank``: a query and the calls made so far in, the next tools out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

from dtdr.calls import END, ToolCall
from dtdr.cli import options
from dtdr.cli.explanation import print_explanation
from dtdr.cli.inputs import read_run
from dtdr.cli.output import console, note, print_json, printable, shorten
from dtdr.demonstrations import Message
from dtdr.errors import InputError
from dtdr.ranking import Ranking
from dtdr.retrievers.base import Retriever
from dtdr.retrievers.session import details_of
from dtdr.run import as_run
from dtdr.selection import Selection

READ_BYTES = 1 << 16


def rank(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help='What the user asked for. Without it, JSON lines {"query": …, "history": […]} '
            "are read from standard input and answered one by one; a call of a history is a name "
            'or {"tool": …, "output": …}, and "before" holds the conversation before the query.',
            show_default=False,
        ),
    ] = None,
    history: Annotated[
        str, typer.Option("--history", metavar="A,B", help="Tools called so far, oldest first.")
    ] = "",
    called: Annotated[
        list[str] | None,
        typer.Option(
            "--called",
            metavar="NAME",
            help="One tool called so far, for names with commas; repeatable, after --history.",
        ),
    ] = None,
    run_file: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="FILE",
            help='Rank the next step of this run instead: one JSON object with "query", "before" '
            'and "calls" as in demonstrations.jsonl; - reads standard input.',
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="K", help="Show so many tools; 0 shows all.")
    ] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="P", help="Show only tools above this probability, at least one."
        ),
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", help="Say why the best tool is ranked before the next best."),
    ] = False,
    tool: Annotated[
        str | None,
        typer.Option("--tool", metavar="NAME", help="With --why: explain this tool instead."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Answer an agent's search instead: the tools that this text means at this step.",
        ),
    ] = None,
    llm_command: options.LLM_COMMAND = None,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Answer a bad input line with an error line, and go on."),
    ] = False,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Rank the tools for the next step.

    Example: dtdr rank model "Mail Ann the summary of q3.pdf" --history open_file,summarize
    """
    if top < 0:
        raise InputError(f"--top is {top}; it must be at least 1, or 0 for all")
    if threshold is not None and not 0 <= threshold < 1:
        raise InputError(f"--threshold is {threshold}; it must be in [0, 1)")
    if run_file is not None and (query is not None or history or called):
        raise InputError("a run has its query and its calls; give --run alone, or a query")
    if query is None and run_file is None and sys.stdin.isatty():
        raise InputError("give a query, or JSON lines on standard input; see: dtdr rank --help")
    if query is not None and not query.strip():
        raise InputError("the query is empty; say what the user asked for")
    if query is None and run_file is None and why:
        raise InputError("--why explains one step; give a query, or --run FILE")
    if search is not None and (why or threshold is not None or (query is None and not run_file)):
        raise InputError("--search goes with a query or --run FILE, without --why and --threshold")
    if tool is not None and not why:
        raise InputError("--tool says what --why explains; give both")
    made = None if run_file is None else read_run(run_file)
    from dtdr.api import load

    given: dict[str, Any] = {}
    if llm_command is not None:
        from dtdr.cli.llm_command import LLMCommand

        given["llm"] = LLMCommand(llm_command)
    retriever = load(model, **given)
    if made is None and query is None:
        if history or called:
            raise InputError(
                "--history and --called go with a query; on standard input, each line has its own "
                "history"
            )
        _rank_lines(retriever, sys.stdin.buffer, top, threshold, skip_bad=skip_bad)
        return
    if made is not None:
        query, calls = made.query, list(made.history)
        ranking = retriever.rank(made)
        if not retriever.uses_calls and (made.before or any(map(details_of, made.calls))):
            note(
                f"{retriever.name} ranks by the query and the names of the calls; their outputs "
                "and what came before change nothing"
            )
    else:
        calls = [name.strip() for name in history.split(",") if name.strip()] + (called or [])
        ranking = retriever.rank(str(query), calls)
    unknown = list(dict.fromkeys(name for name in calls if retriever.index(name) < 0))
    if search is None:
        shown = _tools_to_print(ranking, top, threshold)
    else:
        run = made or as_run(str(query), calls)
        tools = retriever.search(search, run, top or len(ranking))
        shown = [{"tool": name, "score": round(score, 6)} for name, score in tools]
    explanation = ranking.explain(tool) if why else None
    if unknown:
        names = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        note(f"the model never saw {names}; ranked all the same")
    if not ranking.is_familiar:
        note(
            "the query is unlike the demonstrations, so the ranking may mean little; masks show "
            "all tools here"
        )
    if as_json:
        print_json(
            {
                "retriever": retriever.name,
                "query": query,
                "history": calls,
                "unknown_tools": unknown,
                "familiar": ranking.is_familiar,
                "confidence": round(ranking.confidence, 6),
                "tools": shown,
                **({} if search is None else {"search": search}),
                **({} if explanation is None else {"why": explanation.to_dict()}),
            }
        )
        return
    if not shown:
        note("no tool matches; say in other words what it should work on")
        return
    _print_table(retriever, calls, shown)
    if explanation is not None:
        print_explanation(explanation)


def _tools_to_print(ranking: Ranking, top: int, threshold: float | None) -> list[dict[str, Any]]:
    """The tools to print; their probabilities are those over all tools."""
    selection = Selection(top_k=top or len(ranking), threshold=threshold, fallback=False)
    shown: list[dict[str, Any]] = ranking.to_dict(len(ranking.select(selection)))["tools"]
    return shown


def _print_table(retriever: Retriever, calls: list[str], shown: list[dict[str, Any]]) -> None:
    from dtdr.evaluation.tables import Column, Table, share

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
        Column("Tool searched for" if searched else "Next tool", "tool"),
        Column("Score", "score", share, numeric=True)
        if searched
        else Column("Probability", "probability", share, numeric=True),
    ]
    if any(row["about"] for row in rows):
        columns.append(Column("What it does", "about", lambda text: shorten(text, 56)))
    rest = len(set(retriever.vocabulary) - {END, *(item["tool"] for item in shown)})
    after = f"after {len(calls)} call{'' if len(calls) == 1 else 's'}"
    caption = f"{retriever.name}, {after}; {rest:,} more tools not shown" if rest else ""
    console().print(Table(columns, rows, caption=caption).to_rich())


def _rank_lines(
    retriever: Retriever,
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
        rankings = iter(retriever.rank_batch(queries, histories, befores if any(befores) else None))
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
