"""``dtdr evaluate``: how well retrievers rank held-out steps, or a fitted model ranks runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dtdr.api import load
from dtdr.cli import options
from dtdr.cli.evaluation import By, Evaluation, Results, Subject
from dtdr.cli.inputs import choose_split, is_fitted_to, load_dataset, report_bad
from dtdr.cli.output import console, dataset_label, note, print_json
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError, MissingExtraError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dtdr.data.demonstrations import Demonstration
    from dtdr.evaluate.call_accuracy import CallScores
    from dtdr.evaluate.datasets import Dataset
    from dtdr.evaluate.datasets.splits import Split
    from dtdr.evaluate.plan_accuracy import PlanScores
    from dtdr.evaluate.run_log import RunLog
    from dtdr.predict.arguments.model import ArgumentModel
    from dtdr.predict.model import Model

ALL = "all"
MISTAKES = 10
"""Mistakes of a model that are listed."""

RUN_LOG_SUFFIX = ".npz"


def evaluate(
    data: list[Path] | None = None,
    *,
    dataset: options.DATASET = None,
    model: Path | None = None,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
    folds: int | None = None,
    retriever: list[str] | None = None,
    encoder: options.ENCODER = None,
    settings: options.SETTINGS = None,
    seed: options.SEED = 0,
    metric: list[str] | None = None,
    by: By | None = None,
    calibration: bool = False,
    calls: bool = False,
    plans: bool = False,
    runs: Path | None = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    markdown: bool = False,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Measure how well retrievers, or a fitted model, rank the steps of runs.

    Without --model, each retriever is fitted on one side of a split and tested on the other. With
    it, the model is tested as it is on all runs, and its most confident mistakes are listed.

    Example: dtdr evaluate demonstrations.jsonl --retriever all --runs runs

    A model: dtdr evaluate new-runs.jsonl --model model

    Args:
        data (DATA): Demonstrations or an agent's logs; or run logs (.npz) to show again.
        model (MODEL): Test this model folder; nothing is fitted.
        folds (N): Hold out each demonstration once, in N folds, instead of a split. A group (task,
            template, user) is in one fold.
        retriever (NAME): Retriever to evaluate; repeatable. Default: all that can run.
        metric (NAME): mrr, f1, top1, recall@k or hit@k by acceptable tools, log_top1 or log_mrr by
            the next call of the log; repeatable. Default: all but hit@k, with k = 5.
        by: Also show the first metric by step or plan length.
        calibration: Also show the calibration error and the coverage of tool sets.
        calls: Also show how many calls are filled exactly, given the right tool.
        plans: Also show how many whole plans are right, given only the query; --by plan-length
            shows them by length, --calibration by probability.
        runs (FOLDER): Write run logs to this folder, for dtdr compare.
        markdown: Print the table as markdown.
    """
    from dtdr.evaluate import metrics
    from dtdr.evaluate.datasets.splits import group_folds
    from dtdr.evaluate.next_calls import NextCallReport

    chosen_metrics = tuple(dict.fromkeys(metric or metrics.DEFAULT))
    for name in chosen_metrics:
        metrics.metric(name)
    if folds is not None and split is not None:
        raise InputError("--folds makes its own splits; leave out --split")
    fitting = {
        "--retriever": retriever,
        "--encoder": encoder,
        "--set": settings,
        "--folds": folds,
        "--runs": runs,
    }
    run_logs = [path for path in data or () if path.suffix == RUN_LOG_SUFFIX]
    results = Results()
    if run_logs:
        others = {"--dataset": dataset, "--model": model, "--calls": calls, "--plans": plans}
        _refuse("run logs are results of finished runs", {**others, **fitting})
        if len(run_logs) < len(data or ()):
            raise InputError("give demonstrations or run logs (.npz), not both")
        subject, results.logs = _read(run_logs)
        together: Sequence[Demonstration] = ()
    else:
        if model is not None:
            _refuse("--model tests a model that is fitted already", fitting)
            fitted = load(model)
        else:
            parameters, left_out = _parameters(
                list(dict.fromkeys(retriever or [ALL])),
                options.parse_settings(settings),
                {"encoder": encoder, "seed": seed},
            )
            paths = _log_paths(runs, parameters, force=force)
        bad = BadRecords() if skip_bad else None
        data_set = load_dataset(data=data, dataset=dataset, tools=tools, bad=bad)
        report_bad(bad)
        if model is not None:
            if split is not None:
                held_out = choose_split(data_set, split, seed=seed).testing(data_set.demonstrations)
                data_set = replace(data_set, demonstrations=held_out)
            results = _evaluate_model(fitted, data_set, calls=calls, plans=plans)
            split_name = split or "all"
        else:
            splits = (
                [choose_split(data_set, split, seed=seed)]
                if folds is None
                else group_folds(data_set.demonstrations, folds, seed)
            )
            is_optional = retriever is None or ALL in retriever
            results, could_not = _evaluate_retrievers(
                parameters,
                data_set,
                splits,
                paths,
                force=force,
                skip_descriptions=is_optional,
                skip_extras=is_optional and encoder is None,
                plans=plans,
            )
            for name, reason in (left_out | could_not).items():
                note(f"left out {name}: {reason}")
            split_name = splits[0].name if folds is None else f"{folds}-folds"
            results.calls = _score_calls(data_set, splits) if calls else None
        # Only these splits keep the runs of one task on one side.
        has_whole_groups = folds is not None or split == "group" or model is not None
        together = data_set.demonstrations if has_whole_groups else ()
        # Failed runs are neither learned from nor tested.
        sides = results.logs[0].header.split if results.logs else {"train": 0, "test": 0}
        subject = Subject(
            data_set.name,
            dataset_label(data_set),
            data_set.synthetic,
            split_name,
            int(sides["train"]),
            int(sides["test"]),
        )
    report = NextCallReport(results.logs, together)
    shown = Evaluation(subject, results, chosen_metrics, by, calibration, report)
    if as_json:
        print_json(shown.to_dict())
        return
    for table in shown.tables():
        if markdown:
            typer.echo(table.to_markdown())
        else:
            console().print(table.to_rich(cut=True))


