"""One experiment of a suite, named by everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from dtdr.evaluate.lab.fitting import asks_llm
from dtdr.llm.prompting import icl_method
from dtdr.rankers import ranker_class

DatasetSplit: TypeAlias = tuple[str, str]
"""Data set and kind of split: what one table is about."""

SPECIAL = ("history", "demonstrations", "share")
"""Settings that make an experiment an ablation."""

USED = ("data", "text", "logs", "rankers", "predict", "llm", "evaluate")
"""Packages of dtdr that a result may depend on."""

_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = "evaluate/lab/report"
"""Code that only shows results, and changes none."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """One experiment.

    Attributes:
        spec: JSON: the kind, the data set's name and hash, split and seed, ranker, parameters
            and whatever else the result depends on, apart from the code.
        key: hex digest of the spec and the code, which names the experiment in the cache.
    """

    spec: Mapping[str, Any]
    key: str

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Experiment:
        """An experiment; keys whose value is None are left out, so that they change no name."""
        kept = {key: value for key, value in spec.items() if value is not None}
        modules = [ranker_class(str(kept["retriever"])).__module__]
        icl = str(kept.get("icl", ""))
        if ":" in icl:
            icl_method(icl)  # imports it
            modules.append(icl.partition(":")[0])
        code = code_version(*modules)
        text = json.dumps([kept, code], sort_keys=True, ensure_ascii=False)
        return cls(kept, hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest())

    @property
    def kind(self) -> str:
        """One of ``dtdr.evaluate.lab.kinds.KINDS``."""
        return str(self.spec["kind"])

    @property
    def dataset_split(self) -> DatasetSplit:
        """Data set and kind of split: what one table is about."""
        return str(self.spec["dataset"]), str(self.spec.get("split", ""))

    @property
    def is_plain(self) -> bool:
        """Whether it is not an ablation."""
        return not any(key in self.spec for key in SPECIAL)

    @property
    def method(self) -> str:
        """The name of a row: the ranker, and its settings that differ from the default."""
        details = []
        for key, value in self.spec.get("parameters", {}).items():
            shown = f"{key} {value}"
            details.append(str(value) if key == "recipe" else key if value is True else shown)
        if "encoder" in self.spec:
            details.append(str(self.spec["encoder"]))
        if "llm" in self.spec and asks_llm(self.spec):
            details.append(str(self.spec["llm"]))
        name = str(self.spec["retriever"])
        return f"{name} ({', '.join(details)})" if details else name

    @property
    def label(self) -> str:
        """A short text for people: what is run on what."""
        more = "".join(f" {key}={self.spec[key]}" for key in (*SPECIAL, "icl") if key in self.spec)
        return f"{self.method}{more} on {' '.join(self.dataset_split)}-{self.spec.get('seed', '')}"


def unique(experiments: Iterable[Experiment]) -> list[Experiment]:
    """The experiments without repeats, in their order."""
    return list({experiment.key: experiment for experiment in experiments}.values())


@cache
def code_version(*modules: str) -> str:
    """Hash of the code of dtdr, and of the modules of a ranker and an ICL method of the user's own.

    Args:
        modules: where they are, imported already; those of dtdr change nothing.
    """
    digest = hashlib.sha256()
    for package in USED:
        for path in sorted((_ROOT / package).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            if not name.startswith(_SHOWN):
                digest.update(f"{name}\0".encode() + path.read_bytes())
    for module in modules:
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(_ROOT):
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:16]
