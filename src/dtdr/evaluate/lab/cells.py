"""What a cell is: one run of a suite, named by everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dtdr.evaluate.lab.code_version import code_version
from dtdr.rankers import retriever_class


@dataclass(frozen=True, eq=False)
class Cell:
    """One run.

    Attributes:
        spec: JSON: the kind, the data set's name and hash, split and seed, retriever, parameters
            and whatever else the result depends on, apart from the code.
        code: hash of the code that the result depends on.
    """

    spec: Mapping[str, Any]
    code: str = ""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Cell:
        """A cell; keys whose value is None are left out, so that they change no name."""
        kept = {key: value for key, value in spec.items() if value is not None}
        return cls(kept, code_version(retriever_class(str(kept["retriever"])).__module__))

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return str(self.spec["kind"])

    @cached_property
    def key(self) -> str:
        """Hex digest that names the run in the cache."""
        text = json.dumps([self.spec, self.code], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()

    @property
    def label(self) -> str:
        """A short text for people: what is run on what."""
        spec = self.spec
        parts = [
            spec["retriever"],
            *(f"{key}={value}" for key, value in spec.get("parameters", {}).items()),
        ]
        if spec.get("encoder"):
            parts.append(f"({spec['encoder']})")
        for key in ("history", "demonstrations", "share", "icl", "llm"):
            if key in spec:
                parts.append(f"{key}={spec[key]}")
        data = f"{spec.get('dataset', '')} {spec.get('split', '')}-{spec.get('seed', '')}"
        return f"{' '.join(map(str, parts))} on {data.strip(' -')}"


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without repeats, in their order."""
    return list({cell.key: cell for cell in cells}.values())
