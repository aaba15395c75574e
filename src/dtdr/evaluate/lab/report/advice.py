"""What a user asks of their own data: which retriever, how many tools, what it saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtdr.evaluate.lab.report.page import Block, Section, Text
from dtdr.evaluate.lab.report.results import Place, Results, Run, group_runs
from dtdr.evaluate.lab.summary import LEVEL, RunSummary, against_best, mean_of, plan_means
from dtdr.evaluate.tables import Cell, Column, Table, number, numeric, significant
from dtdr.rankers import DEFAULT
from dtdr.rankers.selection import BYTES_PER_TOKEN

RECALL = 0.95
MUCH_CHEAPER = 10
"""A method that cannot be told from the default and learns in a tenth of the time is advised."""

WORST = 10
CONFUSED = 10

Summaries = Mapping[str, Sequence[RunSummary]]


def build_advice(results: Results) -> Section | None:
    """Advice, the worst queries and the confused tools, for each split of a user's own data."""
    section = Section("advice", "What this says about your data")
    for suite, manifest in results.manifests.items():
        if manifest.get("own_data") and manifest["section"] in ("retrieval", "runs"):
            runs = [run for run in results.runs(suite, "rank") if run.is_plain]
            places = group_runs(runs, lambda run: run.place)
            if manifest["section"] == "runs":  # one page: new tasks if there are any
                places = dict([min(places.items())])
            for place, here in places.items():
                section.blocks += _advise(results, place, here)
    return section if section.blocks else None


def _advise(results: Results, place: Place, runs: Sequence[Run]) -> list[Block]:
    groups = group_runs(runs, lambda run: run.method)
    summaries = {name: [results.value(run) for run in same] for name, same in groups.items()}
    best, adjusted = against_best(summaries, "mrr")
    alike = [best, *(name for name, p in adjusted.items() if p >= LEVEL)]
    method = _choose(best, alike, summaries)
    title = results.place_title(place)
    dataset = results.dataset_summary(place[0])
    costs: Mapping[str, int] = dataset["tokens"]
    note = (
        f"Tokens: each tool as JSON, UTF-8 bytes / {BYTES_PER_TOKEN}; all {len(costs):,} tools "
        f"together take {sum(costs.values()):,}. The tools shown are the first of the ranking, at "
        "their mean cost."
    )
    if not results.dataset(place[0]).get("described"):
        note += " There are no descriptions, so names alone are counted."
    needed = {name: _tools_needed(splits) for name, splits in summaries.items()}
    mean_cost = sum(costs.values()) / len(costs) if costs else 0.0
    tools = [
        [
            Cell(name),
            Cell(str(count or "more than were kept")),
            significant(count * mean_cost if count else None),
        ]
        for name, count in needed.items()
    ]
    queries: Mapping[str, Any] = dataset["queries"]
    means = plan_means(summaries[method], "mrr")
    worst = [
        [Cell(str(queries.get(plan, ""))), Cell(plan), Cell(f"{means[plan]:.3f}")]
        for plan in sorted(means, key=lambda plan: (means[plan], plan))[:WORST]
    ]
    confused = [
        [Cell(first), Cell(right), number(count)]
        for first, right, count in _confusions(results, groups[method])
    ]
    return [
        Text(title, strong=True),
        Text(_reason(method, best, alike, summaries)),
        *map(Text, _what_to_show(needed[method], len(costs), sum(costs.values()))),
        Table(
            [Column("Query"), Column("Id"), *numeric("MRR")],
            worst,
            f"Queries that {method} ranks worst, {title}",
            "Means over the plan's steps and over the splits that held it out.",
        ),
        Table(
            [Column("Ranked first"), Column("Acceptable was"), *numeric("Steps")],
            confused,
            f"Tools that {method} confuses, {title}",
            "Over all splits; a step with several acceptable tools counts for the best ranked.",
        ),
        Table(
            [Column("Method"), *numeric("Tools", "Tokens a step")],
            tools,
            f"Tools to show for {100 * RECALL:.0f} % recall, {title}",
            note,
        ),
    ]


def _default(summaries: Summaries) -> str | None:
    """The row of the default retriever, where there is one."""
    named = (name for name, splits in summaries.items() if splits[0].header.retriever == DEFAULT)
    return next(named, None)


def _choose(best: str, alike: Sequence[str], summaries: Summaries) -> str:
    """The default retriever, unless another is better, or equal and much cheaper."""
    default = _default(summaries)
    if default is None or default not in alike:
        return best
    limit = _fit_seconds(summaries[default]) / MUCH_CHEAPER
    cheap = [name for name in alike if _fit_seconds(summaries[name]) <= limit]
    # Of several cheap ones the best, not the cheapest: they differ by seconds.
    return max(cheap, key=lambda name: mean_of(summaries[name], "mrr").value, default=default)


def _fit_seconds(splits: Sequence[RunSummary]) -> float:
    return float(np.median([one.header.fit_seconds for one in splits]))


def _reason(method: str, best: str, alike: Sequence[str], summaries: Summaries) -> str:
    """Which method to use, and why it and no other."""
    means = {name: mean_of(splits, "mrr") for name, splits in summaries.items()}
    half = means[method].half_width
    sure = "" if half is None else f" ± {half:.3f}"
    text = f"Use {method}: MRR {means[method].value:.3f}{sure}"
    default = _default(summaries)
    if default is not None and default != method:
        other = means[default].value
        if default not in alike:
            return f"{text}. It is better than the default, {default}, which has {other:.3f}."
        seconds = _fit_seconds(summaries[method]), _fit_seconds(summaries[default])
        return (
            f"{text}, learned in {seconds[0]:.1f} s. The default, {default}, has {other:.3f} and "
            f"learns in {seconds[1]:.1f} s; the difference in MRR could be chance."
        )
    if method != best:
        return f"{text}. {best} has {means[best].value:.3f}, a difference that could be chance."
    near = [name for name in alike if name != method]
    return f"{text}, the best here" + (
        f"; the difference to {', '.join(near)} could be chance." if near else "."
    )


def _what_to_show(count: int | None, tools: int, all_tokens: int) -> list[str]:
    if count is None:
        return [f"Even many tools do not reach {100 * RECALL:.0f} % recall."]
    sentences = [
        f"Show {count} of {tools:,} tools, the end of the plan among them, for "
        f"{100 * RECALL:.0f} % recall of the acceptable ones."
    ]
    if all_tokens:
        tokens = count * all_tokens / tools
        sentences.append(
            f"That takes about {tokens:,.0f} tokens a step instead of {all_tokens:,}: "
            f"{100 * (1 - tokens / all_tokens):.0f} % less."
        )
    return sentences


def _tools_needed(summaries: Sequence[RunSummary]) -> int | None:
    """How many tools reach the recall; None where not even the most do."""
    depth = min(len(one.recall) for one in summaries)
    curve = np.mean([one.recall[:depth] for one in summaries], axis=0)
    reached = np.flatnonzero(curve >= RECALL)
    return int(reached[0]) + 1 if len(reached) else None


def _confusions(results: Results, runs: Sequence[Run]) -> list[tuple[str, str, int]]:
    """The best ranked tool where it is wrong, and the best ranked acceptable one."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        log = results.log(run)
        # Of tools that are not ranked, the first by name.
        ranks = np.where(log.ranks > 0, log.ranks, np.inf)
        best = log.acceptable[np.arange(len(log)), ranks.argmin(axis=1)]
        for i in np.flatnonzero(log.first_rank > 1):
            counts[log.names[log.head[i, 0]], log.names[best[i]]] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(a, b, count) for (a, b), count in ordered[:CONFUSED]]
