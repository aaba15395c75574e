"""Data sets and metrics of other packages, as the documentation shows them."""

import re
import sys

import pytest

from dtdr.errors import InputError
from dtdr.evaluate import datasets, metrics
from tests.conftest import PROJECT
from tests.lab.labs import in_this_process

PAGE = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The module that the page shows, in the current folder, and as an installed package."""
    code = "".join(re.findall(r"<!-- test: plugins -->\n```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "my_shop.py").write_text(code)
    about = tmp_path / "my_shop-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-shop\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[dtdr.datasets]\nmy-shop = my_shop:orders\n[dtdr.metrics]\nlate = my_shop:late\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_shop", raising=False)  # of the test before
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("dataset", "metric"), [("my_shop:orders", "my_shop:late"), ("my-shop", "late")]
)
def test_a_set_and_a_metric_of_another_package_are_evaluated(shop, cli, dataset, metric):
    chosen = ["--dataset", dataset, "--retriever", "dr", "--metric", metric, "--metric", "mrr"]
    (row,) = cli("evaluate", *chosen, "--json").json()["results"]
    assert 0 < row[metric] <= 1
    with in_this_process():
        lab = ["--retriever", "dr", "--seeds", "1", "--cache", shop / "c", "-o", shop / "r"]
        shown = cli("lab", "run", "retrieval", "--dataset", dataset, *lab, "--json").json()
    assert shown["failed"] == []
    assert {row["dataset"] for row in shown["results"]} == {dataset}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:thing", "cannot be imported"),
        ("my_shop:LATE", "is not a function"),
        ("my_shop:late", "is not a dtdr.evaluate.datasets.Dataset"),
    ],
)
def test_what_is_no_set_is_explained(shop, name, said):
    with (shop / "my_shop.py").open("a") as stream:
        stream.write("\nLATE = 3\n\n\ndef late(log=None):\n    return 1\n")
    with pytest.raises(InputError, match=said):
        datasets.load(name)
    with pytest.raises(InputError, match="unknown metric"):
        metrics.metric("early")
