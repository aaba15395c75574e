"""Tools that got another name without anybody saying so, found by schema and use."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from dtdr.calls import END
from dtdr.demonstrations import Demonstration
from dtdr.encoders.lexical import words
from dtdr.retrievers.base import Retriever
from dtdr.run import Run
from dtdr.tools import Tool

MIN_PROBABILITY = 0.3
"""Of a rename that is asked about. On the training sides of TinyAgent, T-Eval and tau-bench's
airline, 95 renames: .2 finds 79 and 5 that are none, .3 76 and 3, .4 71 and 3, .5 66 and 1."""

_STEPS = 40
"""Steps of one tool at which use is looked at, of more: evenly spread."""
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class Rename:
    """A tool that the model knows by one name and runs seem to call by another.

    Attributes:
        old: the name in the model, which no run calls once the new one is called.
        new: the name in the runs or the list of tools, which the model does not know.
        probability: that they are one tool, as learned from renamed tools of public sets.
        name: how similar the names are, in [0, 1].
        parameters: share of the parameters that both have, of those that either has; None where
            one of them has none that is known.
        description: share of the words that both descriptions have; None where one has none.
        use: the share that the model gives the old tool, of all that runs no longer call, at the
            steps that call the new one, or its probability where it is the only one; None where no
            run does.
        calls: of the new tool in the runs.
    """

    old: str
    new: str
    probability: float
    name: float
    parameters: float | None
    description: float | None
    use: float | None
    calls: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in (
                ("old", self.old),
                ("new", self.new),
                ("probability", self.probability),
                ("name", self.name),
                ("parameters", self.parameters),
                ("description", self.description),
                ("use", self.use),
                ("calls", self.calls),
            )
        }


# Log-odds of a pair: a constant, and each similarity with its absence; benchmarks/renames.py --fit
# chose them on the training sides of TinyAgent, T-Eval and tau-bench's airline.
WEIGHTS: Mapping[str, float] = {
    "constant": -6.72,
    "name": 1.88,
    "parameters": 3.26,
    "no parameters": 1.01,
    "description": 3.23,
    "no description": 1.7,
    "use": 3.19,
    "lift": 1.07,
    "no use": 0.56,
}


def suggest_renames(
    retriever: Retriever,
    demonstrations: Sequence[Demonstration],
    tools: Iterable[Tool] = (),
    *,
    min_probability: float = MIN_PROBABILITY,
) -> list[Rename]:
    """Which tools that the model does not know are likely ones that it knows by another name.

    A tool of the model that some run still calls after the new one was first called, or that the
    list of tools still names, is another tool. Each is matched once.

    Args:
        retriever: a fitted one.
        demonstrations: the runs, oldest first; failed ones count as use.
        tools: what there is now; empty where only the runs are known.
        min_probability: of what is suggested.

    Returns:
        The most probable first.
    """
    pairs = describe_pairs(retriever, demonstrations, tools)
    if not pairs:
        return []
    olds, news = sorted({pair.old for pair in pairs}), sorted({pair.new for pair in pairs})
    chances = np.zeros((len(olds), len(news)))
    place = {(pair.old, pair.new): pair for pair in pairs}
    for (old, new), pair in place.items():
        chances[olds.index(old), news.index(new)] = pair.probability
    rows, columns = linear_sum_assignment(-chances)
    matched = [
        place.get((olds[row], news[column]))
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    # A pair that cannot be one tool is not in place.
    probable = [one for one in matched if one is not None and one.probability >= min_probability]
    return sorted(probable, key=lambda pair: (-pair.probability, pair.old))


def describe_pairs(
    retriever: Retriever, demonstrations: Sequence[Demonstration], tools: Iterable[Tool] = ()
) -> list[Rename]:
    """Every pair of a tool that is no longer used and one that is new, with its probability."""
    listed = {tool.name: tool for tool in tools if tool.name != END}
    known = {tool.name: tool for tool in retriever.tools_ if tool.name != END}
    first, last = _positions(demonstrations)
    olds = [name for name in known if name not in listed]
    news = [name for name in dict.fromkeys((*listed, *first)) if name not in known]
    # The last use of an old name comes before the first of the new one.
    possible = [
        (old, new)
        for new in news
        for old in olds
        if last.get(old, -1) < first.get(new, len(demonstrations))
    ]
    gone = sorted({old for old, _ in possible})
    uses = _uses(retriever, demonstrations, {new for _, new in possible}, gone)
    given = _given_parameters(demonstrations)
    taken = {old: _parameters(retriever, known[old]) for old in gone}
    counts = Counter(name for item in demonstrations for name in item.plan.tools)
    mean = 1 / max(1, len(gone))
    result = []
    for old, new in possible:
        now = listed.get(new, Tool(new))
        name = name_similarity(old, new)
        parameters = _overlap(
            taken[old],
            {item.name for item in now.parameters} | given.get(new, set()),
        )
        description = _overlap(set(words(known[old].description)), set(words(now.description)))
        use = uses[new].get(old) if new in uses else None
        log_odds = _log_odds(name, parameters, description, use, mean)
        result.append(
            Rename(
                old,
                new,
                1 / (1 + math.exp(-log_odds)),
                name,
                parameters,
                description,
                use,
                counts[new],
            )
        )
    return result


def features(
    name: float,
    parameters: float | None,
    description: float | None,
    use: float | None,
    mean: float,
) -> dict[str, float]:
    """What the log-odds of a pair are linear in; ``mean`` is the share of each by chance."""
    described = {"constant": 1.0, "name": name}
    for key, value in (("parameters", parameters), ("description", description)):
        described[key] = value or 0.0
        described[f"no {key}"] = float(value is None)
    described["use"] = use or 0.0
    described["lift"] = 0.0 if use is None else math.log((use + 0.01) / (mean + 0.01))
    described["no use"] = float(use is None)
    return described


def _log_odds(
    name: float,
    parameters: float | None,
    description: float | None,
    use: float | None,
    mean: float,
) -> float:
    described = features(name, parameters, description, use, mean)
    return sum(WEIGHTS.get(key, 0.0) * value for key, value in described.items())


def name_similarity(one: str, other: str) -> float:
    """How similar two names are, whatever their style: parts in common, or letters in order."""
    first, second = ([part.casefold() for part in _PART.findall(name)] for name in (one, other))
    shared = _overlap(set(first), set(second)) or 0.0
    letters = SequenceMatcher(None, "".join(first), "".join(second), autojunk=False).ratio()
    return float(max(shared, letters * letters))


def _overlap(one: set[str], other: set[str]) -> float | None:
    return len(one & other) / len(one | other) if one and other else None


def _positions(demonstrations: Sequence[Demonstration]) -> tuple[dict[str, int], dict[str, int]]:
    """The first and the last run that calls each tool."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, item in enumerate(demonstrations):
        for name in item.plan.tools:
            first.setdefault(name, number)
            last[name] = number
    return first, last


