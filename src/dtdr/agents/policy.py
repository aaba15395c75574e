"""Which of the available tools are shown at a step, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from dtdr.agents.search import SEARCH_CALLS
from dtdr.conversation.injected import HIDDEN
from dtdr.data.calls import END
from dtdr.errors import InputError, check_choice, check_lists
from dtdr.rankers.ranking import Ranking
from dtdr.rankers.selection import TOP_K, Selection

Sticky = Literal["none", "grow", "confidence"]
Reason = Literal["ranked", "kept", "new", "called", "always", "unknown", "open"]

TOLERANCE = 0.05
"""Default for sticky sets. dtdr-l, five tools, runs held out of the training half, recall and
dollars of 1,000 runs with cold caches: TinyAgent bank .936 and 22.44 at every step, .917 and 14.78
at .05, .904 and 13.66 at .1; T-Eval .808, .778, .756 for 18.68, 13.42, 12.99; UltraTool .941, .926,
.917 for 7.58, 6.87, 6.90. More tolerance costs recall and saves next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy(Selection):
    """How many tools are shown, which always are, and when the set may change.

    The bounds are those of ``Selection``, with four differences. Without any, at least the five
    best tools are shown. ``token_budget`` first counts the tools that are shown in any case. For a
    query unlike the demonstrations, ``fallback`` shows the hundred best tools, or all if there are
    fewer. The tool with few calls is shown in addition to ``top_k``, and also if no word of the
    query names it.
    With every policy, tools that were called and tools that the model does not know are shown; of
    the tools with fewer than ten calls in the demonstrations, the one that the query names best;
    and at least one other tool that it knows. The end of plan is not a tool here.

    Attributes:
        always_include: names of tools that are always shown.
        sticky: ``none`` follows the ranking at every step; ``grow`` never takes a tool away
            within a run; ``confidence`` keeps the set until another set is more probable by more
            than ``tolerance``.
        tolerance: for ``confidence``, in [0, 1].

    Raises:
        InputError: a value is out of its range.
    """

    always_include: Collection[str] = ()
    sticky: Sticky = "none"
    tolerance: float = TOLERANCE

    DEFAULT_LEAST: ClassVar[int] = TOP_K
    # A set with one acceptable tool often has one of several: dtdr-f on the TinyAgent bank shows
    # .685 of the acceptable tools at 95 % coverage, and an agent calls in parallel.

    UNFAMILIAR_TOP_K: ClassVar[int] = 100
    # OpenAI refuses more than 128; the rest is for tools that were called or are not known.

    def __post_init__(self) -> None:
        check_lists(always_include=self.always_include)
        Selection.__post_init__(self)
        check_choice("sticky policy", self.sticky, get_args(Sticky))
        if not 0 <= self.tolerance <= 1:
            raise InputError(f"tolerance is {self.tolerance}; it must be in [0, 1]")

    def _choose_ranked(
        self,
        ranking: Ranking,
        names: Collection[str],
        costs: Mapping[str, int] | None,
        shown: Collection[str],
    ) -> tuple[str, ...]:
        """The tools that the ranking alone would show, best first; at least one if it knows any.

        The tools that are ``shown`` in any case count against the token budget first.
        """
        tokens, spent = None, 0
        vocabulary = ranking.vocabulary
        if self.token_budget is not None:
            if costs is None:
                raise InputError("token_budget needs the costs of the tools; use top_k instead")
            spent = sum(costs.get(name, 0) for name in shown)
            tokens = np.array([0 if name in shown else costs.get(name, 0) for name in vocabulary])
        wanted = set(names) - {END}
        allowed = np.array([name in wanted for name in vocabulary])
        positions = self.positions(ranking, allowed=allowed, tokens=tokens, spent=spent)
        return tuple(vocabulary[position] for position in positions)


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The tools that a step shows, and why.

    Attributes:
        names: the named tools that were available, in their order.
        reasons: for each shown tool, in the same order: ``ranked``; else ``called``, ``always`` or
            ``unknown``, which are shown whatever their rank; ``new`` for the tool with few calls
            that the query names best; else ``kept`` from an earlier step by a sticky policy; or
            ``open`` if everything is shown because ranking failed.
        weights: probabilities of the shown tools that the model knows, best first.
        failure: why everything is shown; empty if nothing failed.
    """

    names: tuple[str, ...]
    reasons: Mapping[str, Reason]
    weights: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    _hidden: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hidden = frozenset(name for name in self.names if name not in self.reasons)
        object.__setattr__(self, "_hidden", hidden)

    @property
    def shown(self) -> tuple[str, ...]:
        """The tools that are shown, in their order; empty only if none was available."""
        return tuple(self.reasons)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The named tools that are not shown, in their order."""
        return tuple(name for name in self.names if name in self._hidden)

    @property
    def preferred(self) -> tuple[str, ...]:
        """The tools that are shown for their rank, now or before, or as new ones, best first."""
        reasons = ("ranked", "kept", "new")
        return tuple(name for name in self.weights if self.reasons[name] in reasons)

    def shows(self, name: str | None) -> bool:
        """Whether a tool stays; one without a name, or that was not available, does."""
        return name is None or name not in self._hidden

    def refusal(self, name: str) -> str | None:
        """A guard's answer to a call of a hidden tool; None for other tools.

        A model can call a tool that it was not shown: hidden is not forbidden. The caller decides
        whether that is an error.
        """
        if self.shows(name):
            return None
        start = HIDDEN.format(name=repr(name))
        return f"{start} Tools that can be used now: {', '.join(self.shown)}."


