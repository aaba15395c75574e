"""Does the search bring up what the mask missed, and tools that were never demonstrated?

    python benchmarks/search.py [--datasets ultratool tinyagent t_eval] [--test]
    python benchmarks/search.py --smoke

An agent that lacks a tool says in words what it wants. ``missed``: the wanted tool is one that the
default mask did not show, looked for among those that it hid. ``new``: the model knows the tool by
its description alone, since every demonstration of it was taken away (of 15 % of the tools); it is
looked for among all. Each search is answered by the words alone (BM25 over descriptions), by the
ranking of the run alone, and by ``search``.

The texts: of UltraTool, what an LLM wrote each step of the reference plan is for ("Call X to …",
less the call). The other sets have none, so theirs are **synthetic**, by rule: half of the words of
the first sentence of the tool's description, said otherwise (``paraphrases.py``), and three words
of the query. A quarter of the training side is searched for; with ``--test``, the test side. The
weights in ``dtdr.predict.search`` were chosen without the test sides.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr.agents import ToolPolicy, ToolSelector
from dtdr.data.calls import END
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets.source import data_folders
from dtdr.evaluate.tables import Column, count, share
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.predict.search import SEARCH_LIMIT, STOP_WORDS, ToolSearch
from dtdr.text.words import words
from paraphrases import paraphrase
from printing import print_rows
from sets import load_sets, make_parser

NEW_SHARE = 0.15
MANY_TOOLS = 2_000


@dataclass(frozen=True)
class Search:
    """A search at a step of a held-out plan, for a tool that comes next there."""

    query: str
    history: tuple[str, ...]
    wanted: str
    text: str
    among: frozenset[str] | None


def said_texts(data_dir: Path | None) -> dict[tuple[str, str], str]:
    """What an LLM wrote that steps of UltraTool's plans are for, by plan and tool."""
    texts: dict[tuple[str, str], str] = {}
    for folder in data_folders(data_dir):
        path = folder / "ultratool" / "data.json"
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            record = json.loads(line)
            for node in record["task_nodes"]:
                said = re.compile(rf"\b{re.escape(node['task'])}\b\s+(?:to|for)\s+(.+)")
                match = next(filter(None, map(said.search, record["task_steps"])), None)
                if match:
                    texts.setdefault((record["id"], node["task"]), match[1])
    return texts


