"""The runs of one lab as a report reads them: manifests, logs, digests, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdr.errors import InputError
from dtdr.lab.cells import NEEDS_LLM, RANKED
from dtdr.lab.digest import Digest
from dtdr.lab.log import LabLog
from dtdr.lab.store import Store

NOT_RUN = "it was not run yet"


@dataclass(frozen=True)
class Run:
    """One cell as a manifest lists it."""

    key: str
    spec: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """One of ``dtdr.lab.cells.KINDS``."""
        return str(self.spec["kind"])

    @property
    def place(self) -> tuple[str, str]:
        """Data set and kind of split: what one table is about."""
        return str(self.spec["dataset"]), str(self.spec.get("split", ""))

    @property
    def method(self) -> str:
        """What a row is called: the retriever and what is not its default."""
        spec = self.spec
        parts = [str(spec.get("retriever") or spec.get("peer") or spec.get("encoder", ""))]
        said = []
        for name, value in spec.get("parameters", {}).items():
            if name == "recipe":
                said.append(str(value))
            elif value is True:
                said.append(name)
            else:
                said.append(f"{name} {value}")
        if "retriever" in spec and "encoder" in spec:
            said.append(str(spec["encoder"]))
        if said:
            parts.append(f"({', '.join(said)})")
        return " ".join(parts)


class Results:
    """Everything a report is made of; logs are read when asked for, digests are kept."""

    def __init__(self, store: Store, lab: str) -> None:
        self._store = store
        self.lab = lab
        self.manifests = store.manifests(lab)
        self._digests: dict[str, Digest] = {}
        self._headers: dict[str, Mapping[str, Any]] = {}
        self.unreadable: dict[str, str] = {}

    def suites_of(self, section: str) -> list[str]:
        """Names of the suites that a section shows."""
        return [name for name, found in self.manifests.items() if found["section"] == section]

    def runs(self, suite: str, kind: str | None = None) -> list[Run]:
        """The runs of a suite whose log is there."""
        found = []
        for cell in self.manifests[suite]["cells"]:
            run = Run(cell["key"], cell["spec"])
            if (kind is None or run.kind == kind) and self.header(run) is not None:
                found.append(run)
        return found

    def all_runs(self) -> Iterator[Run]:
        """Every run of every suite, once."""
        seen = set()
        for manifest in self.manifests.values():
            for cell in manifest["cells"]:
                if cell["key"] not in seen:
                    seen.add(cell["key"])
                    yield Run(cell["key"], cell["spec"])

    def log(self, run: Run) -> LabLog:
        """The log of a run that ``runs`` gave."""
        return self._store.read(run.key)

    def header(self, run: Run) -> Mapping[str, Any] | None:
        """The header of a log; None where there is none that can be read."""
        if run.key not in self._headers:
            if run.key in self.unreadable:
                return None
            try:
                if run.kind in RANKED:
                    self._digests[run.key] = self._store.digest(run.key)
                    self._headers[run.key] = self._digests[run.key].header
                else:
                    self._headers[run.key] = self._store.read(run.key).header
            except InputError as error:
                failure = self._store.failure(run.key)
                reason = str(error) if self._store.path(run.key).exists() else NOT_RUN
                self.unreadable[run.key] = str(failure["reason"]) if failure else reason
                return None
        return self._headers[run.key]

    def digest(self, run: Run) -> Digest:
        """The digest of a ``rank`` run."""
        self.header(run)
        return self._digests[run.key]

    def failures(self, suite: str | None = None) -> list[tuple[Run, str]]:
        """Runs without a log, and why, of one suite or of all."""
        names = list(self.manifests) if suite is None else [suite]
        found = {}
        for name in names:
            for cell in self.manifests[name]["cells"]:
                run = Run(cell["key"], cell["spec"])
                if self.header(run) is None:
                    found[run.key] = (run, self.unreadable[run.key])
        return list(found.values())

    def dataset(self, name: str) -> Mapping[str, Any]:
        """What is known of a data set."""
        for manifest in self.manifests.values():
            if name in manifest["datasets"]:
                found: Mapping[str, Any] = manifest["datasets"][name]
                return found
        return {"name": name, "title": name}

    def title(self, name: str) -> str:
        """A data set's title; synthetic ones say so."""
        found = self.dataset(name)
        title = str(found["title"])
        hidden = found.get("synthetic") and "synthetic" not in title.lower()
        return f"{title} (synthetic)" if hidden else title

    def place_title(self, place: tuple[str, str]) -> str:
        """A data set and its split."""
        split = {"paper": "", "group": ", split by group"}.get(place[1], f", split {place[1]}")
        return self.title(place[0]) + split

    def card(self, name: str) -> Mapping[str, Any] | None:
        """Queries and costs of tools of a data set."""
        sha256 = self.dataset(name).get("sha256")
        return None if sha256 is None else self._store.card(str(sha256))

    @property
    def has_llm(self) -> bool:
        """Whether any run asked an LLM."""
        return any(run.kind in NEEDS_LLM for run in self.all_runs())


def by_place(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by data set and split, in their order."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault(run.place, []).append(run)
    return found


def by_method(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by method, in their order: one run a split."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.method, []).append(run)
    return found


def plain(runs: Sequence[Run]) -> list[Run]:
    """Runs without an ablation or a shift."""
    special = ("history", "demonstrations", "shift", "queries")
    return [run for run in runs if not any(key in run.spec for key in special)]
