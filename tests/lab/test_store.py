import gzip
import json

import pytest

from dtdr.errors import InputError
from dtdr.lab.log import LabLog
from dtdr.lab.store import Store

KEY = "ab" + "0" * 62


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path)
    records = ({"plan": "line\u2028break", "step": 0}, {"plan": "b", "step": 1})
    found.write(KEY, LabLog({"kind": "rank", "steps": 2}, records))
    return found


def test_a_log_comes_back_as_it_was_kept(store):
    found = store.read(KEY)
    assert found.header["kind"] == "rank"
    assert [record["plan"] for record in found.records] == ["line\u2028break", "b"]


def test_the_same_log_is_the_same_bytes(store):
    before = store.path(KEY).read_bytes()
    store.write(KEY, LabLog({"kind": "rank", "steps": 2}, store.read(KEY).records))
    assert store.path(KEY).read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content[:30] + bytes([content[30] ^ 255]) + content[31:],
        lambda content: b"",
        lambda content: gzip.compress(gzip.decompress(content).rsplit(b"\n", 2)[0]),
        lambda content: gzip.compress(b"[]\n"),
    ],
)
@pytest.mark.parametrize("how", ["read", "check"])
def test_a_damaged_log_is_noticed(store, damage, how):
    path = store.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError) as caught:
        getattr(store, how)(KEY)
    assert "run it again" in str(caught.value)


def test_a_log_of_another_version_is_refused_by_name(store):
    path = store.path(KEY)
    content = gzip.decompress(path.read_bytes()).replace(b'version":1', b'version":7')
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError) as caught:
        store.read(KEY)
    assert "format version 7, this dtdr reads version 1" in str(caught.value)


def test_a_log_under_another_key_is_refused(store):
    other = "ac" + "0" * 62
    store.path(other).parent.mkdir(parents=True)
    store.path(KEY).rename(store.path(other))
    with pytest.raises(InputError):
        store.read(other)


def test_keeping_a_log_forgets_the_failure(store):
    store.write_failure(KEY, {"reason": "because"})
    assert store.failure(KEY) == {"reason": "because"}
    store.write(KEY, LabLog({"kind": "rank", "steps": 0}))
    assert store.failure(KEY) is None


def test_a_manifest_of_another_version_is_refused(store):
    store.write_manifest("mine", "retrieval", {"cells": []})
    path = store.folder / "labs" / "mine" / "retrieval.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 9}))
    with pytest.raises(InputError) as caught:
        store.manifests("mine")
    assert "format version 9" in str(caught.value)
    assert "dtdr lab run retrieval" in str(caught.value)


def test_a_key_is_held_by_one_at_a_time(store):
    with store.claim(KEY) as first:
        assert first
        with Store(store.folder).claim(KEY) as second:
            assert not second
    with store.claim(KEY) as again:
        assert again
