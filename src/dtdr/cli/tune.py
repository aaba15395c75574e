"""``dtdr tune``: who should select the next function, measured on demonstrations held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.inputs import load_dataset, report_bad
from dtdr.cli.output import console, dataset_label, note, print_json, quote
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError
from dtdr.rankers import DEFAULT

if TYPE_CHECKING:
    from dtdr.evaluate.planning.grid import CellResult
    from dtdr.evaluate.statistics import Proportion


def tune(
    data: Path | None = None,
    *,
    llm: planning.LLM_NAME = None,
    dataset: options.DATASET = None,
    tools: options.TOOLS = None,
    retriever: str = DEFAULT,
    encoder: options.ENCODER = None,
    settings: options.SETTINGS = None,
    icl: planning.ICL = "hard",
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    steps: Annotated[int, typer.Option(min=1)] = 60,
    budget: Annotated[float, typer.Option(min=0, max=1)] = 0.5,
    record: Path | None = None,
    llm_context: planning.LLM_CONTEXT = planning.CONTEXT,
    llm_threads: planning.LLM_THREADS = None,
    seed: options.SEED = 0,
    skip_bad: options.SKIP_BAD = False,
    as_json: options.JSON = False,
) -> None:
    """Choose who selects the next function: the LLM, the retriever, or both.

    Fits the retriever on four fifths of the demonstrations, and asks the LLM at some steps of the
    others. Prints how often each method is right, and the options for dtdr plan. Among the methods
    within one standard error of the best, it takes the one that asks the LLM least.

    Example: dtdr tune demonstrations.jsonl --llm gguf:qwen.gguf

    Args:
        data (DATA): A demonstrations.jsonl file.
        retriever (NAME): The retriever to fit.
        steps (N): Number of steps at which to ask the LLM.
        budget (SHARE): Largest share of steps at which auto may ask.
        record (FILE): Record the LLM's answers; the same command resumes from them.
    """
    if llm is None:
        raise InputError("name the LLM with --llm gguf:FILE, or openai:NAME@URL")
    from dtdr.data.progress import track
    from dtdr.evaluate.datasets.splits import default_split
    from dtdr.evaluate.planning import choose_steps, hold_out
    from dtdr.evaluate.planning.grid import (
        answer,
        cell_result,
        confidences_of,
        in_cache_order,
        questions,
    )
    from dtdr.llm.prompting import Examples

    mask = planning.make_selection(top, threshold, coverage)
    model = options.create_retriever(retriever, encoder=encoder, seed=seed, settings=settings)
    bad = BadRecords() if skip_bad else None
    data_set = load_dataset(data=data, dataset=dataset, tools=tools, bad=bad)
    report_bad(bad)
    learnable = data_set.demonstrations
    if dataset is not None:  # what others test on stays unseen
        learnable = default_split(data_set, seed=seed).training(learnable)
    known, unseen = hold_out(learnable, seed=seed)
    chosen = choose_steps(unseen, steps, seed=seed)
    with planning.open_llm(llm, context=llm_context, threads=llm_threads, record=record) as backend:
        if not backend.can_score:
            raise InputError(
                f"{llm} gives no likelihoods, which fused and auto need; take gguf:, hf:, or a "
                "llama.cpp server"
            )
        model.fit(known, data_set.tools)
        every = questions(model, chosen, icl=icl, mask=mask, examples=Examples(known, seed=seed))
        asked = in_cache_order(every)
        note(f"asking {llm} about {len(asked)} prompts of {len(chosen)} held-out steps")
        answers = {one.key: answer(backend, one) for one in track(asked, "Asking", len(asked))}
    # Equal queries may have been planned in other ways: the prompt is one, what is right is not.
    records = [{**answers[one.key], "acceptable": sorted(one.acceptable)} for one in every]
    if not any(record["likelihoods"] for record in records):
        raise InputError("every prompt exceeds the context of the LLM; give it more: --llm-context")
    result = cell_result(records, records, confidences_of(model, unseen, seed=seed), budget=budget)
    advised = _options(result)
    if as_json:
        print_json(_as_json(result, advised, len(records)))
        return
    _show(
        result,
        f"{dataset_label(data_set)}, {retriever}, {icl}, {len(records)} held-out steps",
    )
    given = _prompt_options(icl, top, threshold, coverage, data, llm_context)
    console().print(
        f"Use: dtdr plan MODEL QUERY --llm {quote(llm)} {' '.join([*given, *advised])}",
        markup=False,
        soft_wrap=True,
    )


def _options(result: CellResult) -> list[str]:
    """Options for ``dtdr plan``: of what is about as good as the best, what asks the LLM least."""
    best = max(result.accuracy.values(), key=lambda one: one.value)
    enough = best.value - math.sqrt(best.value * (1 - best.value) / best.count)
    good = [name for name, one in result.accuracy.items() if one.value >= enough]
    chosen = min(good, key=lambda name: (result.asks[name], -result.accuracy[name].value))
    # In full: many steps may share a confidence, and lie just below a rounded one.
    further = {
        "--weight": f"{_weight(result):g}" if chosen in ("fused", "auto") else None,
        "--confidence": repr(result.confidence) if chosen == "auto" else None,
    }
    return [f"--select {chosen}", *_as_options(further)]


def _weight(result: CellResult) -> float:
    """λ·T, which is all that decides in a fusion."""
    from dtdr.evaluate.planning.tuning import RETRIEVER_ONLY

    fusion = result.fusion or RETRIEVER_ONLY
    return fusion.weight * fusion.temperature


def _prompt_options(
    icl: str,
    top: int | None,
    threshold: float | None,
    coverage: float | None,
    data: Path | None,
    llm_context: int,
) -> list[str]:
    """What ``dtdr plan`` needs to make the prompts that were measured."""
    return _as_options(
        {
            "--icl": icl,
            "--top": top,
            "--threshold": threshold,
            "--coverage": coverage,
            "--examples": "DEMONSTRATIONS" if data is None else quote(str(data)),
            "--llm-context": None if llm_context == planning.CONTEXT else llm_context,
        }
    )


def _as_options(values: Mapping[str, object]) -> list[str]:
    return [f"{name} {value}" for name, value in values.items() if value is not None]


def _as_json(result: CellResult, advised: Sequence[str], steps: int) -> dict[str, Any]:
    return {
        "steps": steps,
        "accuracy": {
            name: {"value": one.value, "low": one.low, "high": one.high}
            for name, one in result.accuracy.items()
        },
        "asks": dict(result.asks),
        "weight": _weight(result),
        "confidence": result.confidence,
        "options": " ".join(advised),
    }


def _show(result: CellResult, title: str) -> None:
    from dtdr.evaluate.tables import Column, Table

    columns = [
        Column("Who selects"),
        *(
            Column(heading, numeric=True)
            for heading in ("Right %", "95 % interval", "Asks the LLM at, % of steps")
        ),
    ]
    rows = []
    for name, asks in result.asks.items():
        one: Proportion = result.accuracy[name]
        interval = f"{100 * one.low:.0f}-{100 * one.high:.0f}"
        rows.append((name, f"{100 * one.value:.1f}", interval, f"{100 * asks:.0f}"))
    caption = "fused and auto are chosen on these steps: on others, expect a little less of them."
    console().print(Table(columns, rows, title, caption).to_rich())
