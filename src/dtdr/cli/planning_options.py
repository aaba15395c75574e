"""Options that ``dtdr plan`` and ``dtdr advise`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.data.demonstrations import Demonstration
    from dtdr.llm.backends import LLM
    from dtdr.rankers.selection import Selection


Layout = Literal["exchange", "paper"]
Icl = Literal[
    "none",
    "raw",
    "hard",
    "hard-weighted",
    "soft",
    "soft-weighted",
    "cached",
    "cached-weighted",
]
Select = Literal["greedy", "constrained", "retriever", "plan"]
Fill = Literal["both", "learned", "llm", "none"]

MODEL = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
QUERY = Annotated[str, typer.Argument(metavar="QUERY", help="What the user asked for.")]
LLM_NAME = Annotated[
    str | None,
    typer.Option(
        "--llm",
        metavar="NAME",
        help="gguf:PATH, openai:NAME@URL (key: environment variable DTDR_LLM_API_KEY), hf:NAME, "
        "or replay:FILE.",
    ),
]
CONTEXT = 4096
"""Tokens: raw demonstrations of some thirty tools fit."""

LLM_CONTEXT = Annotated[
    int,
    typer.Option("--llm-context", metavar="TOKENS", help="Context of a gguf: model.", min=256),
]
LLM_THREADS = Annotated[
    int | None,
    typer.Option("--llm-threads", metavar="N", help="Threads of a gguf: model.", min=1),
]
ICL = Annotated[Icl, typer.Option("--icl", help="How the prompt shows the ranking.")]
LAYOUT = Annotated[
    Layout,
    typer.Option(
        "--layout", help="Layout of the prompt: an exchange, or one message as in the paper."
    ),
]
EXAMPLES = Annotated[
    Path | None,
    typer.Option(
        "--examples",
        metavar="FILE",
        help="A demonstrations.jsonl file with examples for the prompt; default: none.",
    ),
]
TOP = Annotated[int | None, typer.Option("--top", metavar="K", help="Show at most K tools.", min=1)]
THRESHOLD = Annotated[
    float | None,
    typer.Option("--threshold", metavar="P", help="Show only tools above this probability."),
]
COVERAGE = Annotated[
    float | None,
    typer.Option(
        "--coverage",
        metavar="P",
        help="Show the fewest tools that include a right one with probability P.",
    ),
]


def open_llm(name: str, *, context: int, threads: int | None, record: Path | None = None) -> LLM:
    """The LLM that a user named.

    Raises:
        InputError: the name leads nowhere.
        LLMError: the model cannot be loaded.
    """
    from dtdr.llm import backends

    gguf = name.startswith("gguf:")
    parameters = {"context": context, "threads": threads} if gguf else {}
    return backends.create(name, record=record, **parameters)


def make_selection(top: int | None, threshold: float | None, coverage: float | None) -> Selection:
    """Which tools are shown.

    Raises:
        InputError: a value is out of range; the sentence names its option.
    """
    from dtdr.rankers.selection import Selection

    try:
        return Selection(top_k=top, threshold=threshold, coverage=coverage)
    except InputError as error:
        raise InputError(f"--{error}") from None  # a field is named as its option


def read_examples(path: Path | None) -> list[Demonstration]:
    """The demonstrations that prompts take their examples from."""
    from dtdr.data.demonstration_files import read_demonstrations

    return [] if path is None else list(read_demonstrations(path))
