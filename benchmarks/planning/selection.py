"""Function-selection accuracy: ICL method x retriever x selection, on one fixed sample of steps.

    python benchmarks/planning/selection.py --llm gguf:qwen2.5-coder-0.5b.gguf --steps 150

Every cell has the same steps of the test side, teacher-forced. The LLM reads each distinct prompt
once and answers for every selection method (see ``dtdr.evaluate.planning.grid``). Its answers are
kept under --runs, so that an interrupted run goes on where it stopped; with --minutes it stops by
itself and prints the table of what is there. λ, temperature and the confidence of ``auto`` are
chosen on a fifth of the training side that a second retriever, fitted on the rest, has not seen.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path

import common

import dtdr
from dtdr.cli.output import console
from dtdr.evaluate.harness import split_sha256
from dtdr.evaluate.planning import choose_steps, hold_out
from dtdr.evaluate.planning.grid import (
    CellResult,
    Question,
    Record,
    answer,
    cell_result,
    confidences_of,
    in_cache_order,
    questions,
)
from dtdr.evaluate.tables import Table
from dtdr.llm.backends import LLMError
from dtdr.llm.backends.replay import Recorder, Replay
from dtdr.llm.planning import METHODS
from dtdr.llm.prompting import Examples
from dtdr.predict import create
from dtdr.predict.model import Model

GROUPS = (
    ("none", "hard", "cached"),
    ("soft", "hard-weighted", "soft-weighted", "cached-weighted"),
    ("raw",),
)
"""ICL methods in the order in which they are run: cheap prompts first."""

FIRST_RETRIEVERS = 2
"""So many retrievers of the list are run through a group of ICL methods before the others."""

ANSWER_COST = 120
"""Characters of a prompt that are read in the time that one prompt's answers take; for the
estimate of the time left only."""


def main() -> None:
    """Ask what has not been asked yet, and print the table."""
    given = _arguments()
    work = Work(given)
    path = given.runs / f"{common.short_name(given.llm)}-{given.dataset}.jsonl"
    if not given.table_only:
        with Recorder(common.create_llm(given, given.context), path) as llm:
            ask(llm, path, work, given.minutes)
    show(work, path, given)


def _arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--icl", default=",".join(name for group in GROUPS for name in group))
    parser.add_argument("--retrievers", default="dtdr-f,dr,lr,dtdr-c,dtdr-l")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tuning-steps", type=int, default=60)
    parser.add_argument("--budget", type=float, default=0.5, help="share of steps auto may ask at")
    parser.add_argument("--held-out", action="store_true", help="test on the held-out fifth")
    parser.add_argument("--minutes", type=float, help="stop after so long and print what is there")
    parser.add_argument("--table-only", action="store_true", help="ask nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/planning"))
    given = parser.parse_args()
    known = [name for group in GROUPS for name in group]
    if unknown := sorted(set(given.icl.split(",")) - set(known)):
        parser.error(f"unknown --icl {', '.join(unknown)}; choose among {', '.join(known)}")
    return given


@dataclass(frozen=True)
class Cell:
    """The questions of one ICL method and retriever on tested and on held-out steps."""

    icl: str
    retriever: str
    test: list[Question]
    tuning: list[Question]
    confidences: list[float]


class Work:
    """All cells, and the order in which they are asked."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.retrievers: list[str] = given.retrievers.split(",")
        self.icl: list[str] = given.icl.split(",")
        data = common.sides(given)
        self._tools = data.tools
        held_out = hold_out(data.train, seed=given.seed)
        self._sides = {
            "test": held_out if given.held_out else (data.train, data.test),
            "tuning": held_out,
        }
        self.cells = {
            (icl, name): cell for name in self.retrievers for icl, cell in self._cells(name)
        }

    def units(self) -> Iterator[tuple[str, list[Question]]]:
        """Questions that are asked together, the most wanted first, and what they are for."""
        parts = (self.retrievers[:FIRST_RETRIEVERS], self.retrievers[FIRST_RETRIEVERS:])
        for group in GROUPS:
            for part in parts:
                for icl in (name for name in group if name in self.icl):
                    cells = [self.cells[icl, name] for name in part]
                    for side in ("test", "tuning"):
                        asked = [one for cell in cells for one in getattr(cell, side)]
                        if asked:
                            yield f"{icl}, {', '.join(part)}, {side}", in_cache_order(asked)

    def _cells(self, name: str) -> Iterator[tuple[str, Cell]]:
        given = self.given
        asked: dict[str, dict[str, list[Question]]] = {icl: {} for icl in self.icl}
        confidences: list[float] = []
        for side, size in (("test", given.steps), ("tuning", given.tuning_steps)):
            known, unseen = self._sides[side]
            retriever = self._fitted(name, side)
            examples = Examples(known, seed=given.seed)
            steps = choose_steps(unseen, size, seed=given.seed)
            for icl in self.icl:
                asked[icl][side] = questions(
                    retriever, steps, icl=icl, mask=common.mask(given), examples=examples
                )
            if side == "tuning":
                confidences = confidences_of(retriever, unseen, seed=given.seed)
        for icl, sides in asked.items():
            yield icl, Cell(icl, name, sides["test"], sides["tuning"], confidences)

    def _fitted(self, name: str, side: str) -> Model:
        """A retriever fitted on one side's known plans; kept, since dtdr-f takes a minute."""
        known, unseen = self._sides[side]
        folder = self.given.runs / "models" / f"{name}-{split_sha256(known, unseen)[:12]}"
        if not folder.exists():
            _say(f"fitting {name} for {side}")
            create(name).fit(known, self._tools).save(folder)
        return dtdr.load(folder)


