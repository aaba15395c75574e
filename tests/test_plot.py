"""Pictures and what notebooks show."""

import base64
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import dtdr
from dtdr.data.demonstrations import as_demonstrations
from dtdr.errors import InputError, OutputError
from dtdr.evaluate import plot, run
from dtdr.evaluate.datasets.splits import default_split
from dtdr.evaluate.tables import Column, Table
from dtdr.predict import create
from tests import small_data

PAIRS = [
    ("check in", ["find", "assign"]),
    ("check out", ["find", "bill"]),
    ("again", ["find", "bill"]),
]


def texts(figure):
    root = ElementTree.fromstring(figure.svg)
    return [
        element.text for element in root.iter() if element.text and element.tag.endswith("text")
    ]


def titles(figure):
    root = ElementTree.fromstring(figure.svg)
    return [element.text for element in root.iter() if element.tag.endswith("title")]


def test_the_tool_graph_says_how_often_each_follows_each():
    figure = plot.tool_graph(PAIRS)
    assert {"(start)", "find", "bill", "assign", "end"} <= set(texts(figure))
    assert "find → bill: 2 times" in titles(figure)
    assert "(start) → find: 3 times" in titles(figure)
    assert "bill: in 2 of 3 plans" in titles(figure)
    few = plot.tool_graph(PAIRS, tools=2)
    assert "assign" not in texts(few)


def test_names_of_tools_are_text_in_a_picture():
    figure = plot.tool_graph([("x", ["<script>&", "b"])])
    assert "<script>&" in texts(figure)


def test_without_a_call_there_is_no_graph():
    with pytest.raises(InputError, match="nothing to draw"):
        plot.tool_graph([("hello", [])])


def test_a_figure_is_shown_by_notebooks_and_saved_once(tmp_path):
    figure = plot.tool_graph(PAIRS)
    packed = figure._repr_html_().partition("base64,")[2].partition('"')[0]
    assert base64.b64decode(packed).decode() == figure.svg
    figure.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == figure.svg
    with pytest.raises(OutputError):
        figure.save(tmp_path / "graph.svg")


def test_rankings_are_drawn_for_each_step_of_a_run():
    retriever = dtdr.fit(PAIRS, retriever="dr")
    calls = [{"tool": "find", "output": {"id": 1}}, "bill"]
    shown = texts(plot.rankings(retriever, dtdr.Run.from_dict({"query": "q", "calls": calls})))
    assert [text for text in shown if text.startswith(("before", "after"))] == [
        "before the first call",
        "after find",
        "after bill",
    ]


def test_reliability_and_growth_are_drawn_from_runs():
    data = small_data.dataset(40)
    log = run(create("dtdr-f"), data, default_split(data))
    assert "dtdr-f" in texts(plot.reliability(log))
    figure = plot.growth(create("dr"), data.demonstrations, sizes=[5, 10, 10_000])
    learned = [title for title in titles(figure) if title.startswith("dr, Demonstrations")]
    assert [title.split(":")[0].split()[-1] for title in learned] == ["5", "10", "28"]


def test_tables_and_retrievers_show_themselves_in_notebooks():
    table = Table([Column("Tool", "tool")], [{"tool": "<b>"}], title="T")
    assert "&lt;b&gt;" in table._repr_html_()
    retriever = create("dr")
    assert "not fitted" in retriever._repr_html_()
    shown = retriever.fit([("q", ["<i>", "a"])])._repr_html_()
    assert "&lt;i&gt;" in shown
    assert "of 2 tools" in shown


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
    assert dtdr.fit(make(COLUMNS), retriever="dr").training_.skipped_failures == 1


def test_arrays_in_cells_are_lists():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"query": ["a"], "calls": [np.array(["x", "y"])]})
    assert next(as_demonstrations(frame)).plan.tools == ("x", "y")
