"""What a mask adds to a request: ranking, reading the conversation, writing the request.

    python benchmarks/masks.py [--smoke] [--tools 50 200 1000] [--calls 10]

Medians of CPU time over conversations of so many calls, on generated (synthetic) demonstrations,
with five tools shown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

import dtdr
from dtdr.agents import ToolMask, ToolPolicy, Transcript, anthropic, openai
from dtdr.evaluate.tables import Column, Table, count
from synthetic_runs import generate, tools

QUERIES = 100


def openai_request(query: str, calls: list[str], definitions: list[Any]) -> dict[str, Any]:
    """A chat-completions request in the middle of a run."""
    messages: list[Any] = [{"role": "user", "content": query}]
    for number, name in enumerate(calls):
        function = {"name": name, "arguments": "{}"}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "fine"})
    return {"model": "m", "messages": messages, "tools": definitions}


def anthropic_request(query: str, calls: list[str], definitions: list[Any]) -> dict[str, Any]:
    """A messages request in the middle of a run."""
    messages: list[Any] = [{"role": "user", "content": query}]
    for number, name in enumerate(calls):
        use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": {}}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "fine"}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [result]})
    return {"model": "m", "messages": messages, "tools": definitions}


def measure(name: str, tool_count: int, calls: int, demonstrations: int) -> dict[str, Any]:
    """One line of the table."""
    known = tools(tool_count)
    found = list(generate(demonstrations + QUERIES, tool_count))
    retriever = dtdr.fit(found[:demonstrations], known, retriever=name)
    mask = ToolMask(retriever, ToolPolicy(top_k=5))
    growing = ToolMask(retriever, ToolPolicy(top_k=5, sticky="grow"))
    names = [tool.name for tool in known if tool.name != "end"]
    schema = {"type": "object", "properties": {"input": {"type": "string"}}}
    chat = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name in names
    ]
    claude = [{"name": name, "input_schema": schema} for name in names]
    times: dict[str, list[float]] = {}

    def clock(label: str, work: Callable[[], object]) -> None:
        started = time.thread_time()
        work()
        times.setdefault(label, []).append((time.thread_time() - started) * 1e6)

    for item in found[demonstrations:]:
        history = (list(item.plan.tools) * calls)[:calls]
        transcript = Transcript.of(item.query, history)
        request = openai_request(item.query, history, chat)
        message = anthropic_request(item.query, history, claude)
        clock("rank", lambda: retriever.rank(item.query, history).order)  # noqa: B023
        clock("select", lambda: mask.select(names, transcript))  # noqa: B023
        clock("grow", lambda: growing.select(names, transcript))  # noqa: B023
        clock("allowed", lambda: openai.mask_request(request, mask))  # noqa: B023
        clock("filtered", lambda: openai.mask_request(request, mask, "filtered"))  # noqa: B023
        clock("deferred", lambda: anthropic.mask_request(message, mask))  # noqa: B023
    medians = {label: statistics.median(values) for label, values in times.items()}
    return {"tools": tool_count, "calls": calls, **medians}


def main() -> None:
    """Measure every number of tools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--retriever", default="dtdr-l")
    parser.add_argument("--demonstrations", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a quick check that it runs")
    arguments = parser.parse_args()
    counts = [50] if arguments.smoke else arguments.tools
    size = 60 if arguments.smoke else arguments.demonstrations
    rows = [measure(arguments.retriever, found, arguments.calls, size) for found in counts]
    if arguments.json:
        print(json.dumps(rows))
        return
    columns = [
        Column("Tools", "tools", count, numeric=True),
        Column("Calls", "calls", count, numeric=True),
        Column("Rank µs", "rank", count, numeric=True),
        Column("Select µs", "select", count, numeric=True),
        Column("Growing µs", "grow", count, numeric=True),
        Column("allowed_tools µs", "allowed", count, numeric=True),
        Column("Filtered µs", "filtered", count, numeric=True),
        Column("Deferred µs", "deferred", count, numeric=True),
    ]
    Console(width=100).print(Table(columns, rows).to_rich())


if __name__ == "__main__":
    main()
