"""Calibration: how often rankings of held-out plans were right, by their probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.rankers.calibration import Calibration, fit_isotonic
from dtdr.rankers.selection import count_tokens

Judged = tuple[float, float, bool]
"""Of a step the probability of the best acceptable tool, the highest probability, and whether the
tool of that was acceptable."""


def calibrate(judged: Sequence[Judged]) -> Calibration:
    """The calibration from rankings of held-out steps.

    Args:
        judged: each step.
    """
    acceptable, best, right = np.array(judged, np.float64).T
    return Calibration(np.sort(acceptable), fit_isotonic(best, right))


def token_costs(tools: Sequence[Tool]) -> npt.NDArray[np.int64]:
    """What showing each tool as JSON costs in a prompt, in tokens; shape (tools,)."""
    return np.array([count_tokens(tool.to_dict()) for tool in tools], np.int64)


def arrays(calibration: Calibration) -> dict[str, npt.NDArray[Any]]:
    """The arrays to save; none where nothing was held out."""
    parts = {
        "held_out": calibration.held_out,
        "confidence": calibration.confidence,
        "threshold": np.array([calibration.familiarity_threshold or 0.0]),
    }
    return {f"calibration.{name}": part for name, part in parts.items() if part is not None}


def restore(arrays: Mapping[str, npt.NDArray[Any]], tools: Sequence[Tool]) -> Calibration:
    """Rebuild from the output of ``arrays``."""
    held_out, confidence = (
        arrays.get(f"calibration.{name}") for name in ("held_out", "confidence")
    )
    threshold = float(arrays["calibration.threshold"][0])
    return Calibration(held_out, confidence, token_costs(tools), threshold, arrays["offered"] == 0)
