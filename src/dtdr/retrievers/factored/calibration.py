"""Calibration: how often rankings of held-out plans were right, by their probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.calibration import Calibration, fit_isotonic
from dtdr.selection import count_tokens
from dtdr.tools import Tool

_LETTERS = re.compile(r"[^\W\d_]+")
_REPLACED = (0.1, 0.9)
"""Share of the words that are replaced."""
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
"""Without vowels they are no word of any language that has them."""


Judged = tuple[float, float, bool]
"""Of a step the probability of the best acceptable tool, the highest probability, and whether the
tool of that was acceptable."""


def calibrate(judged: Sequence[Judged], unfamiliar: Sequence[Judged] = ()) -> Calibration:
    """The calibration from rankings of held-out steps.

    Args:
        judged: each step.
        unfamiliar: steps whose queries had no known word.
    """
    acceptable, best, right = np.array(judged, np.float64).T
    unknown = None
    if unfamiliar:
        _, probabilities, outcomes = np.array(unfamiliar, np.float64).T
        unknown = fit_isotonic(probabilities, outcomes)
    return Calibration(np.sort(acceptable), fit_isotonic(best, right), unknown)


def replace_words(text: str) -> str:
    """The text with other letters in each word, so that none is known; all else stays.

    Digits, punctuation, capitals and lengths of words still say what kind of query it is.
    """
    return _LETTERS.sub(_replace_word, text)


def replace_some_words(text: str, rng: np.random.Generator) -> str:
    """The same with a random share of the words, as if a request was worded otherwise."""
    share = rng.uniform(*_REPLACED)

    def replace(match: re.Match[str]) -> str:
        return _replace_word(match) if rng.random() < share else match[0]

    return _LETTERS.sub(replace, text)


def _replace_word(match: re.Match[str]) -> str:
    number, letters = crc32(match[0].encode("utf-8", "surrogatepass")), []
    for place, letter in enumerate(match[0]):
        other = _CONSONANTS[(number >> place % 24) % len(_CONSONANTS)]
        letters.append(other.upper() if letter.isupper() else other)
    return "".join(letters)


def token_costs(tools: Sequence[Tool]) -> npt.NDArray[np.int64]:
    """What showing each tool as JSON costs in a prompt, in tokens; shape (tools,)."""
    return np.array([count_tokens(tool.to_dict()) for tool in tools], np.int64)


def arrays(calibration: Calibration) -> dict[str, npt.NDArray[Any]]:
    """The arrays to save; empty where nothing was held out."""
    held_out, confidence = calibration.held_out, calibration.confidence
    unfamiliar = calibration.unfamiliar
    return {
        "calibration.held_out": np.empty(0) if held_out is None else held_out,
        "calibration.confidence": np.empty((2, 0)) if confidence is None else confidence,
        **({} if unfamiliar is None else {"calibration.unfamiliar": unfamiliar}),
    }


def restore(arrays: Mapping[str, npt.NDArray[Any]], tools: Sequence[Tool]) -> Calibration:
    """The calibration that ``arrays`` gave."""
    held_out, confidence = arrays["calibration.held_out"], arrays["calibration.confidence"]
    return Calibration(
        held_out=held_out if len(held_out) else None,
        confidence=confidence if confidence.size else None,
        unfamiliar=arrays.get("calibration.unfamiliar"),  # models of earlier versions have none
        tokens=token_costs(tools),
    )
