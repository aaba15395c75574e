import gzip

import numpy as np
import pytest

from dtdr.errors import InputError
from dtdr.lab.digest import digest
from dtdr.lab.log import LabLog
from dtdr.lab.store import Store

KEY = "ab" * 32
LOG = LabLog(
    {"key": KEY, "kind": "rank", "tools": ["mail", "save", "end"], "steps": 3},
    tuple(
        {
            "plan": plan,
            "step": step,
            "length": 2,
            "ok": ["mail"],
            "at": at,
            "ok_p": [0.3],
            "top": [0, 1, 2],
            "top_p": [0.6, 0.3, 0.1],
        }
        for plan, step, at in (("a", 0, [1]), ("a", 1, [3]), ("b \udcff", 0, []))
    ),
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_a_kept_digest_is_the_one_that_the_log_gives(store):
    store.write(KEY, LOG, ranked=True)
    assert list(store.folder.glob("digests/*/*.gz"))
    kept, made = store.digest(KEY), digest(store.read(KEY))
    assert kept.header == made.header
    for name in ("steps", "means", "plans", "top1_by_length", "sweep", "below"):
        assert getattr(kept, name) == getattr(made, name)
    assert np.array_equal(kept.recall, made.recall)
    assert np.array_equal(kept.hit, made.hit)
    for metric, values in made.by_plan.items():
        assert np.array_equal(kept.by_plan[metric], values)


def test_a_digest_of_another_log_is_not_used(store):
    store.write(KEY, LOG, ranked=True)
    best = [{**record, "at": [1]} for record in LOG.records]
    store.write(KEY, LabLog(LOG.header, tuple(best)))
    assert store.digest(KEY).means["mrr"] == 1.0


@pytest.mark.parametrize(
    "content",
    [b"", b"damaged", gzip.compress(b"[1]", mtime=0)],
    ids=["empty", "no gzip file", "no digest"],
)
def test_a_damaged_digest_is_made_again_from_the_log(store, content):
    store.write(KEY, LOG, ranked=True)
    (path,) = store.folder.glob("digests/*/*.gz")
    path.write_bytes(content)
    assert store.digest(KEY).means["mrr"] == pytest.approx((1 + 1 / 3) / 3)
    assert path.read_bytes() != content


def test_a_digest_does_not_stand_in_for_a_log_that_is_gone(store):
    store.write(KEY, LOG, ranked=True)
    store.path(KEY).unlink()
    with pytest.raises(InputError):
        store.digest(KEY)
