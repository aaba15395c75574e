"""``dtdr fit``: demonstrations in, a model folder out."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtdr.cli import options
from dtdr.cli.inputs import choose_split, dataset_of, draw_from_large, load_dataset, report_bad
from dtdr.cli.output import note, print_json, quote
from dtdr.data import engines
from dtdr.data.demonstrations import count_orders, describe_orders
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, check_at_least
from dtdr.logs.left_out import blame, explain_failures
from dtdr.predict.arguments.model import ArgumentOptions
from dtdr.predict.counting import KeptCounts, Sample
from dtdr.predict.counting.memory import parse_size, plan_memory
from dtdr.predict.model import Model
from dtdr.rankers import DEFAULT
from dtdr.rankers.model_folder import check_target

if TYPE_CHECKING:
    from dtdr.evaluate.datasets import Dataset
    from dtdr.predict.counting.memory import MemoryPlan


def fit(
    data: list[Path] | None = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o")],
    log_format: Annotated[str | None, typer.Option("--format")] = None,
    dataset: options.DATASET = None,
    retriever: str = DEFAULT,
    encoder: options.ENCODER = None,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
    settings: options.SETTINGS = None,
    seed: options.SEED = 0,
    skip_bad: options.SKIP_BAD = False,
    arguments: bool = True,
    value_runs: int = 3,
    plans: bool = True,
    sample: int | None = None,
    memory: str | None = None,
    workers: int | None = None,
    engine: options.ENGINE = engines.PROCESSES,
    keep_counts: bool | None = None,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Learn from demonstrations and write a model folder.

    With --split, it learns from the train side only.

    Example: dtdr fit demonstrations.jsonl -o model --retriever dtdr-l

    From logs: dtdr fit requests.jsonl -o model

    Args:
        output (MODEL): The model folder to write.
        data (DATA): Demonstrations or an agent's logs, as dtdr import takes them: files, plain or
            gzipped, or - for standard input.
        log_format (FORMAT): Format of DATA, as in dtdr import; by default dtdr detects it.
        retriever (NAME): The retriever to fit.
        arguments: Also learn the values of arguments, for dtdr predict.
        value_runs (N): Keep values that an argument had in at least N runs and two groups; 0 keeps
            none. dtdr inspect lists them.
        plans: Also learn to predict whole plans, for dtdr predict --plans.
        sample (N): Count all demonstrations, and learn from a sample of N; 0 learns from all.
            [default: 100000]
        memory (SIZE): Memory limit, such as 4GB: fewer workers and a smaller sample.
        workers (N): Processes that count.  [default: one per core]
        keep_counts: Keep the counts of each file in MODEL.counts, so that the next fit counts only
            changed files.  [default: if that folder exists]
    """
    chosen = options.create_retriever(retriever, encoder=encoder, seed=seed, settings=settings)
    check_target(output, force=force)  # known before the long work, not after it
    bad = BadRecords() if skip_bad else None
    if log_format is not None and (dataset is not None or not data):
        raise InputError("--format reads files; name them, and leave --dataset out")
    check_at_least(0, sample=sample)
    check_at_least(1, workers=workers)
    bound = None if memory is None else parse_size(memory)
    plan = plan_memory(bound, sample, workers, os.cpu_count() or 1)
    kept = KeptCounts.of_model(output)
    if keep_counts is False:
        kept.prune(())
    is_keeping = kept.folder.is_dir() if keep_counts is None else keep_counts
    drawn = None
    if data and dataset is None and split is None:
        source, drawn = _read_files(
            data,
            chosen,
            plan,
            seed=seed,
            kept=kept if is_keeping else None,
            engine=engine,
            log_format=log_format,
            tools=tools,
            bad=bad,
        )
    else:
        source = load_dataset(
            data=data, dataset=dataset, tools=tools, bad=bad, log_format=log_format
        )
    if is_keeping and drawn is None:
        kept.prune(())  # nothing was counted, so the counts that are there are of other data
    report_bad(bad)
    demonstrations = source.demonstrations
    if split is not None:
        sides = choose_split(source, split, seed=seed)
        demonstrations = [demonstrations[index] for index in sides.train]
    started = time.perf_counter()
    learned: ArgumentOptions | Literal[False] = False
    if arguments:
        learned = ArgumentOptions(min_runs=value_runs)
    chosen.fit(demonstrations, source.tools or None, arguments=learned, plans=plans)
    if drawn is not None:
        counts = drawn.counts
        chosen.record_counts(counts.describe_training(chosen.training_), counts.phrases)
    seconds = time.perf_counter() - started
    chosen.save(output, force=force)
    size = sum(item.stat().st_size for item in output.iterdir())
    training = chosen.training_
    orders = count_orders(demonstrations)
    summary = {
        "model": str(output),
        "retriever": retriever,
        "encoder": None if chosen.encoder is None else chosen.encoder.name,
        "dataset": source.name,
        "synthetic": source.synthetic,
        "demonstrations": training.demonstrations,
        "sampled": training.sampled,
        "parts": None if drawn is None else drawn.parts,
        "parts_kept": None if drawn is None else drawn.parts_kept,
        "skipped_failures": training.skipped_failures,
        "orders": dict(orders),
        "skipped_bad": 0 if bad is None else bad.count,
        "tools": len(chosen.tools_) - 1,  # as everywhere, without the end of the plan
        "fit_seconds": round(seconds, 4),
        "arguments": arguments,
        "plans": plans,
        "bytes": size,
    }
    failures: Counter[str] = Counter()
    for item in demonstrations if training.skipped_failures else ():
        if item.outcome == "failure":
            failures.update(blame(item))
    if said := explain_failures(
        failures,
        training.skipped_failures,
        training.skipped_failures + training.demonstrations,
        ("import with --failed keep", "fit with --set failure_weight=1"),
    ):
        note(said)
    if as_json:
        print_json(summary)
        return
    from rich.filesize import decimal

    with_encoder = f" with encoder {summary['encoder']}" if summary["encoder"] else ""
    kind = "synthetic demonstrations" if source.synthetic else "demonstrations"
    skipped, sampled = training.skipped_failures, training.sampled
    typer.echo(
        f"fitted {retriever}{with_encoder} on {training.demonstrations:,} {kind} of "
        f"{summary['tools']:,} tools in {seconds:.2f} s"
        + (f" ({skipped:,} failures left out)" if skipped else "")
        + (f"; counted all, learned from a sample of {sampled:,}" if sampled else "")
    )
    typer.echo(f"calls are learned {describe_orders(orders)}")
    if drawn is not None and drawn.parts_kept:
        typer.echo(f"{drawn.parts_kept:,} of {drawn.parts:,} parts had been counted before")
    typer.echo(f"wrote {output} ({decimal(size)})")
    query = demonstrations[0].query
    example = shorten(query, 60, placeholder="") or query[:60]
    typer.echo(f"try: dtdr rank {quote(str(output))} {quote(example)}")


