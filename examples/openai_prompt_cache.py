"""Requests to OpenAI that keep the prompt cache, and what each way of showing tools costs.

    python examples/openai_prompt_cache.py

It prints the requests and sends nothing. ``client.chat.completions.create(**request)`` sends one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dtdr
from dtdr.agents import ToolMask, ToolPolicy, openai
from dtdr.rankers.selection import count_tokens
from examples.hotel.tools import TOOLS

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"


def call(number: int, tool: str) -> list[dict[str, Any]]:
    """The messages of one call that was made."""
    function = {"name": tool, "arguments": "{}"}
    asked = {"id": str(number), "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": str(number), "content": "done"},
    ]


def main() -> None:
    """Print, for each step, what changes from request to request."""
    mask = ToolMask(dtdr.fit(LOG), ToolPolicy(top_k=5))
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Emi Patel is checking out."}]
    whole = count_tokens(TOOLS)
    tools = set()
    for number, tool in enumerate(("find_guest", "search_bookings", "get_invoice")):
        request = {"model": "gpt-5.4", "messages": messages, "tools": TOOLS}
        cached = openai.mask_request(request, mask)
        filtered = openai.mask_request(request, mask, "filtered")
        tools.add(json.dumps(cached["tools"]))
        allowed = [
            item["function"]["name"] for item in cached["tool_choice"]["allowed_tools"]["tools"]
        ]
        print(f"step {number + 1}: allowed {', '.join(allowed)}")
        print(f"  allowed-tools: {whole} tokens of tools, the same each time, so they are cached")
        print(f"  filtered: {count_tokens(filtered['tools'])} tokens, another prefix each time")
        messages += call(number, tool)
    print(f"different lists of tools sent with allowed-tools: {len(tools)}")
    print("what that costs on your runs: dtdr advise model requests.jsonl")


if __name__ == "__main__":
    main()
