"""Suites: small TOML files that list experiments; every list in one multiplies."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from dtdr.deprecated import renamed_key
from dtdr.errors import InputError, cannot_read, check_choice, unknown_choice
from dtdr.evaluate.lab.fitting import needs_llm
from dtdr.evaluate.lab.kinds import KINDS, RANK
from dtdr.evaluate.lab.oracle import NAME as ORACLE
from dtdr.llm.prompting import LAYOUTS

ORDER = ("retrieval", "ablations", "prompts", "runs", "downstream")
"""The suites that come with the package, in the order of the report."""

PAPER_ORDER = (
    "paper-retrieval",
    "paper-icl",
    "paper-downstream",
    "paper-prompts",
    "paper-ablations",
    "paper-plan-length",
    "paper-weights",
)
"""The suites of the paper's own settings, in the order of its tables and figures."""

PAPER_ENCODER = "sentence-transformers"
"""Whose default model is the paper's, paraphrase-MiniLM-L6-v2."""

ALL = "all"
PAPER = "paper"
_GRID = {
    "dataset": str,
    "split": str,
    "seed": int,
    "retriever": str,
    "encoder": str,
    "parameters": dict,
    "demonstrations": int,
    "share": float,
    "history": int,
    "icl": str,
    "select": str,
    "top": int,
    "threshold": float,
    "mask": str,
    "loop": str,
    "layout": str,
    "llm": str,
    "steps": int,
    "size": int,
    "plans": int,
}
"""Keys of an ``[[experiments]]`` table, and the type of each value or member of its list."""

SPLITS = ("paper", "group", "time")

MASKS = ("paper",)
"""Which tools count as retrieved without ``top`` and ``threshold``. ``paper``: for dtdr-c those
that followed, otherwise those above the α that is most accurate on held-out training plans."""

LOOPS = ("own", "gold")
"""The calls before a step of a plan: those made so far, or those of the gold plan."""

_NAMED = {"split": SPLITS, "mask": MASKS, "loop": LOOPS, "layout": LAYOUTS}

SAMPLES = ("size", "steps")
"""How many held-out steps or plans an experiment takes."""


@dataclass(frozen=True)
class Suite:
    """One suite.

    Attributes:
        name: what users type.
        title: of its section in the report.
        section: which part of the report shows it; empty: those that show its kinds of runs.
        about: what is measured, and how.
        differs: what differs from the paper.
        experiments: grids; each value is a list of choices, all of which are combined.
    """

    name: str
    title: str
    section: str
    about: str
    differs: str
    experiments: tuple[Mapping[str, tuple[Any, ...]], ...]

    @property
    def needs_llm(self) -> bool:
        """Whether every experiment asks an LLM."""
        return all(map(needs_llm, self.specs()))

    @property
    def needs(self) -> str:
        """Requirements of the suite apart from the package; empty if none."""
        if self.needs_llm:
            return "an LLM"
        return "an LLM in part" if any(map(needs_llm, self.specs())) else ""

    def with_choices(self, *, is_quick: bool = False, **choices: Sequence[Any] | None) -> Suite:
        """The suite with other choices for keys that a grid has; None leaves them.

        Rankers take the place of those of a grid, but where the grid gives them parameters or
        cuts their history: that is about its own, so only they are kept. So are they for the
        suite's quick form. Rankers that a suite of the paper does not have are added to its own,
        but for the upper bounds.
        """
        known = {name for grid in self.experiments for name in grid["retriever"]}
        named = choices.get("retriever") or ()
        is_added = self.name in PAPER_ORDER and not is_quick and not known.intersection(named)
        grids = []
        for grid in self.experiments:
            changed = dict(grid)
            is_about_its_own = (
                is_quick
                or bool(grid.keys() & {"parameters", "history"})
                or (is_added and ORACLE in grid["retriever"])
            )
            for key, values in choices.items():
                if values is None or key not in {*grid, "plans", "encoder"}:
                    continue
                if key == "retriever" and is_about_its_own:
                    values = grid[key] if is_added else [v for v in grid[key] if v in values]
                elif key == "retriever" and is_added:
                    values = [*grid[key], *values]
                changed[key] = tuple(values)
            if all(changed.values()):
                grids.append(changed)
        return replace(self, experiments=tuple(grids))

    def without_samples(self) -> Suite:
        """The suite with every held-out step and plan."""
        grids = [{k: v for k, v in grid.items() if k not in SAMPLES} for grid in self.experiments]
        return replace(self, experiments=tuple(grids))

    def specs(self) -> Iterator[dict[str, Any]]:
        """Every combination, once; a ranker that uses no encoder is not repeated for each."""
        for grid in self.experiments:
            for values in itertools.product(*grid.values()):
                yield dict(zip(grid, values, strict=True))


