"""Results as JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any


class Record:
    """Base of the dataclasses whose fields are their JSON object."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; numbers have six decimals."""
        record: dict[str, Any] = rounded(asdict(self))  # type: ignore[call-overload]
        return record


def rounded(value: Any) -> Any:
    """A value with six decimals in each number; named tuples become mappings, keys texts."""
    if isinstance(value, float):
        return round(value, 6)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
