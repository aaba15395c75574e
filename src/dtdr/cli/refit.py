"""Fits a model again as it was fitted, from data that have changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdr import load, rankers
from dtdr.cli.fit import learn, read_files
from dtdr.data.shards import find_shards
from dtdr.data.tools import Tool
from dtdr.errors import InputError
from dtdr.logs import CANONICAL
from dtdr.predict.arguments.model import ArgumentOptions
from dtdr.predict.counting import KeptCounts
from dtdr.predict.counting.memory import SAMPLE, plan_memory
from dtdr.predict.model import END_TOOL, Model
from dtdr.rankers.model_folder import read_config
from dtdr.rankers.training import TrainingData
from dtdr.serve.learning import Versions


@dataclass(frozen=True)
class Refit:
    """A model that is to be fitted again.

    Attributes:
        model: its folder.
        retriever: of the same parameters, not fitted.
        tools: what the model knows of tools in addition to the demonstrations.
        config: of the model.
    """

    model: Path
    retriever: Model
    tools: tuple[Tool, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, model: Path, records: int) -> Refit:
        """Look whether a model can be fitted again as it was.

        Args:
            model: its folder.
            records: demonstrations in the data that it is to be fitted on, those that are about to
                be erased included.

        Raises:
            ModelError: there is no usable model.
            InputError: the folder does not know how it was fitted, or the data are not all that it
                learned from.
        """
        config = read_config(model)
        training = config["training_data"]
        otherwise = f"leave --refit out, and fit {model} again with dtdr fit and its options"
        if "llm" in rankers.saved_class(model, config["retriever"]).not_saved:
            raise InputError(f"{model} does not know the LLM that it was fitted with; {otherwise}")
        if (training.get("options") or {}).get("part"):
            raise InputError(f"{model} was fitted on a part of its data (--split); {otherwise}")
        learned = training["demonstrations"] + training["skipped_failures"]
        if records < learned - training.get("erased", 0):
            raise InputError(
                f"{model} learned from {learned:,} demonstrations, and these files have "
                f"{records:,}; name all of its data, or {otherwise}"
            )
        fitted = load(model)
        # A tool of which only the name is known may have been known by what is erased alone.
        tools = tuple(tool for tool in fitted.tools_ if tool not in (Tool(tool.name), END_TOOL))
        return cls(model, fitted.clone(), tools, config)

    def run(self, data: Sequence[Path]) -> TrainingData:
        """Fit, and put the result in the model's place at once.

        Versions that ``dtdr learn`` kept are deleted: they learned from what was erased.

        Returns:
            What the model learned from.

        Raises:
            InputError: the data cannot be read, or nothing is left to learn from.
            OutputError: the folder cannot be written.
        """
        options = self.config["training_data"].get("options") or {}
        plan = plan_memory(None, options.get("sample", SAMPLE), None, 1)
        kept = KeptCounts.of_model(self.model)
        files = [Path(shard.name).resolve() for path in data for shard in find_shards(path)]
        sizes = {file: file.stat().st_size for file in files}
        source, drawn = read_files(
            data,
            self.retriever,
            plan,
            seed=options.get("seed", 0),
            kept=kept if kept.folder.is_dir() else None,
            log_format=CANONICAL,
        )
        arguments = self.config.get("arguments")
        learn(
            self.retriever,
            source.demonstrations,
            self.tools,
            drawn,
            arguments=arguments is not None
            and ArgumentOptions(int(arguments["min_runs"]), int(arguments["min_groups"])),
            plans=self.config.get("plans") is not None,
            record={} if options.get("sample") != 0 else {"sample": 0},
        )
        if self.versions.folder.is_dir():
            self.versions.begin_anew(self.retriever, sizes)
        else:
            self.retriever.save(self.model, force=True)
        return self.retriever.training_

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep ``dtdr learn`` off the model.

        Raises:
            InputError: it is at work on it.
        """
        if self.versions.folder.is_dir():
            with self.versions.lock():
                yield
        else:
            yield

    @property
    def versions(self) -> Versions:
        """Those that ``dtdr learn`` keeps, if it was ever started."""
        return Versions(self.model)
