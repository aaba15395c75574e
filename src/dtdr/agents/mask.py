"""Ranks for a transcript and applies a policy; shows everything if that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Self

from dtdr.agents.observer import RunObserver
from dtdr.agents.policy import ToolPolicy, ToolSelection, ToolSelector, unique_names
from dtdr.agents.prefetch import add_call
from dtdr.agents.run_folder import RunFolder, describe_tools
from dtdr.agents.search import LIMIT, SEARCH_CALLS, searched_tools
from dtdr.agents.transcript import Transcript
from dtdr.conversation.injected import is_refusal
from dtdr.data.calls import Status
from dtdr.data.run import BeforeLike, Run
from dtdr.data.tools import Tool, ToolLike, as_tools, unique_tools
from dtdr.deprecated import renamed_attribute, renamed_keywords
from dtdr.errors import InputError, check_lists
from dtdr.predict.model import Model
from dtdr.predict.search import ToolSearch

logger = logging.getLogger("dtdr.agents")

Conversation = Transcript | Callable[[], Transcript]
"""A conversation, or a function that reads it, whose errors show all tools too."""

Step = tuple[Run, Sequence[str]]
"""The run of a step, and the tools that the conversation refers to."""


class ToolMask:
    """A model and a policy: decides which tools every integration shows.

    One object serves all runs and threads. For a sticky policy, it ranks the steps of the
    transcript again.

    >>> mask = ToolMask(learn="runs")  # doctest: +SKIP

    Args:
        model: a fitted one, or the folder of a model. None begins without: the tools are ranked by
            their names and descriptions, those of ``tools`` and those that requests have.
        policy: what is shown.
        tools: of the agent, in any form that describes a tool; with a model, leave them out.
        learn: a folder in which runs are kept, and learned from in a thread when 3, 10, 30, 100, …
            are there. What was learned is used from the next step on, and from the start by the
            next mask.

    Raises:
        InputError: the model cannot serve the policy, or comes with tools or ``learn``.
        ModelError: the folder has no usable model.
        OutputError: the folder of runs cannot be written.
    """

    retriever = renamed_attribute("retriever", "model")

    @renamed_keywords(retriever="model")
    def __init__(
        self,
        model: Model | str | Path | None = None,
        policy: ToolPolicy | None = None,
        *,
        tools: Iterable[ToolLike] | None = None,
        learn: str | Path | RunFolder | None = None,
    ) -> None:
        self.policy = policy or ToolPolicy()
        self._grows = model is None
        self._tools: dict[str, Tool] = {}
        self._changes = Lock()
        self._runs: RunFolder | None = None
        self._observer: RunObserver | None = None
        if model is not None:
            if tools is not None or learn is not None:
                raise InputError(
                    "give a model, or tools and a folder to learn in; dtdr learn updates a model"
                )
            if not isinstance(model, Model):
                from dtdr.api import load

                model = load(model)
            self.policy.check(model.calibration_)
        elif learn is not None:
            if not isinstance(learn, RunFolder):
                learn = RunFolder(learn, source="dtdr mask")
            learn.learned = self._use
            self._runs, self._observer = learn, RunObserver(learn)
            model = learn.load()
        self._model: Model | None = model
        if tools is not None:
            self.know(tools)

    @property
    def model(self) -> Model:
        """The model that ranks now.

        Raises:
            InputError: no tool is known yet.
        """
        if self._model is None:
            raise InputError("no tool is described yet; give the mask its tools")
        return self._model

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of the tools that should be described: nothing if the model was given."""
        if not self._grows:
            return []
        index = None if self._model is None else self._model.index
        return [
            name
            for name in names
            if name not in SEARCH_CALLS and (index is None or index(name) < 0)
        ]

    def know(self, tools: Iterable[ToolLike]) -> None:
        """Rank these tools, too, by their names and descriptions.

        Raises:
            InputError: two share a name, or something is not a tool.
        """
        new = unique_tools(tools)
        with self._changes:
            self._tools |= new
            if self._runs is not None:
                self._runs.tools = tuple(self._tools.values())
            missing = [self._tools[name] for name in self.unknown(self._tools)]
            if not missing:
                return
            if self._model is not None and self._model.can_change_tools:
                self._model.add_tools(missing)
            else:
                self._model = describe_tools(self._tools.values())

    def _use(self, model: Model) -> None:
        """Rank with what was learned."""
        with self._changes:
            self._model = model
        self.know(())

    def flush(self) -> None:
        """Record the runs under way as if they had ended, and wait until what is due is learned."""
        if self._observer is not None and self._runs is not None:
            self._observer.flush()
            self._runs.wait()

    def select(
        self,
        names: Sequence[str],
        transcript: Conversation,
        *,
        costs: Mapping[str, int] | None = None,
    ) -> ToolSelection:
        """Which tools are shown at the next step.

        If ranking fails, every tool is shown, and the logger ``dtdr.agents`` warns.

        Args:
            names: the named tools that are available, in the order they are given to the model.
            transcript: the conversation so far, or a function that reads it.
            costs: tokens of each tool's definition; needed for ``token_budget``.

        Raises:
            InputError: two tools share a name.
        """

        def read() -> list[Step]:
            conversation = transcript if isinstance(transcript, Transcript) else transcript()
            if self._observer is not None:
                self._observer.see(conversation)
            runs = self._read(conversation).runs(last_only=self.policy.sticky == "none")
            return [(run, _called(conversation)) for run in runs]

        return self._select(names, read, costs)[-1]

    def select_each(
        self,
        names: Sequence[str],
        transcripts: Callable[[], Sequence[Transcript]],
        count: int,
        *,
        costs: Mapping[str, int] | None = None,
    ) -> list[ToolSelection]:
        """``select`` for ``count`` states of one conversation, oldest first.

        ``transcripts`` reads the conversation up to each of them.
        """

        def read() -> list[Step]:
            states = transcripts()
            if self._observer is not None and states:
                self._observer.see(states[-1])
            return [(self._run_of(item), _called(item)) for item in states]

        selections = self._select(names, read, costs)
        return selections if len(selections) == count else selections * count

    def _select(
        self,
        names: Sequence[str],
        read: Callable[[], list[Step]],
        costs: Mapping[str, int] | None,
    ) -> list[ToolSelection]:
        """The selection of each step, or one that shows everything if something failed."""
        unique_names(names)
        selector = ToolSelector(self.policy)
        try:
            steps = read() or [(Run(""), ())]
            if missing := self.unknown(names):
                self.know(map(Tool, missing))
            rankings = self.model.rank_batch(_offer([run for run, _ in steps], names))
            selections = [
                selector.select(names, ranking, called, costs=costs)
                if run.query
                else selector.show_all(names, "the transcript has no message of a user")
                for ranking, (run, called) in zip(rankings, steps, strict=True)
            ]
        except Exception as error:  # noqa: BLE001  # a mask must never stop an agent
            selections = [selector.show_all(names, _reason(error))]
        return [*selections[:-1], _warn(selections[-1])]

    @renamed_keywords(k="top_k")
    def search(
        self, text: str, tools: Iterable[ToolLike], transcript: Conversation, top_k: int = LIMIT
    ) -> tuple[str, ...]:
        """Names of the tools that match an agent's search, best first.

        It searches the tools that the mask hides at this step and those that the model does not
        know, or all tools if none is hidden. If ranking fails, it compares words alone.

        Args:
            text: what the agent wants to do, in its words.
            tools: the available tools, or their definitions; a model need not know them.
            transcript: the conversation so far, or a function that reads it.
            top_k: maximum number, at least 1.

        Raises:
            InputError: two tools share a name, the text is empty, or top_k is below 1.
        """
        described = tuple(as_tools(tools))
        names = [tool.name for tool in described]
        if missing := set(self.unknown(names)):
            self.know(tool for tool in described if tool.name in missing)
        hidden = self.select(names, transcript).hidden
        index = self.model.index
        searched = {*hidden, *(name for name in names if index(name) < 0)} if hidden else None
        run = asked = None
        try:
            run = self.model.rank(_offer([self._run_of(transcript)], names)[0])
            asked = self.model.rank(text, offered=names)
        except Exception as error:  # noqa: BLE001  # a mask must never stop an agent
            logger.warning("searching by words alone: %s", _reason(error))
        matches = _search_of(described).find(text, top_k, run=run, asked=asked, offered=searched)
        return tuple(name for name, _ in matches)

    def _run_of(self, transcript: Conversation) -> Run:
        read = transcript if isinstance(transcript, Transcript) else transcript()
        return self._read(read).run()

    def _read(self, transcript: Transcript) -> Transcript:
        """The transcript as the model reads it: calls by name if it reads no outputs."""
        transcript = transcript.without(SEARCH_CALLS)
        return transcript if self.model.uses_calls else transcript.by_name()

    def run(self, query: str, *, before: Sequence[BeforeLike] = ()) -> ToolRun:
        """A run of one query, for a loop of your own.

        ``before`` are the messages and calls of the conversation before the query, oldest first.
        """
        return ToolRun(self, query, before)


