import io

from rich.console import Console

from dtdr.evaluate.result_tables import retrieval_table
from dtdr.evaluate.tables import Cell, Column, Table, numeric, share

RESULTS = [
    {
        "ranker": name,
        "encoder": encoder,
        "mrr": mrr,
        "f1": 0.5,
        "steps": 10,
        "fit_seconds": 1234.5,
        "rank_microseconds_median": 1234.5,
    }
    for name, encoder, mrr in (
        ("dr", None, 0.1234),
        ("less-is-more", "sentence-transformers", 0.98761),
        ("dtdr-c", "lexical", 0.98764),
    )
]


def printed(table, **options):
    text = io.StringIO()
    Console(file=text, width=100).print(table.to_rich(**options))
    return text.getvalue()


def test_best_figures_as_shown_are_marked_even_when_two_tie():
    table = retrieval_table(RESULTS, ["mrr"], title="t", caption="c").to_markdown()
    assert "| dr | - | 0.123 |" in table
    assert table.count("**0.988**") == 2
    single = retrieval_table(RESULTS[:1], ["mrr"], title="t", caption="c").to_markdown()
    assert "**" not in single


def test_retrieval_table_fits_100_columns_without_cutting_anything():
    metrics = ["mrr", "f1"]
    text = printed(retrieval_table(RESULTS, metrics, title="t", caption="c"))
    assert max(map(len, text.splitlines())) <= 100
    assert "sentence-transformers" in text
    assert "…" not in text


def test_names_cannot_break_a_row_or_its_style():
    table = Table([Column("Tool", "tool"), Column("P", "p", share)], [{"tool": "[b]|x", "p": None}])
    assert table.to_markdown().splitlines()[-1] == r"| [b]\|x | - |"
    assert "[b]|x" in printed(table)


def test_one_table_is_shown_on_a_terminal_as_markdown_and_as_html():
    rows: list[list[Cell | None]] = [
        [Cell("a", value=None), Cell("0.5 ± 0.1", "hover", 0.5), Cell("3")],
        [Cell("paper", aside=True), Cell("0.4", value=0.4), None],
    ]
    columns = [Column("Method"), *numeric("MRR", best=True), Column("ms", numeric=True)]
    table = Table(columns, rows, "Title", "first note\nsecond, of `code`")
    assert "0.5 ± 0.1" in printed(table)
    assert "| a | **0.5 ± 0.1** | 3 |\n| *paper* | 0.4 | - |" in table.to_markdown()
    html = table.to_html()
    assert '<td class="num best" data-tip="hover">0.5 ± 0.1</td>' in html
    assert '<td class="aside">paper</td>' in html
    assert "<li>first note</li><li>second, of <code>code</code></li>" in html


def test_a_long_cell_is_cut_on_a_terminal_where_asked():
    table = Table([Column("Query")], [["word " * 40]])
    assert "…" in printed(table, cut=True)
    assert "…" not in table.to_markdown()
