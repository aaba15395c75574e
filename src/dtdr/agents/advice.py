"""The cost in tokens of each way to show tools on recorded runs, and what it hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from dtdr.agents.anthropic import LOADER, LOADER_TOOL, load
from dtdr.agents.policy import Sticky, ToolPolicy, ToolSelector
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.run import as_run
from dtdr.data.tools import Tool, ToolLike, as_tools
from dtdr.errors import InputError, check_at_least
from dtdr.predict.model import Model
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import count_tokens

SMALLEST_PREFIX = 1024
"""Tokens of the shortest prefix that Anthropic and OpenAI cache."""

CACHED_PRICE = 0.1
"""Price of a token read from the cache, relative to another, at both."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt; the same key means the same text."""

    key: Hashable
    tokens: int
    mark: bool = False
    """Whether a cached prefix may end after it."""


def send(prompt: Sequence[Segment], cache: set[int]) -> tuple[int, int]:
    """Tokens of one request, and how many of them the provider's cache had.

    A prefix ends after the tools, the system prompt or a message. A request reads the longest one
    that an earlier request had. The cache gets the request's prefixes, and forgets none.
    """
    chain = total = read = 0
    prefixes = []
    for segment in prompt:
        chain = hash((chain, segment.key))
        total += segment.tokens
        if segment.mark and total >= SMALLEST_PREFIX:
            prefixes.append(chain)
            if chain in cache:
                read = total
    cache.update(prefixes)
    return total, read


@dataclass(frozen=True, slots=True)
class Way:
    """A way to show tools.

    Attributes:
        name: in tables, with the provider if only one offers it.
        sticky: the policy's; None if every tool is shown.
        constant: whether the array of tools stays the same.
        loads: whether definitions are loaded within the conversation, by the result of a loader.
        deferred: whether the agent has to search for each tool before its first call, as in coding
            agents that defer the tools of MCP servers.
    """

    name: str
    sticky: Sticky | None = None
    constant: bool = False
    loads: bool = False
    deferred: bool = False


WAYS = (
    Way("all tools", constant=True),
    Way("filtered, each step", sticky="none"),
    Way("filtered, growing", sticky="grow"),
    Way("filtered, confident", sticky="confidence"),
    Way("allowed_tools OpenAI", sticky="none", constant=True),
    Way("defer_loading Anthropic", sticky="grow", loads=True),
    Way("deferred, searched", loads=True, deferred=True),
)


class Sizes(msgspec.Struct, frozen=True):
    """Tokens of what demonstrations do not contain.

    Attributes:
        system_tokens: of the system prompt.
        result_tokens: of each call's result.
        tool_tokens: of each tool's definition; None measures the definitions.
    """

    system_tokens: int = 500
    result_tokens: int = 200
    tool_tokens: int | None = None

    def __post_init__(self) -> None:
        check_at_least(0, **msgspec.structs.asdict(self))


class Cost(msgspec.Struct, frozen=True):
    """The cost of one way, as means per run.

    ``cold`` starts every run with an empty cache; ``warm`` keeps everything that any run wrote.
    Real costs are in between, and nearer to ``warm`` the more runs a cache's lifetime contains.

    Attributes:
        way: how tools are shown.
        tools_shown: tools whose definitions the model sees and may call, as a mean over requests.
        tokens_per_run: input tokens.
        cold_paid_tokens_per_run: tokens to pay for, cold: one from the cache counts
            ``CACHED_PRICE``.
        warm_paid_tokens_per_run: the same, warm.
        next_shown: of the tools that the agent's next message called, the share that was shown.
        searches_per_run: calls of tools that were not shown and not searched for before: the round
            trips of an agent that can search.
    """

    way: str
    tools_shown: float
    tokens_per_run: float
    cold_paid_tokens_per_run: float
    warm_paid_tokens_per_run: float
    next_shown: float
    searches_per_run: float


