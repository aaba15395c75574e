"""The two verbs at the top of the package: ``fit`` and ``load``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dtdr import retrievers
from dtdr.demonstrations import Demonstration, Tool
from dtdr.model_folder import load_model
from dtdr.retrievers.base import Retriever


def fit(
    demonstrations: Iterable[Demonstration],
    tools: Iterable[Tool] | None = None,
    *,
    retriever: str = retrievers.DEFAULT,
    **parameters: Any,
) -> Retriever:
    """Fit a retriever to demonstrations.

    Args:
        demonstrations: any iterable, such as ``read_demonstrations(path)``; it is read once.
        tools: descriptions and parameters, and tools that no demonstration uses yet.
        retriever: its name, such as ``"dtdr-c"``.
        parameters: the retriever's own, such as ``encoder="minilm"`` or ``seed=1``.

    Raises:
        InputError: an unknown name or parameter, or data that cannot be learned from.
    """
    return retrievers.create(retriever, **parameters).fit(demonstrations, tools)


def load(folder: str | Path, **given: Any) -> Retriever:
    """Load a fitted retriever from the folder that ``save`` wrote.

    Raises:
        ModelError: naming what is wrong with the folder.
    """
    return load_model(folder, **given)
