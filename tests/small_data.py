"""A dozen demonstrations of six tools, made by hand for tests that need some to learn from."""

import json
from pathlib import Path

from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.evaluate.datasets import Dataset
from dtdr.evaluate.datasets.splits import Split

TOOLS = (
    Tool("find_contact", "Look up the address or number of a person"),
    Tool("read_file", "Open a file and return its text"),
    Tool("send_mail", "Send an e-mail"),
    Tool("send_text", "Send a text message to a phone number"),
    Tool("summarize", "Summarize a long text"),
    Tool("weather", "Tell the weather of a city"),
)

_PATTERNS = (
    ("Mail {} the summary of {}", "read_file summarize find_contact>send_mail"),
    ("Text {} what the weather in {} is", "weather find_contact>send_text"),
    ("Read {} to me and then {}", "read_file read_file"),
)
_NAMES = ("Ann", "Bob", "Zoë", "Dai")
_THINGS = ("q3.pdf", "Rome", "the notes", "東京")


def demonstration(number: int) -> Demonstration:
    """The demonstration of that number; a ``>`` makes the second call depend on the first."""
    text, calls = _PATTERNS[number % len(_PATTERNS)]
    found: list[ToolCall] = []
    for chunk in calls.split():
        earlier = ""
        for tool in chunk.split(">"):
            arguments = {"input": {"$ref": earlier}} if earlier else {"input": number}
            found.append(ToolCall(str(len(found) + 1), tool, arguments))
            earlier = found[-1].id
    query = text.format(_NAMES[number % len(_NAMES)], _THINGS[number % len(_THINGS)])
    return Demonstration(f"d{number}", query, Plan(tuple(found)))


def dataset(size: int = 12) -> Dataset:
    """That many demonstrations and their tools."""
    return Dataset(
        name="small",
        title="Made by hand",
        demonstrations=[demonstration(number) for number in range(size)],
        tools=TOOLS,
        synthetic=True,
        source="tests",
        licence="",
    )


def split(size: int = 12) -> Split:
    """The last third tests."""
    cut = size - size // 3
    return Split("last-third", tuple(range(cut)), tuple(range(cut, size)))


def write(folder: Path, size: int = 12, *, tools: bool = True) -> Path:
    """Write ``demonstrations.jsonl``, and ``tools.json`` beside it."""
    found = dataset(size)
    path = folder / "demonstrations.jsonl"
    lines = [json.dumps(item.to_dict(), ensure_ascii=False) for item in found.demonstrations]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if tools:
        described = [tool.to_dict() for tool in found.tools]
        (folder / "tools.json").write_text(json.dumps(described), encoding="utf-8")
    return path
