from html.parser import HTMLParser

import pytest

from dtdr.errors import InputError
from dtdr.evaluate.charts import (
    Axis,
    Point,
    Series,
    line_chart,
)
from dtdr.evaluate.lab.compute import run_lab
from dtdr.evaluate.lab.report import build_report, write_report
from dtdr.evaluate.lab.report.page import (
    Figure,
    Page,
    Section,
    Text,
    tables_of,
    to_html,
    to_markdown,
)
from dtdr.evaluate.lab.resolve import Options
from dtdr.evaluate.lab.store import Store
from dtdr.evaluate.tables import Cell, Column, Table
from tests.lab.labs import in_this_process, run, write_data

HOSTILE = "<script>alert('x')</script> & \"quotes\" | pipe"
CAUSES = "The next call of the log: share of the steps"
RANKED = "Which tool, given a call; and whether the run ends"
VOID = {"meta", "link", "br"}


class Checker(HTMLParser):
    """Collects attributes that would load something, and tags that do not match."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.loads = []
        self.scripts = 0
        self.wrong = []
        self.names = set()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        self.names |= {name for name, _ in attrs}
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith(("#", "data:")):
                self.loads.append(value)

    def handle_startendtag(self, tag, attrs):
        if tag not in ("line", "polyline"):  # of SVG; HTML has no such tags
            self.wrong.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def check(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.wrong == []
    assert checker.open == []
    assert checker.loads == []
    assert checker.scripts == 1
    assert "url(" not in html
    return checker


def page(*blocks):
    return Page(HOSTILE, HOSTILE, [Section("one", HOSTILE, list(blocks))])


def test_text_from_data_cannot_become_part_of_the_page():
    table = Table([Column(HOSTILE)], [[Cell(HOSTILE, HOSTILE)]], HOSTILE, HOSTILE)
    chart = line_chart(
        [Series(HOSTILE, [Point(0, 0.5), Point(1, 0.7)])],
        Axis(HOSTILE),
        Axis(HOSTILE),
        label=HOSTILE,
    )
    html = to_html(page(Text(HOSTILE), table, [Figure(HOSTILE, chart, HOSTILE, [HOSTILE], table)]))
    check(html)
    assert "<script>alert" not in html


def test_text_from_data_is_neither_an_element_nor_an_image_in_markdown():
    hostile = f"{HOSTILE} `<b>` ``<i>` ![x](https://evil.example/?q)"
    table = Table([Column(hostile)], [[Cell(hostile)]], hostile, hostile)
    figure = Figure(hostile, "", hostile, [hostile], table)
    sections = [Section("one", hostile, [Text(hostile), table, [figure]])]
    text = to_markdown(Page(hostile, hostile, sections))
    assert "<" not in text
    assert "](" not in text


def test_the_name_of_a_suite_stays_in_its_attribute():
    html = to_html(Page("t", "l", [Section('x" onclick="alert(1)', "one", [])]))
    checker = check(html)
    assert "onclick" not in checker.names
    assert 'id="x&#34; onclick=' in html


def test_charts_name_their_axes_and_tell_every_value():
    x, y = Axis("calls"), Axis("MRR", lambda value: f"{value:.2f}")
    points = [Point(n, n / 10, n / 10 - 0.05, n / 10 + 0.05) for n in range(1, 6)]
    chart = line_chart([Series("dtdr-c", points)], x, y, label="MRR by calls")
    assert ">calls</text>" in chart
    assert ">MRR</text>" in chart
    assert 'aria-label="MRR by calls"' in chart
    assert chart.count('class="bar"') == 5
    assert "dtdr-c, calls 3: 0.300 (0.250 to 0.350)" in chart


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.5, 1e6])
def test_charts_of_one_value_are_drawn(value):
    for log in (False, True):
        axis = Axis("x", log=log)
        assert "nan" not in line_chart([Series("a", [Point(value, value)])], axis, axis, label="l")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All quick suites on very little data."""
    store = Store(tmp_path_factory.mktemp("cache"))
    options = Options(quick=True, plans=40, rankers=["dr", "dtdr-c"], encoders=["lexical"], seeds=2)
    with in_this_process():
        found = run_lab(
            ["retrieval", "prompts", "ablations"],
            options,
            lab="quick",
            store=store,
            command="dtdr lab run all --quick",
        )
    assert found.failed == []
    return store