def advise(
    model: Model,
    demonstrations: Iterable[DemonstrationLike],
    tools: Iterable[ToolLike] = (),
    *,
    policy: ToolPolicy | None = None,
    sizes: Sizes | None = None,
) -> list[Cost]:
    """Replay runs, and count the cost of each way to show tools.

    Every demonstration is walked with its own calls: one request per message, which may make calls
    in parallel, and one for the answer.
    A prompt is the tools, the system prompt, the query, and each call with its result. Output is
    the same for all ways and not counted. Of searches for hidden tools, only those of the deferred
    way count: each is one more request.

    Args:
        model: a fitted one.
        demonstrations: the runs.
        tools: definitions, in addition to those that the model was fitted with.
        policy: how many tools are shown; each way has its own ``sticky``.
        sizes: tokens of what demonstrations do not contain.

    Raises:
        InputError: there is no demonstration, or the model cannot serve the policy.
    """
    runs = list(as_demonstrations(demonstrations))
    if not runs:
        raise InputError("there are no runs to count; give at least one demonstration")
    policy = policy or ToolPolicy()
    policy.check(model.calibration_)
    sizes = sizes or Sizes()
    costs = definition_costs(model, runs, tools, sizes)
    counters = [_Counter(way, policy, sizes, costs) for way in WAYS]
    for item in runs:
        done = (item.plan.calls[:count] for count in range(len(item.plan) + 1))
        steps = [as_run(item.query, calls, item.before, item.offered) for calls in done]
        rankings = model.rank_batch(steps)
        for counter in counters:
            counter.count(item, rankings)
    return [counter.cost() for counter in counters]


def definition_costs(
    model: Model,
    demonstrations: Iterable[Demonstration],
    tools: Iterable[ToolLike],
    sizes: Sizes,
) -> dict[str, int]:
    """Tokens of every tool's definition, by name: those of the model, of the list, of the runs."""
    known = {name: Tool(name) for item in demonstrations for name in item.plan.tools}
    known |= {tool.name: tool for tool in (*model.tools_, *as_tools(tools))}
    known.pop(END, None)
    if sizes.tool_tokens is not None:
        return dict.fromkeys(sorted(known), sizes.tool_tokens)
    return {name: count_tokens(_definition(known[name])) for name in sorted(known)}


def unused_tools(
    model: Model,
    demonstrations: Iterable[DemonstrationLike],
    tools: Iterable[ToolLike] = (),
    sizes: Sizes | None = None,
) -> dict[str, int]:
    """Tokens of the definitions of the tools that no run calls, by name, most first.

    Calls of failed runs and of earlier turns count as use.
    """
    runs = list(as_demonstrations(demonstrations))
    called = {name for item in runs for name in item.plan.tools}
    for item in runs:
        called.update(event.tool for event in item.before if isinstance(event, ToolCall))
    costs = definition_costs(model, runs, tools, sizes or Sizes())
    unused = [(name, tokens) for name, tokens in costs.items() if name not in called]
    return dict(sorted(unused, key=lambda pair: -pair[1]))


class _Counter:
    """Counts one way over all runs."""

    def __init__(
        self, way: Way, policy: ToolPolicy, sizes: Sizes, costs: Mapping[str, int]
    ) -> None:
        self._way = way
        self._policy = replace(policy, sticky=way.sticky or "none")
        self._sizes = sizes
        self._costs = costs
        self._names = tuple(costs)
        self._warm_cache: set[int] = set()
        self._sums: Counter[str] = Counter()

    def count(self, demonstration: Demonstration, rankings: Sequence[Ranking]) -> None:
        """Count one run; one ranking a step, the last for the end of plan."""
        self._sums["runs"] += 1
        cold_cache: set[int] = set()
        selector = ToolSelector(self._policy)
        query = demonstration.query
        conversation = [Segment(("query", query), count_tokens(query), mark=True)]
        loaded: set[str] = set()
        searched: set[str] = set()

        def ask(shown: frozenset[str], ranking: Ranking) -> None:
            prompt = [*self._head(shown, ranking), *conversation]
            tokens, read = send(prompt, cold_cache)
            self._sums["tokens"] += tokens
            self._sums["cold_read"] += read
            self._sums["warm_read"] += send(prompt, self._warm_cache)[1]

        calls = demonstration.plan.calls
        for start, end in _messages(calls):
            ranking = rankings[start]
            shown = frozenset(searched if self._way.deferred else self._names)
            if self._way.sticky is not None:
                called = demonstration.plan.tools[:start]
                selection = selector.select(self._names, ranking, called, costs=self._costs)
                shown = frozenset(selection.shown)
                known = [name for name in selection.shown if selection.reasons[name] != "unknown"]
                new = [name for name in known if name not in loaded]
                if self._way.loads and new:
                    loaded.update(new)
                    conversation.append(self._load(new))
            ask(shown, ranking)
            self._sums["requests"] += 1
            self._sums["shown"] += len(shown)
            wanted = {call.tool for call in calls[start:end]}
            self._sums["next"] += len(wanted)
            self._sums["next_shown"] += len(wanted & shown)
            for position, call in enumerate(calls[start:end], start=start):
                if call.tool not in shown and call.tool not in searched:
                    self._sums["searches"] += 1
                    if self._way.deferred:
                        conversation.append(self._load([call.tool]))
                        ask(shown, ranking)
                searched.add(call.tool)
                tokens = count_tokens({"name": call.tool, "input": dict(call.arguments)})
                key = (demonstration.id, position, call.tool)
                size = tokens + self._sizes.result_tokens
                conversation.append(Segment(key, size, mark=True))

    def cost(self) -> Cost:
        """The means."""
        sums, runs = self._sums, self._sums["runs"]
        free = 1 - CACHED_PRICE
        return Cost(
            self._way.name,
            tools_shown=sums["shown"] / sums["requests"],
            tokens_per_run=sums["tokens"] / runs,
            cold_paid_tokens_per_run=(sums["tokens"] - free * sums["cold_read"]) / runs,
            warm_paid_tokens_per_run=(sums["tokens"] - free * sums["warm_read"]) / runs,
            next_shown=sums["next_shown"] / sums["next"] if sums["next"] else 1.0,
            searches_per_run=sums["searches"] / runs,
        )

    def _head(self, shown: frozenset[str], ranking: Ranking) -> list[Segment]:
        """The tools and the system prompt."""
        if self._way.loads:
            known = frozenset(ranking.tools)
            tools = [LOADER, *(name for name in self._names if name not in known)]
        elif self._way.constant:
            tools = list(self._names)
        else:
            tools = [name for name in self._names if name in shown]
        segments = [Segment(name, self._costs.get(name, _LOADER_TOKENS)) for name in tools]
        if segments:
            segments[-1] = replace(segments[-1], mark=True)
        return [*segments, Segment("system", self._sizes.system_tokens, mark=True)]

    def _load(self, names: Sequence[str]) -> Segment:
        tokens = count_tokens(load(names, 1)) + sum(self._costs[name] for name in names)
        return Segment(("load", *names), tokens, mark=True)


