"""Lists in outputs, and which of their values calls have not been made for yet."""

from __future__ import annotations

from typing import Any

from dtdr.data.outputs import OUTPUT_LENGTH

_LONGEST_VALUE = 100
"""Characters of an argument that is looked for in outputs."""
_SHORTEST_VALUE = 3
"""Characters of an argument that is looked for in lists."""


class OutputLists:
    """Lists of one output by the values in them, read when a value may be in one of them.

    Args:
        output: of a call.
        encoded: the output as JSON; empty if that is not known.
    """

    __slots__ = ("_encoded", "_lists", "_output")

    def __init__(self, output: Any, encoded: bytes = b"") -> None:
        self._output, self._encoded = output, encoded
        is_nested = isinstance(output, (dict, list))
        self._lists: dict[str, dict[str, None]] | None = None if is_nested else {}

    @classmethod
    def of(cls, values: dict[str, None]) -> OutputLists:
        """One list."""
        lists = cls(None)
        lists._lists = dict.fromkeys(values, values)
        return lists

    def find(self, value: str, encoded: bytes) -> dict[str, None] | None:
        """The last list that contains a value.

        Args:
            value: a text or a number.
            encoded: its JSON without quotes.
        """
        if self._lists is None:
            # An escaped character may be written in another way.
            if self._encoded and encoded not in self._encoded and b"\\u" not in self._encoded:
                return None
            self._lists = _read_lists(self._output)
        return self._lists.get(value)


def _read_lists(output: Any) -> dict[str, dict[str, None]]:
    """Values of one key in the objects of a list, or of a list itself, belong together."""
    lists: dict[str, dict[str, None]] = {}
    pending: list[tuple[str, Any, bool]] = [("", output, False)]
    characters = 0
    while pending and characters < OUTPUT_LENGTH:
        path, value, is_listed = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{path}/{key}", value[key], is_listed) for key in reversed(value)]
            characters += len(value)
        elif isinstance(value, list):
            pending += [(f"{path}/*", item, True) for item in reversed(value)]
            characters += len(value)
        elif (text := to_text(value)) is not None:
            characters += len(text)
            if is_listed:
                lists.setdefault(path, {})[text] = None
    by_value: dict[str, dict[str, None]] = {}
    for each in lists.values():
        by_value.update(dict.fromkeys(each, each))
    return by_value


def to_text(value: Any) -> str | None:
    """A text or a number that is worth comparing; None for all else."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        text = str(value) if isinstance(value, str) or abs(value) < 1 << 63 else ""
        return text if _SHORTEST_VALUE <= len(text) <= _LONGEST_VALUE else None
    return None
