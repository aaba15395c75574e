"""``dtdr plan``: a query in, a plan out, shown step by step; no tool is executed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dtdr.api import load
from dtdr.cli import options
from dtdr.cli.inputs import open_data
from dtdr.cli.output import console, plural, print_json, say
from dtdr.data.json_codec import safe
from dtdr.rankers.selection import Selection

if TYPE_CHECKING:
    from dtdr.llm.planning import PlannedStep


def plan(
    model: Path,
    query: str,
    *,
    llm: str | None = None,
    icl: str = "hard",
    select: str | None = None,
    fill: str | None = None,
    examples: Path | None = None,
    top_k: options.TOP_K = None,
    coverage: float | None = None,
    as_json: options.JSON = False,
) -> None:
    """Plan the calls for a query, with or without an LLM.

    It calls no tool. At each step, it ranks the tools, selects one and fills its parameters.
    Without an LLM, it fills only learned arguments and lists the missing ones.

    Example: dtdr plan model "Mail Ann the summary of q3.pdf" --llm gguf:qwen.gguf

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        query (QUERY): The user's request.
        llm (NAME): Ask this LLM: gguf:PATH, openai:NAME@URL or hf:NAME. The environment variable
            DTDR_LLM_API_KEY has the key for openai.
        icl (NAME): How the prompt shows the ranking: none, raw, hard, soft or cached; also
            hard-weighted, soft-weighted or cached-weighted. docs/planning.md explains them.
        select (NAME): How to select the next tool. greedy: the LLM writes freely. constrained (the
            default with --llm): the LLM chooses a listed tool. retriever: the best tool of each
            step. plan (the default without --llm): the best whole plan.
        fill (NAME): What fills the parameters: learned (the model), llm, both or none. Default:
            both, if there are learned arguments and an LLM.
        examples (FILE): Take examples for the prompt from these demonstrations or logs; default:
            none.
        coverage (P): Show the LLM as few tools as possible so that one is right with probability P.
    """
    from dtdr.llm import backends
    from dtdr.llm.planning import Planner

    mask = Selection(top_k=top_k, coverage=coverage)
    fitted_model = load(model)
    shown = [] if examples is None else list(open_data([examples], bad=None))
    with nullcontext() if llm is None else backends.create(llm) as backend:
        planner = Planner(
            fitted_model,
            backend,
            icl=icl,
            select=select,
            fill=fill,
            mask=mask,
            demonstrations=shown,
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
        end = f"The plan is incomplete: {plural(unknown, 'value')} to be written"
    calls, requests = plural(len(result.plan), "call"), plural(asked, "LLM request")
    say(f"{end}; {calls}, {requests}, {seconds:.1f} s")


_ENDS = {
    "end": "The plan is complete",
    "step limit": "Stopped at the step limit",
    "loop": "Stopped: the plan repeats the same call",
    "cancelled": "Cancelled",
    "no usable answer": "Stopped: the LLM named no listed function",
    "prompt too long": "Stopped: the prompt exceeds the LLM's context",
}


def _show(steps: Sequence[PlannedStep]) -> None:
    """Print the latest step."""
    from dtdr.llm.prompting.render import ShownNames, plan_lines

    out = console()
    step = steps[-1]
    calls = [item.call for item in steps if item.call is not None]
    if step.call is not None:
        line = plan_lines(calls, ShownNames(call.tool for call in calls)).splitlines()[-1]
        out.print(line, markup=False)
        for problem in step.filled.problems:
            out.print(f"    not filled: {problem}", markup=False)
        if step.filled.unknown:
            names = ", ".join(map(safe, step.filled.unknown))
            out.print(f"    has to be written: {names}", markup=False)
    elif step.selected.tool is None:
        out.print(f"    step {len(steps)}: the LLM wrote {step.selected.answer!r}", markup=False)
