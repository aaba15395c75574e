"""The two verbs at the top of the package: ``fit`` and ``load``."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdr import rankers
from dtdr.data.tools import Tool, ToolLike
from dtdr.deprecated import renamed_keywords
from dtdr.errors import EncoderError, InputError, MissingExtraError, ModelError
from dtdr.predict import create
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.model import Demonstrations, Model
from dtdr.predict.plans.plan_model import PlanModel
from dtdr.rankers import model_folder
from dtdr.rankers.training import TrainingData
from dtdr.text import encoders

if TYPE_CHECKING:
    from dtdr.predict.counting import Sample

logger = logging.getLogger("dtdr")

_WORDS = re.compile(r"[\w ,+-]*")
"""A text among the parameters of a folder must be a choice, not a path."""


@renamed_keywords(retriever="ranker")
def fit(
    demonstrations: Demonstrations,
    tools: Iterable[ToolLike] | None = None,
    *,
    ranker: str = rankers.DEFAULT,
    arguments: bool = True,
    plans: bool = True,
    value_runs: int = 3,
    failures: bool = True,
    engine: str | None = None,
    **parameters: Any,
) -> Model:
    """Fit a model to demonstrations.

    >>> model = fit([("Mail Ann q3.pdf", ["open", "mail"])] * 3, ranker="markov-1")
    >>> model.rank("Mail Bo", ["open"]).best
    'mail'

    Args:
        demonstrations: the path of a ``demonstrations.jsonl`` or of an agent's log in any known
            format; or any iterable, read once, of ``Demonstration`` objects, their JSON objects,
            or pairs ``(query, [tool names])``. It may be empty if there are tools: dtdr-f then
            ranks them by their descriptions.
        tools: descriptions and parameters, and tools that no demonstration uses yet: ``Tool``
            objects, their JSON objects, or definitions for OpenAI, Anthropic or MCP; None takes
            those in the log, or in the ``tools.json`` next to the file.
        ranker: its name, such as ``"dtdr-c"``.
        arguments: whether to learn the values of arguments. False makes fitting faster and the
            model smaller.
        plans: whether to learn which whole plans are right, for ``Model.plans``. With a ranker
            that asks an LLM, it is always False.
        value_runs: runs that must have a value of an argument for the model to keep it as text; 0
            keeps none.
        failures: whether to learn from runs that failed. Most of their calls are right.
        engine: address of a cluster that counts the demonstrations of a path and draws the sample
            to learn from, such as ``dask://HOST:8786``, ``ray://HOST:10001`` or ``ray://auto``.
        parameters: the ranker's own, such as ``encoder="minilm"`` or ``seed=1``.

    Raises:
        InputError: an unknown name or parameter, or data that cannot be learned from.
    """
    model = create(ranker, **parameters)
    sample: Sample | None = None
    if engine is not None:
        from dtdr.predict.counting import SAMPLE, draw_sample

        if not isinstance(demonstrations, (str, Path)):
            raise InputError("an engine reads files; give the path or URL of the demonstrations")
        drawn = draw_sample(
            [demonstrations], SAMPLE, seed=model.seed, failures=failures, engine=engine
        )
        sample = drawn if drawn.counts.total > SAMPLE else None
    if sample is not None:
        demonstrations, tools = sample.demonstrations, tools or sample.tools or None
    model.fit(
        demonstrations,
        tools,
        arguments=arguments,
        plans=plans,
        value_runs=value_runs,
        failures=failures,
    )
    if sample is not None:
        training = sample.counts.describe_training(model.training_)
        model.record_counts(training, sample.counts.phrases)
    return model


def load(
    folder: str | Path,
    *,
    allow_endpoint: str | Iterable[str] = (),
    allow_class: str | Iterable[str] = (),
    **keywords: Any,
) -> Model:
    """Load a fitted model from the folder that ``save`` wrote.

    >>> fit([("Mail Ann q3.pdf", ["open", "mail"])] * 3, ranker="dr").save("model")
    >>> load("model").vocabulary
    ('mail', 'open', 'end')

    Args:
        folder: the model folder.
        allow_endpoint: hosts to which dtdr may send queries and the key, if the model's encoder is
            ``endpoint``. A folder alone cannot choose them.
        allow_class: your own rankers, as ``module:Class``, that dtdr may import. A folder alone
            cannot choose them. You need not name a class that is already imported.
        keywords: constructor keywords that are not saved, such as ``llm`` of less-is-more, or your
            own ``encoder`` object.

    Raises:
        ModelError: the folder is damaged, or not a model folder.
        InputError: its encoder asks a host, or its ranker is a class, that is not allowed.
    """
    saved = model_folder.read(folder)
    config = saved.config
    name, parameters = config["ranker"], config["parameters"]
    allowed = [allow_class] if isinstance(allow_class, str) else allow_class
    ranker = rankers.saved_class(folder, name, allowed)
    if "encoder" in parameters:  # one named here would pass by the check of its host
        raise ModelError(f"{folder} names an encoder among its parameters; fit the model again")
    try:
        accepted = inspect.signature(ranker).parameters
        for key, value in parameters.items():
            if key not in accepted:
                raise ModelError(f"it has a parameter {key!r} of another version; fit it again")
            if expected := rankers.expected_type(name, key, value):
                raise ModelError(f"its parameter {key!r} must be {expected}; fit it again")
            if isinstance(value, str) and not _WORDS.fullmatch(value):
                raise ModelError(
                    f"its parameter {key!r} may name a file, which a folder must not choose; fit "
                    "it again"
                )
        if config["encoder"] is not None and "encoder" not in keywords:
            keywords["encoder"] = saved.restore(
                "encoder", partial(encoders.restore, allow_endpoint=allow_endpoint)
            )
        model = create(name, **parameters, **keywords)
        tools = tuple(map(Tool.from_dict, config["tools"]))
        fill = partial(ArgumentModel.restore, tools=tools[:-1])
        model.arguments_ = saved.restore("arguments", fill)
        model.plans_ = saved.restore("plans", PlanModel.restore)
        counted = [item["calls"] for item in config["tools"][:-1] if type(item.get("calls")) is int]
        calls = (
            dict(zip((tool.name for tool in tools[:-1]), counted, strict=True)) if counted else None
        )
        model.restore(tools, TrainingData(**config["training_data"]), saved.arrays, calls)
        logger.info("loaded %s of %d tools from %s", name, len(tools) - 1, folder)
        return model
    except (InputError, EncoderError, MissingExtraError):
        raise  # what the user has to give or allow
    except Exception as error:
        # Whatever a folder of a stranger provokes is one sentence.
        reason = " ".join(str(error).split())[:300]
        if not isinstance(error, ModelError):
            reason = f"{type(error).__name__}: {reason}; fit it again"
        raise ModelError(f"{folder} has no usable model of ranker {name!r}: {reason}") from error
