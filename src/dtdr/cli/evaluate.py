"""``dtdr evaluate``: how well retrievers rank held-out steps, or a fitted model ranks runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dtdr.api import load
from dtdr.cli import options
from dtdr.cli.evaluation import By, Evaluation, Subject
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
    from dtdr.evaluate.mistakes import Mistake
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
    llm_command: options.LLM_COMMAND = None,
    metric: list[str] | None = None,
    by: By | None = None,
    calibration: bool = False,
    calls: bool = False,
    plans: bool = False,
    figure: Path | None = None,
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
        data (DATA): Demonstrations or an agent's logs; or run logs (.npz), which are shown again.
        model (MODEL): Test this model folder; nothing is fitted.
        folds (N): Instead of a split, hold out every demonstration once, in N folds that share no
            group (a task, a template, a user).
        retriever (NAME): What to evaluate; repeatable, or 'all' for every one that can run
            (default).
        metric (NAME): mrr, f1, top1, recall@k or hit@k by what is acceptable, log_top1 or log_mrr
            by what the log called next; repeatable (default: all but hit@k, k = 5).
        by: Also show the first metric by step or plan length.
        calibration: Also show the calibration error and the coverage of tool sets.
        calls: Also show how many calls are filled exactly, given the right tool.
        plans: Also show how many whole plans are right, given only the query; --by plan-length
            shows them by length, --calibration by probability.
        figure (FILE.svg): Draw the reliability diagram of the confidence.
        runs (FOLDER): Write the run logs there, for dtdr compare.
        markdown: Print the table as markdown.
    """
    from dtdr.evaluate import metrics
    from dtdr.evaluate.datasets.splits import group_folds

    chosen_metrics = tuple(dict.fromkeys(metric or metrics.DEFAULT))
    for name in chosen_metrics:
        metrics.metric(name)
    if figure is not None and figure.exists() and not force:
        raise OutputError(f"{figure} exists; pass --force to replace it")
    run_logs = [path for path in data or () if path.suffix == RUN_LOG_SUFFIX]
    if folds is not None and split is not None:
        raise InputError("--folds makes its own splits; leave out --split")
    fitting = {
        "--retriever": retriever,
        "--encoder": encoder,
        "--set": settings,
        "--folds": folds,
        "--llm-command": llm_command,
        "--runs": runs,
    }
    from dtdr.evaluate.next_calls import NextCallReport

    plan_scores: dict[str, PlanScores] = {}
    scores: CallScores | None = None
    mistakes: list[Mistake] | None = None
    together: Sequence[Demonstration] = ()
    if run_logs:
        others = {
            "--dataset": dataset,
            "--model": model,
            "--calls": calls,
            "--plans": plans,
            **fitting,
        }
        _refuse("run logs are results of finished runs", others)
        if len(run_logs) < len(data or ()):
            raise InputError("give demonstrations or run logs (.npz), not both")
        subject, logs = _read(run_logs)
    else:
        bad = BadRecords() if skip_bad else None

        def load_data() -> Dataset:
            loaded = load_dataset(data=data, dataset=dataset, tools=tools, bad=bad)
            report_bad(bad)
            return loaded

        if model is not None:
            _refuse("--model tests a model that is fitted already", fitting)
            fitted = load(model)
            data_set = load_data()
            if split is not None:
                held_out = choose_split(data_set, split, seed=seed).testing(data_set.demonstrations)
                data_set = replace(data_set, demonstrations=held_out)
            log, mistakes = _score_model(fitted, data_set)
            logs = [log]
            name = split or "all"
            test = list(data_set.demonstrations)
            if calls:
                scores = score_model_calls(fitted, test)
            if plans:
                from dtdr.evaluate.plan_accuracy import score_plans

                plan_scores[fitted.name] = score_plans(fitted, test)
        else:
            parameters, left_out = _parameters(
                list(dict.fromkeys(retriever or [ALL])),
                options.parse_settings(settings),
                llm_command,
                {"encoder": encoder, "seed": seed, "llm_command": llm_command},
            )
            paths = _log_paths(runs, parameters, force=force)
            data_set = load_data()
            splits = (
                [choose_split(data_set, split, seed=seed)]
                if folds is None
                else group_folds(data_set.demonstrations, folds, seed)
            )
            logs, could_not = _run(
                parameters,
                data_set,
                splits,
                paths,
                force=force,
                everything=retriever is None or ALL in retriever,
                encoder=encoder,
                plan_scores=plan_scores if plans else None,
            )
            for left, reason in (left_out | could_not).items():
                note(f"left out {left}: {reason}")
            name = splits[0].name if folds is None else f"{folds}-folds"
            scores = _score_calls(data_set, splits) if calls else None
        if folds is not None or split == "group" or model is not None:
            together = data_set.demonstrations  # runs of one task are on one side
        # Runs that failed are neither learned from nor tested.
        sides = logs[0].header.split if logs else {"train": 0, "test": 0}
        subject = Subject(
            data_set.name,
            dataset_label(data_set),
            data_set.synthetic,
            name,
            int(sides["train"]),
            int(sides["test"]),
        )
    shown = Evaluation(
        subject,
        logs,
        chosen_metrics,
        by,
        calibration,
        calls=scores,
        plans=plan_scores,
        mistakes=mistakes,
        next_calls=NextCallReport(logs, together),
    )
    if figure is not None:
        shown.draw(figure, force=force)
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


