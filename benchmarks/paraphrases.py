"""How well requests are ranked that are worded otherwise than the demonstrations.

    python benchmarks/paraphrases.py [--datasets tinyagent t_eval] [--test] [--data-dir DATA]
    python benchmarks/paraphrases.py --own [--options JSON] [--data-dir DATA]
    python benchmarks/paraphrases.py --show 5
    python benchmarks/paraphrases.py --smoke

Queries are rewritten by the rules of ``RULES``, which were written by hand: other verbs, nouns and
frames. What stands in quotation marks stays. A quarter of the training side is held out and
ranked as it is and rewritten; with ``--test``, the test side.

``paraphrases.jsonl`` has queries in other words, each named by the id of its record. Of 185 in that
quarter of TinyAgent and T-Eval (``"side": "training"``), all were written anew by hand (``text``),
in four styles; they are to choose by. With ``--own``, 200 queries of the test sides are ranked as
they are and in other words: 93 were written anew by hand, 107 are rewritten by rule. That is a test
set: nothing was chosen on it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.metrics import roc_auc_score

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.tables import Column, Table, count, share
from dtdr.predict import create
from dtdr.predict.model import Model

RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?:compose|send) (?:a|an) (?:new )?email to", ("drop an email to", "write to", "mail")),
    (
        r"(?:compose|write|draft) (?:a|an) (?:new )?email",
        ("prepare a mail", "start a mail"),
    ),
    (r"email (?=[A-Z])", ("send a mail to ", "write to ")),
    (r"send (?:a|an) (?:sms|text message|text) to", ("text", "shoot a text to", "message")),
    (r"(?:sms|text message)", ("text",)),
    (r"reply to", ("answer", "respond to", "write back to")),
    (r"forward", ("pass on", "send on", "relay")),
    (r"set (?:up )?a reminder", ("remind me", "put down a reminder")),
    (r"create a reminder", ("make me a reminder", "note down a reminder")),
    (
        r"create a (?:new )?calendar event",
        ("put into my calendar an event", "schedule an event"),
    ),
    (r"schedule", ("set up", "arrange", "plan in")),
    (r"create a (?:new )?note", ("start a note", "jot down a note", "make a note")),
    (r"append", ("add", "tack on", "attach at the end")),
    (r"open", ("bring up", "pull up", "show me")),
    (
        r"(?:get|show|open|provide) (?:the )?directions",
        ("tell me the way", "navigate"),
    ),
    (r"summari[sz]e", ("give me the gist of", "sum up", "condense")),
    (r"a summary of", ("the gist of", "a short version of")),
    (r"zoom meeting", ("video call on Zoom", "Zoom call", "online meeting on Zoom")),
    (r"meeting", ("get-together", "session", "call")),
    (r"attach(?:ing)?", ("enclose", "include", "put in")),
    (r"invit(?:e|ing)", ("ask along", "bring in")),
    (r"titled|called|named", ("with the name", "under the title", "by the name of")),
    (r"phone number", ("telephone number", "mobile number", "phone")),
    (r"email address", ("mail address", "e-mail")),
    (r"file", ("document", "paper")),
    (r"movies?|films?", ("motion picture", "picture at the cinema")),
    (r"(?:research |scholarly |scientific )?(?:articles?|papers?)", ("publications", "studies")),
    (r"(?:average )?temperatures?", ("degrees", "how warm it is")),
    (r"weather", ("meteorological situation", "outlook", "climate")),
    (r"forecast", ("prediction", "outlook")),
    (r"stock", ("share", "security")),
    (r"prices?", ("costs", "quotes")),
    (r"hotels?|properties|accommodations?", ("places to stay", "lodgings", "rooms to rent")),
    (r"restaurants?", ("places to eat", "eateries")),
    (r"reviews?", ("opinions", "what people say")),
    (r"coordinates", ("latitude and longitude", "exact position")),
    (r"distance", ("how far it is", "number of kilometers")),
    (r"route", ("way to go", "way there")),
    (r"find|search for|look up|retrieve", ("look for", "dig up", "track down", "hunt for")),
    (r"provide me with|give me|provide", ("let me have", "hand me", "tell me")),
    (r"information|details|specifics", ("facts", "particulars", "data")),
    (r"save", ("store", "keep", "put")),
    (r"check", ("have a look at", "verify")),
    (r"latest|newest|most recent", ("freshest", "last")),
    (r"currently", ("right now", "at the moment")),
    (r"I would like to know", ("I wonder about", "I am curious about")),
    (r"I would like to|I want to", ("I intend to", "I am going to")),
    (r"(?:can|could) you", ("would you", "will you kindly")),
    (r"additionally|furthermore|also", ("on top of that", "besides", "moreover")),
    (r"lastly|finally", ("at the end", "to finish")),
    (r"after that|afterwards|then", ("next", "once that is done")),
    (r"tomorrow", ("the next day", "the day after today")),
    (r"please", ("kindly", "be so kind and")),
)
"""A pattern of words, and what may stand in its place."""
_RULES = [(re.compile(rf"\b(?:{pattern})(?!\w)", re.IGNORECASE), said) for pattern, said in RULES]
_QUOTED = re.compile(r'("[^"]*"|\'[^\']*\'(?!\w)|“[^”]*”)')


def paraphrase(query: str, seed: int = 0) -> str:
    """The query in other words; what is quoted stays."""
    rng = random.Random(f"{seed} {query}")
    # What a rule wrote is not written again by the next one.
    parts = [(part, bool(_QUOTED.fullmatch(part))) for part in _QUOTED.split(query) if part]
    for pattern, replacements in _RULES:
        split: list[tuple[str, bool]] = []
        for text, is_done in parts:
            if is_done:
                split.append((text, True))
                continue
            place = 0
            for match in pattern.finditer(text):
                said = rng.choice(replacements)
                if match[0][0].isupper():
                    said = said[0].upper() + said[1:]
                split += [(text[place : match.start()], False), (said, True)]
                place = match.end()
            split.append((text[place:], False))
        parts = [part for part in split if part[0]]
    return "".join(text for text, _ in parts)


def score(retriever: Model, demonstrations: list[Demonstration]) -> dict[str, float]:
    """Means over steps with acceptable tools, and the share of familiar queries."""
    ranks, familiar = [], []
    threshold = retriever.calibration_.familiarity_threshold
    for item in demonstrations:
        plan = item.plan
        histories = [plan.tools[:done] for done in range(len(plan) + 1)]
        rankings = retriever.rank_batch([item.query] * len(histories), histories)
        familiarity = rankings[0].familiarity
        familiar.append(familiarity is None or threshold is None or familiarity >= threshold)
        for done, ranking in enumerate(rankings):
            right = plan.acceptable_next(range(done))
            places = (at for at, tool in enumerate(ranking.tools, 1) if tool in right)
            ranks.append(next(places, len(ranking) + 1))
    return {
        "mrr": statistics.fmean(1 / rank for rank in ranks),
        "top1": statistics.fmean(rank == 1 for rank in ranks),
        "familiar": statistics.fmean(familiar),
        "steps": len(ranks),
    }


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Two lines a set: the held-out queries as they are, and rewritten; two more by hand."""
    for name in given.datasets:
        try:
            dataset = datasets.load(name, data_dir=given.data_dir)
        except InputError:
            dataset = datasets.load(datasets.BUNDLED)
        if given.smoke:
            dataset = replace(dataset, demonstrations=dataset.demonstrations[:80])
        split = default_split(dataset, given.data_dir)
        known, held = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
        if not given.test:
            known, held = [a for n, a in enumerate(known) if n % 4], list(known[::4])
        retriever = create("dtdr-f", **json.loads(given.options)).fit(known, dataset.tools)
        yield {"set": name, "queries": "as they are", **score(retriever, held)}
        rewritten = [replace(item, query=paraphrase(item.query)) for item in held]
        yield {"set": name, "queries": "rewritten by rule", **score(retriever, rewritten)}
        own = read_own(name)
        chosen = [item for item in held if item.id in own] if not given.test else []
        if chosen:
            yield {"set": name, "queries": "those below as they are", **score(retriever, chosen)}
            by_hand = [replace(item, query=own[item.id][1] or item.query) for item in chosen]
            yield {"set": name, "queries": "by hand", **score(retriever, by_hand)}


