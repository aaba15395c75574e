"""LLMs of a lab: opened once a worker, named without their folder."""

from __future__ import annotations

import atexit
import os
from functools import cache
from pathlib import Path
from typing import Any

from dtdr import llms
from dtdr.lab.kinds import Context
from dtdr.llms import LLM


def short_name(name: str) -> str:
    """What cells call a model: a folder or an address says nothing about it."""
    kind, _, rest = name.partition(":")
    if kind in ("gguf", "replay"):
        return f"{kind}:{Path(rest).name}"
    return f"{kind}:{rest.partition('@')[0]}"


def open_model(context: Context, name: str) -> LLM:
    """The model that a cell names.

    Raises:
        InputError: the name leads nowhere.
        LLMError: the model cannot be loaded.
    """
    return _opened(context.models.get(name, name))


@cache
def _opened(name: str) -> LLM:
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    parameters: dict[str, Any] = {"threads": threads} if name.startswith("gguf:") else {}
    model = llms.create(name, **parameters)
    atexit.register(model.close)
    return model