def ask(llm: Recorder, path: Path, work: Work, minutes: float | None) -> None:
    """Ask all questions in turn; the answers are in the recording."""
    units = list(work.units())
    recorded = Replay(path)
    left = [
        [question for question in asked if _recorded(recorded, question) is None]
        for _, asked in units
    ]
    waiting = sum(map(_cost, left))
    _say(f"{sum(map(len, left))} of {sum(len(asked) for _, asked in units)} prompts to ask")
    started = told = time.monotonic()
    done = 0.0
    for (label, asked), unanswered in zip(units, left, strict=True):
        unit = _cost(unanswered)
        for position, question in enumerate(unanswered):
            now = time.monotonic()
            if minutes is not None and now - started > 60 * minutes:
                _say(f"stopped after {minutes:g} minutes; run again to go on")
                return
            if now - told > 60:
                told = now
                so_far = done + unit * position / len(unanswered)
                rest = (now - started) * (waiting - so_far) / max(so_far, 1.0) / 60
                _say(f"{label}: {position}/{len(unanswered)}; about {rest:.0f} minutes left in all")
            answer(llm, question)
        done += unit
        _say(f"{label}: {len(asked)} prompts done")


def _cost(asked: list[Question]) -> float:
    """What asking costs: characters that the question before does not begin with, and answers."""
    texts = [question.prompt.text for question in asked]
    shared = sum(_shared(*pair) for pair in pairwise(texts))
    return sum(map(len, texts)) - shared + ANSWER_COST * len(texts)


def _shared(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _recorded(recorded: Replay, question: Question) -> Record | None:
    try:
        return answer(recorded, question)
    except LLMError:
        return None


def show(work: Work, path: Path, given: argparse.Namespace) -> None:
    """Print the table."""
    recorded = Replay(path)
    rows: list[tuple[str, ...]] = []
    chosen: list[str] = []
    counted: list[tuple[Cell, list[Record]]] = []
    for icl in work.icl:
        for name in work.retrievers:
            cell = work.cells[icl, name]
            records = [record for one in cell.test if (record := _recorded(recorded, one))]
            tuning = [record for one in cell.tuning if (record := _recorded(recorded, one))]
            if not records:
                continue
            counted.append((cell, records))
            complete = len(tuning) == len(cell.tuning)
            result = cell_result(
                records, tuning if complete else (), cell.confidences, budget=given.budget
            )
            rows.append((icl, name, str(len(records)), *_row(result)))
            if result.fusion is not None:
                weight, temperature = result.fusion.weight, result.fusion.temperature
                chosen.append(f"{icl} {name} {weight:g}/{temperature:g}")
    out = console()
    side = "held-out training plans" if given.held_out else "test side"
    title = (
        f"Function-selection accuracy in % (95 % interval), {given.dataset}, {side},\n"
        f"{common.short_name(given.llm)}, {common.mask_text(given)}.\n"
        "Inv.: greedy answers that name no listed tool, %. Asks: steps auto asks the LLM at, %."
    )
    names = (name.capitalize().replace("Constrained", "Constr.") for name in METHODS)
    headings = ["n", *names, "Inv.", "Asks"]
    out.print(Table(common.columns(["ICL", "Retriever"], headings), rows, title).to_rich())
    if any(len(cell.test) > len(records) for cell, records in counted):
        out.print("Cells with fewer steps are unfinished, and their steps no random sample.")
    out.print(f"λ/T, chosen on {given.tuning_steps} held-out steps: {'; '.join(chosen) or 'none'}")


def _row(result: CellResult) -> list[str]:
    shares = [result.accuracy.get(name) for name in METHODS]
    return [
        *("-" if one is None else common.percent(one) for one in shares),
        f"{100 * result.invalid:.0f}",
        f"{100 * result.asks['auto']:.0f}" if "auto" in result.asks else "-",
    ]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
