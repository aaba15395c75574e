"""Why a tool has its rank, compared with the next best tool."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one block of dtdr-f to a tool.

    Attributes:
        block: its name.
        about: what it reads, in a few words.
        adds: to the logarithm of the odds of the tool against its rival, in nats: what
            they lose without the block. Two blocks that know the same add little each, so the
            values of all blocks need not sum to the whole.
        probability_without: of the tool, ranked again without the block.
        best_without: the tool that is best then.
    """

    block: str
    about: str
    adds: float
    probability_without: float
    best_without: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something in a run that makes a tool more likely, or less likely.

    Attributes:
        text: ``query: pay out``, ``after verify_bank`` or ``get_claim: amount 48,000``.
        adds: to the logarithm of the odds of the tool against its rival, in nats: what they lose
            if the run does not have it.
    """

    text: str
    adds: float


@dataclass(frozen=True, slots=True)
class SimilarDemonstration:
    """A demonstration whose query is like this one.

    Attributes:
        id: of the demonstration that was learned from.
        similarity: cosine of the queries' words, in [0, 1].
        tools: what it calls, in the order of the log.
        terms: words and pairs of words that are in both queries, the rarest first.
    """

    id: str
    similarity: float
    tools: tuple[str, ...]
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a tool has its probability.

    Attributes:
        tool: what is explained.
        rank: its place, from 1.
        probability: over all tools.
        rival: the tool that it is compared with: the best of the others, unless named.
        rival_probability: over all tools.
        evidence: what makes the tool more likely in this run, strongest first, then what makes it
            less likely; only the strongest of each.
        contributions: of the blocks of dtdr-f, in their order; empty for other rankers.
        similar: the nearest demonstrations, nearest first; of dtdr-f.
        note: what else has to be known to read it; empty where there is nothing.
    """

    tool: str
    rank: int
    probability: float
    rival: str
    rival_probability: float
    evidence: tuple[Evidence, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    similar: tuple[SimilarDemonstration, ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object with these keys."""
        return asdict(self)