def _read_files(
    paths: Sequence[Path],
    chosen: Model,
    plan: MemoryPlan,
    *,
    seed: int,
    kept: KeptCounts | None,
    engine: str = engines.PROCESSES,
    log_format: str | None = None,
    tools: Path | None = None,
    bad: BadRecords | None = None,
) -> tuple[Dataset, Sample | None]:
    """The demonstrations of files; of more than the plan's sample, a sample and counts of all.

    Args:
        paths: files, folders or patterns.
        chosen: the retriever that is to learn, not fitted yet.
        plan: how many demonstrations and processes memory allows.
        seed: of the sample.
        kept: where counts of parts are kept between fits; None keeps none.
        engine: what counts; see ``engines.open_engine``.
        log_format: of the files; None finds it.
        tools: a file of tools instead of those of the files.
        bad: given, records that cannot be used are counted there and left out.

    Raises:
        InputError: the data cannot be read.
    """
    with engines.open_engine(engine, workers=plan.workers) as opened:
        drawn = draw_from_large(
            paths,
            log_format,
            plan.sample,
            seed=seed,
            failures=bool(chosen.failure_weight),
            bad=bad,
            engine=opened,
            kept=kept,
        )
    if drawn is None:
        return load_dataset(
            data=paths, dataset=None, tools=tools, bad=bad, log_format=log_format
        ), None
    return dataset_of(paths, drawn.demonstrations, drawn.tools, tools), drawn
