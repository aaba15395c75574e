"""A small local LLM that plans among the tools that dtdr ranks highest.

    python examples/local_llm.py MODEL.gguf

Any GGUF file of a chat model works, and so do ``openai:NAME@URL`` and ``hf:NAME``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dtdr
from dtdr.llm import backends
from dtdr.llm.planning import Planner

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"


def main() -> None:
    """Plan one request step by step; no tool is executed."""
    if len(sys.argv) != 2:
        raise SystemExit("name a GGUF file: python examples/local_llm.py MODEL.gguf")
    name = sys.argv[1] if ":" in sys.argv[1] else f"gguf:{sys.argv[1]}"
    model = dtdr.fit(LOG)
    with backends.create(name) as llm:
        planner = Planner(model, llm, icl="hard", select="constrained")
        result = planner.plan("Clean room 204.")
    for number, step in enumerate(result.steps, start=1):
        print(f"{number}. shown {len(step.shown)} of {len(model.tools_) - 1} tools")
    print(f"plan: {', '.join(result.plan.tools)}; stopped: {result.stopped}")


if __name__ == "__main__":
    main()
