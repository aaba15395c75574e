"""Counts the rows of Parquet as columns, without an object for any of them."""

from __future__ import annotations

import zlib
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstrations import Outcome
from dtdr.predict.counting.counts import PER_TOOL, Counts, Numbers, Phrases, number_of, sort_unique
from dtdr.rankers.dtdr_f.familiarity import hash_runs
from dtdr.text.encoders.base import MAX_CHARACTERS
from dtdr.text.encoders.lexical import words

COLUMNS = ("id", "query", "calls.tool", "outcome")
"""All that a count reads."""

_AT_ONCE = 20_000
"""Rows after which phrases are made unique, so that memory stays small."""
_PIECES = 500_000
"""Pieces of queries whose words are remembered: some 100 MB."""


class WordHashes:
    """Hashes of the words of texts, each piece between spaces taken apart once.

    No word holds a space and none joins two pieces (NFKC neither composes nor reorders across
    one), so that the words of a text are those of its pieces.
    """

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._hashes = np.empty(0, np.uint32)
        self._starts = np.zeros(1, np.int64)

    def of(self, texts: Any) -> tuple[Phrases, npt.NDArray[np.int64]]:
        """Hashes of all words in order, and where each text begins among them, and the last ends.

        Args:
            texts: an Arrow array of n strings, none of them null.

        Returns:
            Shapes (words of all texts,) and (n + 1,).
        """
        import pyarrow.compute as compute

        pieces = compute.ascii_split_whitespace(texts)
        coded = pieces.flatten().dictionary_encode()
        if len(self._place) > _PIECES:
            self._place, self._hashes, self._starts = {}, self._hashes[:0], self._starts[:1]
        items = self._find(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
        starts = self._starts[items]
        sizes = self._starts[items + 1] - starts
        ends = np.concatenate(([0], np.cumsum(sizes)))
        hashes = self._hashes[np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])]
        offsets = pieces.offsets.to_numpy()
        return hashes, ends[offsets - offsets[0]]

    def _find(self, pieces: list[str]) -> npt.NDArray[np.int64]:
        """The place of each piece, also of those that are new."""
        hashes: list[int] = []
        sizes: list[int] = []
        places = self._place
        result = np.empty(len(pieces), np.int64)
        for position, piece in enumerate(pieces):
            place = places.get(piece)
            if place is None:
                place = places[piece] = len(places)
                new = words(piece)
                hashes += [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in new]
                sizes.append(len(new))
            result[position] = place
        self._hashes = np.concatenate([self._hashes, np.array(hashes, np.uint32)])
        ends = self._starts[-1] + np.cumsum(np.array(sizes, np.int64))
        self._starts = np.concatenate([self._starts, ends])
        return result


