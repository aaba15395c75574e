"""Figures of the pages that ``dtdr evaluate`` computes: ``python docs/figures.py``.

A table follows its command. Each cell whose row names a retriever and whose column a metric is
compared with what the command gives, and replaced without ``--check``. Times are left as they
are. Without ``--all`` only commands on files of this repository run, in less than a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path

from dtdr.cli import run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
METRICS = {
    "MRR": "mrr",
    "F1": "f1",
    "Top-1": "top1",
    "Recall@5": "recall@5",
    "Log top-1": "log_top1",
    "Log MRR": "log_mrr",
}
TABLE = re.compile(r"^    dtdr (evaluate [^\n]+)\n\n((?:\|[^\n]*\n)+)", re.MULTILINE)


def evaluate(command: str) -> dict[str, dict[str, float]]:
    """The figures of each retriever that a command measures."""
    words = [word for word in shlex.split(command, comments=True) if word != "--markdown"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if run([*words, "--json"]) != 0:
            sys.exit(f"dtdr {command} failed")
    return {row["retriever"]: row for row in json.loads(out.getvalue())["results"]}


def update(table: str, measured: dict[str, dict[str, float]]) -> str:
    """The table with the figures that were measured."""
    titles, rule, *rows = [line.split("|") for line in table.splitlines()]
    metrics = {
        place: METRICS.get(title.strip().removesuffix(" on held-out steps"))
        for place, title in enumerate(titles)
    }
    for row in rows:
        name = re.sub(r"[`*]|\(.*", "", row[1]).strip()
        for place, metric in metrics.items():
            if metric is not None and name in measured:
                row[place] = re.sub(r"\d\.\d+", f"{measured[name][metric]:.3f}", row[place])
    return "".join("|".join(row) + "\n" for row in (titles, rule, *rows))


def main() -> None:
    """Compare or write the figures; exits with 1 where a checked one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--all", action="store_true", help="published sets too, for an hour")
    given = parser.parse_args()
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for command, table in TABLE.findall(text):
            if "--dataset" in command and not given.all:
                continue
            current = update(table, evaluate(command))
            if current != table:
                stale.append(f"{page.name}: dtdr {command}\n{current}")
                text = text.replace(table, current)
        if not given.check:
            page.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "all figures hold")
    sys.exit(1 if stale and given.check else 0)


if __name__ == "__main__":
    main()