def _messages(calls: Sequence[ToolCall]) -> Iterator[tuple[int, int]]:
    """The first and the next position of each message's calls; last, the empty one of the answer.

    Calls of one step are one message; without steps, each call is.
    """
    start = 0
    for position in range(1, len(calls) + 1):
        step = calls[start].step
        if position == len(calls) or step is None or calls[position].step != step:
            yield start, position
            start = position
    yield len(calls), len(calls)


FEWEST_SHOWN = 0.9
"""A way that shows a smaller share of the next tools is not advised: the agent would lack one in
ten."""

_ACTIONS = {
    "all tools": "show all tools",
    "filtered, each step": "filter them at each step",
    "filtered, growing": "filter them with sticky='grow'",
    "filtered, confident": "filter them with sticky='confidence'",
    "allowed_tools OpenAI": "show all tools",
    "defer_loading Anthropic": "defer the tools and load those that dtdr predicts",
    "deferred, searched": "defer the tools and let dtdr answer the agent's searches",
}


def verdict(costs: Sequence[Cost]) -> str:
    """One sentence: how to show this many tools with and without a prompt cache.

    Args:
        costs: of ``advise``, the first of all tools.
    """
    everything = costs[0]
    good = [
        cost
        for cost in costs
        if cost.next_shown >= FEWEST_SHOWN or cost.way == "deferred, searched"
    ]
    cached = min(good, key=lambda cost: cost.warm_paid_tokens_per_run)
    plain = min(good, key=lambda cost: cost.tokens_per_run)

    def part(cost: Cost, paid: float, all_paid: float) -> str:
        action = _ACTIONS[cost.way]
        if action == "show all tools":
            return f"{action} ({paid:,.0f} tokens a run)"
        shares = f"{cost.next_shown:.1%} of the next tools shown"
        if cost.way == "deferred, searched":
            shares = f"{cost.searches_per_run:.1f} searches a run"
        return f"{action} ({paid:,.0f} instead of {all_paid:,.0f} tokens a run, {shares})"

    with_cache = part(cached, cached.warm_paid_tokens_per_run, everything.warm_paid_tokens_per_run)
    without = part(plain, plain.tokens_per_run, everything.tokens_per_run)
    return (
        f"For {everything.tools_shown:.0f} tools: with a prompt cache, {with_cache}; without one, "
        f"{without}."
    )


def _definition(tool: Tool) -> dict[str, Any]:
    """A tool as providers take it."""
    properties = {
        item.name: {key: text for key in ("type", "description") if (text := getattr(item, key))}
        for item in tool.parameters
    }
    required = [item.name for item in tool.parameters if item.required]
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": {"type": "object", "properties": properties, "required": required},
    }


_LOADER_TOKENS = count_tokens(LOADER_TOOL)
