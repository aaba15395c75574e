"""What notebooks show and hold."""

import numpy as np
import pytest

import dtdr
from dtdr.data.demonstrations import as_demonstrations
from dtdr.evaluate.tables import Column, Table


def test_tables_show_themselves_in_notebooks():
    table = Table([Column("Tool", "tool")], [{"tool": "<b>"}], title="T")
    assert "&lt;b&gt;" in table._repr_html_()


CALLS = [
    [{"tool": "find", "arguments": {"name": "Ann"}}, {"tool": "mail", "arguments": {"n": 1.0}}],
    [{"tool": "find"}],
]
COLUMNS = {
    "query": ["Mail Ann", "Call Bob", "Note it"],
    "calls": [["find", "mail"], ["find"], ["note"]],
    "outcome": ["failure", None, "success"],
}


@pytest.mark.parametrize(
    "package", ["pandas", pytest.param("polars", marks=pytest.mark.slow), "datasets"]
)
def test_a_table_of_demonstrations_is_read_row_by_row(package):
    module = pytest.importorskip(package, reason=f"{package} is not installed")
    make = module.Dataset.from_dict if package == "datasets" else module.DataFrame
    read = list(as_demonstrations(make(COLUMNS)))
    assert [(item.query, item.plan.tools, item.outcome) for item in read] == [
        ("Mail Ann", ("find", "mail"), "failure"),
        ("Call Bob", ("find",), "success"),
        ("Note it", ("note",), "success"),
    ]
    whole = list(as_demonstrations(make({"query": ["Mail", "Call"], "calls": CALLS})))
    assert [dict(call.arguments) for call in whole[0].plan.calls] == [{"name": "Ann"}, {"n": 1.0}]
    assert whole[1].plan.tools == ("find",)
    assert dtdr.fit(make(COLUMNS), ranker="dr").training_.failures == 1


def test_arrays_in_cells_are_lists():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"query": ["a"], "calls": [np.array(["x", "y"])]})
    assert next(as_demonstrations(frame)).plan.tools == ("x", "y")
