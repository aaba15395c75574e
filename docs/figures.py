"""Figures of the pages that ``dtdr evaluate`` computes: ``python docs/figures.py``.

A table follows its command. The program computes each cell whose row names a ranker and whose
column a metric, or the other way round, and writes it, or compares it with ``--check``. It leaves
times as they are. Of several commands, the comment of each begins the names of its rows.

Without ``--all``, it runs commands on files of this repository, and of commands on published sets
that are here the rows that were fitted in less than a second. That takes about a minute. All other
figures of a page are of the version that the page names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from dtdr.cli import run
from dtdr.errors import InputError
from dtdr.evaluate.datasets import find_source
from dtdr.evaluate.datasets.source import find_file

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
METRICS = {
    "MRR": "mrr",
    "F1": "f1",
    "Top-1": "top1",
    "Recall@5": "recall@5",
    "Log top-1": "log_top1",
    "Log MRR": "log_mrr",
    "Tool top-1": "tool_top1",
    "Tool recall@5": "tool_recall",
    "End AUROC": "end_auroc",
    "relative to baseline": "ratio",
}
TABLE = re.compile(r"^((?:    dtdr evaluate [^\n]+\n)+)\n((?:\|[^\n]*\n)+)", re.MULTILINE)
MEASURED = re.compile(
    r"^    (?:dtdr evaluate|dtdr lab|python benchmarks/)[^\n]*\n\n\|", re.MULTILINE
)
"""A table under a command that may take long."""
VERSION = re.compile(r"Figures: dtdr \d+\.\d+\.\d+, \w+ \d{4}")
CHEAP_SECONDS = 1.0


@cache
def evaluate(words: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """The figures of each ranker that a command measures."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if run([*words, "--json"]) != 0:
            sys.exit(f"dtdr {shlex.join(words)} failed")
    results = json.loads(out.getvalue())["results"]
    for row in results:
        row.update(row["next_calls"])
        if other := row.get("another_run"):
            row["ratio"] = other["model"] / other["other_run"]
    return {row["ranker"]: row for row in results}


def split_rows(table: str) -> tuple[list[str], list[list[str]]]:
    """The titles and the rows of a table, as cells."""
    titles, _, *rows = [line.split("|") for line in table.splitlines()]
    return [title.strip() for title in titles], rows


def ranker_of(row: Sequence[str]) -> str:
    """The ranker that a row names."""
    return re.sub(r"[`*]|\(.*", "", row[1]).strip()


def commands(command: str, table: str, *, whole: bool) -> Iterator[tuple[str, ...]]:
    """What to run for a table: the command, or its cheap part if the set is here."""
    words = [word for word in shlex.split(command, comments=True) if word != "--markdown"]
    if "NAME" in words:
        return
    if "--dataset" not in words or whole:
        yield tuple(words)
        return
    titles, rows = split_rows(table)
    if "Fit s" not in titles or "--retriever" not in words:
        return
    try:
        find_file(find_source(words[words.index("--dataset") + 1]))
    except InputError as error:
        print(f"left out: {error}", file=sys.stderr)
        return
    at = words.index("--retriever")
    fit = titles.index("Fit s")
    for row in rows:
        if float(row[fit]) < CHEAP_SECONDS:
            yield (*words[: at + 1], ranker_of(row), *words[at + 2 :])


def update(table: str, measured: dict[str, dict[str, float]], label: str) -> str:
    """The table with the figures that were measured, in the rows that begin with the label."""
    titles, rows = split_rows(table)
    for row in rows:
        if not row[1].strip().startswith(label):
            continue
        name = ranker_of(row).removeprefix(f"{label}, ")
        for place, title in enumerate(titles):
            title = title.removesuffix(" on held-out steps")
            ranker, metric = (title, name) if name in METRICS else (name, title)
            if metric in METRICS and (value := measured.get(ranker, {}).get(METRICS[metric])):
                shown = (
                    f"{value:.0%}".replace("%", " %")
                    if METRICS[metric] == "ratio"
                    else f"{value:.3f}"
                )
                row[place] = re.sub(r"\d\.\d+|\d+ %", shown, row[place])
    head = table.splitlines(keepends=True)[:2]
    return "".join([*head, *("|".join(row) + "\n" for row in rows)])


def main() -> None:
    """Compare or write the figures; exit with 1 if a checked one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--all", action="store_true", help="every row, for an hour")
    given = parser.parse_args()
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if MEASURED.search(text) and not VERSION.search(text):
            stale.append(f"{page.name} does not say which version its figures are of")
        for listed, table in TABLE.findall(text):
            current = table
            for line in listed.splitlines():
                command, _, label = line.strip().removeprefix("dtdr ").partition("#")
                for words in commands(command, table, whole=given.all):
                    current = update(current, evaluate(words), label.strip())
            if current != table:
                stale.append(f"{page.name}:\n{listed}\n{current}")
                text = text.replace(table, current)
        if not given.check:
            page.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "all figures are right")
    sys.exit(1 if stale and given.check else 0)


if __name__ == "__main__":
    main()
