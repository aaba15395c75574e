"""The tool dependency graph of dtdr-c and of Markov chains (paper, Appendix B and Table 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dtdr.data.calls import END
from dtdr.errors import InputError
from dtdr.rankers.base import Ranker
from dtdr.rankers.clustering import DTDRClustering
from dtdr.rankers.markov import ChainRanker, MarkovChains
from dtdr.rankers.name_ranker import NameRanker

START = "start"
"""Before the first call."""


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """A key of the graph, and its value.

    Attributes:
        history: names of the last calls, oldest first; ``start`` before the first.
        probabilities: of each tool that followed, most probable first, ties by name. Its keys are
            the unweighted graph.
    """

    history: tuple[str, ...]
    probabilities: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {"history": list(self.history), "next": dict(self.probabilities)}


def dependency_graph(ranker: Ranker, group: int = 0) -> list[GraphEntry]:
    """The graph G of one cluster, sorted by history.

    Args:
        ranker: ``dtdr-c``, ``dr``, ``markov-1`` or ``markov-2``, fitted.
        group: the cluster, from 0; the others have only one.

    Raises:
        InputError: the ranker has no such graph, or there is no such cluster.
    """
    if isinstance(ranker, DTDRClustering):
        chains = ranker.cluster_chains_
    elif isinstance(ranker, ChainRanker):
        chains = ranker.chain_
    else:
        raise InputError(f"{ranker.name} has no dependency graph; fit dtdr-c or dr to get one")
    if not 0 <= group < chains.groups:
        raise InputError(f"cluster {group} does not exist; the last one is {chains.groups - 1}")
    return sorted(_entries(chains, group, ranker), key=lambda entry: entry.history)


def _entries(chains: MarkovChains, group: int, ranker: NameRanker) -> Iterator[GraphEntry]:
    names = [tool.name for tool in ranker.tools_]
    for history, node in chains.histories(group):
        begin, end = chains.offsets[node], chains.offsets[node + 1]
        shares = chains.counts[begin:end] / chains.totals[node]
        pairs = zip(chains.next_tools[begin:end].tolist(), shares.tolist(), strict=True)
        ordered = sorted(((names[tool], share) for tool, share in pairs), key=_by_share)
        yield GraphEntry(
            tuple(START if tool == chains.tools else names[tool] for tool in history), dict(ordered)
        )


def _by_share(item: tuple[str, float]) -> tuple[float, str]:
    return -item[1], item[0]


def to_dot(entries: list[GraphEntry]) -> str:
    """The graph in the DOT language of Graphviz: an edge from each history to what followed."""
    lines = ["digraph dependencies {", "  rankdir=LR;", "  node [shape=box];"]
    for entry in entries:
        history = _quote(", ".join(entry.history) or START)
        for tool, share in entry.probabilities.items():
            shape = " shape=doublecircle" if tool == END else ""
            lines.append(f"  {_quote(tool)} [style=rounded{shape}];" if shape else "")
            lines.append(f'  {history} -> {_quote(tool)} [label="{share:.3f}"];')
    unique = dict.fromkeys(line for line in lines if line)
    return "\n".join([*unique, "}"]) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'