class ColumnCounter:
    """Counts record batches of ``COLUMNS`` as ``Counts.count`` counts demonstrations.

    Args:
        empty: says in which way.
    """

    def __init__(self, empty: Counts) -> None:
        self._counts = empty
        self._words = WordHashes()
        self._numbers: list[Numbers] = []
        self._skipped = self._empty = self._unique = 0
        self._tools: dict[str, int] = {}
        self._pairs: list[tuple[npt.NDArray[np.int64], Numbers]] = []
        self._phrases: list[Phrases] = []

    def add(self, batch: Any) -> npt.NDArray[np.bool_]:
        """Count the rows of a batch but for the odd ones, which it returns: shape (rows,).

        Odd is what a demonstration cannot be, or may be only after a closer look.
        """
        import pyarrow.compute as compute

        columns = _Columns(batch)
        odd: npt.NDArray[np.bool_] = columns.odd
        if odd.all():
            return odd
        queries = columns.queries
        if compute.max(compute.utf8_length(queries)).as_py() > MAX_CHARACTERS:
            queries = compute.utf8_slice_codeunits(queries, 0, MAX_CHARACTERS)
        hashes, offsets = self._words.of(queries)
        odd = odd | (offsets[1:] == offsets[:-1])  # blank, or to be seen as a whole
        numbers = np.array(
            [number_of(identifier, self._counts.seed) for identifier in columns.ids], np.uint64
        )
        self._numbers.append(numbers[~odd])
        learned = ~odd
        if not self._counts.failures:
            self._skipped += int(np.count_nonzero(learned & columns.failed))
            learned &= ~columns.failed
        self._add_tools(columns, numbers, learned)
        if learned.all():
            phrases = hash_runs(hashes, offsets)
        else:
            sizes = np.diff(offsets)
            kept = np.concatenate(([0], np.cumsum(sizes[learned])))
            phrases = hash_runs(hashes[np.repeat(learned, sizes)], kept)
        self._phrases.append(phrases)
        self._unique += len(batch)
        if self._unique >= _AT_ONCE:
            self._phrases, self._unique = [sort_unique(np.concatenate(self._phrases))], 0
        return odd

    def _add_tools(
        self, columns: _Columns, numbers: Numbers, learned: npt.NDArray[np.bool_]
    ) -> None:
        places = np.array(
            [self._tools.setdefault(name, len(self._tools)) for name in columns.names], np.int64
        )
        chosen = learned[columns.rows]
        rows = columns.rows[chosen]
        self._empty += int(np.count_nonzero(learned)) - len(sort_unique(rows))
        tools = places[columns.tools[chosen]] if len(places) else np.empty(0, np.int64)
        pairs = sort_unique(rows * max(1, len(self._tools)) + tools)
        rows, tools = np.divmod(pairs, max(1, len(self._tools)))
        self._pairs.append((tools, numbers[rows]))

    def finish(self) -> tuple[Counts, Numbers]:
        """The counts, and the number of each id."""
        none = np.empty(0, np.uint64)
        tools = np.concatenate([np.empty(0, np.int64), *(tools for tools, _ in self._pairs)])
        numbers = np.concatenate([none, *(numbers for _, numbers in self._pairs)])
        order = np.lexsort((numbers, tools))
        tools, numbers = tools[order], numbers[order]
        ends = np.searchsorted(tools, np.arange(len(self._tools)), side="right")
        starts = np.searchsorted(tools, np.arange(len(self._tools)), side="left")
        counted: dict[str, int] = {}
        rare: dict[str, list[int]] = {}
        for name, start, end in zip(self._tools, starts.tolist(), ends.tolist(), strict=True):
            if end > start:
                counted[name] = end - start
                rare[name] = numbers[start : min(end, start + PER_TOOL)].tolist()
        every = np.concatenate([none, *self._numbers])
        counts = self._counts.of(every, self._skipped, self._empty, counted, rare, self._phrases)
        return counts, every


class _Columns:
    """The columns of a batch as arrays.

    Attributes:
        odd: shape (rows,): what is not a demonstration, or has to be seen as a whole.
        ids: one a row.
        queries: an Arrow array of strings, one a row.
        failed: shape (rows,).
        names: the distinct names of tools.
        rows, tools: shape (calls,): the row of each call, and its tool among the names.
    """

    def __init__(self, batch: Any) -> None:
        import pyarrow as arrow
        import pyarrow.compute as compute

        size = len(batch)
        self.odd = np.ones(size, np.bool_)
        ids, queries = _as_text(batch.column("id")), _as_text(batch.column("query"))
        calls = batch.column("calls")
        lists = arrow.types.is_list(calls.type) or arrow.types.is_large_list(calls.type)
        fields = arrow.types.is_struct(calls.type.value_type) if lists else False
        if ids is None or queries is None or not fields:
            return
        values = calls.flatten()
        place = values.type.get_field_index("tool")
        tools = None if place < 0 else _as_text(values.flatten()[place])
        has_outcome = "outcome" in batch.schema.names
        outcomes = _as_text(batch.column("outcome")) if has_outcome else None
        if tools is None or (has_outcome and outcomes is None):
            return
        self.queries = queries.fill_null("")
        self.ids = ids.fill_null("").to_pylist()
        odd = np.array([not identifier for identifier in self.ids], np.bool_)
        odd |= calls.is_null().to_numpy(zero_copy_only=False)
        self.failed = np.zeros(size, np.bool_)
        if outcomes is not None:
            known = arrow.array([*get_args(Outcome), None], outcomes.type)
            odd |= ~compute.is_in(outcomes, known).to_numpy(zero_copy_only=False)
            failed = compute.equal(outcomes, "failure").fill_null(False)
            self.failed = failed.to_numpy(zero_copy_only=False)
        coded = tools.fill_null("").dictionary_encode()
        self.names: list[str] = coded.dictionary.to_pylist()
        self.tools = coded.indices.to_numpy()
        self.rows = compute.list_parent_indices(calls).to_numpy().astype(np.int64)
        wrong = np.array([name in ("", END) for name in self.names], np.bool_)
        if wrong.any():
            odd[self.rows[wrong[self.tools]]] = True
        self.odd = odd


def _as_text(array: Any) -> Any:
    """An Arrow array as strings; None where it holds something else."""
    from pyarrow import string, types

    kind = array.type.value_type if types.is_dictionary(array.type) else array.type
    if types.is_string(kind) or types.is_large_string(kind):
        return array.cast(kind).cast(string())
    return array.cast(string()) if types.is_null(kind) else None