def _score_model(model: Model, dataset: Dataset) -> tuple[RunLog, list[Mistake]]:
    """The run log of a model as it is, and its most confident mistakes."""
    from dtdr.evaluate.harness import score_model
    from dtdr.evaluate.mistakes import find_mistakes

    called = {tool for item in dataset.demonstrations for tool in item.plan.tools}
    log = score_model(model, dataset)
    if unknown := sorted(called - set(model.vocabulary)):
        names = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
        note(f"the model never saw {names}; steps that need them count as wrong")
    if is_fitted_to(model, dataset.demonstrations):
        note(
            "the model learned from these very runs, so the figures are too good; give runs that "
            "it never saw, or the --split that it was fitted with"
        )
    return log, find_mistakes(log, dataset.demonstrations, MISTAKES)


def _parameters(
    names: list[str], given: dict[str, Any], llm_command: str | None, common: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Constructor keywords by retriever, and why others are left out."""
    from dtdr.rankers import NAMES

    chosen = list(NAMES) if ALL in names else names
    parameters: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for name in chosen:
        if ALL in names and (reason := options.missing_llm(name, llm_command)):
            left_out[name] = reason
            continue
        parameters[name] = options.retriever_parameters(
            name, **common, settings=options.settings_for(name, given, chosen)
        )
    return parameters, left_out


def _run(
    parameters: dict[str, dict[str, Any]],
    dataset: Dataset,
    splits: Sequence[Split],
    paths: dict[str, Path],
    *,
    force: bool,
    everything: bool,
    encoder: str | None,
    plan_scores: dict[str, PlanScores] | None,
) -> tuple[list[RunLog], dict[str, str]]:
    """The runs, and why some could not be made; that is an error for those asked for by name.

    Scores of whole plans are added to ``plan_scores``, where it is given.
    """
    from dtdr.evaluate.harness import run, run_folds
    from dtdr.evaluate.plan_accuracy import PlanScores
    from dtdr.predict import create

    logs: list[RunLog] = []
    left_out: dict[str, str] = {}
    for name, keywords in parameters.items():
        reason = _cannot_run(name, dataset) if everything else ""
        if not reason:
            try:
                candidate = create(name, **keywords)
                planned: list[PlanScores] | None = None if plan_scores is None else []
                shared: dict[str, Any] = {
                    "path": paths.get(name),
                    "force": force,
                    "plan_scores": planned,
                }
                logs.append(
                    run(candidate, dataset, splits[0], **shared)
                    if len(splits) == 1
                    else run_folds(candidate, dataset, splits, **shared)
                )
                if plan_scores is not None and planned is not None:
                    plan_scores[name] = PlanScores.join(planned)
            except MissingExtraError as error:
                if not everything or encoder is not None:
                    raise
                reason = str(error)
        if reason:
            left_out[name] = reason
    return logs, left_out


def score_model_calls(model: Model, runs: Sequence[Demonstration]) -> CallScores:
    """How many calls of runs the arguments of a model fill exactly.

    Raises:
        InputError: the model was fitted without arguments.
    """
    from dtdr.evaluate.call_accuracy import score_calls

    if model.arguments_ is None:
        raise InputError("the model was fitted without arguments; leave --calls out")
    return score_calls([(model.arguments_, [run for run in runs if run.outcome != "failure"])])


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
