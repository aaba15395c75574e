import multiprocessing
import os
import shutil
import sqlite3
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from dtdr.errors import EncoderError
from dtdr.text.encoders import cache
from dtdr.text.encoders.base import Encoder, length_one
from dtdr.text.encoders.cache import CacheWarning, VectorCache

TEXTS = ["one", "two", "", "Köln 🙂", "half \ud800", "x" * 100_000]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Counting(Encoder):
    """Counts what it encodes; the vector of a text depends on nothing but the text."""

    name = "counting"

    def __init__(self, model="a", dimension=5):
        self.model = model
        self.size = dimension
        self.encoded = []

    @property
    def dimension(self):
        return self.size

    def fingerprint(self):
        return self.model

    def _encode(self, texts):
        self.encoded += texts
        rows = [
            np.random.default_rng(list(f"{self.model}{text}".encode("utf-8", "replace"))).random(
                self.size
            )
            for text in texts
        ]
        return length_one(np.array(rows).reshape(len(texts), self.size))

    def config(self):
        return {"name": self.name, "model": self.model}

    @classmethod
    def restore(cls, config, arrays):
        return cls(config["model"])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path))
    return tmp_path


def cached(encoder):
    encoder.cache = VectorCache()
    return encoder


def database(folder):
    return Path(folder) / "embeddings" / "vectors.db"


def count(folder):
    connection = sqlite3.connect(database(folder))
    try:
        return connection.execute("SELECT COUNT(*) FROM vectors").fetchone()[0]
    finally:
        connection.close()


def test_cached_vectors_equal_uncached_ones_bit_for_bit(folder):
    plain = Counting().encode(TEXTS)
    np.testing.assert_array_equal(cached(Counting()).encode(TEXTS), plain)
    again = cached(Counting())
    np.testing.assert_array_equal(again.encode(TEXTS[::-1]), plain[::-1])
    assert again.encoded == []
    assert again.encode(TEXTS).dtype == np.float32


def test_each_distinct_text_is_encoded_once():
    encoder = cached(Counting())
    encoder.encode(["one", "two", "one"])
    encoder.encode(["three", "two"])
    assert encoder.encoded == ["one", "two", "three"]


def test_only_encoders_with_the_same_fingerprint_share_vectors(folder):
    encoder = cached(Counting(model=None))
    encoder.encode(["one"])
    encoder.encode(["one"])
    assert encoder.encoded == ["one", "one"], "without a fingerprint, nothing is cached"
    assert not database(folder).exists()
    first = cached(Counting("a")).encode(["one"])
    second = cached(Counting("b"))
    assert not np.array_equal(second.encode(["one"]), first)
    assert second.encoded == ["one"]


def test_what_was_encoded_before_an_interruption_is_kept():
    class Interrupted(Counting):
        def _encode(self, texts):
            if len(self.encoded) >= 1_024:
                raise KeyboardInterrupt
            return super()._encode(texts)

    texts = [f"text {number}" for number in range(1_100)]
    with pytest.raises(KeyboardInterrupt):
        cached(Interrupted()).encode(texts)
    again = cached(Counting())
    again.encode(texts)
    assert len(again.encoded) == 1_100 - 1_024


@pytest.mark.parametrize(
    "damage",
    [
        0.5,
        0.0,
        "UPDATE vectors SET vector = zeroblob(20) WHERE rowid = 1",
        "UPDATE vectors SET vector = 'text' WHERE rowid = 1",
        "UPDATE vectors SET vector = substr(vector, 2) || x'00' WHERE rowid = 1",
        "DROP TABLE vectors; CREATE TABLE vectors (other)",
    ],
)
def test_a_damaged_cache_is_started_again_with_one_warning(folder, damage):
    plain = cached(Counting()).encode(TEXTS)
    path = database(folder)
    if isinstance(damage, str):
        connection = sqlite3.connect(path)
        connection.executescript(damage)
        connection.close()
    else:  # the share of the file that is left
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * damage)] + b"no database" * 400)
    encoder = cached(Counting())
    with pytest.warns(CacheWarning, match="is damaged") as caught:
        np.testing.assert_array_equal(encoder.encode(TEXTS), plain)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = cached(Counting())
        np.testing.assert_array_equal(again.encode(TEXTS), plain)
    assert again.encoded == []


