"""What a cell is: one run of a suite, named by everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dtdr.lab.code_version import code_version

KINDS = {
    "rank": "dtdr.lab.kinds.rank",
    "statistics": "dtdr.lab.kinds.statistics",
    "prompts": "dtdr.lab.kinds.prompts",
    "efficiency": "dtdr.lab.kinds.efficiency",
    "encoder": "dtdr.lab.kinds.encoder",
    "selections": "dtdr.lab.kinds.planning",
    "plans": "dtdr.lab.kinds.planning",
    "peer": "dtdr.lab.kinds.peer",
}
"""One line a kind of cell: its name, and the module whose ``run`` computes it."""

ALONE = frozenset({"efficiency", "encoder", "peer"})
"""Kinds that measure time or memory: they run one at a time, with nothing beside them."""

RANKED = frozenset({"rank", "peer"})
"""Kinds whose log holds rankings of steps."""

NEEDS_LLM = frozenset({"selections", "plans"})


@dataclass(frozen=True, eq=False)
class Cell:
    """One run.

    Attributes:
        spec: JSON: the kind, the data set's name and hash, split and seed, retriever, parameters
            and whatever else the result depends on beside the code.
        code: hash of the code that the result depends on.
    """

    spec: Mapping[str, Any]
    code: str = field(default="")

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Cell:
        """A cell; keys whose value is None are left out, so that they change no name."""
        kept = {key: value for key, value in spec.items() if value is not None}
        return cls(kept, code_version(*_modules(kept)))

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
            spec.get("retriever") or spec.get("encoder") or spec.get("peer") or spec["kind"],
            *(f"{key}={value}" for key, value in spec.get("parameters", {}).items()),
        ]
        if spec.get("retriever") and spec.get("encoder"):
            parts.append(f"({spec['encoder']})")
        for key in ("history", "demonstrations", "icl", "llm", "shift"):
            if key in spec:
                parts.append(f"{key}={spec[key]}")
        where = f"{spec.get('dataset', '')} {spec.get('split', '')}-{spec.get('seed', '')}"
        return f"{' '.join(map(str, parts))} on {where.strip(' -')}"


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells without repeats, in their order."""
    return list({cell.key: cell for cell in cells}.values())


def _modules(spec: Mapping[str, Any]) -> list[str]:
    """Where the code is that a cell's result depends on."""
    from dtdr.encoders import encoder_class
    from dtdr.lab.naming import resolve_retriever

    found = [KINDS[str(spec["kind"])]]
    encoder = spec.get("encoder")
    if "retriever" in spec:
        chosen = resolve_retriever(str(spec["retriever"]))
        found.append(chosen.__module__)
        if chosen.uses_encoder and encoder is None:
            encoder = "lexical"
    if encoder is not None:
        found.append(encoder_class(str(encoder)).__module__)
    return found
