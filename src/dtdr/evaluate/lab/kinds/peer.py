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

from dtdr.data.calls import END
from dtdr.data.tools import Tool
from dtdr.errors import DtdrError, unknown_choice
from dtdr.evaluate.harness import split_sha256, teacher_forced_steps
from dtdr.evaluate.lab.kinds import Context
from dtdr.evaluate.lab.train_test import TrainTest, train_test
from dtdr.evaluate.run_log import RunHeader, RunLog, RunLogBuilder
from dtdr.predict.model import END_TOOL
from dtdr.rankers.model_folder import versions

ADAPTERS = Path(__file__).resolve().parent.parent / "peer-adapters"
"""What runs in a peer's environment, which has no dtdr; part of the installed package."""


def rank_with_peer(spec: Mapping[str, Any], context: Context) -> RunLog:
    """Install the package, pass it demonstrations and steps, and log its rankings.

    Tools that it does not rank come last, sorted by name.

    Raises:
        InputError: there is no such peer.
        DtdrError: it cannot be installed, or its adapter failed.
    """
    name = str(spec["peer"])
    about = known_peers().get(name)
    if about is None:
        raise unknown_choice("peer", name, known_peers())
    dataset = context.dataset(spec)
    data = train_test(dataset, spec)
    python = _environment(context.folder / "peers", name, about["install"])
    command = [str(python), str(ADAPTERS / "adapters.py"), name]
    answer = json.loads(_call(command, name, json.dumps(task_of(data)).encode()))
    vocabulary = [tool.name for tool in _tools(data)]
    header = RunHeader(
        dataset=dataset.name,
        synthetic=dataset.synthetic,
        split={
            "name": str(spec["split"]),
            "sha256": split_sha256(data.train, data.test),
            "train": len(data.train),
            "test": len(data.test),
        },
        retriever=name,
        encoder=None,
        parameters={},
        seed=int(spec.get("seed", 0)),
        training_data={},
        versions=versions(),
        tools=tuple(vocabulary),
        fit_seconds=round(answer["fit_seconds"], 3),
        rank_microseconds_median=round(answer["step_seconds"] * 1e6, 1),
        details={"package": " ".join(about["install"]), "how": about["how"]},
    )
    return _log_rankings(data, vocabulary, answer["rankings"]).build(header)


def known_peers() -> dict[str, Any]:
    """Peers by name, with what is installed and how it is used."""
    return tomllib.loads((ADAPTERS / "peers.toml").read_text("utf-8"))


def adapter_sha256(name: str) -> str:
    """Hash of what the peer's rankings depend on, apart from the data.

    Raises:
        InputError: there is no such peer.
    """
    if name not in known_peers():
        raise unknown_choice("peer", name, known_peers())
    digest = hashlib.sha256(json.dumps(known_peers()[name], sort_keys=True).encode())
    digest.update((ADAPTERS / "adapters.py").read_bytes())
    return digest.hexdigest()[:16]


def task_of(data: TrainTest) -> dict[str, Any]:
    """What an adapter reads: tools, demonstrations, and the steps to rank."""
    return {
        "tools": [tool.to_dict() for tool in _tools(data)],
        "train": [
            {"query": item.query, "tools": [*item.plan.tools, END]}
            for item in data.train
            if item.outcome != "failure"
        ],
        "test": [
            {"query": step.query, "history": list(step.history)}
            for item in data.test
            for step in teacher_forced_steps(item)
        ],
    }


def _tools(data: TrainTest) -> list[Tool]:
    known = {tool.name: tool for tool in (*data.tools, END_TOOL)}
    called = {name for item in data.train for name in item.plan.tools}
    return [known.get(name, Tool(name)) for name in sorted(known.keys() | called)]


def _log_rankings(
    data: TrainTest, vocabulary: Sequence[str], rankings: Sequence[Sequence[str]]
) -> RunLogBuilder:
    positions = {name: index for index, name in enumerate(vocabulary)}
    builder = RunLogBuilder(vocabulary)
    # Peers give an order only.
    falling = 1.0 / np.arange(1, len(vocabulary) + 1)
    steps = [step for item in data.test for step in teacher_forced_steps(item)]
    for step, names in zip(steps, rankings, strict=True):
        ranked = [positions[name] for name in names if name in positions]
        order = list(dict.fromkeys([*ranked, *range(len(vocabulary))]))
        builder.add(**step.facts, ranking=order, probabilities=falling / falling.sum())
    return builder


def _environment(folder: Path, name: str, install: Sequence[str]) -> Path:
    """The Python of the peer's environment, made where it is not there yet."""
    home = folder / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = home / "installed.json"
    if installed.is_file() and json.loads(installed.read_text("utf-8")) == list(install):
        return python
    venv.create(home, with_pip=True, clear=True)
    _call([str(python), "-m", "pip", "install", "--quiet", "--no-input", *install], name)
    installed.write_text(json.dumps(list(install)), encoding="utf-8")
    return python


def _call(command: Sequence[str], name: str, text: bytes = b"") -> bytes:
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else f"exit code {done.returncode}"
        what = "could not be installed" if "pip" in command else "failed"
        raise DtdrError(f"peer {name!r} {what}: {last}")
    return done.stdout