class ToolRun:
    """One query, encoded once, the calls made for it, and the sets shown.

    >>> run = mask.run("Mail Ann the summary of q3.pdf")  # doctest: +SKIP
    >>> run.select(names).shown                           # doctest: +SKIP
    >>> run.call("open_file", output={"pages": 3})        # doctest: +SKIP
    """

    def __init__(self, mask: ToolMask, query: str, before: Sequence[BeforeLike] = ()) -> None:
        check_lists(before=before)
        self._selector = ToolSelector(mask.policy)
        self.query = query
        self.history: tuple[str, ...] = ()
        self._failure = ""
        try:
            if not query.strip():
                raise InputError("the query is empty")
            self._session = mask.model.session(query, before=before)
        except Exception as error:  # noqa: BLE001  # a mask must never stop an agent
            self._failure = _reason(error)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        output: Any = None,
        status: Status | None = None,
        step: int | None = None,
        id: str | None = None,
    ) -> Self:
        """Add a call to the run.

        A call that was answered with ``ToolSelection.refusal`` was not made, and is not added.

        Args:
            tool: its name.
            arguments: by parameter.
            output: what it returned, any JSON value or text.
            status: its outcome; derived from the output if None.
            step: number of the agent's message that made the call; calls of one step are parallel.
            id: how arguments of later calls may refer to it.
        """
        if is_refusal(tool, output):
            return self
        self.history = (*self.history, tool)
        if not self._failure:
            add_call(self._session, tool, arguments, output=output, status=status, step=step, id=id)
        return self

    def select(
        self, names: Sequence[str], *, costs: Mapping[str, int] | None = None
    ) -> ToolSelection:
        """Which tools are shown now; as ``ToolMask.select``."""
        unique_names(names)
        failure = self._failure
        if not failure:
            try:
                ranking = self._session.rank(names)
                return self._selector.select(names, ranking, self.history, costs=costs)
            except Exception as error:  # noqa: BLE001  # a mask must never stop an agent
                failure = _reason(error)
        return _warn(self._selector.show_all(names, failure))


@lru_cache(maxsize=16)
def _search_of(tools: tuple[Tool, ...]) -> ToolSearch:
    return ToolSearch.of(tools)


def _offer(runs: list[Run], names: Sequence[str]) -> list[Run]:
    offered = frozenset(names)
    for run in runs:
        run.offered = offered
    return runs


def _called(transcript: Transcript) -> tuple[str, ...]:
    return (*transcript.called, *searched_tools(transcript))


def _warn(selection: ToolSelection) -> ToolSelection:
    if selection.failure:
        logger.warning("showing all %d tools: %s", len(selection.names), selection.failure)
    return selection


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
