"""``dtdr fit``: demonstrations in, a model folder out."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from textwrap import shorten
from typing import Annotated, Any, Literal

import typer

from dtdr import engines
from dtdr.arguments.model import ArgumentOptions
from dtdr.cli import options
from dtdr.cli.inputs import choose_split, dataset_of, draw_from_large, load_dataset, report_bad
from dtdr.cli.output import print_json
from dtdr.counting import KeptCounts, Sample
from dtdr.counting.memory import SAMPLE, parse_size, plan_memory
from dtdr.demonstrations import Demonstration
from dtdr.errors import InputError, check_at_least
from dtdr.jsonl import BadRecords
from dtdr.model_folder import check_target
from dtdr.retrievers import DEFAULT
from dtdr.retrievers.base import Retriever
from dtdr.tools import Tool


def fit(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="The model folder to write.")
    ],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA",
            help="Demonstrations or an agent's logs, as dtdr import takes them: files, plain or "
            "gzipped, or - for standard input.",
            show_default=False,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="The format of DATA, as dtdr import names it; otherwise it is found.",
        ),
    ] = None,
    dataset: options.DATASET = None,
    retriever: Annotated[
        str, typer.Option("--retriever", metavar="NAME", help="What to fit.")
    ] = DEFAULT,
    encoder: options.ENCODER = None,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
    recipe: options.RECIPE = options.Recipe.DEFAULT,
    settings: options.SETTINGS = None,
    tune_seconds: Annotated[
        float | None,
        typer.Option(
            "--tune-seconds",
            metavar="S",
            help="Time for choosing blocks of dtdr-f, by estimate; 0: none.  [default: less than "
            "the rest of the fit]",
        ),
    ] = None,
    seed: options.SEED = 0,
    llm_command: options.LLM_COMMAND = None,
    data_dir: options.DATA_DIR = None,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    arguments: Annotated[
        bool,
        typer.Option(
            "--arguments/--no-arguments",
            help="Learn also which value each argument takes, for dtdr predict.",
        ),
    ] = True,
    values: Annotated[
        bool,
        typer.Option(
            "--values/--no-values",
            help="Keep values that arguments took in several runs; dtdr inspect lists them.",
        ),
    ] = True,
    value_runs: Annotated[
        int,
        typer.Option(
            "--value-runs",
            metavar="N",
            help="Keep a value that stands in N runs of two groups at least.",
        ),
    ] = 3,
    plans: Annotated[
        bool,
        typer.Option(
            "--plans/--no-plans",
            help="Learn also which whole plans are right, for dtdr predict --plans.",
        ),
    ] = True,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            help="Count all of larger data, but learn from N demonstrations; 0: from all.  "
            "[default: 100000]",
            show_default=False,
        ),
    ] = None,
    half_life: Annotated[
        str | None,
        typer.Option(
            "--half-life",
            metavar="AGE",
            help="Let a demonstration count half at this age: 30d (s, m, h, d, w) before the "
            "newest, or a number of later ones.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Stay within so much memory, such as 4GB: fewer workers, and a smaller sample.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="Processes that count.  [default: one a core]"),
    ] = None,
    engine: options.ENGINE = engines.PROCESSES,
    address: options.ADDRESS = None,
    keep_counts: Annotated[
        bool | None,
        typer.Option(
            "--keep-counts/--no-keep-counts",
            help="Keep what is counted of each shard in MODEL.counts, so that the next fit counts "
            "what has changed.  [default: where that folder is there]",
            show_default=False,
        ),
    ] = None,
    force: options.FORCE = False,
    as_json: options.JSON = False,
) -> None:
    """Learn from demonstrations and write a model folder.

    With --split, only the train side is learned from.

    Example: dtdr fit demonstrations.jsonl -o model --retriever dtdr-l

    From logs: dtdr fit requests.jsonl -o model
    """
    if half_life is not None:
        settings = [*(settings or ()), f"half_life={half_life}"]
    chosen = options.create_retriever(
        retriever,
        encoder=encoder,
        seed=seed,
        recipe=recipe,
        llm_command=llm_command,
        settings=settings,
    )
    if tune_seconds is not None:
        if "tune_seconds" not in chosen.get_params():
            raise InputError(
                f"retriever {retriever!r} has nothing to choose; leave --tune-seconds out"
            )
        chosen.set_params(tune_seconds=tune_seconds)
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
    if data and dataset is None and split is None and not only_known_tools:
        with engines.open_engine(engine, workers=plan.workers, address=address) as opened:
            drawn = draw_from_large(
                data,
                log_format,
                plan.sample,
                seed=seed,
                failures=bool(chosen.failure_weight),
                bad=bad,
                engine=opened,
                most_ids=plan.most_ids,
                kept=kept if is_keeping else None,
            )
    if is_keeping and drawn is None:
        kept.prune(())  # nothing is counted, so that all that is there is of other data
    if drawn is not None and data:
        if isinstance(chosen.get_params().get("half_life"), (int, float)):
            raise InputError(
                "half_life as a number needs demonstrations in the order of their time, and a "
                "sample is not; give a time, such as 30d, or --sample 0 to learn from all"
            )
        source = dataset_of(data, drawn.demonstrations, drawn.tools, tools)
    else:
        source = load_dataset(
            data=data,
            dataset=dataset,
            tools=tools,
            data_dir=data_dir,
            bad=bad,
            log_format=log_format,
            only_known_tools=only_known_tools,
        )
    report_bad(bad)
    demonstrations = source.demonstrations
    if split is not None:
        sides = choose_split(source, split, data_dir=data_dir, seed=seed)
        demonstrations = [demonstrations[index] for index in sides.train]
    started = time.perf_counter()
    learned: ArgumentOptions | Literal[False] = False
    if arguments:
        learned = ArgumentOptions(min_runs=value_runs if values else 0)
    plans = plans and "llm" not in chosen.get_params()  # it would be asked for each held-out query
    told: dict[str, Any] = {}
    if plan.sample == 0 and len(demonstrations) > SAMPLE:
        told["sample"] = 0
    if split is not None or only_known_tools:
        told["part"] = True
    learn(chosen, demonstrations, source.tools, drawn, arguments=learned, plans=plans, told=told)
    seconds = time.perf_counter() - started
    chosen.save(output, force=force)
    size = sum(item.stat().st_size for item in output.iterdir())
    training = chosen.training_
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
        "skipped_bad": 0 if bad is None else bad.count,
        "tools": len(chosen.tools_) - 1,  # as everywhere, without the end of the plan
        "fit_seconds": round(seconds, 4),
        "arguments": arguments,
        "plans": plans,
        "bytes": size,
    }
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
    if drawn is not None and drawn.parts_kept:
        typer.echo(f"{drawn.parts_kept:,} of {drawn.parts:,} parts had been counted before")
    typer.echo(f"wrote {output} ({decimal(size)})")
    example = shorten(demonstrations[0].query, 60, placeholder="")
    typer.echo(f"try: dtdr rank {quote(str(output))} {quote(example)}")


def learn(
    chosen: Retriever,
    demonstrations: list[Demonstration],
    tools: Sequence[Tool],
    drawn: Sample | None,
    *,
    arguments: ArgumentOptions | Literal[False],
    plans: bool,
    told: Mapping[str, Any],
) -> None:
    """Fit a retriever, and record what its folder has to know of the data and of the options.

    Args:
        chosen: not fitted yet.
        demonstrations: of the sample, or all.
        tools: known beside the demonstrations.
        drawn: says of what the demonstrations are a sample; None: they are all.
        arguments: how arguments are learned.
        plans: whether whole plans are.
        told: options to record, beside those of the sample.
    """
    chosen.fit(demonstrations, tools or None, arguments=arguments, plans=plans)
    record = dict(told)
    if drawn is not None:
        counts = drawn.counts
        chosen.record_counts(counts.describe_training(chosen.training_), counts.phrases)
        record |= {"sample": counts.size, "seed": counts.seed}
    chosen.record_options(record)