def _given_parameters(demonstrations: Iterable[Demonstration]) -> dict[str, set[str]]:
    given: dict[str, set[str]] = defaultdict(set)
    for item in demonstrations:
        for call in item.plan.calls:
            given[call.tool].update(call.arguments)
    return given


def _parameters(retriever: Retriever, tool: Tool) -> set[str]:
    """Those that are declared, and those that demonstrated calls mostly gave."""
    declared = {item.name for item in tool.parameters}
    if retriever.arguments_ is None:
        return declared
    call = retriever.arguments_.fill(tool.name, Run("?"))
    return declared | {*call.arguments, *call.unknown}


def _uses(
    retriever: Retriever,
    demonstrations: Sequence[Demonstration],
    news: set[str],
    olds: Sequence[str],
) -> dict[str, dict[str, float]]:
    """The share of each old tool among them at the steps that call a new one, as a mean."""
    steps: dict[str, list[tuple[Demonstration, int]]] = defaultdict(list)
    for item in demonstrations:
        for place, name in enumerate(item.plan.tools):
            if name in news:
                steps[name].append((item, place))
    columns = [retriever.index(old) for old in olds]
    uses: dict[str, dict[str, float]] = {}
    for name, every in steps.items():
        some = every[:: -(-len(every) // _STEPS)]
        rankings = retriever.rank_batch(
            [item.query for item, _ in some],
            [item.plan.calls[:place] for item, place in some],
            [item.before for item, _ in some],
        )
        shares = np.array([ranking.scores[columns] for ranking in rankings])
        if len(olds) > 1:  # a share of one alone would be 1 whatever was called
            shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
        uses[name] = dict(zip(olds, shares.mean(axis=0).tolist(), strict=True))
    return uses
