"""Which retriever a lab advises, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from dtdr.evaluate.lab.report.advice import _choose, _reason


def row(name: str, mrr: float, seconds: float) -> Any:
    """The summaries of a method on three splits that differ a little."""
    return [
        SimpleNamespace(
            header=SimpleNamespace(retriever=name.split(" ")[0], fit_seconds=seconds),
            means={"mrr": mrr + change},
            by_plan={"mrr": {"p": mrr}},
        )
        for change in (-0.01, 0.0, 0.01)
    ]


@pytest.mark.parametrize(
    ("rows", "alike", "advised", "said"),
    [
        # The default, although something simpler could be as good.
        ({"dtdr-f": (0.952, 15), "dtdr-l": (0.936, 2)}, ["dtdr-f", "dtdr-l"], "dtdr-f",
         "Use dtdr-f: MRR 0.952 ± 0.025, the best here; the difference to dtdr-l could be chance."),
        ({"dtdr-f": (0.93, 15), "dtdr-l": (0.94, 2)}, ["dtdr-l", "dtdr-f"], "dtdr-f",
         "Use dtdr-f: MRR 0.930 ± 0.025. dtdr-l has 0.940, a difference that could be chance."),
        # Equal at a tenth of the cost.
        ({"dtdr-f": (0.93, 50), "dtdr-l": (0.92, 2), "lr": (0.91, 1)}, ["dtdr-f", "dtdr-l", "lr"],
         "dtdr-l",
         "Use dtdr-l: MRR 0.920 ± 0.025, learned in 2.0 s. The default, dtdr-f, has 0.930 and "
         "learns in 50.0 s; the difference in MRR could be chance."),
        # Another is better.
        ({"dtdr-f": (0.80, 15), "dtdr-l": (0.94, 14)}, ["dtdr-l"], "dtdr-l",
         "Use dtdr-l: MRR 0.940 ± 0.025. It is better than the default, dtdr-f, which has 0.800."),
        # The default was not among them, or is under another name.
        ({"dr": (0.5, 1), "lr": (0.6, 1)}, ["lr"], "lr",
         "Use lr: MRR 0.600 ± 0.025, the best here."),
        ({"dtdr-f (grouped)": (0.9, 15), "dr": (0.5, 1)}, ["dtdr-f (grouped)"], "dtdr-f (grouped)",
         "Use dtdr-f (grouped): MRR 0.900 ± 0.025, the best here."),
    ],
)  # fmt: skip
def test_the_default_is_advised_unless_another_is_better_or_as_good_and_cheap(
    rows, alike, advised, said
):
    summaries = {name: row(name, *figures) for name, figures in rows.items()}
    assert _choose(alike[0], alike, summaries) == advised
    assert _reason(advised, alike[0], alike, summaries) == said
