"""``dtdr evaluate``: fit retrievers on one side of a split, rank every step of the other."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli.inputs import choose_split, load_dataset, report_bad
from dtdr.cli.output import console, labelled, note, print_json
from dtdr.errors import MissingExtraError, OutputError
from dtdr.jsonl import BadRecords

if TYPE_CHECKING:
    from dtdr.datasets import Dataset
    from dtdr.evaluation.run_log import RunLog

ALL = "all"


class By(StrEnum):
    """What a second table breaks the first metric down by."""

    STEP = "step"
    PLAN_LENGTH = "plan-length"


def evaluate(
    dataset: options.DATASET = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FILE", help="A demonstrations.jsonl file instead."),
    ] = None,
    tools: options.TOOLS = None,
    split: options.SPLIT = None,
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
            help="mrr, f1, top1, recall@k or hit@k; repeatable (default: mrr f1 top1 recall@5).",
        ),
    ] = None,
    by: Annotated[
        By | None, typer.Option("--by", help="Also show the first metric by step or plan length.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="FOLDER", help="Keep the run logs there, for dtdr compare."),
    ] = None,
    data_dir: options.DATA_DIR = None,
    skip_bad: options.SKIP_BAD = False,
    force: options.FORCE = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as markdown.")
    ] = False,
    as_json: options.JSON = False,
) -> None:
    """Fit retrievers and print one table of how well they rank held-out steps.

    Example: dtdr evaluate --dataset tinyagent --retriever all --runs runs
    """
    from dtdr.evaluation import metrics, scores
    from dtdr.retrievers import NAMES

    chosen_metrics = tuple(dict.fromkeys(metric or metrics.DEFAULT))
    for name in chosen_metrics:
        metrics.metric(name)
    asked = list(dict.fromkeys(retriever or [ALL]))
    names = list(NAMES) if ALL in asked else asked
    given = options.parse_settings(settings)
    parameters: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for name in names:
        if ALL in asked and (reason := options.missing_llm(name, llm_command)):
            left_out[name] = reason
            continue
        parameters[name] = options.retriever_parameters(
            name,
            encoder=encoder,
            seed=seed,
            recipe=recipe,
            llm_command=llm_command,
            settings=options.settings_for(name, given, names),
        )
    paths = _log_paths(runs, parameters, force=force)
    bad = BadRecords() if skip_bad else None
    found = load_dataset(data=data, dataset=dataset, tools=tools, data_dir=data_dir, bad=bad)
    report_bad(bad)
    sides = choose_split(found, split, data_dir=data_dir, seed=seed)
    logs: list[RunLog] = []
    for name, keywords in parameters.items():
        reason = _cannot_run(name, found) if ALL in asked else ""
        if not reason:
            from dtdr.evaluation.harness import run
            from dtdr.retrievers import create

            try:
                candidate = create(name, **keywords)
                logs.append(run(candidate, found, sides, path=paths.get(name), force=force))
            except MissingExtraError as error:
                if ALL not in asked or encoder is not None:
                    raise
                reason = str(error)
        if reason:
            left_out[name] = reason
    for name, reason in left_out.items():
        note(f"left out {name}: {reason}")
    results = [scores.result(log, chosen_metrics) for log in logs]
    groups = [_groups(log, chosen_metrics[0], by) for log in logs] if by else []
    if as_json:
        for item, means in zip(results, groups, strict=False):
            item[f"{chosen_metrics[0]}_by_{by}".replace("-", "_")] = {
                str(number): {"mean": round(mean.value, 6), "steps": mean.steps}
                for number, mean in means.items()
            }
        answer: dict[str, Any] = {"dataset": found.name, "split": sides.name, "results": results}
        if found.synthetic:
            answer["synthetic"] = True
        print_json(answer)
        return
    from dtdr.evaluation.tables import breakdown_table, metric_title, retrieval_table

    steps = f"{results[0]['steps']:,} steps" if results else "nothing to evaluate"
    title = f"{labelled(found)}, split {sides.name}"
    caption = f"{steps} of {len(sides.test):,} held-out plans; learned from {len(sides.train):,}."
    shown = [retrieval_table(results, chosen_metrics, title=title, caption=caption)]
    if by:
        what = "calls made before the step" if by is By.STEP else "calls of the plan"
        title = f"{metric_title(chosen_metrics[0])} by {what}"
        shown.append(breakdown_table(list(zip(results, groups, strict=True)), title=title))
    for table in shown:
        if markdown:
            typer.echo(table.to_markdown())
        else:
            console().print(table.to_rich())


def _log_paths(
    folder: Path | None, names: dict[str, dict[str, Any]], *, force: bool
) -> dict[str, Path]:
    """Where each run's log goes; refused before any work is done."""
    if folder is None:
        return {}
    paths = {}
    for name, keywords in names.items():
        encoder = keywords.get("encoder")
        paths[name] = folder / (f"{name}-{encoder}.jsonl" if encoder else f"{name}.jsonl")
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


def _groups(log: RunLog, metric: str, by: By) -> dict[int, Any]:
    from dtdr.evaluation import scores

    return (scores.by_step if by is By.STEP else scores.by_plan_length)(log, metric)
