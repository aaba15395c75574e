"""``dtdr evaluate``: fit retrievers on one side of a split, rank every step of the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.evaluation import By, Evaluation, Subject
from dtdr.cli.inputs import choose_split, load_dataset, report_bad
from dtdr.cli.output import console, dataset_label, note, print_json
from dtdr.errors import InputError, MissingExtraError, OutputError
from dtdr.jsonl import BadRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dtdr.arguments.model import ArgumentModel
    from dtdr.datasets import Dataset
    from dtdr.datasets.splits import Split
    from dtdr.demonstrations import Demonstration
    from dtdr.evaluation.calls import CallScores
    from dtdr.evaluation.plans import PlanScores
    from dtdr.evaluation.run_log import RunLog

ALL = "all"


def evaluate(
    dataset: options.DATASET = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FILE", help="A demonstrations.jsonl file instead."),
    ] = None,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            metavar="N",
            help="Instead of a split: hold out every demonstration once, in N folds that share no "
            "group (a task, a template, a user).",
            show_default=False,
        ),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "--retriever",
            metavar="NAME",
            help="What to evaluate; repeatable, or 'all' for every one that can run (default).",
        ),
    ] = None,
    encoder: options.ENCODER = None,
    recipe: options.RECIPE = options.Recipe.DEFAULT,
    settings: options.SETTINGS = None,
    seed: options.SEED = 0,
    llm_command: options.LLM_COMMAND = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="mrr, f1, top1, recall@k or hit@k by what is acceptable, log_top1 or log_mrr by "
            "what the log called next; repeatable (default: all but hit@k, k = 5).",
        ),
    ] = None,
    by: Annotated[
        By | None, typer.Option("--by", help="Also show the first metric by step or plan length.")
    ] = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration", help="Also show the calibration error and the coverage of tool sets."
        ),
    ] = False,
    calls: Annotated[
        bool,
        typer.Option(
            "--calls",
            help="Also show how many calls are filled exactly, the right tool given.",
        ),
    ] = False,
    plans: Annotated[
        bool,
        typer.Option(
            "--plans",
            help="Also show how many whole plans come out right, nothing but the query given; "
            "--by plan-length shows them by length, --calibration by probability.",
        ),
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", metavar="FILE.svg", help="Draw the reliability diagram of the confidence."
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="FOLDER", help="Keep the run logs there, for dtdr compare."),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log", metavar="FILE", help="Show this run log instead of fitting; repeatable."
        ),
    ] = None,
    data_dir: options.DATA_DIR = None,
    skip_bad: options.SKIP_BAD = False,
    only_known_tools: options.ONLY_KNOWN_TOOLS = False,
    force: options.FORCE = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as markdown.")
    ] = False,
    as_json: options.JSON = False,
) -> None:
    """Fit retrievers and print one table of how well they rank held-out steps.

    Example: dtdr evaluate --dataset tinyagent --retriever all --runs runs
    """
    from dtdr.datasets.splits import group_folds
    from dtdr.evaluation import metrics

    chosen_metrics = tuple(dict.fromkeys(metric or metrics.DEFAULT))
    for name in chosen_metrics:
        metrics.metric(name)
    if figure is not None and figure.exists() and not force:
        raise OutputError(f"{figure} exists; pass --force to replace it")
    if log and (calls or plans):
        option = "--calls" if calls else "--plans"
        raise InputError(f"{option} fits a model, which a log does not hold; leave --log out")
    plan_scores: dict[str, PlanScores] = {}
    scores: CallScores | None = None
    if log:
        given = {
            "--dataset": dataset,
            "--data": data,
            "--retriever": retriever,
            "--runs": runs,
            "--folds": folds,
        }
        subject, logs = _read(log, [name for name, value in given.items() if value])
    else:
        if folds is not None and split is not None:
            raise InputError("--folds makes its own splits; leave out --split")
        parameters, left_out = _parameters(
            list(dict.fromkeys(retriever or [ALL])),
            options.parse_settings(settings),
            llm_command,
            {"encoder": encoder, "seed": seed, "recipe": recipe, "llm_command": llm_command},
        )
        paths = _log_paths(runs, parameters, force=force)
        bad = BadRecords() if skip_bad else None
        data_set = load_dataset(
            data=data,
            dataset=dataset,
            tools=tools,
            data_dir=data_dir,
            bad=bad,
            only_known_tools=only_known_tools,
        )
        report_bad(bad)
        if folds is not None:
            splits = group_folds(data_set.demonstrations, folds, seed)
        else:
            splits = [choose_split(data_set, split, data_dir=data_dir, seed=seed)]
        everything = retriever is None or ALL in retriever
        logs, could_not = _run(
            parameters,
            data_set,
            splits,
            paths,
            force=force,
            everything=everything,
            encoder=encoder,
            plan_scores=plan_scores if plans else None,
        )
        for name, reason in (left_out | could_not).items():
            note(f"left out {name}: {reason}")
        train = sum(len(one.train) for one in splits) // len(splits)
        test = sum(len(one.test) for one in splits)
        if logs:  # what failed is neither learned from nor tested
            train, test = (int(logs[0].header.split[side]) for side in ("train", "test"))
        name = splits[0].name if folds is None else f"{folds}-folds"
        subject = Subject(
            data_set.name, dataset_label(data_set), data_set.synthetic, name, train, test
        )
        scores = _score_calls(data_set, splits) if calls else None
    shown = Evaluation(
        subject, logs, chosen_metrics, by, calibration, calls=scores, plans=plan_scores
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
            console().print(table.to_rich())


def _parameters(
    names: list[str], given: dict[str, Any], llm_command: str | None, common: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Constructor keywords by retriever, and why others are left out."""
    from dtdr.retrievers import NAMES

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
    from dtdr.evaluation.harness import run, run_folds
    from dtdr.evaluation.plans import PlanScores
    from dtdr.retrievers import create

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


def _score_calls(dataset: Dataset, splits: Sequence[Split]) -> CallScores:
    """Of arguments learned on the train sides; the same whatever retriever ranks the tools."""
    from dtdr.arguments.model import ArgumentModel
    from dtdr.evaluation.calls import score_calls

    def folds() -> Iterator[tuple[ArgumentModel, list[Demonstration]]]:
        for split in splits:
            model = ArgumentModel.fit(split.training(dataset.demonstrations), dataset.tools)
            held_out = split.testing(dataset.demonstrations)
            yield model, [item for item in held_out if item.outcome != "failure"]

    return score_calls(folds())


def _read(paths: Sequence[Path], others: Sequence[str]) -> tuple[Subject, list[RunLog]]:
    """Run logs of one split, and what they are about."""
    from dtdr.evaluation.run_log_file import read_run_log

    if others:
        raise InputError(f"--log reads what was run already; leave out {' and '.join(others)}")
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
    from dtdr.retrievers import retriever_class

    if retriever_class(name).needs_descriptions and not any(
        tool.description for tool in dataset.tools
    ):
        return "it needs tool descriptions, and there are none (--tools tools.json)"
    return ""
