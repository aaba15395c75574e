"""Seconds of one selection step, cold and warm, for every ICL method, in one run.

    python benchmarks/step_time.py --llm gguf:qwen2.5-coder-0.5b.gguf
    python benchmarks/step_time.py --smoke

Cold: nothing is cached. Warm: the step before was of another query with the same method, so that
the constant part is cached and what varies is read. Next: the plan's step before was cached, as
while one plan is made. The answer is constrained to the choices. Where the model runs in this
process, processor seconds stand beside the others: they say the same on a busy machine.
"""

from __future__ import annotations

import statistics
import time
from itertools import islice

import llm_options as common
from dtdr.cli.output import console
from dtdr.data.demonstrations import Demonstration
from dtdr.evaluate.planning.harness import choose_steps
from dtdr.evaluate.tables import Table
from dtdr.llm.backends import LLM
from dtdr.llm.prompting import METHODS, Examples, SelectionPrompts
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers.selection import Selection


def main() -> None:
    """Print the table."""
    parser = common.parser(__doc__, retriever="dtdr-l")
    parser.add_argument("--icl", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=8, help="warm and next")
    parser.add_argument("--cold-steps", type=int, default=3)
    given = parser.parse_args()
    if given.smoke:
        given.retriever, given.icl, given.steps, given.cold_steps = "dr", "hard,none", 2, 1

    data = common.sides(given)
    model = create(given.retriever).fit(data.train, data.tools, arguments=False, plans=False)
    # Not the first step of a plan, so that there is one before it; each of another plan, so that
    # no step finds its own query cached.
    every = choose_steps(data.test, seed=given.seed)
    distinct = {item.id: (item, step) for item, step in every if step}
    left = iter(distinct.values())
    sizes = {"cold": given.cold_steps, "warm": given.steps, "next": given.steps}
    steps = {state: list(islice(left, size)) for state, size in sizes.items()}
    mask, examples = common.mask(given), Examples(data.train, seed=given.seed)
    title = (
        f"Seconds a selection step (median of {given.steps}, {given.cold_steps} cold) and tokens "
        f"read (mean),\n{common.short_name(given.llm)}, {given.threads} "
        f"thread{'s' if given.threads > 1 else ''}"
    )
    rows: list[list[str]] = []
    with common.create_llm(given) as llm:
        for icl in given.icl.split(","):
            writer = SelectionPrompts(model.tools_, icl=icl, examples=examples)
            row = [icl]
            for state, chosen in steps.items():
                timed = [_timed(llm, model, writer, mask, *step, state) for step in chosen]
                walls, processors, read = zip(*timed, strict=True)
                row += [f"{statistics.median(walls):.2f}", f"{statistics.median(processors):.2f}"]
                row.append(f"{statistics.mean(read):.0f}")
            # The last cold step left the first warm one's constant part in the cache.
            rows.append(row)
    headings = ["Cold", "CPU", "Read", "Warm", "CPU", "Read", "Next", "CPU", "Read"]
    console().print(Table(common.columns(["ICL"], headings), rows, title).to_rich())


def _timed(
    llm: LLM,
    model: Model,
    writer: SelectionPrompts,
    mask: Selection,
    item: Demonstration,
    step: int,
    state: str,
) -> tuple[float, float, int]:
    """Seconds, processor seconds, and tokens of the prompt that were read."""

    def select(done: int) -> tuple[float, float, int]:
        calls = item.plan.calls[:done]
        ranking = model.rank(item.query, [call.tool for call in calls])
        shown = ranking.select(mask)
        prompt = writer.prompt(item.query, calls, shown)
        started, processor = time.perf_counter(), time.process_time()
        answer = llm.complete(prompt, max_tokens=1, choices=writer.choices(shown))
        seconds = time.perf_counter() - started, time.process_time() - processor
        return *seconds, (answer.prompt_tokens or 0) - (answer.cached_tokens or 0)

    if state == "cold":
        llm.forget()
    if state == "next" and step:
        select(step - 1)
    return select(step)


if __name__ == "__main__":
    main()
