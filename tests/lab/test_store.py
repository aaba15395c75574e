import json

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.run_log_file import read_run_log
from tests.runs import is_same, make_log, make_step

KEY = "ab" + "0" * 62


RESULT = {"spec": {"kind": "prompts"}, "records": [{"plan": "line\u2028break \udcff"}]}
LOG = make_log([make_step([0, 1, 2, 3, 4], ["alpha"])])


@pytest.fixture(params=["log", "result"])
def kept(request):
    return LOG if request.param == "log" else RESULT


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_a_result_comes_back_as_it_was_kept(store):
    store.write(KEY, RESULT)
    found = store.read(KEY)
    assert {name: found[name] for name in RESULT} == RESULT


def test_a_run_log_comes_back_with_its_key_and_can_be_read_by_other_commands(store):
    store.write(KEY, LOG)
    found = store.read(KEY)
    assert found.header.details == {"key": KEY}
    path = store.path(KEY)
    assert path is not None
    assert is_same(read_run_log(path), found)


def test_the_same_run_is_the_same_bytes(store, kept):
    store.write(KEY, kept)
    before = store.path(KEY).read_bytes()
    store.write(KEY, kept)
    assert store.path(KEY).read_bytes() == before


def test_a_run_under_another_key_is_refused(store, kept):
    store.write(KEY, kept)
    path = store.path(KEY)
    other = path.parent.parent / "ac" / path.name.replace("ab", "ac", 1)
    other.parent.mkdir()
    path.rename(other)
    with pytest.raises(InputError, match="of another experiment; run it again"):
        store.read("ac" + KEY[2:])


def test_keeping_a_run_forgets_the_failure(store, kept):
    store.write_failure(KEY, "because")
    assert store.failure(KEY) == "because"
    store.write(KEY, kept)
    assert store.failure(KEY) is None


def test_a_manifest_of_another_version_is_refused(store):
    store.write_manifest("mine", "retrieval", {"experiments": []})
    path = store.folder / "labs" / "mine" / "retrieval.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": 9}))
    with pytest.raises(InputError) as caught:
        store.manifests("mine")
    assert "format version 9" in str(caught.value)
    assert "dtdr lab run retrieval" in str(caught.value)


def test_a_manifest_with_the_old_key_is_read(store):
    store.write_manifest("mine", "retrieval", {"runs": [{"key": "a", "spec": {}}]})
    assert store.manifests("mine")["retrieval"]["experiments"] == [{"key": "a", "spec": {}}]
