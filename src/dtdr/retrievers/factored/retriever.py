"""``dtdr-f``: query and history as factored features, weighed on held-out plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, ModelError
from dtdr.ranking import Floats, Guide
from dtdr.retrievers.base import History, Retriever
from dtdr.retrievers.factored import calibration, ranker
from dtdr.retrievers.factored.features import Candidates, candidates, feature_names
from dtdr.retrievers.factored.network import PARAMETERS, QUERY_PARAMETERS
from dtdr.retrievers.factored.parts import Parts, PreparedQuery, Switches
from dtdr.retrievers.factored.plans import PlanLog
from dtdr.retrievers.factored.ranker import CandidateRanker
from dtdr.retrievers.state import require

Array = npt.NDArray[Any]

_FEW_PLANS = 20
_ARRAYS = {
    "shapes_of_arrays",
    *(f"next.{name}" for name in PARAMETERS),
    *(f"need.{name}" for name in QUERY_PARAMETERS),
    *(f"{kind}.{name}" for kind in ("words", "shapes", "stems") for name in ("idf", "vocabulary")),
    *(f"plans.{name}" for name in ("calls", "lengths", "edges")),
    *(f"queries.{name}" for name in ("columns", "starts", "values")),
    "alignment.weights",
    *(f"ranker.{name}" for name in ranker.ARRAYS),
    "guide.held_out",
    "guide.confidence",
}


class DTDRFactored(Retriever):
    """DTDR-F: several parts that know the demonstrations, and a ranker that weighs them.

    The parts are a network on query and history, a network that says which tools the query needs
    and how often, Markov chains weighted by the similarity of queries (the soft form of DTDR-C),
    an alignment of the calls with the words of the query, order and dependencies of tools, and
    their descriptions. Each says something about every tool; one small ranker, shared by all
    tools, turns that into probabilities. It is trained on plans that the parts have not seen: the
    demonstrations are divided into folds, and the parts are fitted again without each.

    Args:
        width: hidden units of the next-tool network; 128 cost .006 of validation MRR on TinyAgent.
        folds: parts of the demonstrations that are held out in turn; fewer than 20 take two.
        ranker_seeds: rankers whose log probabilities are averaged.
        alignment: use the alignment; without it .009 to .052 less validation MRR on four sets.
        kernel: use the Markov chains.
        need: use the need network.
        descriptions: use descriptions of tools, where there are any.
        grouped: keep demonstrations of one ``group`` in one fold. For queries whose groups were
            never demonstrated: on TRAJECT split by tool sequence, validation MRR is .660 with it
            and .589 without, and the error of ``Ranking.confidence`` .04 and .36.
        seed: of weights, folds and order of examples.

    Raises:
        InputError: a number is out of range.
    """

    name = "dtdr-f"

    def __init__(
        self,
        *,
        width: int = 192,
        folds: int = 3,
        ranker_seeds: int = 2,
        alignment: bool = True,
        kernel: bool = True,
        need: bool = True,
        descriptions: bool = True,
        grouped: bool = False,
        seed: int = 0,
    ) -> None:
        for option, value, low in (
            ("width", width, 1),
            ("folds", folds, 2),
            ("ranker_seeds", ranker_seeds, 1),
        ):
            if value < low:
                raise InputError(f"{option} is {value}; it must be at least {low}")
        self.width = width
        self.folds = folds
        self.ranker_seeds = ranker_seeds
        self.alignment = alignment
        self.kernel = kernel
        self.need = need
        self.descriptions = descriptions
        self.grouped = grouped
        self.seed = seed

    @property
    def _switches(self) -> Switches:
        return Switches(self.alignment, self.kernel, self.need, self.descriptions)

    # -- fitting -------------------------------------------------------------------------------

    def _fit(self, demonstrations: Sequence[Demonstration]) -> None:
        texts = [demonstration.query for demonstration in demonstrations]
        log = PlanLog.of(demonstrations, self._index)
        fold = self._assign(demonstrations)
        steps: list[Candidates] = []
        accepted: list[tuple[int, ...]] = []
        owners: list[int] = []
        for number in range(int(fold.max()) + 1 if fold.max() > 0 else 0):
            held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            parts = self._parts([texts[position] for position in rest], log.subset(rest))
            prepared = [parts.prepare(texts[position]) for position in held]
            for step in log.subset(held).steps():
                steps.append(candidates(parts, prepared[step.plan], step.history))
                accepted.append(step.acceptable)
                owners.append(int(held[step.plan]))
        self.rankers_: list[CandidateRanker] = []
        guide = Guide()
        if steps:
            right = np.array(
                [np.isin(step.tools, tools) for step, tools in zip(steps, accepted, strict=True)]
            )
            self.rankers_ = [
                CandidateRanker.fit(*_usable(steps, right), seed=self.seed + number)
                for number in range(self.ranker_seeds)
            ]
            guide = self._calibrate(steps, right, accepted, np.array(owners))
        self.parts_ = self._parts(texts, log)
        self.guide_ = Guide(guide.held_out, guide.confidence, calibration.token_costs(self.tools_))

    def _parts(self, texts: Sequence[str], log: PlanLog) -> Parts:
        return Parts.fit(self.tools_, self._switches, texts, log, width=self.width, seed=self.seed)

    def _assign(self, demonstrations: Sequence[Demonstration]) -> npt.NDArray[np.intp]:
        """The fold of each demonstration."""
        rng = np.random.default_rng(self.seed)
        folds = self.folds if len(demonstrations) >= _FEW_PLANS else 2
        if not self.grouped:
            return rng.permutation(len(demonstrations)) % min(folds, len(demonstrations))
        groups = [item.group or f"\0{number}" for number, item in enumerate(demonstrations)]
        names = sorted(set(groups))
        fold = dict(
            zip(names, (rng.permutation(len(names)) % min(folds, len(names))).tolist(), strict=True)
        )
        return np.array([fold[group] for group in groups], np.intp)

    def _calibrate(
        self,
        steps: Sequence[Candidates],
        right: Array,
        accepted: Sequence[tuple[int, ...]],
        owners: Array,
    ) -> Guide:
        """Rankings of each half of the plans by a ranker that was trained on the other."""
        held_out: list[float] = []
        best: list[float] = []
        hits: list[bool] = []
        for half in (0, 1):
            train: list[int] = np.flatnonzero(owners % 2 != half).tolist()
            test: list[int] = np.flatnonzero(owners % 2 == half).tolist()
            if not len(train) or not right[train].any():
                continue
            usable = _usable([steps[number] for number in train], right[train])
            fitted = CandidateRanker.fit(*usable, seed=self.seed)
            for number in test:
                row = ranker.probabilities([fitted], steps[number])
                held_out.append(float(row[list(accepted[number])].max()))
                best.append(float(row.max()))
                hits.append(int(row.argmax()) in accepted[number])
        return calibration.guide_of(held_out, best, hits) if best else Guide()

    # -- ranking -------------------------------------------------------------------------------

    def _prepare(self, queries: Sequence[str]) -> Sequence[PreparedQuery]:
        return [self.parts_.prepare(query) for query in queries]

    def _probabilities(self, prepared: Sequence[Any], histories: Sequence[History]) -> Floats:
        return np.stack(
            [
                ranker.probabilities(self.rankers_, candidates(self.parts_, query, history))
                for query, history in zip(prepared, histories, strict=True)
            ]
        )

    # -- saving --------------------------------------------------------------------------------

    def _state(self) -> dict[str, Array]:
        state = {
            **self.parts_.state(),
            **ranker.state(self.rankers_, len(feature_names(self._switches))),
            **calibration.state(self.guide_),
        }
        return {**state, "shapes_of_arrays": _shapes(state)}

    def _restore(self, state: Mapping[str, Array]) -> None:
        require(state, _ARRAYS)
        arrays = {name: array for name, array in state.items() if name != "shapes_of_arrays"}
        tools, features = len(self.tools_), len(feature_names(self._switches))
        if (
            not np.array_equal(_shapes(arrays), state["shapes_of_arrays"])
            or arrays["next.output"].shape[1] != tools
            or arrays["alignment.weights"].shape[1] != tools
            or arrays["ranker.mean"].shape[1] != features
        ):
            raise ModelError(
                f"the arrays of the model do not fit together, its {tools} tools or its "
                f"{features} features; fit it again"
            )
        self.parts_ = Parts.restore(self.tools_, self._switches, arrays.__getitem__)
        self.rankers_ = ranker.restore(arrays.__getitem__)
        self.guide_ = calibration.restore(arrays.__getitem__, self.tools_)


def _usable(steps: Sequence[Candidates], right: Array) -> tuple[Array, Array]:
    """Features and acceptable candidates of the steps whose shortlist holds one."""
    kept: list[int] = np.flatnonzero(right.any(axis=1)).tolist()
    return np.stack([steps[number].features for number in kept]), right[kept]


def _shapes(arrays: Mapping[str, Array]) -> npt.NDArray[np.int64]:
    """All dimensions of all arrays in the order of their names: what a cut array is told by."""
    return np.array(
        [size for name in sorted(arrays) for size in (arrays[name].ndim, *arrays[name].shape)],
        np.int64,
    )
