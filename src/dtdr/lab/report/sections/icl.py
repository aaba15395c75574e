"""Function selection accuracy by ICL method and model (paper, Figure fig:icl)."""

from __future__ import annotations

from dtdr.lab.report.blocks import Block, Cell, Column, Figure, Figures, Table
from dtdr.lab.report.results import Results, by_place
from dtdr.lab.report.sections.llm_tables import WILSON, percent, right
from dtdr.lab.report.svg import Axis, Dot, dot_chart


def build(results: Results, suite: str) -> list[Block]:
    """One figure and one table a data set."""
    blocks: list[Block] = []
    for place, runs in by_place(results.runs(suite, "selections")).items():
        models = list(dict.fromkeys(str(run.spec["llm"]) for run in runs))
        methods = list(dict.fromkeys(str(run.spec["icl"]) for run in runs))
        found = {(str(run.spec["icl"]), str(run.spec["llm"])): right(results, run) for run in runs}
        rows = []
        drawn = []
        for icl in methods:
            shares = [(model, found[icl, model]) for model in models if (icl, model) in found]
            drawn.append(
                (
                    icl,
                    [
                        Dot(
                            model,
                            100 * one.value,
                            100 * one.low,
                            100 * one.high,
                            hover=f"{model}, {icl}: {100 * one.value:.1f} % "
                            f"({100 * one.low:.0f} to {100 * one.high:.0f})",
                        )
                        for model, one in shares
                    ],
                )
            )
            known = dict(shares)
            rows.append(
                [Cell(icl), *(percent(known[m]) if m in known else Cell("-") for m in models)]
            )
        title = results.place_title(place)
        table = Table(
            f"Function selection accuracy in %, {title}",
            [Column("ICL"), *(Column(model, True) for model in models)],
            rows,
            [WILSON],
        )
        picture = dot_chart(
            drawn,
            Axis("FSA, %", lambda value: f"{value:.0f}", low=0.0, high=100.0,
                 ticks=[0, 20, 40, 60, 80, 100]),
            label=f"Function selection accuracy by ICL method on {title}",
        )  # fmt: skip
        figure = Figure(title, picture, WILSON, models)
        blocks += [Figures([figure]), table]
    return blocks
