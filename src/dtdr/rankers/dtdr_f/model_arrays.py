"""The arrays of a fitted dtdr-f, as a model folder keeps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dtdr.data.tools import Tool
from dtdr.errors import ModelError
from dtdr.rankers.calibration import Calibration
from dtdr.rankers.dtdr_f.blocks import BLOCKS, LAYOUT
from dtdr.rankers.dtdr_f.blocks.block import TrainingSet
from dtdr.rankers.dtdr_f.candidate_ranker import CandidateRanker
from dtdr.rankers.dtdr_f.demonstrations import EncodedDemonstrations
from dtdr.rankers.dtdr_f.factored_model import FactoredModel
from dtdr.rankers.dtdr_f.new_tools import NewToolScorer
from dtdr.rankers.dtdr_f.observations import NO_CONTEXT
from dtdr.rankers.dtdr_f.queries import QueryFeaturizer, Vocabulary
from dtdr.rankers.dtdr_f.run_tools import FEATURES as RUN_FEATURES
from dtdr.rankers.dtdr_f.run_tools import RunTools
from dtdr.rankers.dtdr_f.text import QueryText
from dtdr.rankers.dtdr_f.tool_texts import ToolTexts
from dtdr.rankers.dtdr_f.word_weights import WordWeights
from dtdr.rankers.selection import token_costs
from dtdr.rankers.zero_shot.model import ZeroShotModel
from dtdr.text.encoders.base import Encoder


def to_arrays(fitted: FactoredModel) -> dict[str, npt.NDArray[Any]]:
    """The arrays to save."""
    training, featurizer = fitted.training, fitted.training.featurizer
    parts: dict[str, Mapping[str, npt.NDArray[Any]]] = {
        "model": {
            "offered": fitted.offered.astype(np.uint8),
            "phrases": featurizer.further,
            "reference": np.array([training.reference], np.float64),
            "state_share": np.array([fitted.state_share], np.float64),
            "seen": training.seen.astype(np.int32),
        },
        "words": vars(featurizer.words),
        "stems": vars(featurizer.stems),
        "asked": vars(training.word_weights),
        "data": training.data.arrays(),
        "ranker": vars(fitted.ranker) if fitted.ranker else {},
        "new_tools": vars(fitted.new_tools) if fitted.new_tools else {},
        "run_tools": vars(fitted.run_tools) if fitted.run_tools else {},
        "calibration": fitted.calibration.arrays(),
        **{block.name: block.arrays() for block in fitted.blocks},
    }
    arrays = {
        f"{part}.{name}": part_arrays[name]
        for part, part_arrays in parts.items()
        for name in part_arrays
    }
    return {**arrays, "checksum": checksum(arrays)}


def from_arrays(
    tools: Sequence[Tool], arrays: Mapping[str, npt.NDArray[Any]], encoder: Encoder | None
) -> FactoredModel:
    """Rebuild from the output of ``to_arrays``.

    Raises:
        KeyError: an array is missing.
        ModelError: the arrays are damaged, or of other tools.
    """
    if not np.array_equal(checksum(arrays), arrays["checksum"]):
        raise ModelError("the arrays of the model are damaged; fit it again")
    parts: dict[str, dict[str, npt.NDArray[Any]]] = defaultdict(dict)
    for name, array in arrays.items():
        part, _, array_name = name.partition(".")
        parts[part][array_name] = array
    model, network, new_tools = parts["model"], parts["ranker"], parts["new_tools"]
    run_tools = parts["run_tools"]
    if model["offered"].shape != (len(tools),):
        raise ModelError("the model was learned with other tools; fit it again")
    _check_shapes(arrays)
    offered = model["offered"].astype(np.bool_)
    encoded = EncodedDemonstrations.restore(parts["data"], len(tools))
    words, stems = Vocabulary(**parts["words"]), Vocabulary(**parts["stems"])
    featurizer = QueryFeaturizer(encoded.columns, words, stems, model["phrases"])
    training = TrainingSet(
        ToolTexts(tools, stems),
        featurizer,
        encoded,
        model["seen"].astype(np.intp),
        WordWeights(**parts["asked"]),
        float(model["reference"][0]),
    )
    restored = FactoredModel(
        training,
        ZeroShotModel(tools),
        tuple(block.restore(parts[block.name], training) for block in BLOCKS),
        offered,
        encoder,
        CandidateRanker(**network) if network else None,
        NewToolScorer(**new_tools) if new_tools else None,
        float(model["state_share"][0]),
        RunTools(**run_tools) if run_tools else None,
        replace(Calibration.restore(parts["calibration"], token_costs(tools)), added=~offered),
    )
    # What the first query computes of the demonstrations shows now whether they are whole.
    restored.prepare_features(featurizer.read(QueryText.of("")), NO_CONTEXT)
    return restored


def _check_shapes(arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise a ModelError unless the sizes of all that queries are read by agree."""
    seen, words = len(arrays["model.seen"]), len(arrays["words.terms"])
    surface = len(arrays["data.surface"]) // max(len(arrays["data.surface.sizes"]), 1)
    hidden = len(arrays.get("ranker.output", ()))
    features, described = len(LAYOUT.names), len(LAYOUT.text_rows)
    shapes = {
        "words.idf": (words,),
        "stems.idf": arrays["stems.terms"].shape,
        "asked.weights": (words, 2, seen),
        "asked.mean": (2, seen),
        "next_tool.query": (words + surface, seen),
        "next_tool.history": (len(arrays["next_tool.history"]), seen),
        "step_text.weights": (len(arrays["step_text.words"]) + 1, seen),
        "last_output.weights": (len(arrays["last_output.keys"]) + 1, seen),
        **dict.fromkeys(("ranker.low", "ranker.high"), (features + 1, 1)),
        "ranker.mean": (features,),
        "ranker.weights": (hidden + 1, features + 1),
        **dict.fromkeys(("new_tools.mean", "new_tools.scale"), (described,)),
        "new_tools.weights": (described + 1,),
        "run_tools.weights": (len(RUN_FEATURES),),
        "new_tools.gate": (described + 2,),
    }
    for name, shape in shapes.items():
        if name in arrays and arrays[name].shape != shape:
            raise ModelError(f"the array {name} of the model does not fit the others; fit it again")


def checksum(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint32]:
    """CRC-32 of the features and of all other arrays with their names, types and shapes."""
    total = crc32(" ".join(LAYOUT.names).encode())
    for name in sorted(arrays.keys() - {"checksum"}):
        array = np.ascontiguousarray(arrays[name])
        total = crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = crc32(array.tobytes(), total)
    return np.array([total], np.uint32)
