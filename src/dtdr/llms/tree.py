"""Choosing among given texts, and scoring them, along the tree of their tokens.

Texts that begin alike share their first tokens, so a shared token is asked for once, and a text
that falls too far behind is not followed to its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Ask = Callable[[tuple[int, ...], Collection[int]], Mapping[int, float]]
"""Log-probabilities of the wanted tokens after the tokens that were chosen so far."""

NEGLIGIBLE = 12.0
"""Nats below the best text at which a text is no longer followed, and which it then counts as:
a probability of 6e-6 of the best one's. Of 300 candidates under a 0.5B model, 99 in 100 were
within 12 nats, and a limit of 10 changed no fused selection."""


@dataclass(slots=True)
class Tree:
    """A node: its next tokens, and the texts that lead through it."""

    texts: list[int] = field(default_factory=list)
    next: dict[int, Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> Tree:
        """The tree of texts, each a list of tokens that ends with the end token."""
        root = cls()
        for number, tokens in enumerate(texts):
            node = root
            node.texts.append(number)
            for token in tokens:
                node = node.next.setdefault(token, cls())
                node.texts.append(number)
        return root


def likelihoods(tree: Tree, ask: Ask) -> list[float]:
    """Log-likelihood of each text, but none further below the best than ``NEGLIGIBLE``."""
    found = dict.fromkeys(tree.texts, -math.inf)
    best = -math.inf
    # A stack, most probable on top: neighbours in the tree follow one another, so that a server
    # that keeps the last prompt cached reads one token at a time.
    waiting: list[tuple[float, tuple[int, ...], Tree]] = [(0.0, (), tree)]
    while waiting:
        so_far, path, node = waiting.pop()
        if not node.next:
            for text in node.texts:
                found[text] = so_far
            best = max(best, so_far)
            continue
        if so_far < best - NEGLIGIBLE:
            continue
        told = ask(path, node.next.keys())
        following = [
            (so_far + told[token], (*path, token), child) for token, child in node.next.items()
        ]
        waiting += sorted(following, key=lambda item: item[0])
    return [max(found[text], best - NEGLIGIBLE) for text in sorted(found)]


def most_probable(tree: Tree, ask: Ask) -> int:
    """The text that greedy decoding reaches when only these texts are allowed.

    Nothing is asked where a token is the only one allowed.
    """
    node = tree
    path: tuple[int, ...] = ()
    while len(node.texts) > 1 and node.next:
        token = next(iter(node.next))
        if len(node.next) > 1:
            told = ask(path, node.next.keys())
            token = max(node.next, key=told.__getitem__)
        node, path = node.next[token], (*path, token)
    return node.texts[0]
