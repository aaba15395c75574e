"""``dtdr plan``: a query in, a plan out, shown step by step; no tool is executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.output import console, print_json
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.planning import PlannedStep


def plan(
    model: planning.MODEL,
    query: planning.QUERY,
    llm: planning.LLM_NAME = None,
    icl: planning.ICL = planning.Icl.HARD,
    layout: planning.LAYOUT = planning.Layout.EXCHANGE,
    select: Annotated[
        planning.Select | None,
        typer.Option(
            "--select",
            help="Who selects the next function. Default: constrained; without an LLM, plan where "
            "whole plans were learned, else retriever.",
        ),
    ] = None,
    fill: Annotated[
        planning.Fill | None,
        typer.Option(
            "--fill",
            help="Who fills parameters. Default: both, as far as there are learned arguments and "
            "an LLM.",
        ),
    ] = None,
    min_probability: Annotated[
        float,
        typer.Option(
            "--min-probability",
            metavar="P",
            help="With --fill both, ask the LLM for values that are less probable.",
            min=0,
            max=1,
        ),
    ] = 0.5,
    examples: planning.EXAMPLES = None,
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    weight: Annotated[
        float,
        typer.Option("--weight", metavar="λ", help="Weight of the retriever in fused.", min=0),
    ] = 1.0,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="P",
            help="In auto, ask the LLM only where the retriever is less sure.",
            min=0,
            max=1,
        ),
    ] = 0.9,
    max_steps: Annotated[
        int, typer.Option("--max-steps", metavar="N", help="Calls of a plan at most.", min=1)
    ] = 20,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Keep the LLM's answers, for replay:FILE."),
    ] = None,
    llm_context: planning.LLM_CONTEXT = planning.CONTEXT,
    llm_threads: planning.LLM_THREADS = None,
    seed: options.SEED = 0,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Plan an answer to a query: rank, select the next function, fill its parameters.

    Without an LLM, the plan holds what was learned, and says what has to be written.

    Example: dtdr plan model "Mail Ann the summary of q3.pdf" --llm gguf:qwen.gguf
    """
    if llm is None and select not in (None, planning.Select.RETRIEVER, planning.Select.PLAN):
        raise InputError(f"--select {select.value} asks an LLM; name one with --llm")
    if llm is None and fill in (planning.Fill.BOTH, planning.Fill.LLM):
        raise InputError(f"--fill {fill.value} asks an LLM; name one with --llm")
    if not query.strip():
        raise InputError("the query is empty; say what the user asked for")
    from contextlib import nullcontext

    from dtdr.api import load
    from dtdr.planning import Fusion, Planner, Selector

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
            icl=icl.value,
            layout=layout.value,
            select=select and Selector(select.value, fusion=Fusion(weight), confidence=confidence),
            fill=None if fill is None else fill.value,
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
    console().print(
        f"{_ENDS[result.stopped]}; {len(result.plan)} calls, {asked} LLM requests, {seconds:.1f} s",
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
    from dtdr.prompting.render import ShownNames, plan_lines, safe

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