def _refuse(reason: str, values: dict[str, Any]) -> None:
    if others := [name for name, value in values.items() if value]:
        raise InputError(f"{reason}; leave out {' and '.join(others)}")


def _evaluate_model(model: Model, dataset: Dataset, *, calls: bool, plans: bool) -> Results:
    """The results of a model as it is.

    Raises:
        InputError: calls are asked for, and the model was fitted without arguments.
    """
    from dtdr.evaluate.call_accuracy import score_calls
    from dtdr.evaluate.harness import score_model
    from dtdr.evaluate.mistakes import find_mistakes
    from dtdr.evaluate.plan_accuracy import score_plans

    runs = list(dataset.demonstrations)
    log = score_model(model, dataset)
    called = {tool for run in runs for tool in run.plan.tools}
    if unknown := sorted(called - set(model.vocabulary)):
        names = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        note(f"the model never saw {names}; steps that need them count as wrong")
    if is_fitted_to(model, runs):
        note(
            "the model learned from these very runs, so the figures are too good; give runs that "
            "it never saw, or the --split that it was fitted with"
        )
    results = Results([log], mistakes=find_mistakes(log, runs, MISTAKES))
    if calls:
        if model.arguments_ is None:
            raise InputError("the model was fitted without arguments; leave --calls out")
        finished = [run for run in runs if run.outcome != "failure"]
        results.calls = score_calls([(model.arguments_, finished)])
    if plans:
        results.plans[model.name] = score_plans(model, runs)
    return results


