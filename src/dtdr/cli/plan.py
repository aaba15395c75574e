"""``dtdr plan``: a query in, a plan out, shown step by step; no tool is executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.inputs import check_query
from dtdr.cli.output import console, print_json
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.llm.planning import PlannedStep


def plan(
    model: planning.MODEL,
    query: planning.QUERY,
    *,
    llm: planning.LLM_NAME = None,
    icl: planning.ICL = "hard",
    layout: planning.LAYOUT = "exchange",
    select: planning.Select | None = None,
    fill: planning.Fill | None = None,
    min_probability: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    examples: planning.EXAMPLES = None,
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    max_steps: Annotated[int, typer.Option(min=1)] = 20,
    record: Path | None = None,
    llm_context: planning.LLM_CONTEXT = planning.CONTEXT,
    llm_threads: planning.LLM_THREADS = None,
    seed: options.SEED = 0,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Plan an answer to a query: rank, select the next function, fill its parameters.

    Without an LLM, dtdr fills learned arguments and lists the others.

    Example: dtdr plan model "Mail Ann the summary of q3.pdf" --llm gguf:qwen.gguf

    Args:
        select: Who selects the next function. Default: constrained; without an LLM, plan if
            the model learned whole plans, else retriever.
        fill: Who fills parameters. Default: both, if there are learned arguments and an LLM.
        min_probability (P): With --fill both, ask the LLM for values that are less probable.
        max_steps (N): Maximum number of calls.
        record (FILE): Record the LLM's answers, for replay:FILE.
    """
    if llm is None and select not in (None, "retriever", "plan"):
        raise InputError(f"--select {select} asks an LLM; name one with --llm")
    if llm is None and fill in ("both", "llm"):
        raise InputError(f"--fill {fill} asks an LLM; name one with --llm")
    check_query(query)
    from contextlib import nullcontext

    from dtdr.api import load
    from dtdr.llm.planning import Planner

    mask = planning.make_selection(top, threshold, coverage)
    retriever = load(model)
    demonstrations = planning.read_examples(examples)
    opened = (
        nullcontext()
        if llm is None
        else planning.open_llm(llm, context=llm_context, threads=llm_threads, record=record)
    )
    with opened as backend:
        planner = Planner(
            retriever,
            backend,
            icl=icl,
            layout=layout,
            select=select,
            fill=fill,
            min_probability=min_probability,
            mask=mask,
            demonstrations=demonstrations,
            max_steps=max_steps,
            seed=seed,
        )
        steps: list[PlannedStep] = []
        for step in planner.iter_steps(query):
            steps.append(step)
            if not as_json:
                _show(steps)
        result = planner.result_of(query, steps)
    if as_json:
        print_json(result.to_dict())
        return
    asked = sum(step.llm_calls for step in steps)
    seconds = sum(sum(step.seconds.values()) for step in steps)
    unknown = sum(len(step.filled.unknown) for step in steps if step.call is not None)
    end = _ENDS[result.stopped]
    if result.stopped == "end" and unknown:
        end = f"The plan is not complete, values to be written: {unknown}"
    console().print(
        f"{end}; {len(result.plan)} calls, {asked} LLM requests, {seconds:.1f} s",
        markup=False,
    )
    if result.saved_calls or result.saved_tokens:
        console().print(
            f"Learned arguments saved {result.saved_calls} LLM requests and {result.saved_tokens} "
            "prompt tokens",
            markup=False,
        )


_ENDS = {
    "end": "The plan is complete",
    "step limit": "Stopped at the step limit",
    "loop": "Stopped: the same call was made again and again",
    "cancelled": "Cancelled",
    "no usable answer": "Stopped: the LLM named no listed function",
    "prompt too long": "Stopped: the prompt exceeds the LLM's context",
}


def _show(steps: list[PlannedStep]) -> None:
    """Print the latest step."""
    from dtdr.data.json_codec import safe
    from dtdr.llm.prompting.render import ShownNames, plan_lines

    out = console()
    step = steps[-1]
    made = [item.call for item in steps if item.call is not None]
    if step.call is not None:
        line = plan_lines(made, ShownNames(call.tool for call in made)).splitlines()[-1]
        out.print(line, markup=False)
        for problem in step.filled.problems:
            out.print(f"    not filled: {problem}", markup=False)
        if step.filled.unknown:
            names = ", ".join(map(safe, step.filled.unknown))
            out.print(f"    has to be written: {names}", markup=False)
    elif step.selected.tool is None:
        out.print(f"    step {len(steps)}: the LLM wrote {step.selected.answer!r}", markup=False)
