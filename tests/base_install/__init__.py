"""Run dtdr as it is after ``pip install 'dtdr[EXTRA]'``, without a new environment."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import PROJECT

_EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
_MODULES = {
    "pydantic-ai-slim": "pydantic_ai",
    "openai-agents": "agents",
    "llama-index-core": "llama_index",
}
NAMES = tuple(
    name
    for name in _EXTRAS["optional-dependencies"]
    if name not in ("dev", "docs", "slow", "examples", "browser")
)


def modules_of(extra: str) -> set[str]:
    """The names under which the packages of an extra are imported."""
    listed = _EXTRAS["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=;]", requirement, maxsplit=1)[0].strip() for requirement in listed}
    return {_MODULES.get(name, name).replace("-", "_") for name in names} - {"dtdr"}


def environment(*extras: str) -> dict[str, str]:
    """The environment in which the packages of all other extras are hidden."""
    needed = set().union(*map(modules_of, extras))
    hidden = set().union(*map(modules_of, NAMES)) - needed
    paths = [str(Path(__file__).parent), str(PROJECT / "src"), str(PROJECT)]
    return {
        **os.environ,
        "DTDR_HIDE": ",".join(sorted(hidden)),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def run(arguments: list[str], *extras: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` in a folder, with these extras only."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(*extras)
        | {"DTDR_CACHE": str(folder / "cache"), "DTDR_DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
