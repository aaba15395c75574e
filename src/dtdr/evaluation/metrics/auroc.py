"""Area under the receiver operating characteristic: how well a score tells two kinds apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def auroc(positives: npt.ArrayLike, negatives: npt.ArrayLike) -> float:
    """Chance that a positive scores above a negative, a tie counting half (Mann and Whitney 1947).

    Args:
        positives: shape (m,): scores that should be high, such as of familiar queries.
        negatives: shape (n,): scores that should be low.

    Returns:
        From 0 to 1; .5 tells nothing. NaN where one of the two is empty.
    """
    high, low = np.asarray(positives, np.float64), np.sort(np.asarray(negatives, np.float64))
    if not high.size or not low.size:
        return float("nan")
    below = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
    return float(below.sum() / (2 * high.size * low.size))
