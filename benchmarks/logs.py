"""Speed and memory of ``dtdr import`` on a generated chat log.

Writes a log of growing requests (each repeats its conversation, as agents' requests do), imports
it in a process of its own and prints MB/s, peak resident memory and what was kept, for the JSON
backends that are installed, with and without redaction.

    python benchmarks/logs.py              # 1 GB
    python benchmarks/logs.py --smoke      # 8 MB
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORDS = """
order invoice customer report delivery refund meeting calendar flight hotel weather budget contract
shipment account ticket project summary schedule payment address warehouse supplier
""".split()  # noqa: SIM905  # readable as prose
TOOLS = [f"{verb}_{noun}" for verb in ("find", "get", "update", "send") for noun in WORDS[:10]]
INTERLEAVED = 50
"""Conversations that write into the log at the same time."""


def conversation(source: random.Random, number: int) -> Iterator[dict[str, Any]]:
    """Requests and responses of one agent conversation, each repeating the messages before it."""
    definitions: list[dict[str, Any]] = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"{name.replace('_', ' ')} and say what came of it",
                "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
            },
        }
        for name in source.sample(TOOLS, 8)
    ]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text(source, 60)}]
    for turn in range(source.randint(1, 3)):
        messages.append({"role": "user", "content": text(source, 20)})
        known = ""
        for step in range(source.randint(1, 5)):
            identifier = f"call_{number}_{turn}_{step}"
            arguments = {"id": known or text(source, 2), "note": text(source, 6)}
            chosen = source.choice(definitions)["function"]
            call = {
                "id": identifier,
                "type": "function",
                "function": {"name": chosen["name"], "arguments": json.dumps(arguments)},
            }
            reply = {"role": "assistant", "content": None, "tool_calls": [call]}
            yield record(messages, definitions, reply)
            known = f"rec_{source.randrange(16**8):08x}"
            output = {"id": known, "rows": [text(source, 12) for _ in range(6)]}
            messages += [
                reply,
                {"role": "tool", "tool_call_id": identifier, "content": json.dumps(output)},
            ]
        reply = {"role": "assistant", "content": text(source, 40)}
        yield record(messages, definitions, reply)
        messages.append(reply)


def record(messages: list[Any], tools: list[Any], reply: dict[str, Any]) -> dict[str, Any]:
    """One line of the log."""
    return {
        "timestamp": "2026-03-01T12:00:00Z",
        "request": {"model": "m", "messages": list(messages), "tools": tools},
        "response": {"choices": [{"index": 0, "message": reply, "finish_reason": "stop"}]},
    }


def text(source: random.Random, words: int) -> str:
    """Some words."""
    return " ".join(source.choices(WORDS, k=words))


def write_log(path: Path, size: int, seed: int) -> int:
    """Write a log of about ``size`` bytes; returns the number of conversations in it."""
    source = random.Random(seed)
    written, begun = 0, 0
    running: list[Iterator[dict[str, Any]]] = []
    with path.open("w", encoding="utf-8") as stream:
        while written < size or running:
            while written < size and len(running) < INTERLEAVED:
                running.append(conversation(source, begun))
                begun += 1
            chosen = source.randrange(len(running))
            line = next(running[chosen], None)
            if line is None:
                running.pop(chosen)
                continue
            written += stream.write(json.dumps(line) + "\n")
    return begun


def measure(log: Path, output: Path, *, redact: bool) -> dict[str, Any]:
    """Import a log in this process; seconds by the clock and of CPU, peak resident MB, summary."""
    from dtdr import logs

    importer = logs.Importer(
        logs.find_format("openai-chat"), [log], redactor=logs.Redactor() if redact else None
    )
    started, worked = time.perf_counter(), time.process_time()
    logs.import_logs(importer, output, force=True)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - worked,
        "peak_mb": peak / (1e6 if sys.platform == "darwin" else 1e3),
        **importer.summary(),
    }


def main() -> None:
    """Generate, import, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a small log")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        log, output, redact = options.child
        print(json.dumps(measure(Path(log), Path(output), redact=redact == "yes")))
        return
    megabytes = 8 if options.smoke else options.megabytes
    with tempfile.TemporaryDirectory() as folder:
        log, output = Path(folder, "log.jsonl"), Path(folder, "demonstrations.jsonl")
        conversations = write_log(log, megabytes * 1_000_000, options.seed)
        size = log.stat().st_size / 1e6
        print(f"{size:,.0f} MB of chat requests, {conversations:,} conversations")
        print("redact       MB/s MB/CPU s  peak MB      kept     calls")
        for redact in ("no", "yes"):
            child = [sys.executable, __file__, "--child", str(log), str(output), redact]
            done = subprocess.run(child, check=True, capture_output=True, text=True)
            result = json.loads(done.stdout)
            print(
                f"{redact:8} {size / result['seconds']:8.1f} "
                f"{size / result['cpu_seconds']:8.1f} {result['peak_mb']:8.0f}"
                f" {result['kept']:9,} {result['calls']:9,}"
            )


if __name__ == "__main__":
    main()
