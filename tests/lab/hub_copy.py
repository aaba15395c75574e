"""The four sets of the paper as the hub has them, in small.

The forms and the oddities are those of the published files; every record is written here.
"""

import itertools
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdr.evaluate.datasets import find_source

RECORDS = {"huggingface": 7_546, "multimedia": 5_584, "dailylifeapis": 4_320}
"""Records of TaskBench's files."""

TINYAGENT = {"training_data": 38_855, "testing_data": 1_019}
"""Plans of each file, 39,874 in all; how they are shared out is a guess, since the paper gives
their sum alone."""

TOPICS = ("budget", "holiday", "garden", "choir", "bakery", "museum", "marathon", "election")
OUTCOME_OF = {
    "open_and_get_file_path": "summarize_pdf",
    "get_email_address": "compose_new_email",
    "get_phone_number": "send_sms",
}


def write_hub(folder: Path, scale: int, *, seed: int = 0) -> None:
    """Write both repositories, each set at one part in ``scale`` of its size."""
    rng = random.Random(seed)
    tinyagent = folder / "squeeze-ai-lab" / "TinyAgent-dataset"
    tinyagent.mkdir(parents=True)
    for name, count in TINYAGENT.items():
        number = max(4, count // scale)
        records = {f"{rng.getrandbits(128):032x}": _tinyagent_record(rng) for _ in range(number)}
        # A query that was never planned, as the hub has some.
        records |= {f"no-plan-{name}": {"input": "x", "output": [{"type": "join"}]}}
        (tinyagent / f"{name}.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    for domain, count in RECORDS.items():
        is_daily = domain == "dailylifeapis"
        names = [f"{verb}_{topic}" if is_daily else f"{verb.title()} {topic.title()}"
                 for topic in TOPICS for verb in ("find", "make", "send")]  # fmt: skip
        types: dict[str, Any] = {"input-type": ["text"], "output-type": ["text"]}
        if is_daily:
            types = {"parameters": [{"name": "item", "type": "string", "desc": "what"}]}
        nodes = [{"id": name, "desc": f"It can {name.lower()}.", **types} for name in names]
        rows = [_taskbench_record(n, names, is_daily, rng) for n in range(max(20, count // scale))]
        rows.append({"id": "odd", "user_request": "no nodes"})
        repository = folder / "microsoft" / "Taskbench" / f"data_{domain}"
        repository.mkdir(parents=True)
        (repository / "tool_desc.json").write_text(json.dumps({"nodes": nodes}))
        (repository / "data.json").write_text("\n".join(map(json.dumps, rows)) + "\n")


def _tinyagent_record(rng: random.Random) -> dict[str, Any]:
    topic = rng.choice(TOPICS)
    first = rng.choice([*OUTCOME_OF, "create_note", "create_reminder", "maps_open_location"])
    names = [first, OUTCOME_OF[first]] if first in OUTCOME_OF else [first]
    names += rng.sample(["create_note", "create_reminder", "open_note"], rng.randrange(3))
    plan: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        arguments: list[Any] = [topic]
        if number and names[number - 1] in OUTCOME_OF:
            earlier = f"${number}"
            arguments = [earlier if name == "summarize_pdf" else [earlier], f"About {topic}: $20"]
        plan.append({"tool_name": name, "tool_args": arguments})
    plan.append({"tool_name": "join", "tool_args": []})
    return {
        "input": f"Question: {' then '.join(names).replace('_', ' ')} for the {topic}",
        "output": [{"type": "plan", "parsed_output": plan}, {"type": "join", "parsed_output": []}],
    }


def _taskbench_record(
    number: int, names: list[str], is_daily: bool, rng: random.Random
) -> dict[str, Any]:
    topic = rng.randrange(len(TOPICS))
    picked = names[3 * topic : 3 * topic + rng.choice([1, 2, 3, 3])]
    oddity = rng.randrange(8)
    if oddity == 0:
        picked = [*picked, "Invented Tool"]
    nodes: list[dict[str, Any]] = []
    for index, name in enumerate(picked):
        value = f"{TOPICS[topic]}.txt"
        if index:
            before = picked[index - 1]
            value = [f"<node-{index - 1}>", f"<output_of_{before}>", before, f"<node-{index}>"][
                oddity % 4
            ]
        arguments: list[Any] = [{"name": "item", "value": value}] if is_daily else [value]
        nodes.append({"task": name, "arguments": arguments})
    links = [{"source": a, "target": b} for a, b in itertools.pairwise(picked)]
    if oddity == 2:
        links.append({"source": "Nowhere", "target": picked[0]})
    return {
        "id": str(number),
        "user_request": f"Please handle the {TOPICS[topic]}: {', '.join(picked).lower()}",
        # The hub keeps lists as JSON text.
        "task_steps": json.dumps([f"Step {index}" for index in range(len(nodes))]),
        "task_nodes": json.dumps(nodes),
        "task_links": json.dumps(links),
    }


def fetch_from(folder: Path) -> Callable[..., str]:
    """In place of ``huggingface_hub.hf_hub_download``: copies files of a folder of repositories."""

    def fetch(*, repo_id: str, filename: str, repo_type: str, local_dir: str) -> str:
        assert repo_type == "dataset"
        path = Path(local_dir) / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(shutil.copy(folder / repo_id / filename, path))

    return fetch


def scripted(body: dict[str, Any]) -> str:
    """The first listed function; for parameters, those of the example."""
    *_, task = (message["content"] for message in body["messages"])
    if not task.endswith("Next function:"):
        examples = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
        return examples[-1] if examples else ""
    # The last list is that of the step; the one before it belongs to the example.
    start = task.rindex("Functions")
    found = re.search(r'\{"function": "((?:[^"\\]|\\.)*)"', task[start:])
    return json.loads(f'"{found[1]}"') if found else ""


PAPER_SETS = ("tinyagent", "taskbench_dailylife", "taskbench_huggingface", "taskbench_multimedia")
TITLES = {name: find_source(name).title for name in PAPER_SETS}
