"""The contexts of demonstrated runs, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import ModelError
from dtdr.rankers.dtdr_f.encoded_plans import REMOVED, canonical_order
from dtdr.rankers.dtdr_f.observations import (
    NO_CONTEXT,
    NO_OUTCOME,
    Context,
    EarlierCall,
    Outcome,
    RunReader,
    read_context,
)
from dtdr.rankers.dtdr_f.ragged import Ragged
from dtdr.rankers.nn import Indices


class EncodedRuns:
    """The contexts of demonstrated runs, one run a plan.

    Args:
        contexts: what came before each query.
        outcomes: what became of each call of each plan.
    """

    def __init__(self, contexts: Sequence[Context], outcomes: Sequence[Sequence[Outcome]]) -> None:
        self.contexts, self.outcomes = contexts, outcomes

    @classmethod
    def of(cls, demonstrations: Sequence[Demonstration], index: Mapping[str, int]) -> Self:
        """What demonstrations tell."""
        contexts, outcomes = [], []
        for item in demonstrations:
            reader, calls = RunReader(item.before), item.plan.calls
            contexts.append(read_context(item.query, item.before, index))
            outcomes.append([reader.read(calls[at]) for at in canonical_order(calls, index)])
        return cls(contexts, outcomes)

    @classmethod
    def empty(cls, lengths: npt.NDArray[np.int32]) -> Self:
        """The runs of plans of these lengths of which names alone are known."""
        return cls([NO_CONTEXT] * len(lengths), [[NO_OUTCOME] * size for size in lengths.tolist()])

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known but names."""
        return all(context is NO_CONTEXT for context in self.contexts) and all(
            outcome is NO_OUTCOME for outcomes in self.outcomes for outcome in outcomes
        )

    def subset(self, positions: Indices) -> EncodedRuns:
        """The runs at some positions."""
        places = positions.tolist()
        return EncodedRuns(
            [self.contexts[place] for place in places], [self.outcomes[place] for place in places]
        )

    def concatenate(self, other: EncodedRuns) -> EncodedRuns:
        """These runs and the others."""
        return EncodedRuns([*self.contexts, *other.contexts], [*self.outcomes, *other.outcomes])

    def renumber(self, position: Sequence[int]) -> EncodedRuns:
        """The runs in another vocabulary; ``position[old]`` is the new index or ``REMOVED``."""
        lookup = [*position, REMOVED]
        contexts = []
        for context in self.contexts:
            if context.calls:
                calls = tuple(replace(call, tool=lookup[call.tool]) for call in context.calls)
                context = replace(context, calls=calls)
            contexts.append(context)
        return EncodedRuns(contexts, self.outcomes)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to save: numbers of tools, statuses, counts, and hashes; none if empty."""
        if self.is_empty:
            return {}
        outcomes = [outcome for each in self.outcomes for outcome in each]
        contexts = self.contexts
        earlier = [
            np.array([(call.tool, call.status, call.is_used) for call in item.calls]).ravel()
            for item in contexts
        ]
        weights = Ragged.of([item.weights for item in contexts], np.float16)
        return {
            "turns": np.array([item.turns for item in contexts], np.int32),
            "calls": np.array([len(each) for each in self.outcomes], np.int32),
            "statuses": np.array([outcome.status for outcome in outcomes], np.uint8),
            "left": np.array([outcome.left for outcome in outcomes], np.uint8),
            "weights": weights.values,
            **Ragged.of(earlier, np.int32).arrays("earlier"),
            **Ragged.of([item.words for item in contexts], np.int32).arrays("said"),
            **Ragged.of([item.words for item in outcomes], np.int32).arrays("words"),
            **Ragged.of([item.facts for item in outcomes], np.int32).arrays("facts"),
        }

    @classmethod
    def restore(
        cls, arrays: Mapping[str, npt.NDArray[Any]], lengths: npt.NDArray[np.int32], tools: int
    ) -> Self:
        """Rebuild from the output of ``arrays``.

        Args:
            arrays: what was saved.
            lengths: calls of each plan.
            tools: size of the vocabulary.

        Raises:
            KeyError: an array is missing.
            ModelError: the arrays do not fit the plans or the vocabulary.
        """
        if not arrays:
            return cls.empty(lengths)
        earlier, said, words, facts = (
            Ragged.restore(arrays, name) for name in ("earlier", "said", "words", "facts")
        )
        weights = Ragged(arrays["weights"].astype(np.float32), said.starts)
        tools_before = earlier.values[::3]
        if not (
            np.array_equal(arrays["calls"], lengths)
            and len(arrays["statuses"]) == len(arrays["left"]) == len(words) == len(facts)
            and len(words) == lengths.sum()
            and len(earlier) == len(said) == len(arrays["turns"]) == len(lengths)
            and len(weights.values) == len(said.values)
            and REMOVED <= tools_before.min(initial=0) <= tools_before.max(initial=0) < tools
        ):
            raise ModelError("what the model knows of runs does not fit its plans; fit it again")
        outcomes = [
            Outcome(status, words[at], facts[at], left)
            if status or left or len(words[at])
            else NO_OUTCOME
            for at, (status, left) in enumerate(
                zip(arrays["statuses"].tolist(), arrays["left"].tolist(), strict=True)
            )
        ]
        contexts = []
        for at, turns in enumerate(arrays["turns"].tolist()):
            calls = [
                EarlierCall(tool, status, bool(is_used))
                for tool, status, is_used in earlier[at].reshape(-1, 3).tolist()
            ]
            is_known = turns or calls or len(said[at])
            context = Context(turns, tuple(calls), said[at], weights[at])
            contexts.append(context if is_known else NO_CONTEXT)
        return cls(contexts, list(_split(outcomes, lengths)))


def _split(values: Sequence[Any], lengths: npt.NDArray[Any]) -> Iterator[Any]:
    """Consecutive parts of a sequence, of these lengths."""
    start = 0
    for length in lengths.tolist():
        yield values[start : start + length]
        start += length
