"""``peer``: a public package on the same records, in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tomllib
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dtdr.demonstrations import Tool
from dtdr.errors import DtdrError, InputError, unknown_choice
from dtdr.evaluation.run_log import LoggedStep, StepFactory
from dtdr.lab.kinds import Context
from dtdr.lab.kinds.rank import records_of, sides_of
from dtdr.lab.log import LabLog
from dtdr.lab.shifts import Sides
from dtdr.model_folder import versions
from dtdr.plan import END
from dtdr.retrievers.base import END_TOOL

ADAPTERS = Path(__file__).resolve().parents[4] / "benchmarks" / "peers"
"""Adapters are no part of the installed package."""


def run(spec: Mapping[str, Any], context: Context) -> LabLog:
    """Install the package, hand it demonstrations and steps, and log its rankings.

    Tools that it does not rank come last, in the order of their names.

    Raises:
        InputError: there is no such peer, or no checkout with adapters.
        DtdrError: it cannot be installed, or its adapter failed.
    """
    name = str(spec["peer"])
    about = known_peers().get(name)
    if about is None:
        raise unknown_choice("peer", name, known_peers())
    sides = sides_of(context.dataset(spec), spec)
    python = _environment(context.folder.parent / "peers", name, about["install"])
    answer = _ask(python, _adapter(name), task_of(sides))
    names = _vocabulary(sides)
    steps = _steps(sides, names, answer["rankings"])
    header = {
        "kind": "peer",
        "package": " ".join(about["install"]),
        "how": about["how"],
        "train": len(sides.train),
        "test": len(sides.test),
        "tools": names,
        "steps": len(steps),
        "versions": versions(),
        "measured": {
            "fit_seconds": round(answer["fit_seconds"], 3),
            "rank_microseconds": round(answer["step_seconds"] * 1e6, 1),
        },
    }
    return LabLog(header, tuple(records_of(steps)))


def known_peers() -> dict[str, Any]:
    """Peers by name, with what is installed and how it is used.

    Raises:
        InputError: the adapters are not there.
    """
    try:
        return tomllib.loads((ADAPTERS / "peers.toml").read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"peers need the adapters of a checkout, and {ADAPTERS} is not there"
        ) from error


def adapter_sha256(name: str) -> str:
    """Hash of what the peer's rankings depend on beside the data.

    Raises:
        InputError: there is no such peer, or no checkout with adapters.
    """
    if name not in known_peers():
        raise unknown_choice("peer", name, known_peers())
    digest = hashlib.sha256(json.dumps(known_peers()[name], sort_keys=True).encode())
    adapter = _adapter(name).read_bytes()
    shared = ["protocol", *(["minilm"] if b"from minilm import" in adapter else [])]
    for content in (*((ADAPTERS / f"{one}.py").read_bytes() for one in shared), adapter):
        digest.update(content)
    return digest.hexdigest()[:16]


def task_of(sides: Sides) -> dict[str, Any]:
    """What an adapter reads: tools, demonstrations, and the steps to rank."""
    return {
        "tools": [tool.to_dict() for tool in _tools(sides)],
        "train": [
            {"query": item.query, "tools": [*item.plan.tools, END]}
            for item in sides.train
            if item.outcome != "failure"
        ],
        "test": [
            {"query": item.query, "history": list(step.history)}
            for item in sides.test
            for step in item.plan.steps()
        ],
    }


def _adapter(name: str) -> Path:
    # A file named as the package itself would be imported in its place.
    return ADAPTERS / f"with_{name.replace('-', '_')}.py"


def _tools(sides: Sides) -> list[Tool]:
    known = {tool.name: tool for tool in (*sides.tools, END_TOOL)}
    called = {name for item in sides.train for name in item.plan.tools}
    return [known.get(name, Tool(name)) for name in sorted(known.keys() | called)]


def _vocabulary(sides: Sides) -> list[str]:
    return [tool.name for tool in _tools(sides)]


def _steps(
    sides: Sides, names: Sequence[str], rankings: Sequence[Sequence[str]]
) -> list[LoggedStep]:
    place = {name: index for index, name in enumerate(names)}
    make_step = StepFactory(names)
    falling = 1.0 / np.arange(1, len(names) + 1)
    found = []
    answers = iter(rankings)
    for item in sides.test:
        for number, step in enumerate(item.plan.steps()):
            ranked = list(dict.fromkeys(place[name] for name in next(answers) if name in place))
            rest = [index for index in range(len(names)) if index not in set(ranked)]
            found.append(
                make_step(
                    plan=item.id,
                    step=number,
                    plan_length=len(item.plan),
                    history=step.history,
                    acceptable=step.acceptable,
                    ranking=[*ranked, *rest],
                    probabilities=falling / falling.sum(),
                )
            )
    return found


def _environment(folder: Path, name: str, install: Sequence[str]) -> Path:
    """The Python of the peer's environment, made where it is not there yet."""
    home = folder / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = home / "installed.json"
    if done.is_file() and json.loads(done.read_text("utf-8")) == list(install):
        return python
    venv.create(home, with_pip=True, clear=True)
    _call([str(python), "-m", "pip", "install", "--quiet", "--no-input", *install], name)
    done.write_text(json.dumps(list(install)), encoding="utf-8")
    return python


def _ask(python: Path, adapter: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    output = _call(
        [str(python), str(adapter)], adapter.stem.removeprefix("with_"), json.dumps(task).encode()
    )
    found: dict[str, Any] = json.loads(output)
    return found


def _call(command: Sequence[str], name: str, text: bytes = b"") -> bytes:
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}"
        what = "could not be installed" if "pip" in command else "failed"
        raise DtdrError(f"peer {name!r} {what}: {last}")
    return done.stdout
