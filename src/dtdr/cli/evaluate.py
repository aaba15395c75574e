"""``dtdr evaluate``: how well rankers rank held-out steps, or a fitted model ranks runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from dtdr.agents.advice import advise, verdict
from dtdr.api import load
from dtdr.cli import options
from dtdr.cli.evaluation import Evaluation, Show
from dtdr.cli.inputs import choose_split, is_fitted_to, load_dataset, name_some
from dtdr.cli.output import console, note, print_json, say
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, MissingExtraError, OutputError
from dtdr.evaluate import metrics
from dtdr.evaluate.branches import find_branches
from dtdr.evaluate.call_accuracy import score_calls
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split, group_folds
from dtdr.evaluate.harness import run, score_model
from dtdr.evaluate.next_calls import find_mistakes
from dtdr.evaluate.plan_accuracy import PlanScores, score_plans
from dtdr.evaluate.run_log_file import write_run_log
from dtdr.predict import create
from dtdr.predict.arguments.argument_model import ArgumentModel
from dtdr.predict.model import Model
from dtdr.rankers import NAMES, ranker_class

ALL = "all"
_REPLAYED = 100
"""Runs that the last sentence counts tokens on."""

MISTAKES = 10
"""Mistakes of a model that are listed."""


def evaluate(  # noqa: PLR0912
    data: list[Path] | None = None,
    *,
    dataset: options.DATASET = None,
    model: Path | None = None,
    split: options.SPLIT = None,
    folds: int | None = None,
    retriever: list[str] | None = None,
    settings: options.SETTINGS = None,
    metric: list[str] | None = None,
    show: list[Show] | None = None,
    runs: Path | None = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    markdown: bool = False,
    as_json: options.JSON = False,
) -> None:
    """Measure how well rankers or a model rank each step.

    Without --model, each ranker learns from one side of a split and is tested on the other. With
    --model, the model is tested on all runs, and the command lists its most confident mistakes.

    Example: dtdr evaluate demonstrations.jsonl --retriever all --runs runs

    A model: dtdr evaluate new-runs.jsonl --model model

    Args:
        data (DATA): Demonstrations or an agent's logs.
        model (MODEL): Test the model in this folder; fit nothing.
        folds (N): Cross-validate with N folds. Each group stays in one fold.
        retriever (NAME): Ranker to evaluate, or all (the default) for each that needs no LLM;
            repeatable.
        metric (NAME): Metric to show; repeatable. mrr, f1, top1, recall@k and hit@k accept any tool
            whose inputs are ready. log_top1, log_mrr, tool_top1 and tool_recall@k accept only the
            tool that the log called next; tool_ leaves out the ends of runs. Default: all but
            hit@k and tool_, with k = 5.
        show (TABLE): Also show a table; repeatable. branches: which values of outputs decide the
            next tool, and how often that is ranked first. calibration: whether probabilities match
            how often tools are right. calls, plans: how many calls or whole plans are right.
        runs (FOLDER): Write a log of each ranker's results here, for dtdr compare.
        markdown: Print the tables as Markdown.
    """
    metric_names = list(dict.fromkeys(metric or metrics.DEFAULT))
    for name in metric_names:
        metrics.metric(name)
    if folds is not None and split is not None:
        raise InputError("--folds makes its own splits; leave out --split")
    shown = frozenset(show or ())
    fitting = {"--retriever": retriever, "--set": settings, "--folds": folds, "--runs": runs}
    read = partial(_read, data, dataset, shown, bad=BadRecords() if skip_bad else None)
    if model is not None:
        if others := [name for name, value in fitting.items() if value]:
            raise InputError(f"--model tests a fitted model; leave out {' and '.join(others)}")
        fitted, data_set = load(model), read()
        results = _test_model(fitted, data_set, split, shown)
    else:
        values = options.parse_settings(settings)
        is_all = ALL in (retriever or [ALL])
        without_llm = [name for name in NAMES if not options.needs_llm(name)]
        names = without_llm if is_all else list(dict.fromkeys(retriever or ()))
        keywords = options.ranker_keywords(names, values)
        paths = _log_paths(runs, keywords, force=force)
        data_set, seed = read(), options.read_seed(values)
        if folds is None:
            splits = [choose_split(data_set, split, seed=seed)]
        else:
            splits = group_folds(data_set.demonstrations, folds, seed)
        results = _test_rankers(
            keywords, data_set, splits, shown, are_optional=is_all, paths=paths, force=force
        )
        # Only these splits keep the runs of one task on one side.
        if folds is not None or split == "group":
            results["together"] = data_set.demonstrations
    if Show.BRANCHES in shown:
        results["branches"] = [
            find_branches(log, data_set.demonstrations) for log in results["logs"]
        ]
    evaluation = Evaluation(metrics=metric_names, show=shown, **results)
    if as_json:
        print_json(evaluation.to_dict())
        return
    for table in evaluation.tables():
        if markdown:
            typer.echo(table.to_markdown())
        else:
            console().print(table.to_rich(cut=True))
    if evaluation.verdict:
        say(evaluation.verdict)


def _read(
    data: list[Path] | None, dataset: str | None, shown: Collection[Show], bad: BadRecords | None
) -> Dataset:
    """The runs.

    Raises:
        InputError: branches are asked for, and no output is known.
    """
    data_set = load_dataset(data, dataset, bad=bad)
    calls = (call for item in data_set.demonstrations for call in item.plan.calls)
    if Show.BRANCHES in shown and all(call.output is None for call in calls):
        raise InputError(
            f"the calls of {data_set.name} have no outputs, on which branches depend; import a log "
            "with the results of tools, or leave out --show branches"
        )
    return data_set


def _test_model(
    model: Model, dataset: Dataset, split: str | None, shown: Collection[Show]
) -> dict[str, Any]:
    """The results of a model as it is.

    Raises:
        InputError: calls are asked for, and the model was fitted without arguments.
    """
    if split is not None:
        held_out = choose_split(dataset, split).testing(dataset.demonstrations)
        dataset = replace(dataset, demonstrations=held_out)
    runs = list(dataset.demonstrations)
    log = score_model(model, dataset)
    called = {tool for run in runs for tool in run.plan.tools}
    if unknown := sorted(called - set(model.vocabulary)):
        note(f"the model never saw {name_some(unknown)}; steps that need them count as wrong")
    if is_fitted_to(model, runs):
        note(
            "the model learned from these very runs, so the figures are too good; give runs that "
            "it never saw, or the --split that it was fitted with"
        )
    calls = None
    if Show.CALLS in shown:
        if model.arguments_ is None:
            raise InputError("the model was fitted without arguments; leave out --show calls")
        calls = score_calls([(model.arguments_, [run for run in runs if run.outcome != "failure"])])
    return {
        "dataset": dataset.name,
        "title": dataset.title,
        "split": split or "all",
        "logs": [log],
        "together": runs,
        "calls": calls,
        "verdict": _verdict(model, runs, dataset),
        "plans": {model.name: score_plans(model, runs)} if Show.PLANS in shown else {},
        "mistakes": find_mistakes(log, runs, MISTAKES),
    }


def _verdict(model: Model, runs: Sequence[Demonstration], dataset: Dataset) -> str:
    """How to show the tools, by replaying some of the runs; empty without any."""
    usable = [item for item in runs if item.outcome != "failure"][:_REPLAYED]
    return verdict(advise(model, usable, dataset.tools)) if usable else ""


def _test_rankers(
    keywords: Mapping[str, dict[str, Any]],
    dataset: Dataset,
    splits: Sequence[Split],
    shown: Collection[Show],
    *,
    are_optional: bool,
    paths: Mapping[str, Path],
    force: bool,
) -> dict[str, Any]:
    """The results of rankers.

    Args:
        keywords: constructor keywords by ranker.
        dataset: what is split.
        splits: one split, or folds.
        shown: what is measured in addition.
        are_optional: leave out rankers that cannot run; a note names each.
        paths: where run logs are written.
        force: replace run logs.
    """
    for name in filter(options.needs_llm, NAMES if are_optional else ()):
        note(f"left out {name}: it {options.LLM_REMEDY}")
    logs, plans = [], {}
    best, advised = -1.0, ""
    is_described = any(tool.description for tool in dataset.tools)
    for name, parameters in keywords.items():
        if are_optional and not is_described and ranker_class(name).needs_descriptions:
            note(f"left out {name}: it needs tool descriptions, and there is no tools.json")
            continue
        scores: list[PlanScores] | None = [] if Show.PLANS in shown else None
        try:
            model = create(name, **parameters)
            log = run(model, dataset, *splits, plan_scores=scores)
        except MissingExtraError as error:
            if not are_optional or "encoder" in parameters:
                raise
            note(f"left out {name}: {error}")
            continue
        logs.append(log)
        if (score := metrics.mean_score(log, "mrr")) > best:
            # Of folds, the model knows all but the last, whose runs are replayed.
            best, tested = score, splits[-1].testing(dataset.demonstrations)
            advised = f"With {name}: {_verdict(model, tested, dataset)}"
        if name in paths:
            write_run_log(paths[name], log, force=force)
        if scores is not None:
            plans[name] = PlanScores.join(scores)
    calls = None
    if Show.CALLS in shown:  # the same for every ranker
        calls = score_calls(
            (
                ArgumentModel.fit(split.training(dataset.demonstrations), dataset.tools),
                split.testing(dataset.demonstrations),
            )
            for split in splits
        )
    return {
        "dataset": dataset.name,
        "title": dataset.title,
        "split": splits[0].name if len(splits) == 1 else f"{len(splits)}-folds",
        "logs": logs,
        "calls": calls,
        "plans": plans,
        "verdict": advised,
    }


def _log_paths(
    folder: Path | None, names: Mapping[str, dict[str, Any]], *, force: bool
) -> dict[str, Path]:
    """Where each run's log goes; refused before any work is done."""
    if folder is None:
        return {}
    paths = {}
    for name, keywords in names.items():
        encoder = f"-{keywords['encoder']}" if "encoder" in keywords else ""
        paths[name] = folder / f"{name}{encoder}.npz"
        if paths[name].exists() and not force:
            raise OutputError(f"{paths[name]} exists; pass --force to replace it")
    return paths
