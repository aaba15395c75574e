"""How well requests are ranked that are worded differently from the demonstrations.

    python benchmarks/paraphrases.py [--datasets tinyagent t_eval] [--test] [--data-dir DATA]
    python benchmarks/paraphrases.py --smoke

``RULES`` rewrite every held-out query: other verbs, nouns and phrases; text in quotation marks
stays. ``paraphrases.jsonl`` has 278 queries that were rewritten by hand. A quarter of the training
side is held out; with ``--test``, the test side, on which nothing was chosen.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate import mean_score
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.harness import score_model
from dtdr.evaluate.tables import Column, count, share
from dtdr.predict import create
from dtdr.predict.model import Model
from printing import print_rows
from sets import load_sets, make_parser

BY_HAND = Path(__file__).with_name("paraphrases.jsonl")

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
"""A pattern of words, and its replacements."""
_RULES = [(re.compile(rf"\b(?:{pattern})(?!\w)", re.IGNORECASE), said) for pattern, said in RULES]
_QUOTED = re.compile(r'("[^"]*"|\'[^\']*\'(?!\w)|“[^”]*”)')


def paraphrase(query: str, seed: int = 0) -> str:
    """The query in other words; quoted text stays."""
    rng = random.Random(f"{seed} {query}")
    # No rule rewrites what an earlier one wrote.
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


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Two lines per set: the held-out queries as they are, and by rule; two more by hand."""
    written = list(map(json.loads, BY_HAND.read_text(encoding="utf-8").splitlines()))
    for dataset, split in load_sets(given):
        known, held = split.training(dataset.demonstrations), split.testing(dataset.demonstrations)
        if not given.test:
            known, held = [item for n, item in enumerate(known) if n % 4], known[::4]
        model = create("dtdr-f").fit(known, dataset.tools, arguments=False, plans=False)
        by_rule = [replace(item, query=paraphrase(item.query)) for item in held]
        yield score("as they are", model, dataset, held)
        yield score("by rule", model, dataset, by_rule)
        texts = {row["record"]: row["text"] for row in written if row["set"] == dataset.name}
        if chosen := [item for item in held if item.id in texts]:
            by_hand = [replace(item, query=texts[item.id]) for item in chosen]
            yield score("those below, as they are", model, dataset, chosen)
            yield score("by hand", model, dataset, by_hand)


def score(
    queries: str, model: Model, dataset: Dataset, items: Sequence[Demonstration]
) -> dict[str, Any]:
    """One line of the table."""
    log = score_model(model, replace(dataset, demonstrations=list(items)))
    means = {name: mean_score(log, name) for name in ("mrr", "top1")}
    return {"set": dataset.name, "queries": queries, **means, "steps": len(log)}


def main() -> None:
    """Print one table, or one JSON object a line with ``--json``."""
    parser = make_parser(__doc__, ["tinyagent", "t_eval"])
    parser.add_argument("--test", action="store_true", help="the test sides, not training sides")
    given = parser.parse_args()
    columns = [
        Column("Set", "set"),
        Column("Queries", "queries"),
        Column("MRR", "mrr", share, True),
        Column("Top-1", "top1", share, True),
        Column("Steps", "steps", count, True),
    ]
    caption = "the test side" if given.test else "a quarter of the training side"
    print_rows(measure(given), columns, as_json=given.json, caption=caption, title="Other words")


if __name__ == "__main__":
    main()
