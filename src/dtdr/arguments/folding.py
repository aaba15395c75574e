"""Finds what a text says where neither case, accents, spaces nor marks count."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def fold_text(text: str) -> str:
    """Letters and digits alone, without case and accents: ``New-York`` and ``new york`` agree."""
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
    return "".join(filter(str.isalnum, text)).casefold()


class FoldedText:
    """Finds what tokens say where neither case, accents, spaces nor marks count.

    Args:
        tokens: as written.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._token_at: dict[int, int] = {}
        length, parts = 0, []
        for number, token in enumerate(tokens):
            part = fold_text(token)
            if part:
                self._token_at[length] = number
            parts.append(part)
            length += len(part)
        self._text = "".join(parts)
        # The end of a token that says something is the start of the next such, or of nothing.
        self._token_at[length] = number + 1 if parts else 0

    def find(self, folded: str) -> list[tuple[int, int]]:
        """First and last token of each place that says a folded text, marks at its end aside."""
        spans: list[tuple[int, int]] = []
        at = self._text.find(folded) if folded else -1
        while at >= 0:
            first, following = self._token_at.get(at), self._token_at.get(at + len(folded))
            if first is not None and following is not None:
                spans.append((first, following - 1))
            at = self._text.find(folded, at + 1)
        return spans
