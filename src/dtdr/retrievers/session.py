"""One query, and the calls made for it: what is encoded once, and what is ranked step by step."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Protocol, Self

from dtdr.ranking import Ranking

if TYPE_CHECKING:
    from dtdr.retrievers.base import Retriever

UNKNOWN = -1
"""Index, in a history, of a tool that the retriever never saw."""

History = Sequence[int]
"""Indices of the called tools in the vocabulary, oldest first; ``UNKNOWN`` where there is none."""


class Walk(Protocol):
    """A session's inside: takes calls by index, and ranks."""

    def call(self, tool: int) -> None:
        """One more call; ``UNKNOWN`` for a tool that is not known."""

    def rank(self) -> Ranking:
        """The ranking of the next step."""


class Prepared:
    """One query, encoded once, to be ranked for any history; keeps nothing of the histories.

    For a retriever that does not learn on meanwhile: after ``update``, prepare the query anew.
    """

    __slots__ = ("_inner", "_retriever")

    def __init__(self, retriever: Retriever, query: str) -> None:
        self._retriever = retriever
        self._inner = retriever._prepare([query])

    def rank(self, history: Sequence[str] = ()) -> Ranking:
        """What ``Retriever.rank`` gives for the query and this history."""
        index = self._retriever._index.get
        return self._after([index(name, UNKNOWN) for name in history])

    def _after(self, history: History) -> Ranking:
        return self._retriever._rankings(self._inner, [history])[0]


class Steps:
    """The walk of a retriever that keeps nothing from one step to the next."""

    def __init__(self, retriever: Retriever, query: str) -> None:
        self._prepared = Prepared(retriever, query)
        self._history: list[int] = []

    def call(self, tool: int) -> None:
        """One more call."""
        self._history.append(tool)

    def rank(self) -> Ranking:
        """The ranking of the next step."""
        return self._prepared._after(self._history)


class Session:
    """One query and the calls made for it; the query is encoded once.

    A session ranks with what the retriever knew when it was opened: an update in the meantime
    shows in the next session. It may be used from several threads.

    >>> session = retriever.session("Mail Ann the summary of q3.pdf")  # doctest: +SKIP
    >>> session.rank().best                                            # doctest: +SKIP
    >>> session.call("open_file")                                      # doctest: +SKIP
    """

    def __init__(self, retriever: Retriever, query: str) -> None:
        self._index = retriever._index
        self._walk = retriever._walk(query)
        self._called: list[str] = []
        self._lock = Lock()
        self.query = query

    @property
    def history(self) -> tuple[str, ...]:
        """Names called so far, oldest first; tools that are not known are left out."""
        return tuple(name for name in self._called if name in self._index)

    def call(self, tool: str) -> Self:
        """Tell the session that a tool was called."""
        with self._lock:
            self._called.append(tool)
            self._walk.call(self._index.get(tool, UNKNOWN))
        return self

    def rank(self) -> Ranking:
        """Probabilities of every known tool for the next step."""
        with self._lock:
            return self._walk.rank()
