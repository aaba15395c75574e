"""Which code a result depends on, as one hash."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]

USED = ("data", "text", "logs", "rankers", "predict", "llm", "evaluate")
"""Packages of dtdr that a result may depend on."""

_SHOWN = "evaluate/lab/report"
"""What only shows results, and changes none."""


@cache
def code_version(module: str = "") -> str:
    """Hash of the code of dtdr, and of the module of a retriever of the user's own.

    Args:
        module: where the retriever's class is, imported already; those of dtdr change nothing.
    """
    digest = hashlib.sha256()
    for package in USED:
        for path in sorted((_ROOT / package).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            if not name.startswith(_SHOWN):
                digest.update(f"{name}\0".encode() + path.read_bytes())
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None and not Path(file).resolve().is_relative_to(_ROOT):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:16]
