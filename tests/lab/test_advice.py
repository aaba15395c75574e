"""Which ranker a lab advises, in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from dtdr.evaluate.lab.report.advice import choose_method


def row(name: str, mrr: float, spread: float) -> Any:
    """The summaries of a method on three splits; its plans differ by the spread."""
    by_plan = {f"p{n}": mrr + (spread if n % 2 else -spread) for n in range(30)}
    return [
        SimpleNamespace(
            header=SimpleNamespace(ranker=name.split(" ")[0]),
            means={"mrr": mrr + change},
            by_plan={"mrr": by_plan},
        )
        for change in (-0.01, 0.0, 0.01)
    ]


@pytest.mark.parametrize(
    ("rows", "advised", "said"),
    [
        # The default, although something simpler could be as good.
        ({"dtdr-f": (0.93, 0), "dtdr-l": (0.94, 0.3)}, "dtdr-f",
         "Use dtdr-f: MRR 0.930 ± 0.025. The difference to dtdr-l (0.940 ± "
         "0.025) could be chance."),
        # Another is better.
        ({"dtdr-f": (0.80, 0), "dtdr-l": (0.94, 0)}, "dtdr-l",
         "Use dtdr-l: MRR 0.940 ± 0.025. It is better than the default, dtdr-f "
         "(0.800 ± 0.025)."),
        # The default was not among them, or is under another name.
        ({"dr": (0.5, 0), "lr": (0.6, 0)}, "lr",
         "Use lr: MRR 0.600 ± 0.025."),
        ({"dtdr-f (grouped)": (0.9, 0), "dr": (0.5, 0)}, "dtdr-f (grouped)",
         "Use dtdr-f (grouped): MRR 0.900 ± 0.025."),
    ],
)  # fmt: skip
def test_the_default_is_advised_unless_another_is_better(rows, advised, said):
    summaries = {name: row(name, *figures) for name, figures in rows.items()}
    assert choose_method(summaries) == (advised, said)