def names() -> list[str]:
    """Every suite that comes with the package."""
    return [*ORDER, *PAPER_ORDER]


def read_suite(name: str, *, quick: bool = False) -> Suite:
    """A suite by its name, or from a TOML file of the user's own.

    Raises:
        InputError: there is no such suite, or the file is not a suite.
    """
    if name in names():
        path: Any = resources.files("dtdr.evaluate.lab").joinpath(f"suites/{name}.toml")
    elif Path(name).suffix == ".toml":
        path = Path(name)
    else:
        raise unknown_choice("suite", name, (*names(), ALL, PAPER, "FILE.toml"))
    try:
        value = renamed_key(tomllib.loads(path.read_text("utf-8")), "runs", "experiments")
    except OSError as error:
        raise cannot_read(name, error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8, so it is not a suite") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{name} is not TOML ({reason})") from error
    known = {"title", "section", "about", "differs", "experiments", "quick"}
    for key in value:
        if key not in known:
            raise InputError(f"{name} has an unknown key {key!r}; a suite has {_list(known)}")
    grids = value.get("experiments")
    if not isinstance(grids, list) or not grids:
        raise InputError(f"{name} has no [[experiments]]; give at least one")
    stem = Path(name).stem
    about, differs = (" ".join(str(value.get(key, "")).split()) for key in ("about", "differs"))
    suite = Suite(
        stem,
        str(value.get("title", stem)),
        str(value.get("section", "")),
        about,
        differs,
        tuple(_grid(grid, name) for grid in grids),
    )
    changes = value.get("quick")
    if quick and isinstance(changes, dict):
        suite = suite.with_choices(is_quick=True, **_grid(changes, name, is_whole=False))
    return suite


def _grid(grid: object, where: str, *, is_whole: bool = True) -> dict[str, tuple[Any, ...]]:
    if not isinstance(grid, dict):
        raise InputError(f"{where}: 'experiments' must be a list of tables: [[experiments]]")
    parsed: dict[str, tuple[Any, ...]] = {}
    for key, value in ({"kind": RANK, **grid} if is_whole else grid).items():
        choices = tuple(value) if isinstance(value, list) else (value,)
        if key == "kind":
            for choice in choices:
                if choice not in KINDS:
                    raise unknown_choice(f"kind of experiment in {where}", str(choice), KINDS)
        elif key not in _GRID:
            raise InputError(
                f"{where} has an unknown key {key!r} in experiments; it takes {_list(_GRID)}"
            )
        elif not choices or not all(type(choice) is _GRID[key] for choice in choices):
            raise InputError(f"{where}: {key!r} must be one or more of {_GRID[key].__name__}")
        for choice in choices if key in _NAMED else ():
            check_choice(f"{key} in {where}", choice, _NAMED[key])
        parsed[key] = choices
    for key in ("dataset", "retriever") if is_whole else ():
        if key not in parsed:
            raise InputError(f"{where} has [[experiments]] without a {key!r}; give one or more")
    return parsed


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
