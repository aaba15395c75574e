"""Changes of the tools of a fitted model, while other threads rank with it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, Self

from dtdr.data.calls import END
from dtdr.data.tools import Tool, ToolLike, as_tool, unique_tools
from dtdr.errors import DtdrError, InputError, check_lists
from dtdr.predict.new_tools import NewTools
from dtdr.predict.predictor import Predictor
from dtdr.predict.search import ToolSearch
from dtdr.rankers.base import IncrementalRanker


class ChangeablePredictor(Predictor):
    """A predictor whose tools can be added, removed and renamed.

    A change works on a copy, whose attributes then replace the model's in one assignment. So other
    threads can rank while one changes the model.
    """

    @contextmanager
    def _change(self) -> Iterator[Self]:
        """A copy to change; it replaces this model when the block ends without error."""
        lock = self.__dict__.setdefault("_lock", Lock())
        with lock:
            draft = copy.copy(self)
            yield draft
            draft.__dict__["_lock"] = lock
            self.__dict__ = draft.__dict__

    def __getstate__(self) -> dict[str, Any]:
        """The state for ``copy`` and ``pickle``: everything but the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    @property
    def can_change_tools(self) -> bool:
        """Whether ``add_tools``, ``remove_tools`` and ``rename_tool`` work."""
        return isinstance(self.ranker, IncrementalRanker)

    def add_tools(self, tools: Iterable[ToolLike]) -> None:
        """Add tools that no demonstration uses yet, ranked by their descriptions.

        Args:
            tools: as for ``fit``.

        Raises:
            InputError: a name is already known, or something is not a tool.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        new = unique_tools(tools)
        with self._change() as draft:
            for name in new:
                if name in draft._index:
                    raise InputError(f"tool {name!r} is already known; rename_tool changes it")
            draft._change_tools([*draft.tools_[:-1], *new.values()], draft._names)

    def remove_tools(self, names: Iterable[str]) -> None:
        """Remove tools; their demonstrated calls count as calls of unknown tools.

        dtdr-f is fitted again without them, which takes as long as a fit.

        Raises:
            InputError: a name is not known, or the names are a text.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        check_lists(names=names)
        gone = set(names)
        with self._change() as draft:
            for name in sorted(gone):
                draft._require_tool(name)
            left = [tool for tool in draft.tools_[:-1] if tool.name not in gone]
            draft._change_tools(left, draft._names)

    def rename_tool(self, old: str, tool: str | ToolLike) -> None:
        """Give a tool another name, and, with a ``Tool`` or its JSON object, another description.

        Raises:
            InputError: the old name is not known, or the new one is taken.
            DtdrError: the model is not fitted, or its tools cannot change.
        """
        self._snapshot()
        with self._change() as draft:
            draft._require_tool(old)
            known = draft.tools_[draft._index[old]]
            new = replace(known, name=tool) if isinstance(tool, str) else as_tool(tool)
            if new.name != old and new.name in draft._index:
                raise InputError(f"tool {new.name!r} is already known; choose another name")
            tools = [new if item.name == old else item for item in draft.tools_[:-1]]
            draft._change_tools(tools, [new.name if name == old else name for name in draft._names])
            if draft.plans_ is not None:
                draft.plans_ = draft.plans_.rename_tool(old, new.name)

    def _require_tool(self, name: str) -> None:
        if name not in self._index or name == END:
            raise InputError(f"tool {name!r} is not known; see the names in vocabulary")

    def _change_tools(self, tools: Sequence[Tool], names: Sequence[str]) -> None:
        """Change the vocabulary; ``names`` are the new names of the old tools, in order."""
        if not isinstance(self.ranker, IncrementalRanker):
            raise DtdrError(f"the tools of {self.name} cannot change; fit it again with others")
        if self.arguments_ is not None:
            renamed = {a: b for a, b in zip(self._names, names, strict=True) if a != b}
            removed = {*self._names, END} - {*renamed, END} - {tool.name for tool in tools}
            self.arguments_ = self.arguments_.with_tools(tools, renamed, removed)
        old_names = self._names
        self._install_tools((*sorted(tools, key=lambda tool: tool.name), self.tools_[-1]))
        ranker = self.ranker = copy.copy(self.ranker)
        ranker.change_tools(self.tools_, names)
        if (calls := self.calls_) is not None:
            new_names = dict(zip(old_names, names, strict=True))
            calls = {new_names[name]: count for name, count in calls.items()}
            calls = {name: count for name, count in calls.items() if name in self._index}
        self._set_calls(calls)

    def _install_tools(self, tools: tuple[Tool, ...]) -> None:
        self.tools_ = tools
        self._names = tuple(tool.name for tool in tools)
        self._index = {name: position for position, name in enumerate(self._names)}
        self.tool_search = ToolSearch.of(tools[:-1])

    def _set_calls(self, calls: Mapping[str, int] | None) -> None:
        """Set how often each tool was called, and with it which tools are new."""
        self.calls_ = calls
        self._new_tools = NewTools.of(self.tool_search, calls)
