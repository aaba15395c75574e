"""Which tools an LLM is shown at each step of a run."""

from __future__ import annotations

from dtdr.agents import ToolMask, ToolPolicy
from dtdr.data.run import Run
from dtdr.predict.model import Model
from dtdr.rankers.selection import count_tokens
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
