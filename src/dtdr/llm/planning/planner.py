"""The agent of the paper: retrieve, select the next function, fill its parameters, repeat."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dtdr.data.calls import END, ToolCall, renumber_calls
from dtdr.data.demonstrations import DemonstrationLike
from dtdr.data.plan import Plan
from dtdr.data.run import Run
from dtdr.deprecated import renamed_attribute, renamed_keywords
from dtdr.errors import InputError, check_at_least
from dtdr.llm.backends import LLM
from dtdr.llm.planning.filling import FilledParameters, Filler
from dtdr.llm.planning.results import PlannedStep, PlanResult, Stopped
from dtdr.llm.planning.selector import DEFAULT as DEFAULT_SELECT
from dtdr.llm.planning.selector import Selected, Selector
from dtdr.llm.prompting import DEFAULT as DEFAULT_ICL
from dtdr.llm.prompting import LAYOUTS, Examples, FillingPrompts, SelectionPrompts
from dtdr.predict.model import Model
from dtdr.predict.session import NO_PLANS, Session
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import Selection

MAX_STEPS = 20
"""Limit of calls in a plan. The longest of TinyAgent, T-Eval, TRAJECT-Bench and UltraTool has
19."""

MAX_REPEATS = 4
"""Equal calls that make a loop. Of the same published plans, 0.2 % have three equal calls and none
has four. Without parameters, calls of one function look equal, and 6 % of the plans of T-Eval have
four: then nothing counts as a loop."""


Planned: TypeAlias = list[tuple[ToolCall | None, FilledParameters]]
"""The calls of a whole plan that are left to make; None is its end."""


class Planner:
    """Plans how to answer a query; no tool is executed.

    Args:
        model: fitted; it defines the tools.
        llm: None: the model selects, and fills parameters as learned. With ``select="plan"``,
            the LLM only fills what the model cannot.
        icl: how the prompt shows the ranking; see ``dtdr.llm.prompting.METHODS``.
        layout: of the prompts; see ``dtdr.llm.prompting.LAYOUTS``.
        select: name of a selection method. Default: ``constrained`` with an LLM; without one,
            ``plan`` if the model learned whole plans, else ``retriever``.
        mask: which tools count as retrieved.
        demonstrations: for the example in each prompt; without them there is none.
        fill: who fills parameters, one of ``dtdr.llm.planning.filling.METHODS``; see ``Filler``.
            Default: ``both`` with learned arguments and an LLM, ``learned`` or ``llm`` with only
            one of them, ``none`` with neither.
        max_steps: limit of calls in a plan.
        seed: of the choice of the example.
        examples: how examples are chosen, one of ``dtdr.llm.prompting.examples.CHOICES``. Default:
            ``random``, as in the paper, with ``layout="paper"``, else ``similar``.
        retry: ask once more after an answer whose parameters cannot be used. Default: not with
            ``layout="paper"``, since the paper asks once.

    Raises:
        InputError: an unknown method, no LLM where one is needed, or the model is not fitted.
    """

    retriever = renamed_attribute("retriever", "model")

    @renamed_keywords(retriever="model")
    def __init__(
        self,
        model: Model,
        llm: LLM | None = None,
        *,
        icl: str = DEFAULT_ICL,
        layout: str = LAYOUTS[0],
        select: str | None = None,
        mask: Selection | None = None,
        demonstrations: Iterable[DemonstrationLike] = (),
        fill: str | None = None,
        max_steps: int = MAX_STEPS,
        seed: int = 0,
        examples: str | None = None,
        retry: bool | None = None,
    ) -> None:
        check_at_least(1, max_steps=max_steps)
        self.model = model
        self.llm = llm
        if select is None:
            alone = "retriever" if model.plans_ is None else "plan"
            select = alone if llm is None else DEFAULT_SELECT
        self.selector = Selector(select)
        if llm is None and self.selector.asks:
            raise InputError(
                f"select {self.selector.method!r} asks an LLM; give one, or select retriever"
            )
        if self.selector.method == "plan" and model.plans_ is None:
            raise InputError(NO_PLANS)
        self.mask = mask or Selection()
        self.layout = layout
        self.max_steps = max_steps
        model.index(END)  # raises if the model is not fitted
        tools = model.tools_
        is_paper = layout == "paper"
        if examples is None:
            examples = "random" if is_paper else "similar"
        self.examples = Examples(demonstrations, seed=seed, choice=examples)
        self.prompts = SelectionPrompts(tools, icl=icl, examples=self.examples, layout=layout)
        self.filler = Filler(
            tools,
            fill,
            llm=llm,
            prompts=FillingPrompts(tools, examples=self.examples, layout=layout),
            is_learned=model.arguments_ is not None,
            retry=not is_paper if retry is None else retry,
        )

    def plan(self, query: str | Run) -> PlanResult:
        """Plan until the end of plan, or until something else stops it; see ``PlanResult``.

        Args:
            query: what the user asked for, or a run to continue: its calls are the first of the
                plan.

        Raises:
            LLMError: the LLM could not be asked; callers of ``iter_steps`` keep the steps so far.
        """
        return self._finish(_PlanningRun(self, query))

    def plan_along(self, query: str, calls: Sequence[ToolCall]) -> PlanResult:
        """Like ``plan``, but every step continues after the gold calls, not after its own.

        This is the loop of the paper's Algorithms 1 and 2, which give each step the gold history;
        ``plan`` is that of Section 4. There are at most as many steps as calls, and one for the
        end.

        Args:
            query: what the user asked for.
            calls: of the gold plan, in its order.

        Raises:
            LLMError: the LLM could not be asked.
        """
        return self._finish(_GoldRun(self, query, gold=renumber_calls(calls)))

    def _finish(self, run: _PlanningRun) -> PlanResult:
        while not run.stopped:
            self._step(run)
        return run.result()

    def iter_steps(self, query: str | Run) -> Iterator[PlannedStep]:
        """Yield each step as it is made; closing the iterator stops the planning."""
        run = _PlanningRun(self, query)
        while not run.stopped:
            yield self._step(run)

    def result_of(self, query: str | Run, steps: Iterable[PlannedStep]) -> PlanResult:
        """The result of the steps of ``iter_steps``."""
        run = _PlanningRun(self, query)
        for step in steps:
            run.add(step, self.max_steps)
        run.stopped = run.stopped or "cancelled"
        return run.result()

    def select(self, query: str, calls: list[ToolCall], ranking: Ranking) -> PlannedStep:
        """One selection after the given calls, without filling: a teacher-forced step.

        Raises:
            LLMError: the LLM could not be asked.
        """
        started = time.perf_counter()
        shown = ranking.select(self.mask)
        prompt = self.prompts.prompt(query, calls, shown)
        selected = self.selector.select(self.llm, self.prompts, prompt, ranking, shown)
        seconds = time.perf_counter() - started
        return PlannedStep(
            ranking, shown.tools, selected, None, FilledParameters({}), {"select": seconds}
        )

    def _step(self, run: _PlanningRun) -> PlannedStep:
        started = time.perf_counter()
        ranking = run.session.rank()
        seconds = {"rank": time.perf_counter() - started}
        if self.selector.method == "plan":
            planned = self._follow_plan(run, ranking, seconds)
            if planned is not None:
                run.add(planned, self.max_steps)
                return planned
        step = self.select(run.query, run.calls, ranking)
        seconds |= step.seconds
        tool = step.selected.tool
        call: ToolCall | None = None
        filled = FilledParameters({})
        if tool is not None and tool != END:
            started = time.perf_counter()
            prediction = run.session.fill(tool) if self.filler.uses_learned else None
            filled = self.filler.fill(run.query, run.calls, tool, prediction)
            seconds["fill"] = time.perf_counter() - started
            call = ToolCall(run.free_id, tool, filled.arguments)
        filled_step = replace(step, call=call, filled=filled, seconds=seconds)
        run.add(filled_step, self.max_steps)
        return filled_step

    def _follow_plan(
        self, run: _PlanningRun, ranking: Ranking, seconds: dict[str, float]
    ) -> PlannedStep | None:
        """The next step of the whole plan; None if the run continues step by step."""
        if run.planned is None:
            started = time.perf_counter()
            run.planned = self._plan_ahead(run)
            seconds["fill"] = time.perf_counter() - started
        if not run.planned:
            return None
        call, filled = run.planned.pop(0)
        tool = END if call is None else call.tool
        selected = Selected(tool, "plan", candidates=(tool,))
        return PlannedStep(ranking, (tool,), selected, call, filled, seconds)

    def _plan_ahead(self, run: _PlanningRun) -> Planned:
        """The filled calls of the most probable plan, and its end; empty if there is no plan."""
        # A plan assumes that its calls return what it needs.
        if run.calls and run.calls[-1].status in ("error", "empty"):
            return []
        calls = list(run.calls)
        planned: Planned = []
        for plan in run.session.plans(1):
            for id, call in zip(plan.ids, plan.calls, strict=True):
                prediction = call if self.filler.uses_learned else None
                filled = self.filler.fill(run.query, calls, call.tool, prediction)
                calls.append(ToolCall(id, call.tool, filled.arguments))
                planned.append((calls[-1], filled))
            planned.append((None, FilledParameters({})))
        return planned


@dataclass
class _PlanningRun:
    """A plan under way."""

    planner: Planner
    asked: str | Run
    steps: list[PlannedStep] = field(default_factory=list)
    stopped: Stopped | None = None

    def __post_init__(self) -> None:
        run = self.asked if isinstance(self.asked, Run) else Run(self.asked)
        self.query = run.query
        if not self.query.strip():
            raise InputError("the query is empty; say what the plan is for")
        self.calls: list[ToolCall] = list(run.calls)
        self.earlier = run.earlier
        self._ids = {call.id for call in (*run.earlier, *run.calls)}
        self.session: Session = self.planner.model.session(run)
        self._made: Counter[str] = Counter()
        self.planned: Planned | None = None

    @property
    def free_id(self) -> str:
        """The id of the next call: its number in the plan, or the next free number."""
        next_id = len(self.calls) + 1
        while str(next_id) in self._ids:
            next_id += 1
        return str(next_id)

    def add(self, step: PlannedStep, max_steps: int) -> None:
        """Append a step, and decide whether the plan continues."""
        self.steps.append(step)
        if step.call is None:
            if step.selected.tool == END:
                self.stopped = "end"
            elif step.selected.outcome == "too long":
                self.stopped = "prompt too long"
            else:
                self.stopped = "no usable answer"
            return
        self._follow(step.call)
        key = json.dumps([step.call.tool, step.call.arguments], sort_keys=True)
        self._made[key] += 1
        if self._made[key] >= MAX_REPEATS and self.planner.filler.method != "none":
            self.stopped = "loop"
        elif len(self.calls) >= max_steps:
            self.stopped = "step limit"

    def _follow(self, call: ToolCall) -> None:
        """Continue after this call."""
        self.calls.append(call)
        self._ids.add(call.id)
        if self.planner.filler.uses_learned:
            self.session.call(call.tool, call.arguments, id=call.id)
        else:  # rankings, and so recorded prompts, use names alone
            self.session.call(call.tool)

    def result(self) -> PlanResult:
        return PlanResult(
            self.query,
            Plan(tuple(self.calls), earlier=self.earlier),
            tuple(self.steps),
            self.stopped or "cancelled",
        )


@dataclass
class _GoldRun(_PlanningRun):
    """A plan under way whose history is the gold plan."""

    gold: Sequence[ToolCall] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._planned: list[ToolCall] = []

    def add(self, step: PlannedStep, max_steps: int) -> None:
        """Keep the planned call, and continue after the gold call in its place."""
        if step.call is None:
            super().add(step, max_steps)
            return
        self.steps.append(step)
        self._planned.append(step.call)
        if len(self.calls) == len(self.gold):
            self.stopped = "step limit"  # it continued after the end of the gold plan
            return
        gold = self.gold[len(self.calls)]
        self._follow(gold)

    def result(self) -> PlanResult:
        return PlanResult(
            self.query, Plan(tuple(self._planned)), tuple(self.steps), self.stopped or "cancelled"
        )