def test_a_cache_that_cannot_be_written_is_passed_over(folder):
    (folder / "embeddings").write_text("a file where the folder should be")
    encoder = cached(Counting())
    with pytest.warns(CacheWarning, match="going on without it"):
        vectors = encoder.encode(TEXTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(TEXTS)
    np.testing.assert_array_equal(vectors, Counting().encode(TEXTS))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_passed_over_and_leaves_no_half_entry(folder):
    import resource

    encoder = cached(Counting(dimension=4_096))
    encoder.encode(["one"])
    texts = [f"text {number}" for number in range(100)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, limits[1]))
    try:
        with pytest.warns(CacheWarning, match="going on without it"):
            vectors = encoder.encode(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    np.testing.assert_array_equal(vectors, Counting(dimension=4_096).encode(texts))
    assert count(folder) == 1


def test_the_oldest_vectors_go_when_the_limit_is_reached(folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_BYTES", 200_000)
    encoder = cached(Counting(dimension=1_000))
    for number in range(200):
        encoder.encode([f"text {number}"])
    assert 20 <= count(folder) <= 50
    assert database(folder).stat().st_size < 300_000
    encoder.encoded.clear()
    encoder.encode(["text 199", "text 0"])
    assert encoder.encoded == ["text 0"]


def test_clear_forgets_everything(folder, monkeypatch):
    encoder = cached(Counting())
    encoder.encode(TEXTS)
    cache.clear()
    assert count(folder) == 0
    encoder.encode(["one"])
    assert encoder.encoded.count("one") == 2
    assert count(folder) == 1
    shutil.rmtree(folder / "embeddings")
    cached(Counting()).encode(["one"])
    assert count(folder) == 1, "a cache that vanished is made again"
    monkeypatch.setenv("DTDR_CACHE", str(folder / "nowhere"))
    cache.clear()
    assert not (folder / "nowhere").exists()


def test_a_changed_dimension_is_refused():
    cached(Counting(dimension=5)).encode(["one"])
    with pytest.raises(EncoderError, match=r"another length.*clear"):
        cached(Counting(dimension=6)).encode(["one", "two"])


@needs_fork
def test_a_forked_process_opens_the_cache_for_itself(folder):
    encoder = cached(Counting())
    encoder.encode(["one"])
    child = os.fork()
    if child == 0:
        known = encoder.encode(["one", "two"])
        os._exit(0 if len(known) == 2 and encoder.encoded == ["one", "two"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert count(folder) == 2


def start_writer(start, end, begin=None):
    """A forked process that caches some texts, three at a time, once it may begin."""
    context = multiprocessing.get_context("fork")

    def write():
        warnings.simplefilter("error")
        encoder = cached(Counting())
        texts = [f"text {number}" for number in range(start, end)]
        if begin is not None:
            begin.wait()
        for first in range(0, len(texts), 3):
            part = texts[first : first + 3]
            assert np.array_equal(encoder.encode(part), Counting().encode(part))

    process = context.Process(target=write)
    process.start()
    return process


@needs_fork
def test_two_processes_write_at_the_same_time(folder):
    begin = multiprocessing.get_context("fork").Barrier(2)
    writers = [start_writer(0, 200, begin), start_writer(100, 300, begin)]
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert count(folder) == 300
    reader = cached(Counting())
    texts = [f"text {number}" for number in range(300)]
    np.testing.assert_array_equal(reader.encode(texts), Counting().encode(texts))
    assert reader.encoded == []


@needs_fork
def test_a_process_that_is_killed_while_it_writes_leaves_whole_entries(folder):
    cached(Counting()).encode(["text 0"])
    writer = start_writer(0, 3_000)
    deadline = time.monotonic() + 60
    while count(folder) < 30:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    writer.kill()
    writer.join()
    texts = [f"text {number}" for number in range(300)]
    encoder = cached(Counting())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(encoder.encode(texts), Counting().encode(texts))
    assert len(encoder.encoded) <= 300 - 30
