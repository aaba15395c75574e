"""``dtdr fit``: demonstrations in, a model folder out."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dtdr.agents.advice import advise, verdict
from dtdr.cli import options
from dtdr.cli.inputs import choose_split, dataset_of, load_dataset, report_bad
from dtdr.cli.output import plural, print_json, printable, quote, say
from dtdr.data.demonstrations import count_orders, describe_orders
from dtdr.data.jsonl import BadRecords
from dtdr.data.shards import find_shards, is_sharded
from dtdr.errors import InputError, check_at_least
from dtdr.evaluate.datasets import Dataset
from dtdr.logs import CANONICAL, open_demonstrations
from dtdr.predict.counting import SAMPLE, Sample, draw_sample, has_more_rows
from dtdr.predict.model import Model
from dtdr.rankers import DEFAULT
from dtdr.rankers.model_folder import check_target

_FEW = 20
"""Fewer demonstrations say little."""

_REPLAYED = 100
"""Demonstrations that the last sentence counts tokens on."""


class _FitSettings(msgspec.Struct, frozen=True):
    """Keys of ``--set`` in addition to the parameters of the ranker."""

    value_runs: Annotated[int, msgspec.Meta(ge=0)] = 3


def fit(
    data: list[Path] | None = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o")],
    dataset: options.DATASET = None,
    retriever: str = DEFAULT,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
    settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    arguments: bool = True,
    plans: bool = True,
    failures: bool = True,
    sample: int = SAMPLE,
    workers: int | None = None,
    engine: str | None = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Learn from demonstrations and write a model folder.

    With --split, it learns from the training side only. With --tools alone, the model ranks tools
    by their descriptions until it learns from runs.

    Example: dtdr fit demonstrations.jsonl -o model --retriever dtdr-l

    From logs: dtdr fit requests.jsonl -o model

    Args:
        output (MODEL): Model folder to write.
        data (DATA): Files of demonstrations, or logs that dtdr import can read. They may be
            gzipped; - reads standard input.
        retriever (NAME): The ranker to fit, such as dtdr-l, or your own as module:Class.
            docs/concepts.md compares the rankers.
        settings (KEY=VALUE): Set a parameter of the ranker, such as order=2, encoder=minilm or
            seed=1; repeatable. Also, value_runs=3 stores a value of an argument if at least
            three runs have it; 0 stores none.
        arguments: Learn the values of arguments, for dtdr predict.
        plans: Learn to predict whole plans, for dtdr predict --plans.
        failures: Learn from runs that failed too: most of their calls are right.
        sample (N): If there are more than N demonstrations, learn from N of them; 0 learns from
            all.
        workers (N): Number of processes that read large data.  [default: one per core]
        engine (ADDRESS): Count and sample on a cluster: dask://HOST:8786, ray://HOST:10001 or
            ray://auto. Its workers must be able to open DATA under the same names.
    """
    values = options.parse_settings(settings)
    fit_settings = options.take_settings(values, _FitSettings)
    seed = options.read_seed(values)
    model = options.create_model(retriever, values)
    check_target(output, force=force)  # known before the long work, not after it
    bad = BadRecords() if skip_bad else None
    check_at_least(0, sample=sample)
    check_at_least(1, workers=workers)
    takes_all = dataset is None and split is None
    reads_files = bool(data) and takes_all
    if engine is not None and not (reads_files and sample):
        raise InputError(
            "--engine reads DATA; name files, and leave out --dataset, --split and --sample 0"
        )
    drawn = None
    if data and reads_files and (engine or _is_large(data, sample)):
        how: dict[str, Any] = {"seed": seed, "workers": workers, "failures": failures}
        drawn = _draw(data, sample, bad, engine=engine, **how)
    if tools is not None and not data and takes_all:
        source = dataset_of([tools], [], (), tools)  # ranked by their descriptions
    elif drawn is None:
        source = load_dataset(data, dataset, tools=tools, bad=bad)
    else:
        report_bad(bad)
        source = dataset_of(list(data or ()), drawn.demonstrations, drawn.tools, tools)
    demonstrations = source.demonstrations
    if split is not None:
        demonstrations = choose_split(source, split, seed=seed).training(demonstrations)
    started = time.perf_counter()
    model.fit(
        demonstrations,
        source.tools or None,
        arguments=arguments,
        plans=plans,
        value_runs=fit_settings.value_runs,
        failures=failures,
    )
    if drawn is not None:
        counts = drawn.counts
        model.record_counts(counts.describe_training(model.training_), counts.phrases)
    seconds = time.perf_counter() - started
    model.save(output, force=force)
    summary = {"model": str(output), "ranker": retriever} | _describe_fit(model, source, bad)
    summary["orders"] = dict(count_orders(demonstrations))
    summary["fit_seconds"] = round(seconds, 4)
    summary["bytes"] = sum(item.stat().st_size for item in output.iterdir())
    if demonstrations:
        summary["verdict"] = verdict(advise(model, demonstrations[:_REPLAYED], source.tools))
    if as_json:
        print_json(summary)
    else:
        calls = model.calls_ or {}
        _print(summary, max(calls, key=lambda name: calls[name], default=model.tools_[0].name))