def test_a_report_is_one_page_that_loads_nothing(quick, tmp_path):
    html, markdown = write_report(build_report(quick)[0], tmp_path)
    text = html.read_text("utf-8")
    check(text)
    assert html.stat().st_size < 5_000_000
    assert text.count("<figure>") >= 3
    assert "prefers-color-scheme: dark" in text
    for title in ("Retrieval", "Ablations", "Prompt length", "How to reproduce this"):
        assert f"<h2>{title}</h2>" in text
        assert f"## {title}" in markdown.read_text("utf-8")


def test_a_quick_report_says_how_to_repeat_it_and_gives_no_verdict(quick):
    text = to_markdown(build_report(quick)[0])
    for said in ("`dtdr lab run all --quick`", "SHA-256", "numpy", "0, 1"):
        assert said in text
    assert "too little to judge a method or a claim" in text
    assert "p against best" not in text
    assert "**0." not in text


@pytest.mark.parametrize(
    ("retriever", "varied", "title", "columns"),
    [
        ("dr", "history = [0, 1]", "history length", ["0", "1"]),
        ("dtdr-l", "parameters = [{batch_size = 1}, {batch_size = 8}]", "batch size", ["1", "8"]),
        ("dtdr-c", "parameters = [{seed = 3}, {seed = 4}]", "seed", ["3", "4"]),
        ("dtdr-c", "parameters = [{clusters = 2}, {clusters = 5}]", "number of clusters",
         ["2", "5"]),
    ],
)  # fmt: skip
def test_a_suite_shows_what_it_varies(tmp_path, retriever, varied, title, columns):
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\n[[experiments]]\ndataset = "bundled"\nsplit = "paper"\n'
        "seed = 0\nplans = 30\n"
        f'retriever = "{retriever}"\n{varied}\n'
    )
    store = Store(tmp_path / "cache")
    with in_this_process():
        run_lab([str(path)], Options(), lab="mine", store=store, command="x")
    text = to_markdown(build_report(store)[0])
    assert "## Mine" in text
    assert f"### MRR by {title}, " in text
    head = text.partition(f"### MRR by {title}, ")[2].splitlines()[2]
    assert head.split(" | ")[1:] == [*columns[:-1], f"{columns[-1]} |"]
    assert f"\n| {retriever} | 0." in text


def test_every_table_fits_a_page(quick):
    page, _ = build_report(quick)
    for table in (table for section in page.sections for block in section.blocks
                  if not isinstance(block, Text) for table in tables_of(block)):  # fmt: skip
        if table.columns[0].title == "Method":
            # A method, then figures: a row of characters of a page of 1,280 pixels.
            longest = [max(len(row[at].text) for row in table.cells())
                       for at in range(len(table.columns))]  # fmt: skip
            assert sum(longest) + 2 * len(longest) < 150


def test_a_users_own_runs_have_one_page(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    write_data(folder)
    store = Store(tmp_path / "cache")
    with in_this_process():
        done = run(store, folder, "runs", rankers=["dr", "markov-1"], seeds=1)
    assert done.failed == []
    page, _ = build_report(store, "own")
    tables = {one.title: one for section in page.sections for block in section.blocks
              for one in ([] if isinstance(block, Text) else tables_of(block))}  # fmt: skip
    for split in ("time", "group"):
        shares = [
            float(cell.text)
            for cell in tables[f"{CAUSES}, logs (synthetic), split by {split}"].cells()[0][1:]
        ]
        assert sum(shares) == pytest.approx(1, abs=0.01)
    (row, _) = tables[f"{RANKED}, logs (synthetic), split by group"].cells()
    assert "-" not in [cell.text for cell in row]
    curve = tables["Log top-1 by number of demonstrations, logs (synthetic), split by time"]
    assert [column.title for column in curve.columns] == ["Method", "4", "7", "14", "28"]
    assert [title for title in tables if "95 % of the next tools" in title] == [
        "Tools to show for 95 % of the next tools, logs (synthetic), split by group"
    ]


def test_a_lab_that_was_never_run_is_explained(tmp_path, quick):
    with pytest.raises(InputError) as caught:
        build_report(Store(tmp_path))
    assert "dtdr lab run SUITE" in str(caught.value)
    with pytest.raises(InputError) as caught:
        build_report(quick, "nightly")
    assert "choose one of quick" in str(caught.value)
