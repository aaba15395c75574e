"""``encoder``: milliseconds a text and megabytes of each encoder, in a fresh process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtdr.lab.fresh import TEXTS, measured
from dtdr.lab.kinds import Context
from dtdr.lab.kinds.rank import sides_of
from dtdr.lab.log import LabLog
from dtdr.model_folder import versions


def run(spec: Mapping[str, Any], context: Context) -> LabLog:
    """Queries of the training side are learned from, queries of the test side are encoded.

    Raises:
        DtdrError: the encoder is not installed, or the process failed.
    """
    sides = sides_of(context.dataset(spec), spec)
    result = measured(
        {
            "do": "encode",
            "encoder": spec["encoder"],
            "training": [item.query for item in sides.train],
            "texts": [item.query for item in sides.test[:TEXTS]],
        }
    )
    return LabLog({"kind": "encoder", "versions": versions(), "result": result})