def write_text(tool: Tool, query: str) -> str:
    """What an agent might say that it wants, by rule."""
    rng = random.Random(f"{tool.name} {query}")
    sentence = re.split(r"(?<=[.!?])\s", tool.description.strip() or tool.name)[0]
    about, asked = _content(paraphrase(sentence)), _content(query)
    places = sorted(rng.sample(range(len(about)), max(1, len(about) // 2))) if about else []
    more = sorted(rng.sample(range(len(asked)), min(3, len(asked))))
    return " ".join([*(about[place] for place in places), *(asked[place] for place in more)])


def _content(text: str) -> list[str]:
    return [word for word in words(text) if word[0].isalnum() and word not in STOP_WORDS]


def searches(
    model: Model,
    held: Sequence[Demonstration],
    tools: Mapping[str, Tool],
    said: Mapping[tuple[str, str], str],
    new: frozenset[str] | None,
) -> Iterator[Search]:
    """A search for each wanted tool of each step: those of ``new``, else those the mask missed."""
    names = model.vocabulary[:-1]
    for item in held:
        for done in range(len(item.plan)):
            history = item.plan.tools[:done]
            wanted = item.plan.acceptable_next(range(done)) - {END}
            if new is not None:
                wanted, among = wanted & new, None
            else:
                ranking = model.rank(item.query, history)
                hidden = ToolSelector(ToolPolicy()).select(names, ranking, history).hidden
                among = frozenset(hidden)
                wanted &= among
            for tool in sorted(wanted):
                if said:
                    text = said.get((item.id, tool), "")
                else:
                    text = write_text(tools.get(tool, Tool(tool)), item.query)
                if text:
                    yield Search(item.query, history, tool, text, among)


def score(model: Model, found: Sequence[Search]) -> dict[str, Any]:
    """Recall@5 of each way to answer, and the milliseconds of ``search`` in a session."""
    by_words = ToolSearch.of(model.tools_[:-1])
    hits: dict[str, list[bool]] = {"words": [], "ranking": [], "search": []}
    seconds = []
    for one in found:
        session = model.session(one.query)
        for name in one.history:
            session.call(name)
        ranked = [name for name in session.rank().calls if one.among is None or name in one.among]
        hits["ranking"].append(one.wanted in ranked[:SEARCH_LIMIT])
        brought = by_words.find(one.text, SEARCH_LIMIT, offered=one.among)
        hits["words"].append(one.wanted in dict(brought))
        started = time.perf_counter()
        brought = session.search(one.text, offered=one.among)
        seconds.append(time.perf_counter() - started)
        hits["search"].append(one.wanted in dict(brought))
    means = {kind: statistics.fmean(values) for kind, values in hits.items()}
    return {"searches": len(found), **means, "ms": 1000 * statistics.median(seconds)}


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Two lines a set: tools that the mask missed, and tools never demonstrated."""
    for dataset, split in load_sets(given):
        known, held = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
        if not given.test:
            known, held = [item for n, item in enumerate(known) if n % 4], known[::4]
        tools = {tool.name: tool for tool in dataset.tools}
        said = said_texts(given.data_dir) if dataset.name == "ultratool" else {}
        demonstrated = sorted({tool for item in known for tool in item.plan.tools})
        size = max(2, int(len(demonstrated) * NEW_SHARE))
        new = frozenset(random.Random(given.seed).sample(demonstrated, size))
        for kind in ("missed", "new"):
            left = [item for item in known if kind == "missed" or not new & {*item.plan.tools}]
            model = create("dtdr-f", seed=given.seed).fit(
                left, dataset.tools, arguments=False, plans=False
            )
            found = list(searches(model, held, tools, said, new if kind == "new" else None))
            if not found:
                continue
            kept = random.Random(given.seed).sample(found, min(len(found), given.searches))
            texts = "of an LLM" if said else "synthetic"
            row = {"set": dataset.name, "wanted": kind, "texts": texts, **score(model, kept)}
            row["ms_many"] = time_many(model, kept)
            yield row


def time_many(model: Model, found: Sequence[Search]) -> float | None:
    """Milliseconds of ``search`` in a session when the ranker knows 2,000 tools."""
    if not model.can_change_tools:
        return None
    known = model.tools_[:-1]
    copies = (
        Tool(f"{known[n % len(known)].name} {n}", f"{known[n % len(known)].description} {n}")
        for n in range(MANY_TOOLS - len(known))
    )
    model.add_tools(copies)
    seconds = []
    for one in found[:50]:
        session = model.session(one.query)
        session.search(one.text)  # the index is made once
        started = time.perf_counter()
        session.search(f"{one.text}.")
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds)


def main() -> None:
    """Print one table, or one JSON object a line with ``--json``."""
    parser = make_parser(__doc__, ["ultratool", "tinyagent", "t_eval"])
    parser.add_argument("--test", action="store_true", help="the test sides, not training sides")
    parser.add_argument("--searches", type=int, default=500, help="at most so many of each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    columns = [
        Column("Set", "set"),
        Column("Wanted", "wanted"),
        Column("Texts", "texts"),
        Column("Searches", "searches", count, True),
        Column("BM25", "words", share, True),
        Column("Ranking", "ranking", share, True),
        Column("search", "search", share, True),
        Column("ms", "ms", lambda value: f"{value:.2f}", True),
        Column("ms, 2,000", "ms_many", lambda value: "" if value is None else f"{value:.2f}", True),
    ]
    side = "test side" if given.test else "a quarter of the training side"
    caption = f"{side}; seed {given.seed}; synthetic texts are made by rule, see --help"
    title = f"Recall@{SEARCH_LIMIT} of the tool that an agent searches for"
    print_rows(measure(given), columns, as_json=given.json, caption=caption, title=title)


if __name__ == "__main__":
    main()
