import pytest

from dtdr.evaluate.datasets import synthetic

NAMES = ("random", "bm25", "qts", "tgr", "dr", "lr", "dtdr-c", "dtdr-l", "dtdr-f")


@pytest.mark.parametrize("retriever", ["dtdr-c", "dtdr-f"])
def test_demo_shows_held_out_queries_step_by_step_and_evaluates_every_ranker(
    retriever, cli, monkeypatch
):
    some = synthetic.bundled_demonstrations()[:40]
    monkeypatch.setattr(synthetic, "bundled_demonstrations", lambda: some)
    shown = cli("demo", "--retriever", retriever)
    out = shown.table()
    assert shown.err == ""
    assert "synthetic" in out
    assert f"{retriever} learned from 28 synthetic demonstrations" in out
    assert out.count("(start)") == 3
    assert "✓" in out
    assert [name for name in NAMES if f" {name} " not in out] == []
