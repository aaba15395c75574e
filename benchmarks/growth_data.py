"""Plans of the generator as Parquet shards, ten million in minutes; used by ``growth.py``.

The first 300,000 come from the generator, which makes some ten thousand a second. All further ones
repeat them with other numbers, names and places: every digit but those of references
stands for another one, and first names, surnames and cities of one length change places.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as arrow
from pyarrow import parquet

import words
from dtdr import Demonstration
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from synthetic_runs import generate, tools

TOOLS = 200
HELD_OUT = 10_000
ORIGINAL = 300_000
SHARD = 100_000

Places = dict[tuple[str, int], tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]

_REFERENCE = re.compile(rb'"\$ref":"(\d+)"')


def _pools() -> dict[tuple[str, int], list[bytes]]:
    """Names of one kind and one length in bytes, which can change places."""
    pools: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for kind, names in (("first", words.FIRST), ("last", words.LAST), ("city", words.CITIES)):
        for name in names:
            content = name.encode()
            pools[kind, len(content)].append(content)
    return {key: pool for key, pool in pools.items() if len(pool) > 1}


class _Texts:
    """One column of texts, of which other versions are made in place of some bytes."""

    def __init__(self, array: Any, pools: dict[tuple[str, int], list[bytes]]) -> None:
        self.array = array.combine_chunks() if isinstance(array, arrow.ChunkedArray) else array
        self.data = np.frombuffer(self.array.buffers()[2], np.uint8)
        content = self.data.tobytes()
        digits = (self.data >= ord("1")) & (self.data <= ord("9"))
        for match in _REFERENCE.finditer(content):
            digits[match.start(1) : match.end(1)] = False
        self.digits = np.flatnonzero(digits)
        known = {name: key for key, pool in pools.items() for name in pool}
        pattern = re.compile(rb"\b(?:" + b"|".join(sorted(known, reverse=True)) + rb")\b")
        found: dict[tuple[str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for match in pattern.finditer(content):
            key = known[match[0]]
            found[key][0].append(match.start())
            found[key][1].append(pools[key].index(match[0]))
        self.names: Places = {
            key: (np.array(starts), np.array(which)) for key, (starts, which) in found.items()
        }

    def version(self, number: int, pools: dict[tuple[str, int], list[bytes]]) -> Any:
        """The texts with every digit and name moved on by the number."""
        data = self.data.copy()
        data[self.digits] = (data[self.digits] - ord("1") + number) % 9 + ord("1")
        for key, (starts, which) in self.names.items():
            pool = np.array([list(name) for name in pools[key]], np.uint8)
            moved = pool[(which + number) % len(pool)]
            data[starts[:, None] + np.arange(pool.shape[1])] = moved
        buffers = self.array.buffers()
        return arrow.StringArray.from_buffers(
            len(self.array), buffers[1], arrow.py_buffer(data.tobytes()), buffers[0]
        )


def _vary(table: Any, versions: list[int], first: int, step: int) -> Any:
    """Versions of a table of plans, with ids of their own."""
    pools = _pools()
    calls = table["calls"].combine_chunks()
    fields = calls.values.type
    columns = {name: calls.values.field(name) for name in (field.name for field in fields)}
    queries, arguments = _Texts(table["query"], pools), _Texts(columns["arguments"], pools)
    for version in versions:
        start = HELD_OUT + first + version * step
        ids = np.arange(start, start + len(table)).astype(str)
        columns["arguments"] = arguments.version(version, pools)
        values = arrow.StructArray.from_arrays(list(columns.values()), fields=list(fields))
        varied = arrow.ListArray.from_arrays(calls.offsets, values, type=calls.type)
        yield (
            version,
            table.set_column(
                table.schema.get_field_index("query"), "query", queries.version(version, pools)
            )
            .set_column(table.schema.get_field_index("calls"), "calls", varied)
            .set_column(table.schema.get_field_index("id"), "id", arrow.array(ids.tolist())),
        )


def held_out(plans: int) -> list[Demonstration]:
    """The first plans of the generator, at most ``HELD_OUT``, which are in no shard."""
    return list(islice(generate(HELD_OUT, TOOLS), plans))


def write_shards(folder: Path, plans: int, original: int = ORIGINAL, shard: int = SHARD) -> None:
    """Write so many plans as shards, those that are there already left as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tools(folder / "tools.json", tools(TOOLS), force=True)
    stream = islice(generate(HELD_OUT + original, TOOLS), HELD_OUT, None)
    starts = range(0, min(plans, original), shard)
    last = max((s for s in starts if not (folder / f"part-{s:010}.parquet").exists()), default=-1)
    for start in starts:
        path = folder / f"part-{start:010}.parquet"
        size = min(shard, plans - start)
        items = islice(stream, size)
        if not path.exists():
            save_demonstrations(path, items)
        elif start < last:
            for _ in items:
                pass  # the stream goes on where the next shard begins
        later = [
            number
            for number in range(1, -(-plans // original))
            if number * original + start < plans
            and not (folder / f"part-{number * original + start:010}.parquet").exists()
        ]
        if later:
            for number, table in _vary(parquet.read_table(path), later, start, original):
                left = plans - number * original - start
                parquet.write_table(
                    table.slice(0, left),
                    folder / f"part-{number * original + start:010}.parquet",
                    compression="zstd",
                    row_group_size=16_384,
                )
