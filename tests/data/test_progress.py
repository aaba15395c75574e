"""Long work reports its tenths where there is no terminal; short work is silent."""

from dtdr.data import progress


def test_long_work_writes_a_line_at_each_tenth(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_LONG_SECONDS", 0.0)
    assert list(progress.track(range(600), "learning", 600)) == list(range(600))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"dtdr: learning: {60 * tenth} of 600" for tenth in range(1, 10)]


def test_short_work_is_silent(capsys):
    assert len(list(progress.track(range(600), "learning", 600))) == 600
    assert capsys.readouterr().err == ""
