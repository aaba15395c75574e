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

TINYAGENT = (38_855, 1_019)
"""Plans of the training and of the testing file, 39,874 in all; how they are shared out is a
guess, since the paper gives their sum alone."""

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
    for name, count in zip(("training_data", "testing_data"), TINYAGENT, strict=True):
        records: dict[str, Any] = {
            f"{rng.getrandbits(128):032x}": _tinyagent_record(rng)
            for _ in range(max(4, count // scale))
        }
        if name == "training_data":
            # A query that was never planned, as the hub has some.
            records["no-plan"] = {"input": "x", "output": [{"type": "join"}]}
        text = json.dumps(records, indent=1)
        (tinyagent / f"{name}.json").write_text(text, encoding="utf-8")
    for domain, count in RECORDS.items():
        _write_taskbench(folder / "microsoft" / "Taskbench" / f"data_{domain}", domain, rng,
                         max(20, count // scale))  # fmt: skip


def _tinyagent_record(rng: random.Random) -> dict[str, Any]:
    topic = rng.choice(TOPICS)
    first = rng.choice([*OUTCOME_OF, "create_note", "create_reminder", "maps_open_location"])
    names = [first, OUTCOME_OF[first]] if first in OUTCOME_OF else [first]
    names += rng.sample(["create_note", "create_reminder", "open_note"], rng.randrange(3))
    plan: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        arguments: list[Any] = [topic]
        if number and names[number - 1] in OUTCOME_OF:
            arguments = [[f"${number}"]] if name != "summarize_pdf" else [f"${number}"]
            arguments.append(f"About the {topic}: $20")
        plan.append({"tool_name": name, "tool_args": arguments})
    plan.insert(rng.choice([len(plan), len(plan) - 1]), {"tool_name": "join", "tool_args": []})
    raw = "x" * 200
    return {
        "input": f"Question: {' then '.join(names).replace('_', ' ')} for the {topic}",
        "output": [
            {"type": "plan", "raw_input": raw, "raw_output": raw, "parsed_output": plan,
             "id": "1", "index": 0},
            {"type": "join", "raw_input": raw, "raw_output": raw, "parsed_output": [],
             "id": "2", "index": 1},
        ],
        "closest_5_queries": ["a", "b"],
    }  # fmt: skip


def _write_taskbench(folder: Path, domain: str, rng: random.Random, count: int) -> None:
    folder.mkdir(parents=True)
    is_daily = domain == "dailylifeapis"
    names = [f"{verb}_{topic}" if is_daily else f"{verb.title()} {topic.title()}"
             for topic in TOPICS for verb in ("find", "make", "send")]  # fmt: skip
    tools = [
        {"id": name, "desc": f"It can {name.replace('_', ' ').lower()}.",
         **({"parameters": [{"name": "item", "type": "string", "desc": "what"}]} if is_daily
            else {"input-type": ["text"], "output-type": ["text"]})}
        for name in names
    ]  # fmt: skip
    (folder / "tool_desc.json").write_text(json.dumps({"nodes": tools}))
    rows = [_taskbench_record(str(number), names, is_daily, rng) for number in range(count)]
    lines = [json.dumps(row) for row in rows]
    lines.append(json.dumps({"id": "odd", "user_request": "no nodes"}))
    (folder / "data.json").write_text("\n".join(lines) + "\n")


def _taskbench_record(
    number: str, names: list[str], is_daily: bool, rng: random.Random
) -> dict[str, Any]:
    topic = rng.randrange(len(TOPICS))
    picked = names[3 * topic : 3 * topic + rng.choice([1, 2, 3, 3])]
    oddity = rng.randrange(8)
    if oddity == 0:
        picked = [*picked, "Invented Tool"]
    nodes: list[dict[str, Any]] = []
    for index, name in enumerate(picked):
        before = picked[index - 1] if index else ""
        if is_daily:
            value = "<node-0>" if index and oddity == 1 else TOPICS[topic]
            nodes.append({"task": name, "arguments": [{"name": "item", "value": value}]})
            continue
        argument = f"{TOPICS[topic]}.txt"
        if index:
            argument = [f"<node-{index - 1}>", f"<output_of_{before}>", before,
                        f"<node-{index}>"][oddity % 4]  # fmt: skip
        nodes.append({"task": name, "arguments": [argument]})
    links = [{"source": a, "target": b} for a, b in itertools.pairwise(picked)]
    if oddity == 2:
        links.append({"source": "Nowhere", "target": picked[0]})
    keys = ("user_request", "task_steps", "task_nodes", "task_links")
    if rng.random() < 0.3:
        keys = ("instruction", "tool_steps", "tool_nodes", "tool_links")
    steps = [f"Step {n}" for n in range(len(nodes))]
    values = (
        f"Please handle the {TOPICS[topic]}: {', '.join(picked).lower()}",
        steps,
        nodes,
        links,
    )
    record = dict(zip(keys, values, strict=True))
    return {
        "id": number, "seed": 1, "type": "chain", "n_tools": len(nodes),
        # The hub keeps lists as JSON text.
        **{key: record.get(key) if isinstance(record.get(key), str) or record.get(key) is None
           else json.dumps(record[key])
           for key in ("user_request", "task_steps", "task_nodes", "task_links",
                       "instruction", "tool_steps", "tool_nodes", "tool_links")
           if key in record},
    }  # fmt: skip


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