def _describe_fit(model: Model, source: Dataset, bad: BadRecords | None) -> dict[str, Any]:
    """The fields of the summary that say what was learned, and from what."""
    training = model.training_
    return {
        "encoder": None if model.ranker.encoder is None else model.ranker.encoder.name,
        "dataset": source.name,
        "synthetic": source.synthetic,
        "demonstrations": training.demonstrations,
        "sampled": training.sampled,
        "failures": training.failures,
        "skipped_failures": training.skipped_failures,
        "skipped_bad": 0 if bad is None else bad.count,
        "tools": len(model.tools_) - 1,  # as everywhere, without the end of the plan
    }


def _is_large(paths: Sequence[Path], size: int) -> bool:
    """Whether files may have more demonstrations than a fit learns from; logs and pipes never."""
    if not size:
        return False
    if not any(map(is_sharded, paths)):
        if not all(path.is_file() and path.open("rb").read(2) != b"\x1f\x8b" for path in paths):
            return False
        if open_demonstrations(paths).format != CANONICAL:
            return False
    try:
        return has_more_rows((shard for path in paths for shard in find_shards(path)), size)
    except InputError:
        return True  # whoever reads it says why, or counts it as bad


def _draw(paths: Sequence[Path], size: int, bad: BadRecords | None, **how: Any) -> Sample | None:
    """A sample of the demonstrations, and counts of all; None if there are no more than ``size``.

    Raises:
        InputError: the data cannot be read.
    """
    counted = None if bad is None else BadRecords()
    sample = draw_sample(paths, size, bad=counted, **how)
    if sample.counts.total <= size:
        return None
    if bad is not None and counted is not None:
        bad.update(counted)
    return sample


def _print(summary: dict[str, Any], tool: str) -> None:
    from rich.filesize import decimal

    encoder = f" with encoder {summary['encoder']}" if summary["encoder"] else ""
    learned = summary["demonstrations"]
    kind = "synthetic demonstration" if summary["synthetic"] else "demonstration"
    failures, skipped = summary["failures"], summary["skipped_failures"]
    sampled = summary["sampled"]
    typer.echo(
        f"fitted {summary['ranker']}{encoder} on "
        + (plural(learned, kind) if learned else "the descriptions")
        + (f" ({failures:,} of them failed)" if failures else "")
        + f" of {plural(summary['tools'], 'tool')} in {summary['fit_seconds']:.2f} s"
        + (f" ({plural(skipped, 'failure')} left out)" if skipped else "")
        + (f"; counted all, learned from a sample of {sampled:,}" if sampled else "")
    )
    if learned:
        typer.echo(f"calls are learned {describe_orders(summary['orders'])}")
    typer.echo(f"wrote {summary['model']} ({decimal(summary['bytes'])})")
    if 0 < learned < _FEW:
        typer.echo(
            f"{plural(learned, 'demonstration')}: expect little more than a ranking by "
            "descriptions; fifty make a difference"
        )
    # The words of a tool: a query of the log is a customer's.
    words = " ".join(re.findall(r"[^\W_]+", printable(tool))) or "what you want to do"
    typer.echo(f"try: dtdr rank {quote(summary['model'])} {quote(words[:60])}")
    if "verdict" in summary:
        say(f"{summary['verdict']} That is of runs it learned from; dtdr advise counts others.")
