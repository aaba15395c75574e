"""A step of a run: which tools an LLM is shown, and the prompt that it gets."""

from __future__ import annotations

from collections.abc import Sequence

from dtdr.agents import ToolMask, ToolPolicy
from dtdr.data.calls import ToolCall
from dtdr.data.run import Run
from dtdr.llm.prompting import Examples, SelectionPrompts
from dtdr.llm.prompting.prompt import Prompt
from dtdr.predict.model import Model
from dtdr.rankers.selection import Selection, count_tokens
from dtdr.serve.studio import schemas


def select_shown(retriever: Model, run: Run, policy: ToolPolicy) -> schemas.ShownResponse:
    """Which tools a policy shows at each step of a run, and what they cost."""
    tools = retriever.tools_[:-1]
    names = [tool.name for tool in tools]
    costs = {tool.name: count_tokens(tool.to_dict()) for tool in tools}
    masked = ToolMask(retriever, policy).run(run.query, before=run.before)
    steps: list[schemas.ShownStep] = []
    selection = masked.select(names, costs=costs)
    for made in (None, *run.calls):
        if made is not None:
            masked.call(
                made.tool,
                made.arguments,
                output=made.output,
                status=made.status,
                step=made.step,
                id=made.id,
            )
            selection = masked.select(names, costs=costs)
        steps.append(
            schemas.ShownStep(
                called="" if made is None else made.tool,
                shown=len(selection.shown),
                tokens=sum(costs[name] for name in selection.shown),
                changed=selection.changed,
            )
        )
    ordered = sorted(selection.shown, key=lambda name: -selection.weights.get(name, 0.0))
    return schemas.ShownResponse(
        shown=[
            schemas.ShownTool(tool=name, reason=selection.reasons[name], tokens=costs[name])
            for name in ordered
        ],
        hidden=len(selection.hidden),
        tokens=steps[-1].tokens,
        all_tokens=sum(costs.values()),
        steps=steps,
        failure=selection.failure,
    )


def make_prompts(
    retriever: Model, run: Run, icl: str, bounds: Selection, examples: Examples
) -> schemas.PromptResponse:
    """The prompt of a run's next step, and what of it the prompt of the step before began with."""
    writer = SelectionPrompts(retriever.tools_, icl=icl, examples=examples)

    def write(calls: Sequence[ToolCall]) -> tuple[Prompt, tuple[str, ...]]:
        shown = retriever.rank(Run(run.query, run.before, calls)).select(bounds)
        return writer.prompt(run.query, calls, shown), writer.choices(shown)

    prompt, choices = write(run.calls)
    previous = write(run.calls[:-1])[0] if run.calls else None
    same = _same_beginning(prompt.text, "" if previous is None else previous.text)
    return schemas.PromptResponse(
        prompt=_text(prompt),
        previous=None if previous is None else _text(previous),
        cached=same,
        cached_tokens=count_tokens(prompt.text[:same]) if same else 0,
        choices=list(choices),
    )


def _text(prompt: Prompt) -> schemas.PromptText:
    return schemas.PromptText(
        text=prompt.text, constant=len(prompt.constant), tokens=count_tokens(prompt.text)
    )


def _same_beginning(one: str, two: str) -> int:
    length = min(len(one), len(two))
    return next((at for at in range(length) if one[at] != two[at]), length)