class ToolSelector:
    """Applies a policy step after step of one run, and remembers what a sticky policy needs.

    Args:
        policy: what is shown.
        kept: the set that a sticky policy continues from, such as ``kept`` of an earlier object.
    """

    def __init__(self, policy: ToolPolicy | None = None, *, kept: Iterable[str] = ()) -> None:
        self.policy = policy or ToolPolicy()
        self.kept: tuple[str, ...] = tuple(kept)

    def select(
        self,
        names: Sequence[str],
        ranking: Ranking,
        called: Collection[str] = (),
        *,
        costs: Mapping[str, int] | None = None,
    ) -> ToolSelection:
        """Decide one step.

        If the query asks for none of the tools, nothing was called and the agent can search, no
        tool is shown for its rank.

        Args:
            names: the named tools that are available, in the order they are given to the model.
            ranking: of the model for this step.
            called: every tool that the transcript refers to, in any order.
            costs: tokens of each tool's definition; needed for ``token_budget``.

        Raises:
            InputError: two tools share a name, or the ranking cannot serve the policy.
        """
        available = frozenset(unique_names(names))
        probability = dict(zip(ranking.tools, ranking.probabilities.tolist(), strict=True))
        fixed: dict[str, Reason] = dict.fromkeys(
            available.intersection(self.policy.always_include), "always"
        )
        fixed.update(dict.fromkeys(available.intersection(called), "called"))
        fixed.update(dict.fromkeys(available.difference(probability), "unknown"))
        # Shown in addition, as before the model knew it.
        new = ranking.new_tool(available.difference(fixed), self.kept)
        if new is not None:
            fixed[new] = "new"
        if ranking.is_none_of_these and not called and not SEARCH_CALLS.isdisjoint(available):
            ranked: tuple[str, ...] = ()
        else:
            ranked = self.policy._choose_ranked(ranking, available, costs, fixed)
        added = () if new is None or new in ranked else (new,)
        kept = self._stick((*ranked, *added), available, probability)
        shown: dict[str, Reason] = {**dict.fromkeys(available.intersection(kept), "kept"), **fixed}
        shown.update(dict.fromkeys(kept.intersection(ranked), "ranked"))
        reasons = {name: shown[name] for name in names if name in shown}
        weights = {name: share for name, share in probability.items() if name in reasons}
        return ToolSelection(tuple(names), reasons, weights)

    def show_all(self, names: Sequence[str], failure: str) -> ToolSelection:
        """Show everything, because ranking failed; the sticky set does not change."""
        return ToolSelection(unique_names(names), dict.fromkeys(names, "open"), {}, failure)

    def _stick(
        self,
        ranked: tuple[str, ...],
        available: Collection[str],
        probability: Mapping[str, float],
    ) -> frozenset[str]:
        if self.policy.sticky == "none":
            self.kept = ranked
        elif self.policy.sticky == "grow":
            # A tool that is not available now may be later, so it is remembered.
            self.kept = tuple(dict.fromkeys((*self.kept, *ranked)))
        else:
            still = [name for name in self.kept if name in available and name in probability]
            mass = sum(probability[name] for name in still)
            best = sum(probability[name] for name in ranked)
            if not still or best > mass + self.policy.tolerance:
                self.kept = ranked
        return frozenset(self.kept)


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names; one text instead of them, and two that are equal, are an InputError."""
    check_lists(names=names)
    listed = tuple(names)
    if len(frozenset(listed)) < len(listed):
        twice = next(name for position, name in enumerate(listed) if name in listed[:position])
        raise InputError(f"two tools are named {twice!r}; tool names must be unique")
    return listed
