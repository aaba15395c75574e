"""Evidence in a run for a tool or against it: its words, its calls, values of its outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.errors import DtdrError
from dtdr.predict.search import STOP_WORDS
from dtdr.rankers.explanation import Evidence
from dtdr.rankers.ranking import Ranking

WORDS, CALLS, VALUES = 12, 3, 8
"""Words of the query, last calls, and values of each output that are left out one at a time."""

MOST = 6
"""Pieces of evidence that an explanation has at most."""

LEAST = 0.05
"""Nats from which on a piece of evidence counts."""

_FLOOR = 1e-300


def find_evidence(
    rank: Callable[[Sequence[Run]], list[Ranking]], run: Run, tool: str, rival: str
) -> tuple[Evidence, ...]:
    """Parts of a run whose removal changes the odds of a tool against its rival.

    Each word of the query, each of the last calls, and each value of their outputs is left out, and
    the step is ranked again. So it works with every ranker.

    Args:
        rank: ranks the next steps of runs.
        run: the step that is explained.
        tool: what is explained.
        rival: what it is compared with.

    Returns:
        The strongest pieces: those for the tool, strongest first, then those against it.
    """
    texts, runs = [], []
    for text, other in _without(run):
        texts.append(text)
        runs.append(other)
    try:
        base, *rest = rank([run, *runs])
    except DtdrError:
        return ()
    whole = _log_odds(base, tool, rival)
    adds = [whole - _log_odds(ranking, tool, rival) for ranking in rest]
    evidence = [
        Evidence(text, round(value, 4))
        for text, value in _join_words(list(zip(texts, adds, strict=True)))
        if abs(value) >= LEAST
    ]
    evidence = sorted(evidence, key=lambda item: -abs(item.adds))[:MOST]
    return tuple(sorted(evidence, key=lambda item: item.adds < 0))


def _log_odds(ranking: Ranking, tool: str, rival: str) -> float:
    chance, other = (max(ranking.probability(name), _FLOOR) for name in (tool, rival))
    return math.log(chance / other)


def _without(run: Run) -> Iterator[tuple[str | tuple[int, str], Run]]:
    """Each run that lacks one thing, with that thing; a word is a pair with its number."""
    words = list(re.finditer(r"\w+", run.query))
    known = [at for at, word in enumerate(words) if word.group().lower() not in STOP_WORDS]
    for at in known[:WORDS]:
        start, end = words[at].span()
        query = f"{run.query[:start]} {run.query[end:]}"
        if query.strip():
            yield (at, words[at].group()), _with(run, query, run.calls)
    first = max(0, len(run.calls) - CALLS)
    for at in range(len(run.calls) - 1, first - 1, -1):
        call = run.calls[at]
        yield f"after {call.tool}", _with(run, run.query, run.calls[:at] + run.calls[at + 1 :])
        for name, value, output in _values(call.output):
            changed = msgspec.structs.replace(call, output=output)
            calls = [*run.calls[:at], changed, *run.calls[at + 1 :]]
            yield (
                f"{call.tool}: {name} {_shown(value)}".replace("  ", " "),
                _with(run, run.query, calls),
            )


def _with(run: Run, query: str, calls: Sequence[ToolCall]) -> Run:
    other = run.first(0)
    other.query = query
    other.calls = list(calls)
    other.text = run.text
    return other


def _values(output: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name and value of each field of an output, and the output without it."""
    if isinstance(output, Mapping):
        for name, value in list(output.items())[:VALUES]:
            yield str(name), value, {key: item for key, item in output.items() if key != name}
    elif output not in (None, "", []):
        yield "", output, None


def _shown(value: Any) -> str:
    if type(value) in (int, float):
        return f"{value:,}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _join_words(
    pieces: Sequence[tuple[str | tuple[int, str], float]],
) -> Iterator[tuple[str, float]]:
    """Texts with what they add; neighbouring words that agree are one text."""
    phrase: list[str] = []
    total, last = 0.0, -2
    for item, value in [*pieces, ("", 0.0)]:
        is_word = isinstance(item, tuple) and abs(value) >= LEAST
        if phrase and not (is_word and item[0] == last + 1 and value * total > 0):
            yield f"query: {' '.join(phrase)}", total
            phrase, total = [], 0.0
        if isinstance(item, tuple):
            if is_word:
                phrase.append(item[1])
                total += value
                last = item[0]
        elif item:
            yield item, value
