"""How much a query is like the demonstrations' queries: where the bar is set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dtdr.ranking import Floats

FALSE_ALARMS = 0.02
"""Share of the queries like the demonstrations' that are taken for unlike. A false alarm only shows
more tools than are needed. With it dtdr-f notices 98 % of other sets' queries and of gibberish on
five validation sets, with half of it 95 %."""

Array = npt.NDArray[np.floating]


def floor_of(scores: Array, *, false_alarms: float = FALSE_ALARMS) -> float | None:
    """The score below which a query is unlike the demonstrations.

    With enough scores it is the conformal bound, which a further query of the same kind falls
    below at most ``false_alarms`` of the time, whatever the distribution. With fewer than
    ``1 / false_alarms - 1`` no score is low enough for that, and it is the lower prediction bound
    of a normal distribution with that mean and deviation.

    Args:
        scores: shape (n,): of the demonstrations' own queries, each by a model without it.
        false_alarms: share of such queries that may fall below.

    Returns:
        The floor; None for fewer than two scores, which say nothing.
    """
    count = len(scores)
    if count < 2:
        return None
    values: Floats = np.sort(np.asarray(scores, np.float64))
    rank = int((count + 1) * false_alarms + 1e-9)
    if rank:
        return float(values[rank - 1])
    from scipy.special import stdtrit

    reach = stdtrit(count - 1, false_alarms) * np.sqrt(1 + 1 / count)
    return float(values.mean() + reach * values.std(ddof=1))
