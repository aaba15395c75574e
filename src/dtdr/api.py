"""The two verbs at the top of the package: ``fit`` and ``load``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dtdr import encoders, model_folder, retrievers
from dtdr.arguments.model import ArgumentModel, ArgumentOptions
from dtdr.errors import EncoderError, InputError, MissingExtraError, ModelError, unknown_choice
from dtdr.plans.model import PlanModel
from dtdr.retrievers.base import Demonstrations, Retriever
from dtdr.retrievers.surprise import SurpriseModel
from dtdr.retrievers.training import TrainingData
from dtdr.tools import Tool

logger = logging.getLogger("dtdr")


def fit(
    demonstrations: Demonstrations,
    tools: Iterable[Tool] | None = None,
    *,
    retriever: str = retrievers.DEFAULT,
    arguments: bool | ArgumentOptions = False,
    plans: bool = False,
    **parameters: Any,
) -> Retriever:
    """Fit a retriever to demonstrations.

    Args:
        demonstrations: the path of a ``demonstrations.jsonl`` or of an agent's log, whose format
            is found; or any iterable, read once, of ``Demonstration`` objects, their JSON objects,
            or pairs ``(query, [tool names])``.
        tools: descriptions and parameters, and tools that no demonstration uses yet; None takes
            those that the log or the ``tools.json`` beside the file holds.
        retriever: its name, such as ``"dtdr-c"``.
        arguments: whether to learn also which value each argument takes, and how; see
            ``Retriever.fit``.
        plans: whether to learn also which whole plans are right, for ``Retriever.plans``.
        parameters: the retriever's own, such as ``encoder="minilm"`` or ``seed=1``.

    Raises:
        InputError: an unknown name or parameter, or data that cannot be learned from.
    """
    chosen = retrievers.create(retriever, **parameters)
    return chosen.fit(demonstrations, tools, arguments=arguments, plans=plans)


def load(
    folder: str | Path, *, allow_endpoint: str | Iterable[str] = (), **given: Any
) -> Retriever:
    """Load a fitted retriever from the folder that ``save`` wrote.

    Args:
        folder: what ``Retriever.save`` wrote.
        allow_endpoint: hosts that may be asked for embeddings, for models with the encoder
            ``endpoint``: a folder does not choose by itself where queries and a key are sent.
        given: constructor keywords that a folder cannot hold, such as ``llm`` of less-is-more, or
            an ``encoder`` object for one that was made by hand.

    Raises:
        ModelError: naming what is wrong with the folder.
        InputError: its encoder asks a host that is not allowed.
    """
    saved = model_folder.read(folder)
    config = saved.config
    name, parameters = config["retriever"], config["parameters"]
    if name not in retrievers.NAMES:
        unknown = unknown_choice("retriever", name[:60], retrievers.NAMES)
        raise ModelError(f"{folder} holds no usable model: {unknown}")
    if "encoder" in parameters:  # one named here would pass by the check of its host
        raise ModelError(f"{folder} names an encoder among its parameters; fit the model again")
    try:
        accepted = inspect.signature(retrievers.retriever_class(name)).parameters
        for key, value in parameters.items():
            if key not in accepted:
                raise ModelError(f"it has a parameter {key!r} of another version; fit it again")
            if expected := retrievers.expected_type(name, key, value):
                raise ModelError(f"its parameter {key!r} must be {expected}; fit it again")
        if config["encoder"] is not None and "encoder" not in given:
            given["encoder"] = saved.restore(
                "encoder", partial(encoders.restore, allow_endpoint=allow_endpoint)
            )
        retriever = retrievers.create(name, **parameters, **given)
        tools = tuple(map(Tool.from_dict, config["tools"]))
        arguments = saved.restore("arguments", partial(ArgumentModel.restore, tools=tools[:-1]))
        plans = saved.restore("plans", PlanModel.restore)
        surprise = saved.restore("surprise", SurpriseModel.restore)
        training = TrainingData(**config["training_data"])
        restored = retriever.restore(tools, training, saved.arrays, arguments, plans, surprise)
        logger.info("loaded %s of %d tools from %s", name, len(tools) - 1, folder)
        return restored
    except (InputError, EncoderError, MissingExtraError):
        raise  # what the user has to give or allow
    except Exception as error:
        # Whatever a folder of a stranger provokes is one sentence.
        reason = " ".join(str(error).split())[:300]
        if not isinstance(error, ModelError):
            reason = f"{type(error).__name__}: {reason}; fit it again"
        raise ModelError(
            f"{folder} holds no usable model of retriever {name!r}: {reason}"
        ) from error