OWN = Path(__file__).with_name("paraphrases.jsonl")
MISSED = 0.02
"""Queries of other sets that may pass as familiar, where the share of familiar ones is read."""
_OTHERS = ("tinyagent", "t_eval", "ultratool", "traject_bench")


def read_own(name: str) -> dict[str, tuple[str, str | None]]:
    """By the record of a set: how its query was rewritten, and the text where by hand."""
    rows = map(json.loads, OWN.read_text(encoding="utf-8").splitlines())
    return {row["record"]: (row["kind"], row.get("text")) for row in rows if row["set"] == name}


def measure_own(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Three lines a set: the queries as they are, rewritten by hand, and rewritten by rule."""
    sides = {}
    for name in _OTHERS:
        dataset = datasets.load(name, data_dir=given.data_dir)
        sides[name] = (dataset, default_split(dataset, given.data_dir))
    for name in given.datasets:
        dataset, split = sides[name]
        known, held = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
        retriever = create("dtdr-f", **json.loads(given.options)).fit(known, dataset.tools)
        judge = _familiarity_of(retriever)
        others = [
            judge(item.query)
            for other, (its, its_split) in sides.items()
            if other != name
            for item in its_split.testing(its.demonstrations)
        ]
        lowest = float(np.quantile(others, 1 - MISSED))
        own = read_own(name)
        chosen = [item for item in held if item.id in own]
        for kind in ("hand", "rule"):
            originals = [item for item in chosen if own[item.id][0] == kind]
            rewritten = [
                replace(item, query=own[item.id][1] or paraphrase(item.query)) for item in originals
            ]
            for queries, items in (("as they are", originals), (f"by {kind}", rewritten)):
                scores = [judge(item.query) for item in items]
                yield {
                    "set": name,
                    "queries": queries,
                    "plans": len(items),
                    **score(retriever, items),
                    "strict": statistics.fmean(value > lowest for value in scores),
                    "auroc": roc_auc_score(
                        [1] * len(scores) + [0] * len(others), [*scores, *others]
                    ),
                }


def _familiarity_of(retriever: Model) -> Any:
    return lambda query: retriever.rank(query).familiarity or 0.0


def main() -> None:
    """Print the table, or some paraphrases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", default=["tinyagent", "t_eval"])
    parser.add_argument("--test", action="store_true", help="the test side, not a validation part")
    parser.add_argument("--own", action="store_true", help="the 200 of paraphrases.jsonl")
    parser.add_argument("--show", type=int, default=0, help="print so many paraphrases of each set")
    parser.add_argument("--options", default="{}", help="parameters of dtdr-f as JSON")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("DTDR_DATA_DIR"))
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    given = parser.parse_args()
    if given.smoke:
        given.datasets, given.data_dir = [datasets.BUNDLED], None
    if given.show:
        for name in given.datasets:
            for item in datasets.load(name, data_dir=given.data_dir).demonstrations[: given.show]:
                print(f"{item.query}\n  {paraphrase(item.query)}")
        return
    columns = [
        Column("Set", "set"),
        Column("Queries", "queries"),
        Column("MRR", "mrr", share, True),
        Column("Top-1", "top1", share, True),
        Column("Familiar", "familiar", share, True),
        Column("Steps", "steps", count, True),
    ]
    caption = ""
    rows: Sequence[dict[str, Any]] = list(measure_own(given) if given.own else measure(given))
    if given.own:
        columns[-1:] = [
            Column("At 2 %", "strict", share, True),
            Column("AUROC", "auroc", share, True),
            Column("Plans", "plans", count, True),
        ]
        caption = "At 2 %: familiar where 2 % of other sets' test queries are; AUROC against these."
    Console(width=100).print(Table(columns, rows, "Other words", caption).to_rich())


if __name__ == "__main__":
    main()
