"""Writes logs of a hotel's agent in every format that dtdr reads: synthetic, 30 tools, 300 runs.

    python examples/hotel/generate.py                      # every format, into examples/hotel/logs
    python examples/hotel/generate.py --format otel -o .   # one of them

No person is in these logs. They have the noise of real ones: failed and repeated calls, outputs
that change what comes next, messages without calls, greetings, haste, two languages, and reminders
that a program wrote into the user's message. ``--phrasing other`` writes the same requests in other
words, to test a model on phrasings that it did not learn.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.hotel import log_formats
from examples.hotel.log_formats import Call, Turn
from examples.hotel.requests import REQUESTS, SMALL_TALK, Request
from examples.hotel.tools import TOOLS

RUNS = 300
SEED = 18
LARGE = 600_000
"""Logs of at least this many bytes are gzipped."""

FORMATS: dict[str, Callable[..., list[Any]]] = {
    "openai-chat": log_formats.openai_chat_bare,
    "openai-responses": log_formats.openai_responses_chained,
    "anthropic": log_formats.anthropic,
    "otel": log_formats.otel,
    "openinference": log_formats.openinference,
    "langsmith": log_formats.langsmith,
    "langfuse": log_formats.langfuse,
    "mcp": log_formats.mcp,
    "claude-code": log_formats.claude_code,
}

OPENERS = ("", "", "", "Hi, ", "Hello! ", "Good evening, ", "please ", "Quick one: ")
CLOSERS = ("", "", "", " Thanks!", " Thank you.", " It is urgent.", " Sorry for the trouble.")
REMINDER = "<system-reminder>\nThe shift ends at 22:00.\n</system-reminder>\n"


def conversations(
    runs: int = RUNS,
    seed: int = SEED,
    *,
    other: bool = False,
    asked: Sequence[Request] = REQUESTS,
) -> list[list[Turn]]:
    """Conversations of one or two turns, without ids and times.

    Args:
        runs: how many turns that ask for something, in all.
        seed: of everything random.
        other: whether requests are put in the words that are otherwise left out.
        asked: what is asked for.
    """
    rng = random.Random(f"hotel {seed} {other}")
    made: list[list[Turn]] = []
    count = 0
    while count < runs:
        turns = [_turn(rng, asked, other) for _ in range(1 if rng.random() < 0.75 else 2)]
        count += len(turns)
        if rng.random() < 0.12:
            said, answer = rng.choice(SMALL_TALK)
            turns.append(Turn(said, [], answer))
        made.append(turns)
    return made


def _turn(rng: random.Random, requests: Sequence[Request], other: bool) -> Turn:
    weights = [request.weight for request in requests]
    asked = rng.choices(requests, weights, k=1 if rng.random() < 0.7 else 2)
    if asked[0] is asked[-1]:
        asked = asked[:1]
    guest = _guest(rng)
    texts, batches = [], []
    for request in asked:
        phrasings = request.other if other else request.phrasings
        texts.append(rng.choice(phrasings).format(**guest))
        batches += request.calls(rng, guest)
    query = rng.choice((" and ", ". Also, ", ", then ")).join(texts)
    query = rng.choice(OPENERS) + query[:1].lower() + query[1:] + rng.choice(CLOSERS)
    query = query[:1].upper() + query[1:]
    if rng.random() < 0.1:
        query = query.lower().rstrip(".!")
    if rng.random() < 0.05:
        query = REMINDER + query
    return Turn(query, _with_failures(rng, _without_repeats(batches)))


def _without_repeats(batches: list[list[Call]]) -> list[list[Call]]:
    """What one request looked up is not looked up again for the next."""
    seen: set[str] = set()
    kept = []
    for batch in batches:
        calls = [call for call in batch if f"{call.tool} {call.arguments}" not in seen]
        seen.update(f"{call.tool} {call.arguments}" for call in calls)
        if calls:
            kept.append(calls)
    return kept


def _with_failures(rng: random.Random, batches: list[list[Call]]) -> list[list[Call]]:
    """Some calls time out and are made again; now and then the agent gives up."""
    tried: list[list[Call]] = []
    for batch in batches:
        if rng.random() < 0.04:
            call = batch[0]
            error = "Error: the service did not answer in time"
            tried.append([Call(call.tool, call.arguments, error, failed=True)])
            if rng.random() < 0.15:
                return tried
        tried.append(batch)
    return tried


def _guest(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(("Ann Lee", "Bo Berg", "Carla Ruiz", "Dev Patel", "Emi Sato", "Finn Olsen"))
    name = f"{name.split()[0]} {rng.choice(('Lee', 'Berg', 'Ruiz', 'Patel', 'Sato', 'Olsen'))}"
    number = rng.randrange(1000, 9999)
    return {
        "name": name,
        "guest_id": f"G-{number}",
        "booking": f"BK{rng.randrange(20000, 99999)}",
        "room": str(rng.randrange(1, 6) * 100 + rng.randrange(1, 30)),
        "email": f"{name.lower().replace(' ', '.')}@guest.example",
        "phone": f"+1-555-01{rng.randrange(10, 99)}",
        "day": rng.choice(("Monday", "Friday", "2026-04-03", "tomorrow", "the 14th")),
        "until": rng.choice(("Sunday", "2026-04-06", "the 17th")),
        "time": rng.choice(("6:30", "7 am", "19:00", "8 pm", "20:30")),
        "people": rng.choice((2, 3, 4, 6)),
        "type": rng.choice(("double", "single", "suite", "family room")),
        "place": rng.choice(("the airport", "the opera", "Central Station", "the harbour")),
        "dish": rng.choice(("club sandwich", "soup of the day", "two coffees", "fruit plate")),
        "problem": rng.choice(("heating", "shower", "TV", "door lock", "air conditioning")),
    }


def records(fmt: str, runs: int = RUNS, seed: int = SEED, *, other: bool = False) -> list[Any]:
    """The log of a format; the definitions of the tools stand in its first conversation."""
    rng = random.Random(f"{fmt} {seed}")
    lines: list[Any] = []
    clock = 0
    for place, turns in enumerate(conversations(runs, seed, other=other)):
        run = f"{rng.getrandbits(128):032x}"
        log_formats.number(turns, f"call_{place}", clock)
        clock += 3600
        lines += FORMATS[fmt](turns, TOOLS if place == 0 else [], run)
    return lines


def write(folder: Path, formats: list[str], *, other: bool = False) -> list[Path]:
    """Write a log a format; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for fmt in formats:
        lines = (json.dumps(line, ensure_ascii=False) for line in records(fmt, other=other))
        text = "".join(f"{line}\n" for line in lines).encode()
        if len(text) > LARGE:
            path = folder / f"{fmt}.jsonl.gz"
            path.write_bytes(gzip.compress(text, mtime=0))
        else:
            path = folder / f"{fmt}.jsonl"
            path.write_bytes(text)
        paths.append(path)
    return paths


def main() -> None:
    """Write the logs that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Help)
    parser.add_argument("--format", choices=["all", *FORMATS], default="all")
    parser.add_argument("--phrasing", choices=["usual", "other"], default="usual")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "logs")
    given = parser.parse_args()
    formats = list(FORMATS) if given.format == "all" else [given.format]
    for path in write(given.output, formats, other=given.phrasing == "other"):
        print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the description, and shows defaults."""


if __name__ == "__main__":
    main()
