"""A model: a ranker with arguments and plans, which is fitted, changed and saved as one."""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import filterfalse
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtdr.data.calls import END
from dtdr.data.demonstration_files import DemonstrationFile
from dtdr.data.demonstrations import Demonstration, DemonstrationLike, as_demonstrations
from dtdr.data.run import Run
from dtdr.data.tools import Tool, ToolLike, unique_tools
from dtdr.errors import DtdrError, InputError, ModelError
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.new_tools import count_calls
from dtdr.predict.plans.plan_model import PlanModel
from dtdr.predict.tool_changes import ChangeablePredictor
from dtdr.rankers import DEFAULT, model_folder, ranker_class
from dtdr.rankers.base import Arrays, HeldOutFold, IncrementalRanker, Ranker, StepState
from dtdr.rankers.folds import assign_folds
from dtdr.rankers.training import TrainingData, select_training_data

logger = logging.getLogger("dtdr")

END_TOOL = Tool(END, "Finish: everything the user asked for is planned, no further tool is needed.")

Demonstrations = str | Path | Iterable[DemonstrationLike]
"""Demonstrations to learn from: a file, or an iterable."""


class Model(ChangeablePredictor):
    """A ranker with arguments and plans; ``dtdr.fit`` and ``dtdr.load`` return it.

    Other threads can rank while one changes the model.

    >>> from dtdr.rankers.markov import FirstOrderMarkov
    >>> model = Model(FirstOrderMarkov()).fit([("Mail Ann q3.pdf", ["open", "mail"])] * 3)
    >>> model.rank("Mail Bo", ["open"]).best, model.vocabulary
    ('mail', ('mail', 'open', 'end'))

    Args:
        ranker: scores the tools of the next step; fitted by ``fit``.
        arguments: which value each argument takes; None if that is not learned.
        plans: whole plans; None if they are not learned.
    """

    def __init__(
        self, ranker: Ranker, arguments: ArgumentModel | None = None, plans: PlanModel | None = None
    ) -> None:
        self.ranker = ranker
        self.arguments_ = arguments
        self.plans_ = plans

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return int(self.get_params().get("seed", 0))

    def get_params(self) -> dict[str, Any]:
        """The ranker's keywords and their values."""
        return self.ranker.get_params()

    @classmethod
    def of(cls, tools: Iterable[ToolLike], *, arguments: bool = True) -> Model:
        """A model of tools without demonstrations, which ranks them by their descriptions.

        It is a dtdr-f model, and ``update`` lets it learn from the first runs.

        >>> model = Model.of([{"name": "send_mail"}, {"name": "lock_door"}])
        >>> model.rank("Lock the front door, please").best
        'lock_door'

        Args:
            tools: ``Tool`` objects, their JSON objects, or definitions for OpenAI, Anthropic or
                MCP; at least one.
            arguments: whether to fill arguments from the query and from earlier outputs.

        Raises:
            InputError: there is no tool, two tools share a name, or something is not a tool.
        """
        return cls(ranker_class(DEFAULT)()).fit([], tools, arguments=arguments)

    def clone(self) -> Model:
        """A model with the same parameters that is not fitted."""
        return Model(type(self.ranker)(**self.get_params()))

    __sklearn_clone__ = clone

    def parameters(self) -> dict[str, Any]:
        """The parameters that are JSON; model folders and run logs record them."""
        parameters = self.get_params()
        return {name: parameters[name] for name in parameters if name not in self.ranker.not_saved}

    def __repr__(self) -> str:
        default = self.ranker.default_params()
        parameters = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not default[name] and value != default[name]
        )
        return f"{type(self.ranker).__name__}({parameters})"

    def fit(
        self,
        demonstrations: Demonstrations,
        tools: Iterable[ToolLike] | None = None,
        *,
        arguments: bool = True,
        plans: bool = True,
        value_runs: int = 3,
        failures: bool = True,
    ) -> Self:
        """Learn from demonstrations.

        Args:
            demonstrations: the path of a ``demonstrations.jsonl`` or of an agent's log in any
                known format; or an iterable, read once, of ``Demonstration`` objects, their JSON
                objects, or pairs ``(query, [tool names])``. It may be empty if there are tools:
                dtdr-f then ranks them by their descriptions.
            tools: descriptions and parameters, and tools that no demonstration uses yet: ``Tool``
                objects, their JSON objects, or definitions for OpenAI, Anthropic or MCP; None takes
                those of the log, or of the ``tools.json`` in the folder of the file.
            arguments: whether to learn the values of arguments, for ``next_calls`` and
                ``fill``; always from runs that failed too.
            plans: whether to learn which whole plans are right, for ``plans``; from runs that did
                not fail, if there are any. This fits a ranker other than dtdr-f three more times,
                so with one that asks an LLM it is always False.
            value_runs: runs that must have a value of an argument for the model to keep it as
                text; 0 keeps none.
            failures: whether to learn from runs that failed: most of their calls are right.

        Raises:
            InputError: there is nothing to learn from, something is not a demonstration, two tools
                share a name, the ranker needs descriptions and there are none, or a number is out
                of range.
        """
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be between 0 and 4,294,967,295")
        if isinstance(demonstrations, (str, Path)):
            from dtdr.logs import open_demonstrations

            demonstrations = open_demonstrations([demonstrations])
        started = time.perf_counter()
        everything = list(as_demonstrations(demonstrations))
        if tools is None and isinstance(demonstrations, DemonstrationFile):
            tools = demonstrations.tools
        known = unique_tools(tools or ())
        if not everything:
            self._check_tools_are_enough(known)
        with self._change() as draft:
            usable, record = select_training_data(
                everything, may_be_empty=not everything, failures=failures
            )
            draft._set_vocabulary(known, usable)
            draft._set_calls(count_calls(usable))
            draft.ranker = ranker = copy.copy(self.ranker)
            ranker.fit(usable, draft.tools_)
            # Taken in any case, so that the ranker does not keep its models of folds.
            held_out = ranker.held_out(usable) if isinstance(ranker, IncrementalRanker) else None
            draft.training_ = record
            draft.arguments_ = None
            if arguments:
                # Most calls of a failed run are right. Without those runs, of tau-bench's airline
                # 39 % of calls were filled exactly, with them 44 %.
                draft.arguments_ = ArgumentModel.fit(
                    everything, draft.tools_[:-1], value_runs=value_runs, seed=draft.seed
                )
            draft.plans_ = None
            if plans and usable and "llm" not in self.ranker.not_saved:
                folds = list(draft._hold_out(usable) if held_out is None else held_out)
                folds = _without_failures(folds, usable)
                draft.plans_ = PlanModel.fit(
                    usable,
                    draft.tools_[:-1],
                    folds,
                    may_be_empty=draft.may_end_at_once,
                    seed=draft.seed,
                )
        logger.info(
            "fitted %s on %d demonstrations of %d tools in %.2f s",
            self.name,
            self.training_.demonstrations,
            len(self.tools_) - 1,
            time.perf_counter() - started,
        )
        return self

    def _check_tools_are_enough(self, tools: Mapping[str, Tool]) -> None:
        """Raise an InputError unless this ranker can be fitted to these tools alone."""
        if not tools:
            raise InputError(
                "there are no demonstrations to learn from; give at least one, or tools to rank "
                "by their descriptions (--tools tools.json)"
            )
        if self.ranker.needs_demonstrations:
            raise InputError(
                f"ranker {self.name!r} learns from demonstrations, and there are none; give some, "
                "or choose dtdr-f, which also ranks by descriptions"
            )

    def _set_vocabulary(self, known: dict[str, Tool], usable: Sequence[Demonstration]) -> None:
        if self.ranker.needs_descriptions and not any(tool.description for tool in known.values()):
            raise InputError(
                f"ranker {self.name!r} needs tool descriptions; pass tools (--tools tools.json) "
                "or choose a ranker that learns from demonstrations alone, such as dtdr-c"
            )
        names = {call.tool for demonstration in usable for call in demonstration.plan.calls}
        names.update(known)
        names.discard(END)
        ordered = [known.get(name, Tool(name)) for name in sorted(names)]
        self._install_tools((*ordered, known.get(END, END_TOOL)))

    def _hold_out(self, demonstrations: Sequence[Demonstration]) -> Iterator[HeldOutFold]:
        """Parts of the demonstrations, each with a model that has not seen them."""
        fold = assign_folds(demonstrations, folds=3, seed=self.seed)
        for part in range(int(fold.max()) + 1):
            rest = [item for item, at in zip(demonstrations, fold, strict=True) if at != part]
            if not rest:
                return
            other = self.clone().fit(rest, self.tools_[:-1], arguments=False, plans=False)

            def start(position: int, other: Model = other) -> StepState:
                item = demonstrations[position]
                return other.steps.state_of(Run(item.query, item.before))

            yield HeldOutFold(np.flatnonzero(fold == part).tolist(), start)

    def record_counts(self, training: TrainingData, phrases: npt.NDArray[np.uint32] | None) -> None:
        """Record the counts of the data that the demonstrations of ``fit`` were sampled from.

        Args:
            training: the training record of all data.
            phrases: hashed phrases of all queries, which make a query familiar; None keeps those
                of the sample.
        """
        with self._change() as draft:
            draft.training_ = training
            if phrases is not None and isinstance(draft.ranker, IncrementalRanker):
                draft.ranker = copy.copy(draft.ranker)
                draft.ranker.add_phrases(phrases)

    @property
    def can_update(self) -> bool:
        """Whether the ranker supports ``update``."""
        return isinstance(self.ranker, IncrementalRanker)

    def update(self, demonstrations: Iterable[DemonstrationLike]) -> int:
        """Learn from further demonstrations; a saved model keeps them.

        Open sessions do not change. Unknown tools are added. dtdr-f is fitted again to the
        demonstrations that it keeps as arrays and to these, which takes as long as a fit.

        Args:
            demonstrations: as for ``fit``, but not a path; runs that failed are left out where
                ``fit`` left them out.

        Returns:
            The number of demonstrations learned from.

        Raises:
            InputError: something is not a demonstration.
            DtdrError: the model is not fitted, or its ranker does not support updates.
        """
        self._snapshot()
        if not isinstance(self.ranker, IncrementalRanker):
            raise DtdrError(f"{self.name} does not support updates; fit it again")
        with self._change() as draft:
            usable, record = select_training_data(
                demonstrations,
                failures=draft.training_.failures is not None,
                learned=draft.training_.sha256,
            )
            if not usable:
                return 0
            names = {call.tool for item in usable for call in item.plan.calls}
            new = sorted(names - set(draft._index) - {END})
            if new:
                draft._change_tools([*draft.tools_[:-1], *map(Tool, new)], draft._names)
            if draft.arguments_ is not None:
                draft.arguments_ = draft.arguments_.update(usable, seed=draft.seed)
            if draft.plans_ is not None:
                draft.plans_ = draft.plans_.update(usable)
            draft.ranker = ranker = copy.copy(draft.ranker)
            assert isinstance(ranker, IncrementalRanker)
            ranker.update(usable)
            draft.training_ = draft.training_.add(record)
            if draft.calls_ is not None:
                draft._set_calls(Counter(draft.calls_) + count_calls(usable))
        return len(usable)

    def update_copy(self, demonstrations: Iterable[DemonstrationLike]) -> tuple[Model, int]:
        """A copy that learned from further demonstrations, and their number.

        This model does not change: ``update`` replaces attributes and changes none in place.

        Raises:
            DtdrError: see ``update``.
        """
        updated = copy.copy(self)
        return updated, updated.update(demonstrations)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a model folder: ``config.json`` and ``model.safetensors``, no pickle.

        Raises:
            OutputError: the folder exists and ``force`` is False, or it cannot be written. Its
                content does not change then.
        """
        model = self._snapshot()
        config = {
            "ranker": model.name,
            "parameters": model.parameters(),
            "encoder": None,  # stays if ``parts`` has none
            "seed": model.seed,
            "tools": [_tool_record(tool, model.calls_) for tool in model.tools_],
            "training_data": vars(model.training_),
        }
        parts = {
            "encoder": model.ranker.encoder,
            "arguments": model.arguments_,
            "plans": model.plans_,
        }
        model_folder.write(folder, config, model.ranker.arrays(), parts, force=force)

    def restore(
        self,
        tools: Iterable[Tool],
        training: TrainingData,
        arrays: Arrays,
        calls: Mapping[str, int] | None = None,
    ) -> Self:
        """Restore the ranker that ``save`` wrote; ``dtdr.load`` calls it.

        Args:
            tools: the vocabulary, in its order.
            training: the training record.
            arrays: of the ranker, without its encoder.
            calls: of each tool in the demonstrations; None if unknown.

        Raises:
            ModelError: the arrays do not fit the ranker, its encoder or its tools.
            KeyError: an array is missing.
        """
        tools = tuple(tools)
        names = [tool.name for tool in tools]
        if len({*names}) < len(names) or names[-1:] != [END]:
            raise ModelError(f"its tools are not unique, or do not end with {END!r}; fit it again")
        with self._change() as draft:
            draft._install_tools(tools)
            draft._set_calls(calls)
            draft.training_ = training
            draft.ranker = copy.copy(draft.ranker)
            draft.ranker.restore(tools, arrays)
        return self


def _without_failures(
    folds: Sequence[HeldOutFold], demonstrations: Sequence[Demonstration]
) -> list[HeldOutFold]:
    """The folds with positions of runs that did not fail, if there are any."""
    failed = {at for at, item in enumerate(demonstrations) if item.outcome == "failure"}
    if len(failed) in (0, len(demonstrations)):
        return list(folds)
    return [
        replace(fold, positions=[*filterfalse(failed.__contains__, fold.positions)])
        for fold in folds
    ]


def _tool_record(tool: Tool, calls: Mapping[str, int] | None) -> dict[str, Any]:
    """A tool as a model folder has it, with its number of calls if that is known."""
    counted = {} if calls is None or tool.name == END else {"calls": calls.get(tool.name, 0)}
    return tool.to_dict() | counted