def _parameters(
    names: list[str], settings: dict[str, Any], common: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Constructor keywords by retriever, and why others are left out."""
    from dtdr.rankers import NAMES

    chosen = list(NAMES) if ALL in names else names
    left_out = {
        name: f"it {options.LLM_REMEDY}"
        for name in chosen
        if ALL in names and options.needs_llm(name)
    }
    parameters = {
        name: options.retriever_parameters(
            name, **common, settings=options.settings_for(name, settings, chosen)
        )
        for name in chosen
        if name not in left_out
    }
    return parameters, left_out


def _evaluate_retrievers(
    parameters: dict[str, dict[str, Any]],
    dataset: Dataset,
    splits: Sequence[Split],
    paths: dict[str, Path],
    *,
    force: bool,
    skip_descriptions: bool,
    skip_extras: bool,
    plans: bool,
) -> tuple[Results, dict[str, str]]:
    """The results of retrievers, and why some of them could not run.

    Args:
        parameters: constructor keywords by retriever.
        dataset: what is split.
        splits: one split, or folds.
        paths: where run logs are written.
        force: replace run logs.
        skip_descriptions: leave out retrievers that need descriptions of tools if there are none.
        skip_extras: leave out retrievers whose extra is not installed.
        plans: also score whole plans.
    """
    from dtdr.evaluate.harness import run, run_folds
    from dtdr.evaluate.plan_accuracy import PlanScores
    from dtdr.predict import create

    results = Results()
    left_out: dict[str, str] = {}
    for name, keywords in parameters.items():
        if skip_descriptions and (reason := _cannot_run(name, dataset)):
            left_out[name] = reason
            continue
        planned: list[PlanScores] | None = [] if plans else None
        shared: dict[str, Any] = {"path": paths.get(name), "force": force, "plan_scores": planned}
        try:
            candidate = create(name, **keywords)
            results.logs.append(
                run(candidate, dataset, splits[0], **shared)
                if len(splits) == 1
                else run_folds(candidate, dataset, splits, **shared)
            )
        except MissingExtraError as error:
            if not skip_extras:
                raise
            left_out[name] = str(error)
            continue
        if planned is not None:
            results.plans[name] = PlanScores.join(planned)
    return results, left_out


def _score_calls(dataset: Dataset, splits: Sequence[Split]) -> CallScores:
    """Of arguments learned on the train sides; the same whatever retriever ranks the tools."""
    from dtdr.evaluate.call_accuracy import score_calls
    from dtdr.predict.arguments.model import ArgumentModel

    def folds() -> Iterator[tuple[ArgumentModel, list[Demonstration]]]:
        for split in splits:
            model = ArgumentModel.fit(split.training(dataset.demonstrations), dataset.tools)
            yield model, split.testing(dataset.demonstrations)

    return score_calls(folds())


def _read(paths: Sequence[Path]) -> tuple[Subject, list[RunLog]]:
    """Run logs of one split, and what they are about."""
    from dtdr.evaluate.run_log_file import read_run_log

    logs = [read_run_log(path) for path in paths]
    first = logs[0].header
    for path, item in zip(paths, logs, strict=True):
        if item.header.split.get("sha256") != first.split.get("sha256"):
            raise InputError(
                f"{path} is about another split than {paths[0]}; show runs of one split together"
            )
    label = f"{first.dataset} (synthetic)" if first.synthetic else first.dataset
    train, test = (int(first.split.get(side, 0)) for side in ("train", "test"))
    name = str(first.split.get("name"))
    return Subject(first.dataset, label, first.synthetic, name, train, test), logs


def _log_paths(
    folder: Path | None, names: dict[str, dict[str, Any]], *, force: bool
) -> dict[str, Path]:
    """Where each run's log goes; refused before any work is done."""
    if folder is None:
        return {}
    paths = {}
    for name, keywords in names.items():
        encoder = keywords.get("encoder")
        paths[name] = folder / (f"{name}-{encoder}.npz" if encoder else f"{name}.npz")
        if paths[name].exists() and not force:
            raise OutputError(f"{paths[name]} exists; pass --force to replace it")
    return paths


def _cannot_run(name: str, dataset: Dataset) -> str:
    from dtdr.rankers import retriever_class

    if retriever_class(name).needs_descriptions and not any(
        tool.description for tool in dataset.tools
    ):
        return "it needs tool descriptions, and there are none (--tools tools.json)"
    return ""
