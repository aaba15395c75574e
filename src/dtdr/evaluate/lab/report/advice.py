"""Advice for a user's own data: which ranker, how many tools to show, common errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from dtdr.evaluate.lab.experiments import DatasetSplit, Experiment
from dtdr.evaluate.lab.report.page import Block, Section, Text, method_table
from dtdr.evaluate.lab.report.results import Results, group_experiments
from dtdr.evaluate.lab.report.variations import build_ablations
from dtdr.evaluate.lab.summary import LEVEL, ExperimentSummary, Summaries, against_best, mean_of
from dtdr.evaluate.next_calls import Agreement, next_call_tables, score_next_calls
from dtdr.evaluate.tables import Cell, Column, Table, number, numeric, significant
from dtdr.rankers import DEFAULT
from dtdr.rankers.selection import BYTES_PER_TOKEN

SHOWN = 0.95
"""Share of the next tools of the log that the advised number of tools includes."""

CONFUSED = 10


def build_runs(results: Results, suite: str) -> list[Block]:
    """Next calls and why they were missed, by data set and split; the learning curve by time."""
    blocks: list[Block] = []
    plain = [experiment for experiment in results.experiments(suite, "rank") if experiment.is_plain]
    for dataset_split, here in group_experiments(
        plain, lambda experiment: experiment.dataset_split
    ).items():
        methods = []
        for name, same in group_experiments(here, lambda experiment: experiment.method).items():
            logs = [results.log(experiment) for experiment in same]
            others = [log.header.details.get("another_run") for log in logs]
            agreements = [Agreement(**other) for other in others if other]
            methods.append((name, [score_next_calls(log) for log in logs], agreements))
        blocks += next_call_tables(methods, results.split_title(dataset_split))
    return [*blocks, *build_ablations(results, suite, metric="log_top1")]


def build_advice(results: Results) -> Section | None:
    """Advice, and the confused tools, for each split of a user's own data."""
    section = Section("advice", "What this says about your data")
    for suite, manifest in results.manifests.items():
        if manifest.get("own_data") and manifest["section"] in ("retrieval", "runs"):
            experiments = [
                experiment
                for experiment in results.experiments(suite, "rank")
                if experiment.is_plain
            ]
            by_split = group_experiments(experiments, lambda experiment: experiment.dataset_split)
            if manifest["section"] == "runs":
                # One split is enough: by group (new tasks) if there is one, else by time.
                by_split = dict([min(by_split.items())])
            for dataset_split, here in by_split.items():
                section.blocks += _advise(results, dataset_split, here)
    return section if section.blocks else None


def _advise(
    results: Results, dataset_split: DatasetSplit, experiments: Sequence[Experiment]
) -> list[Block]:
    groups = group_experiments(experiments, lambda experiment: experiment.method)
    summaries = {
        name: [results.value(experiment) for experiment in same] for name, same in groups.items()
    }
    method, reason = choose_method(summaries)
    title = results.split_title(dataset_split)
    dataset = results.dataset(dataset_split[0])
    costs: Mapping[str, int] = dataset["tokens"]
    note = (
        f"Tokens: each tool as JSON, UTF-8 bytes / {BYTES_PER_TOKEN}; all {len(costs):,} tools "
        f"together take {sum(costs.values()):,}. The tools shown are the first of the ranking, at "
        "their mean cost."
    )
    if not dataset["described"]:
        note += " There are no descriptions, so names alone are counted."
    needed = {name: _tools_needed(splits) for name, splits in summaries.items()}
    mean_cost = sum(costs.values()) / len(costs)
    columns = {
        "Tools": lambda count: Cell(str(count or "more than were kept")),
        "Tokens a step": lambda count: significant(count * mean_cost if count else None),
    }
    return [
        Text(title, strong=True),
        Text(reason),
        Text(_what_to_show(needed[method], len(costs), sum(costs.values()))),
        Table(
            [Column("Ranked first"), Column("Acceptable was"), *numeric("Steps")],
            [
                [first, right, number(count)]
                for (first, right), count in _confusions(results, groups[method])
            ],
            f"Tools that {method} confuses, {title}",
            "Over all splits; a step with several acceptable tools counts for the best ranked.",
        ),
        method_table(
            needed,
            columns,
            f"Tools to show for {100 * SHOWN:.0f} % of the next tools, {title}",
            note,
        ),
    ]


def choose_method(summaries: Summaries) -> tuple[str, str]:
    """The default ranker, unless another is better; and which others could be as good."""
    best, adjusted = against_best(summaries, "mrr")
    alike = [best, *(name for name, p in adjusted.items() if p >= LEVEL)]
    named = [name for name, splits in summaries.items() if splits[0].header.ranker == DEFAULT]
    method = next((name for name in named if name in alike), best)
    said = {name: _describe(summaries[name]) for name in summaries}
    text = f"Use {method}: MRR {said[method]}."
    if near := [f"{name} ({said[name]})" for name in alike if name != method]:
        text += f" The difference to {', '.join(near)} could be chance."
    if worse := [f"{name} ({said[name]})" for name in named if name not in alike]:
        text += f" It is better than the default, {', '.join(worse)}."
    return method, text


def _describe(splits: Sequence[ExperimentSummary]) -> str:
    mean = mean_of(splits, "mrr")
    return f"{mean.value:.3f}" + ("" if mean.half_width is None else f" ± {mean.half_width:.3f}")


def _what_to_show(count: int | None, tools: int, all_tokens: int) -> str:
    if count is None:
        return f"Even many tools do not include {100 * SHOWN:.0f} % of the next tools."
    tokens = count * all_tokens / tools
    return (
        f"Show {count} of {tools:,} tools: {100 * SHOWN:.0f} % of "
        f"the tools that the log calls next are shown. That takes about {tokens:,.0f} "
        f"tokens a step instead of {all_tokens:,}: {100 * (1 - tokens / all_tokens):.0f} % less."
    )


def _tools_needed(summaries: Sequence[ExperimentSummary]) -> int | None:
    """How many tools include that share of the next ones; None where not even the most do."""
    depth = min(len(summary.next_shown) for summary in summaries)
    curve = np.mean([summary.next_shown[:depth] for summary in summaries], axis=0)
    reached = np.flatnonzero(curve >= SHOWN)
    return int(reached[0]) + 1 if len(reached) else None


def _confusions(
    results: Results, experiments: Sequence[Experiment]
) -> list[tuple[tuple[str, str], int]]:
    """The best ranked tool where it is wrong, and the best ranked acceptable one."""
    counts: Counter[tuple[str, str]] = Counter()
    for experiment in experiments:
        log = results.log(experiment)
        # Of tools that are not ranked, the first by name.
        ranks = np.where(log.ranks > 0, log.ranks, np.inf)
        best = log.acceptable[np.arange(len(log)), ranks.argmin(axis=1)]
        for i in np.flatnonzero(log.first_rank > 1):
            counts[log.names[log.best[i]], log.names[best[i]]] += 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CONFUSED]
