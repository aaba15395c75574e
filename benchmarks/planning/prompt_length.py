"""Prompt tokens of every ICL method, constant and variable, over steps of the test side.

    python benchmarks/planning/prompt_length.py --llm gguf:qwen2.5-coder-0.5b.gguf

Needs the model for its tokenizer only. The means are over the same random steps for each method.
"""

from __future__ import annotations

import common

from dtdr.cli.output import console
from dtdr.evaluate.planning import choose_steps
from dtdr.evaluate.tables import Table
from dtdr.llm.prompting import METHODS, Examples, SelectionPrompts
from dtdr.predict import create


def main() -> None:
    """Print the table."""
    parser = common.parser(__doc__, retriever="dtdr-l")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()

    data = common.sides(given)
    retriever = create(given.retriever).fit(data.train, data.tools)
    steps = choose_steps(data.test, given.steps, seed=given.seed)
    rankings = retriever.rank_batch(
        [item.query for item, _ in steps], [item.plan.tools[:step] for item, step in steps]
    )
    mask = common.mask(given)
    examples = Examples(data.train, seed=given.seed)
    tokens: dict[str, tuple[float, float]] = {}
    with common.create_llm(given) as llm:
        for icl in METHODS:
            writer = SelectionPrompts(retriever.tools_, icl=icl, examples=examples)
            prompts = [
                writer.prompt(item.query, item.plan.calls[:step], ranking.select(mask))
                for (item, step), ranking in zip(steps, rankings, strict=True)
            ]
            variable = [llm.count_tokens(one.varying) for one in prompts]
            constant = llm.count_tokens(prompts[0].constant)
            tokens[icl] = (constant, sum(variable) / len(variable))
    title = (
        f"Prompt tokens, {given.dataset}, {given.retriever}, {len(steps)} steps,\n"
        f"{common.mask_text(given)}, tokenizer of {common.short_name(given.llm)}"
    )
    rows = []
    for icl, (fixed, varying) in tokens.items():
        total = fixed + varying
        shares = (f"{100 * total / sum(tokens[other]):.0f} %" for other in ("none", "raw"))
        rows.append((icl, f"{fixed:.0f}", f"{varying:.0f}", f"{total:.0f}", *shares))
    columns = common.columns(["ICL"], ["Constant", "Variable", "Total", "of none", "of raw"])
    console().print(Table(columns, rows, title).to_rich())


if __name__ == "__main__":
    main()
