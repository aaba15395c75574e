"""Success rate of whole plans: ICL x ranker x selection x filling, on one sample of plans.

    python benchmarks/plan_success.py --llm gguf:qwen2.5-coder-0.5b.gguf --plans 40
    python benchmarks/plan_success.py --cells hard:dtdr-f:plan:learned --plans 1000
    python benchmarks/plan_success.py --cells hard:dtdr-c:retriever:learned --recipe paper
    python benchmarks/plan_success.py --smoke

Each cell plans the same queries of the test side from the start, parameters included, and writes
a run log that an interrupted run continues; a plan that can no longer succeed is given up. Equal
prompts of different cells are asked once. With --table-only nothing is asked. Cells that ask no LLM
need none. With --held-out the plans are of a fifth of the training side, for choices.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import llm_options as common
from dtdr.cli.output import console
from dtdr.evaluate.datasets.splits import paper_split
from dtdr.evaluate.harness import split_sha256
from dtdr.evaluate.planning.harness import choose_plans, run_plans
from dtdr.evaluate.planning.planning_metrics import success_rate
from dtdr.evaluate.planning.run_log import PlanningLog, read_planning_log
from dtdr.evaluate.tables import Table
from dtdr.llm.backends import LLM
from dtdr.llm.planning import Planner
from dtdr.predict import create
from dtdr.rankers import ranker_class

CELLS = (
    "hard:dtdr-f:retriever:learned,hard:dtdr-f:plan:learned,"
    "hard:dtdr-f:retriever:both,hard:dtdr-f:plan:both,"
    "hard:dtdr-f:retriever,none:dtdr-f:constrained,hard:dr:constrained,hard:lr:constrained,"
    "hard:dtdr-f:constrained,hard:dr:retriever,hard:lr:retriever"
)

READINGS = {"Names": "names", "Strict": "strict"}


@dataclass(frozen=True)
class Cell:
    """One row of the table."""

    icl: str
    ranker: str
    select: str
    fill: str = "llm"

    @property
    def asks_llm(self) -> bool:
        """Whether there is no cell without an LLM like it."""
        return self.fill != "learned" or self.select not in ("retriever", "plan")

    def log(self, given: argparse.Namespace) -> Path:
        """The run log's file."""
        stem = f"{_model(given)}-plans-{self.ranker}-{self.icl}-{self.select}-{given.plans}"
        if self.fill != "llm":
            stem += f"-{self.fill}"
        if given.held_out:
            stem += "-held-out"
        if _settings(self.ranker, given):
            stem += f"-{given.recipe}-{given.encoder}"
        covered = "" if given.coverage is None else f"-coverage-{given.coverage:g}"
        folder: Path = given.runs
        return folder / f"{stem}{covered}.jsonl"


def main() -> None:
    """Run the cells that are asked for and print the table."""
    given = _arguments()
    cells = [Cell(*cell.split(":")) for cell in given.cells.split(",")]
    asks = [cell for cell in cells if cell.asks_llm]
    if asks and given.llm is None and not given.smoke:
        raise SystemExit(f"cell {asks[0]} asks an LLM; name one with --llm")
    if not given.table_only:
        _run(cells, given)
    logs = [(cell, read_planning_log(path)) for cell in cells if (path := cell.log(given)).exists()]
    _show(logs, given)


def _arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--cells", default=CELLS, help="ICL:RETRIEVER:SELECT[:FILL], with commas between"
    )
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--recipe", help="of rankers with an encoder: paper")
    parser.add_argument("--encoder", default="minilm", help="with --recipe")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--runs", type=Path, default=Path("runs/planning"))
    given = parser.parse_args()
    if given.smoke:
        given.cells, given.plans = "hard:dr:retriever:both,none:dr:constrained", 2
        given.runs = Path(mkdtemp())
    return given


def _model(given: argparse.Namespace) -> str:
    return "none" if given.llm is None else common.short_name(given.llm)


def _run(cells: list[Cell], given: argparse.Namespace) -> None:
    data = common.sides(given)
    known, unseen = data.train, data.test
    if given.held_out:
        split = paper_split(data.train, given.seed, 0.2)
        known, unseen = split.training(data.train), split.testing(data.train)
    plans = choose_plans(unseen, given.plans, seed=given.seed)
    learned = {
        "arguments": any(cell.fill != "llm" for cell in cells),
        "plans": any(cell.select == "plan" for cell in cells),
    }
    fitted = {
        name: create(name, **_settings(name, given)).fit(known, data.tools, **learned)
        for name in dict.fromkeys(cell.ranker for cell in cells)
    }
    opened: AbstractContextManager[LLM | None] = nullcontext()
    if given.smoke or given.llm is not None:
        opened = common.create_llm(given)
    with opened as llm:
        for cell in cells:
            planner = Planner(
                fitted[cell.ranker],
                llm if cell.asks_llm else None,
                icl=cell.icl,
                select=cell.select,
                fill=cell.fill,
                mask=common.mask(given),
                demonstrations=known,
                seed=given.seed,
            )
            run_plans(
                planner,
                plans,
                cell.log(given),
                dataset=given.dataset,
                split_sha256=split_sha256(known, unseen),
                seed=given.seed,
            )


def _settings(ranker: str, given: argparse.Namespace) -> dict[str, str]:
    """Parameters of a ranker that ``--recipe`` changes: of one with an encoder."""
    if given.recipe and ranker_class(ranker).uses_encoder:
        return {"recipe": given.recipe, "encoder": given.encoder}
    return {}


def _show(logs: list[tuple[Cell, PlanningLog]], given: argparse.Namespace) -> None:
    rows = []
    for cell, log in logs:
        rates = [common.percent(success_rate(log, reading)) for reading in READINGS.values()]
        name = ":".join((cell.icl, cell.ranker, cell.select, cell.fill))
        requests = sum(step["llm_calls"] for record in log for step in record["steps"])
        count = len(log.records)
        rows.append((name, str(count), *rates, f"{requests / max(1, count):.1f}"))
    asked = "no LLM" if given.llm is None else _model(given)
    title = (
        f"Success rate in % (95 % interval), {given.dataset}, {asked},\n"
        f"{common.mask_text(given)}. Names: functions and what depends on what.\n"
        "Strict: every argument too.\n"
        "Asked: LLM requests per plan."
    )
    columns = common.columns(["ICL:retriever:select:fill"], ["Plans", *READINGS, "Asked"])
    console().print(Table(columns, rows, title).to_rich())


if __name__ == "__main__":
    main()
