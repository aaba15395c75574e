"""Small labs that tests run."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.evaluate.lab.compute import Summary, run_lab
from dtdr.evaluate.lab.resolve import Options
from dtdr.evaluate.lab.store import Store
from synthetic_runs import generate, tools

PLANS = 40


def write_data(folder: Path, plans: int = PLANS, *, described: bool = True) -> Path:
    """``own.jsonl`` of synthetic demonstrations, with their tools beside it."""
    path = folder / "own.jsonl"
    save_demonstrations(path, generate(plans), force=True)
    if described:
        save_tools(folder / "tools.json", tools(), force=True)
    return path


@contextmanager
def in_this_process():
    """Run labs without worker processes, which start slowly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtdr.evaluate.lab.compute.WORKERS", 1)
        yield


def run(store: Store, data: Path, *suites: str, seeds: int = 2, **options) -> Summary:
    """Run suites on a file, with cheap rankers unless others are named."""
    chosen = {"rankers": ["random", "dr"], **options}
    notes: list[str] = chosen.pop("notes", [])
    workers = chosen.pop("workers", 1)
    return run_lab(
        suites or ["retrieval"],
        Options(file=data, seeds=seeds, **chosen),
        lab="own",
        store=store,
        command="dtdr lab run",
        workers=workers,
        note=notes.append,
    )
