"""What a user asks of their own demonstrations: which retriever, how many tools, what it saves."""

from __future__ import annotations

from dtdr.lab.advice import Advice, advise
from dtdr.lab.report.blocks import Block, Cell, Column, Section, Table, Text, number, significant
from dtdr.lab.report.results import Results, by_place, plain


def section(results: Results, suites: list[str]) -> Section:
    """Advice, the worst queries and the confused tools, for each split of the data."""
    blocks: list[Block] = []
    for suite in suites:
        if results.manifests[suite]["section"] != "retrieval":
            continue
        for place, runs in by_place(plain(results.runs(suite, "rank"))).items():
            if runs:
                found = advise(results, place, runs)
                blocks += blocks_of(found, results.place_title(place))
    return Section("advice", "What this says about your data", blocks)


def blocks_of(found: Advice, title: str) -> list[Block]:
    """The advice as text and tables."""
    blocks: list[Block] = [Text(sentence) for sentence in found.sentences]
    worst = [
        [
            Cell(query),
            Cell(plan),
            Cell(f"{value:.3f}"),
        ]
        for plan, query, value in found.worst
    ]
    blocks.append(
        Table(
            f"Queries that {found.method} ranks worst, {title}",
            [Column("Query"), Column("Id"), Column("MRR", True)],
            worst,
            ["Means over the plan's steps and over the splits that held it out."],
        )
    )
    confused = [[Cell(a), Cell(b), number(count)] for a, b, count in found.confused]
    blocks.append(
        Table(
            f"Tools that {found.method} confuses, {title}",
            [Column("Ranked first"), Column("Acceptable was"), Column("Steps", True)],
            confused,
            ["Over all splits; a step with several acceptable tools counts for the best ranked."],
        )
    )
    depth = [
        [
            Cell(name),
            Cell(f"{needed.tools}" if needed.tools else "more than were kept"),
            significant(needed.tokens),
        ]
        for name, needed in found.needed.items()
    ]
    blocks.append(
        Table(
            f"Tools to show for {100 * found.recall:.0f} % recall, {title}",
            [Column("Method"), Column("Tools", True), Column("Tokens a step", True)],
            depth,
            [found.tokens_note],
        )
    )
    return blocks
