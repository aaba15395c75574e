"""``dtdr prompt``: the prompt that would be sent, and what it costs."""

from __future__ import annotations

import sys
from typing import Any

from dtdr.cli import options
from dtdr.cli import planning_options as planning
from dtdr.cli.inputs import check_query, split_history
from dtdr.cli.output import note, print_json
from dtdr.errors import InputError


def prompt(
    model: planning.MODEL,
    query: planning.QUERY,
    *,
    history: options.HISTORY = None,
    icl: planning.ICL = "hard",
    layout: planning.LAYOUT = "exchange",
    parameters: str | None = None,
    examples: planning.EXAMPLES = None,
    top: planning.TOP = None,
    threshold: planning.THRESHOLD = None,
    coverage: planning.COVERAGE = None,
    chat: bool = False,
    llm: planning.LLM_NAME = None,
    llm_context: planning.LLM_CONTEXT = planning.CONTEXT,
    llm_threads: planning.LLM_THREADS = None,
    seed: options.SEED = 0,
    as_json: options.JSON = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Print the prompt of the next step; its token counts go to standard error.

    With --llm, its tokenizer counts the tokens; otherwise they are estimated from the bytes.

    Example: dtdr prompt model "Mail Ann the summary of q3.pdf" --icl cached

    Args:
        parameters (TOOL): Show the prompt that fills this function instead.
        chat: Print chat messages as JSON, one per line.
    """
    check_query(query)
    from dtdr.api import load
    from dtdr.data.run import as_run
    from dtdr.llm.prompting import Examples, FillingPrompts, SelectionPrompts
    from dtdr.rankers.selection import count_tokens

    mask = planning.make_selection(top, threshold, coverage)
    retriever = load(model)
    run = as_run(query, split_history(history, retriever))
    chosen = Examples(planning.read_examples(examples), seed=seed)
    if parameters is None:
        shown = retriever.rank(run).select(mask)
        writer = SelectionPrompts(retriever.tools_, icl=icl, examples=chosen, layout=layout)
        written = writer.prompt(query, run.calls, shown)
    else:
        tools = {tool.name: tool for tool in retriever.tools_}
        if parameters not in tools:
            raise InputError(f"the model knows no tool {parameters!r}; see: dtdr inspect {model}")
        filling = FillingPrompts(retriever.tools_, examples=chosen, layout=layout)
        written = filling.prompt(query, run.calls, tools[parameters])
    texts = {"constant": written.constant, "variable": written.varying}
    exact = False
    if llm is None:
        counts = {part: count_tokens(text) for part, text in texts.items()}
    else:
        with planning.open_llm(llm, context=llm_context, threads=llm_threads) as backend:
            counts = {part: backend.count_tokens(text) for part, text in texts.items()}
            exact = backend.counts_exactly
    if as_json:
        value: dict[str, Any] = {
            "text": written.text,
            "messages": written.messages,
            "tokens": counts,
            "tokens_are_exact": exact,
        }
        print_json(value)
        return
    if chat:
        for message in written.messages:
            print_json(message)
    else:
        sys.stdout.write(written.text + "\n")
    about = "" if exact else "about "
    note(
        f"{about}{counts['constant']} tokens that stay the same and "
        f"{about}{counts['variable']} that vary"
    )
