"""Which blocks ``fit`` takes where it is left to choose, by rankings of held-out plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtdr.calibration import Floats
from dtdr.demonstrations import Demonstration
from dtdr.retrievers.factored.blocks import DEFAULT
from dtdr.retrievers.factored.blocks.clauses import Clauses
from dtdr.retrievers.factored.blocks.coverage import Coverage
from dtdr.retrievers.factored.blocks.data_flow import DataFlow
from dtdr.retrievers.factored.blocks.markov import Markov
from dtdr.retrievers.factored.blocks.query_position import QueryPosition
from dtdr.retrievers.factored.blocks.rhythm import Rhythm
from dtdr.retrievers.factored.blocks.subwords import Subwords
from dtdr.retrievers.factored.encoded_plans import EncodedPlans
from dtdr.retrievers.factored.ranker import uses_shortlist
from dtdr.retrievers.nn import Indices

_STANDARD = tuple(DEFAULT.split(","))
_OPTIONAL = (QueryPosition.name, Coverage.name, Markov.name, Subwords.name, DataFlow.name)
SETS: tuple[tuple[str, ...], ...] = (
    _STANDARD,
    *((*_STANDARD, name) for name in _OPTIONAL),
)
"""Sets of blocks that are weighed against each other, the first where none is clearly better."""


def candidate_sets(*, grouped: bool) -> tuple[tuple[str, ...], ...]:
    """Those of ``SETS`` that folds of this kind can compare.

    Folds at random know fewer words of their plans than the whole model knows of a new query, and
    take ``coverage`` for what it will not be.
    """
    return tuple(blocks for blocks in SETS if grouped or Coverage.name not in blocks)


_LEAST_AGAIN = 0.15
"""Share of the calls whose tool the plan called before. It is .20 on T-Eval, where ``rhythm`` adds
.006 to validation MRR, .14 on TinyAgent, where it adds nothing (-.0002), and at most .05 on
UltraTool and TRAJECT-Bench, where such features cost .001 and .005: there they can only mislead."""


def silent_blocks(plans: EncodedPlans, *, has_encoder: bool) -> tuple[str, ...]:
    """Blocks that have nothing to say of plans like these, and are left out unless named.

    ``rhythm`` is about tools that plans call again and again, ``clauses`` about what a further
    encoder says.
    """
    again = len(plans.calls) - plans.called.nnz
    rhythm = () if again >= _LEAST_AGAIN * len(plans.calls) else (Rhythm.name,)
    return rhythm if has_encoder else (*rhythm, Clauses.name)


_NEW_TOOLS = 0.01
"""Probability of a tool that no plan has called, from which all tools are learned: .23 with 20
plans of T-Eval, .008 with 100. Among 20, where .15 of the steps want such a tool, validation MRR of
these steps is .47, and .37 where another part ranks them by their descriptions."""


def tools_to_learn(plans: EncodedPlans) -> Indices | None:
    """All tools where further plans probably call some that these do not; else None.

    By Good's estimate (Biometrika 1953): kinds that were seen once are as probable together as all
    that were never seen. Among so many tools that the ranker sees only some of them, tools without
    demonstrations would not be among these: with 50 plans of UltraTool's 260 tools validation MRR
    was .045 lower.
    """
    if uses_shortlist(plans.tools):
        return None
    callers = np.bincount(plans.called.indices, minlength=plans.tools)
    once = int((callers == 1).sum())
    return np.arange(plans.tools) if once > _NEW_TOOLS * callers.sum() else None


EPOCHS = 40
"""Passes of a ranker that is trained to compare sets of blocks: half of a ranker's own."""
_LEAST_STEPS, _MOST_STEPS = 500, 1_200
"""Steps that a set of blocks is compared on, unless more time is given: chance decides on few."""
_VISIT_SECONDS = 5e-8
"""What a visit of one feature of one tool costs in training: .1 ms for 33 features of 61 tools."""
_SECONDS = 0.014
"""What choosing may take a demonstration: what a fit takes, 15 s for TinyAgent's 1,058."""
_ERRORS = 2.0
"""A set has to be better by so many standard errors: one of several is better by one by chance."""
_FEWEST_PLANS = 100
"""With fewer demonstrations, what one set of blocks gains on another drowns in chance."""
_FEWEST_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """How well held-out steps are ranked with one set of blocks.

    Attributes:
        blocks: their names.
        mrr: shape (plans,): mean reciprocal rank of the steps of each plan.
        steps: how many steps there were.
    """

    blocks: tuple[str, ...]
    mrr: Floats
    steps: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What is compared: it follows from sizes, not from a clock, so that fits repeat.

    Attributes:
        sets: of blocks.
        steps: at most so many held-out steps.
    """

    sets: tuple[tuple[str, ...], ...]
    steps: int


def plan_budget(
    seconds: float | None,
    plans: int,
    candidates: int,
    features: int,
    sets: tuple[tuple[str, ...], ...] = SETS,
) -> Budget:
    """How many sets of blocks are compared on how many steps.

    Args:
        seconds: that it may take by estimate; None: as long as the rest of the fit, but at most
            1,200 steps, and nothing with fewer than 100 demonstrations.
        plans: demonstrations.
        candidates: tools that a ranker sees at a step.
        features: of each.
        sets: those to choose from, the most promising first.
    """
    step = EPOCHS * candidates * features * _VISIT_SECONDS
    given = seconds
    if given is None:
        given = _SECONDS * plans if plans >= _FEWEST_PLANS else 0.0
    affordable = int(given / (_LEAST_STEPS * step))
    if affordable < 2:
        return Budget((), 0)
    tried = min(len(sets), affordable)
    steps = int(given / (tried * step))
    return Budget(sets[:tried], min(steps, _MOST_STEPS) if seconds is None else steps)


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best of those that beat the first by more than two standard errors; else the first."""
    first = trials[0]
    best, gain = first, 0.0
    for trial in trials[1:]:
        above = trial.mrr - first.mrr
        error = float(above.std() / np.sqrt(max(len(above), 1)))
        if float(above.mean()) > max(gain, _ERRORS * error):
            best, gain = trial, float(above.mean())
    return best


def are_grouped(demonstrations: Sequence[Demonstration]) -> bool:
    """Whether folds keep groups together: where most demonstrations have a group with others."""
    groups = [item.group for item in demonstrations if item.group]
    distinct = len(set(groups))
    return distinct >= _FEWEST_GROUPS and len(groups) >= max(2 * distinct, len(demonstrations) // 2)


def record(grouped: bool, blocks: Sequence[str], trials: Sequence[Trial]) -> dict[str, Any]:
    """What a model folder says of the choice; JSON."""
    return {
        "grouped": grouped,
        "blocks": ",".join(blocks),
        "measured": [
            {
                "blocks": ",".join(trial.blocks),
                "mrr": round(float(trial.mrr.mean()), 4),
                "steps": trial.steps,
            }
            for trial in trials
        ],
    }
