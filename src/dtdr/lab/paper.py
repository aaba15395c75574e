"""Figures of the paper, each with the table that it stands in."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

CITATION = (
    "Patel, Belli, Jalalirad, Arnold, Ermolov, Major: Dynamic Tool Dependency Retrieval for "
    "Lightweight Function Calling, arXiv 2512.17052"
)


@cache
def paper() -> Mapping[str, Any]:
    """All figures, by the section of the report that shows them."""
    text = resources.files("dtdr.lab").joinpath("paper.toml").read_text("utf-8")
    return tomllib.loads(text)


def retrieval_figures(dataset: str) -> Mapping[str, Any]:
    """The paper's row for each method on a data set; empty where it has none."""
    found: Mapping[str, Any] = paper()["retrieval"].get(dataset, {})
    return found
