"""Does a retriever notice queries that are unlike its demonstrations?

    python benchmarks/familiarity.py [--smoke] [--method dtdr-f dtdr-c dtdr-l] [--encoder minilm]

Each method learns the train side of a set. Its score is to tell the held-out queries of that set
from the held-out queries of the other sets and from gibberish. Nothing is tuned here. Reads the
published sets (--data-dir, DTDR_DATA_DIR), or the bundled one where there is none. For dtdr-f, only
what judges the queries is fitted: it does not depend on the rest.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from examples.hotel.generate import conversations
from examples.hotel.log_formats import Turn
from examples.hotel.requests import REQUESTS

from dtdr.data.demonstrations import Demonstration, as_demonstrations
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, default_split, fixed_split
from dtdr.evaluate.tables import Column, Table, share
from dtdr.predict import create
from dtdr.rankers.dtdr_f.familiarity import fit_threshold
from dtdr.rankers.dtdr_f.queries import EncodedQueries, QueryFeaturizer
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.vectors import dense, unit
from dtdr.text.encoders import create as create_encoder
from dtdr.text.encoders.lexical import words

SETS = {
    "tinyagent": "TinyAgent",
    "t_eval": "T-Eval",
    "ultratool": "UltraTool",
    "traject_bench": "TRAJECT",
    datasets.BUNDLED: "synthetic",
}
GIBBERISH = "gibberish"
BY_SEQUENCE = "by-sequence"
OTHER_LANGUAGES = (
    "Envoie un courriel à Marie avec le résumé du rapport, puis crée un rappel pour demain.",
    "Bitte schicke Anna eine E-Mail und lege eine Notiz mit der Zusammenfassung an.",
    "Busca un hotel barato en Sevilla para el fin de semana y guarda la dirección.",
    "请给小明发一封邮件，并在日历中创建一个会议。",
    "明日の会議を予定に入れて、田中さんにメールを送ってください。",
    "Отправь письмо Ивану и поставь напоминание на завтра.",
    "أرسل بريدًا إلى أحمد وأنشئ تذكيرًا للغد",
    "कृपया राम को ईमेल भेजें और कल के लिए एक अनुस्मारक बनाएं",
)
ODDITIES = ("", " ", "?", "...", "12345", "asdf", "def f(x): return x + 1", "SELECT 1;", "🙂🙂🙂")
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")

Judge = Callable[[str], float]


def gibberish(count: int, vocabulary: Sequence[str], seed: int) -> list[str]:
    """Random letters, mashed keys, random words and random characters, and other languages."""
    draw = random.Random(seed)

    def letters() -> str:
        return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 9)))

    def mashed() -> str:
        return "".join(draw.choice(draw.choice(_KEYS)) for _ in range(draw.randint(4, 20)))

    kinds: list[Callable[[], str]] = [
        lambda: " ".join(letters() for _ in range(draw.randint(2, 40))),
        lambda: " ".join(mashed() for _ in range(draw.randint(1, 4))),
        lambda: " ".join(draw.choices(vocabulary, k=draw.randint(2, 40))),
        lambda: "".join(draw.choices(string.printable[:95], k=draw.randint(1, 200))),
    ]
    found = [kinds[number % len(kinds)]() for number in range(count)]
    return [*found, *OTHER_LANGUAGES, *ODDITIES]


def judge_of(
    method: str, encoder: str, train: Sequence[Demonstration], *, grouped: bool
) -> tuple[Judge, float | None]:
    """The score of a query and its threshold, learned from demonstrations.

    ``dtdr-f`` sets its threshold by groups where queries are of new ones.
    """
    if method == "dtdr-f":
        beside = None if encoder == "lexical" else create_encoder(encoder)
        queries = EncodedQueries.of([item.query for item in train], beside)
        featurizer = QueryFeaturizer.fit(queries, [])
        known = None if beside is None else featurizer.further_vectors
        groups = [item.group if grouped else "" for item in train]
        limit = fit_threshold(queries.rows["words"], groups, beside, known)

        def judge(query: str) -> float:
            value = featurizer.read(QueryText.of(query)).familiar
            if beside is None or known is None:
                return value
            (vector,) = unit(dense(beside.encode([query])))
            return (value + max(float((known @ vector).max()), 0.0)) / 2

        return judge, limit
    # Queries are judged by the encoder alone: one epoch of dtdr-l's layer is enough.
    few = {"epochs": 1} if method == "dtdr-l" else {}
    retriever = create(method, encoder=encoder, **few).fit(train)
    threshold = retriever.calibration_.familiarity_threshold

    def score(query: str) -> float:
        value = retriever.ranker.familiarity(retriever.ranker.prepare(query))
        if value is None:
            raise SystemExit(f"{method} cannot tell how familiar a query is")
        return value

    return score, threshold


def measure(
    method: str,
    encoder: str,
    train: Sequence[Demonstration],
    queries: dict[str, list[str]],
    own: str,
    *,
    grouped: bool,
) -> dict[str, Any]:
    """One line: AUROC against each other kind of query, and what the threshold makes of it."""
    judge, threshold = judge_of(method, encoder, train, grouped=grouped)
    scores: dict[str, list[float]] = {}
    microseconds = []
    for kind, found in queries.items():
        scores[kind] = []
        for query in found:
            started = time.perf_counter()
            scores[kind].append(judge(query))
            microseconds.append((time.perf_counter() - started) * 1e6)
    others = {kind: found for kind, found in scores.items() if kind != own}
    row: dict[str, Any] = {
        kind: roc_auc_score([1] * len(scores[own]) + [0] * len(found), [*scores[own], *found])
        for kind, found in others.items()
    }
    row["microseconds"] = statistics.median(microseconds)
    if threshold is not None:
        row["false_alarms"] = statistics.fmean(value < threshold for value in scores[own])
        row["noticed"] = statistics.fmean(
            statistics.fmean(value < threshold for value in found) for found in others.values()
        )
    return row


def splits_of(data_dir: Path | None) -> dict[str, tuple[Dataset, Split]]:
    """The published sets that are here, each with its split; the bundled set where none is."""
    sides: dict[str, tuple[Dataset, Split]] = {}
    for name in SETS:
        if name == datasets.BUNDLED and sides:
            continue
        try:
            dataset = datasets.load(name, data_dir=data_dir)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        sides[name] = (dataset, default_split(dataset, data_dir))
    if "traject_bench" in sides:
        dataset, _ = sides["traject_bench"]
        records = len(dataset.demonstrations)
        split = fixed_split(dataset.name, data_dir, BY_SEQUENCE, records=records)
        sides[BY_SEQUENCE] = (dataset, split)
    return sides


def main() -> None:
    """Print one table, or one JSON object a line with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--smoke", action="store_true", help="dtdr-f only, few queries; seconds")
    parser.add_argument("--method", nargs="+", default=["dtdr-f", "dtdr-c", "dtdr-l"])
    parser.add_argument(
        "--encoder", default="lexical", help="of dtdr-c and dtdr-l, beside words of dtdr-f"
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    if given.smoke:
        given.method = ["dtdr-f"]
    sides = splits_of(given.data_dir)
    kinds = [label for label in sides if label != BY_SEQUENCE]
    held_out = {
        label: [item.query for item in split.testing(dataset.demonstrations)]
        for label, (dataset, split) in sides.items()
    }
    vocabulary = sorted(
        {word for found in held_out.values() for query in found for word in words(query)}
        - set(string.punctuation)
    )
    strange = gibberish(400, vocabulary, given.seed)
    rows: list[dict[str, Any]] = []
    for method in given.method:
        for label, (dataset, split) in sides.items():
            queries = {name: held_out[name] for name in kinds} | {GIBBERISH: strange}
            queries[dataset.name] = held_out[label]
            if given.smoke:
                queries = {kind: found[:60] for kind, found in queries.items()}
            train = split.training(dataset.demonstrations)
            grouped = label == BY_SEQUENCE
            title = "sequences" if grouped else SETS[dataset.name]
            row = measure(method, given.encoder, train, queries, dataset.name, grouped=grouped)
            rows.append({"method": method, "learned": title, **row})
            if given.json:
                print(json.dumps(rows[-1]), flush=True)
    alarms = paraphrases(given.method, given.encoder)
    if given.json:
        print(json.dumps({"paraphrases": alarms}))
        return
    Console(width=100).print(table(rows, kinds, given.encoder, given.seed).to_rich())
    for method, (same, other) in alarms.items():
        print(
            f"{method}, a hotel's agent (synthetic): of new requests in known phrasings {same:.3f} "
            f"are below the threshold, in phrasings that were held out {other:.3f}"
        )


def paraphrases(methods: Sequence[str], encoder: str) -> dict[str, tuple[float, float]]:
    """False alarms on requests in the phrasings of the demonstrations, and in others.

    One of the two phrasings of each request that were held out was used to choose the rule; the
    other one is measured.
    """
    for request in REQUESTS:
        assert len(request.other) == 2
    last = tuple(replace(request, other=request.other[1:]) for request in REQUESTS)
    train = [item for _, item in hotel_demonstrations(conversations())]
    same = [query for query, _ in hotel_demonstrations(conversations(seed=77))]
    other = [
        query for query, _ in hotel_demonstrations(conversations(seed=78, other=True, asked=last))
    ]
    shares = {}
    for method in methods:
        judge, threshold = judge_of(method, encoder, train, grouped=False)
        if threshold is not None:
            below = ([judge(query) < threshold for query in queries] for queries in (same, other))
            shares[method] = (statistics.fmean(next(below)), statistics.fmean(next(below)))
    return shares


def hotel_demonstrations(
    conversations: Sequence[Sequence[Turn]],
) -> Iterator[tuple[str, Demonstration]]:
    """The requests that call tools, each with its plan."""
    for turns in conversations:
        for turn in turns:
            if turn.batches:
                names = [call.tool for batch in turn.batches for call in batch]
                (item,) = as_demonstrations([(turn.query, names)])
                yield turn.query, item


def table(rows: Sequence[dict[str, Any]], kinds: Sequence[str], encoder: str, seed: int) -> Table:
    """AUROC by method and by what it learned from, against each kind of query."""
    columns = [
        Column("Method", "method"),
        Column("Learned", "learned"),
        *(Column(SETS[name], name, share, True) for name in kinds),
        Column("Gibberish", GIBBERISH, share, True),
        Column("False", "false_alarms", share, True),
        Column("Noticed", "noticed", share, True),
        Column("µs", "microseconds", lambda value: f"{value:.0f}", True),
    ]
    title = "Familiarity of held-out queries: AUROC against those of other sets and gibberish"
    caption = (
        f"Encoder (of dtdr-f: beside its words): {encoder}; seed {seed}. False: held-out queries "
        "below the threshold;\nNoticed: mean over the others of those below; µs: median to judge "
        "one query;\n"
        "sequences: TRAJECT, no tool sequence on both sides."
    )
    return Table(columns, rows, title, caption)


if __name__ == "__main__":
    main()
