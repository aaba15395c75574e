"""Real logs and small logs in forms that were read wrongly are read as their notes say.

The files are not part of the project; without them these tests are skipped.
"""

import json
from pathlib import Path

import pytest

from dtdr.logs import CutOptions, open_demonstrations


@pytest.fixture
def logs(data_dir):
    """The folder with a set of logs of that name, or a skip."""

    def find(name):
        if not (data_dir / name).is_dir():
            pytest.skip(f"there are no logs in {data_dir / name}")
        return data_dir / name

    return find


def read(*paths, **options):
    return list(open_demonstrations(paths, None, CutOptions(**options)))


def shape(found):
    return [(item.query, [(c.tool, c.status) for c in item.plan.calls]) for item in found]


@pytest.mark.parametrize(
    "name", ["short", "subagent", "tool_heavy", "258c7280-ae70-4798-800f-63464d01a85d"]
)
def test_sessions_of_claude_code_have_the_queries_calls_and_failures_of_their_raw_lines(name, logs):
    folder = logs("claude_code")
    expected = json.loads((folder / "expected.json").read_text())[name]
    found = read(folder / f"{name}.jsonl", *sorted(folder.glob(f"{name}/**/*.jsonl")), empty=True)
    calls = [call for item in found for call in item.plan.calls]
    queries = [item.query for item in found if item.parent is None]
    begun = expected.get("queries", expected.get("queries_start"))
    for query, start in zip(queries, begun, strict=True):
        assert query == start if "queries" in expected else query.startswith(start)
    assert len(calls) == expected["calls"]
    assert sum(call.status == "error" for call in calls) == expected["failed"]
    made = [call.tool for item in found if item.parent is None for call in item.plan.calls]
    assert made[:3] == expected["first_tools"][: len(made)]
    nested = [item for item in found if item.parent is not None]
    for item, start in zip(nested, expected.get("nested_queries_start", ()), strict=True):
        assert item.query.startswith(start)
    assert sum(len(item.plan) for item in nested) == expected.get("of_sub_agents", 0)


LANGFUSE = """agno-2025-06-11 google-adk-2025-08-28 pydantic-ai-tools-2025-12-04
    claude-agent-2025-12-22 csharp-agent-with-gemini-2026-03-09 langgraph-js-2025-10-30
    openai-agents-2025-09-30 crewai-2025-07-11 google-gemini-2025-08-01""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", LANGFUSE)
def test_traces_in_langfuse_of_nine_frameworks_say_what_their_readers_read(name, logs):
    folder = logs("langfuse_traces")
    expected = json.loads((folder / "expected.json").read_text())[name]
    found = read(folder / f"{name}.trace.json", empty=not expected)
    if not expected:
        assert [item.plan.tools for item in found] == [()]
        return
    for item, said in zip(found, expected, strict=True):
        assert said.get("query") in (None, item.query)
        assert said.get("query_contains", "") in item.query
        assert item.query.startswith(said.get("query_starts", ""))
        calls = list(item.plan.calls)
        if together := said.get("calls_of_one_step"):
            assert {call.step for call in calls} == {1}
            made = sorted([c.tool, dict(c.arguments)] for c in calls)
            assert made == sorted([c["tool"], c["arguments"]] for c in together)
            continue
        if len(said["calls"]) == 1 and "arguments_in_any_order" in said["calls"][0]:
            (call,) = said["calls"]
            assert {c.tool for c in calls} == {call["tool"]}
            entered = [dict(c.arguments) for c in calls]
            assert sorted(map(str, entered)) == sorted(map(str, call["arguments_in_any_order"]))
            continue
        for made, call in zip(calls, said["calls"], strict=True):
            assert made.tool == call["tool"]
            assert dict(made.arguments) == call.get("arguments", dict(made.arguments))
            assert set(call.get("arguments_have", ())) <= made.arguments.keys()
            assert made.output == call.get("output", made.output)
            assert made.status == call.get("status", made.status)


FIELD_LOGS = {
    "bare-message-list.json": [("Find a room in Oslo", [("search_rooms", "ok")])],
    "bedrock-converse.json": [
        ("Find a room in Oslo and book it", [("search_rooms", "ok"), ("book_room", "error")])
    ],
    "claude-resumed-session.jsonl": [
        ("List the open invoices", [("list_invoices", "ok")]),
        ("Pay the first", [("pay", "ok")]),
    ],
    "claude-slash-command.jsonl": [
        ("/shop:stock count the blue mugs", [("count_stock", "ok")]),
        ("order ten more", [("order", "ok")]),
    ],
    "claude-task-notification.jsonl": [
        ("Publish the spring catalogue", [("Bash", "ok"), ("Read", "ok"), ("Bash", "ok")])
    ],
    "claude-workflow-journal.jsonl": [("List the open invoices", [("list_invoices", "ok")])],
    "codex-2025-lines.jsonl": [("What is my next task?", [("tasks__next", "ok")])],
    "codex-failures.jsonl": [
        (
            "Close the newest ticket and rebuild",
            [(t, "error") for t in ("desk__close", "shell", "exec_command", "shell")],
        )
    ],
    "codex-mcp-text-block.jsonl": [
        ("Close the newest ticket", [("desk__list", "ok"), ("desk__close", "ok")])
    ],
    "gemini-cli-session.json": [
        ("Find a room in Oslo and book it", [("search_rooms", "ok"), ("book_room", "error")])
    ],
    "langfuse-adk-contents.json": [("Greet Ann", [("say_hello", "ok")])],
    "langfuse-otel-names.json": [
        ("Mail Ann her invoice", [("find_invoice", "ok"), ("send_mail", "ok")])
    ],
    "langfuse-span-tool.json": [("What is new?", [("web_search", "empty")])],
    "langsmith-run-id.jsonl": [
        ("Book a table at Luigi", [("find_place", "ok"), ("book_table", "ok")])
    ],
    "null-arguments.jsonl": [("Ping it", [("ping", "ok")]), ("Ping it again", [("ping", "ok")])],
    "otel-console.json": [("Mail Ann", [("find_user", "ok")])],
    "otel-vercel-ai-sdk.json": [("Book a table at Luigi", [("find_place", "ok")])],
    "qwen-code.jsonl": [
        ("Which lamps are out of stock?", [("list_lamps", "ok"), ("order_lamp", "error")])
    ],
    "utf16.jsonl": [("Ping it", [("ping", "ok")])],
}
REFERRING = {  # the call that refers to the first, by its argument and the path in the output
    "bedrock-converse.json": ("room", "/room"),
    "claude-resumed-session.jsonl": ("invoice", None),
    "codex-mcp-text-block.jsonl": ("id", "/tickets/0/id"),
    "gemini-cli-session.json": ("room", "/room"),
    "langfuse-otel-names.json": ("file", None),
    "langsmith-run-id.jsonl": ("place", "/place"),
    "qwen-code.jsonl": ("id", None),
}


@pytest.mark.parametrize("name", FIELD_LOGS)
def test_logs_that_were_read_wrongly_have_their_right_values(name, logs):
    found = read(logs("field_logs") / name)
    assert shape(found) == FIELD_LOGS[name]
    assert len({item.group for item in found}) == (2 if name == "null-arguments.jsonl" else 1)
    assert all(item.outcome == "success" for item in found)
    if name in REFERRING:
        argument, path = REFERRING[name]
        reference = {"$ref": "1"} if path is None else {"$ref": "1", "path": path}
        assert found[-1].plan.calls[-1].arguments[argument] == reference
    if name == "null-arguments.jsonl":
        assert [dict(call.arguments) for item in found for call in item.plan.calls] == [{}, {}]
    if name.startswith("langfuse-") and "span" not in name:
        assert len(found[0].offered) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_fork_of_codex_is_in_the_group_of_its_parent_and_replays_no_turn(order, logs):
    paths = [logs("field_logs") / "codex-fork" / f"rollout-{n}.jsonl" for n in ("parent", "child")]
    found = read(*paths[::order])
    assert sorted(item.query for item in found) == [
        "Count the rows of sales.csv",
        "Now plot them",
        "Sort them by date",
    ]
    assert {item.group for item in found} == {"aaaa"}
    assert all(item.before for item in found if not item.query.startswith("Count"))


def test_all_of_these_logs_are_read_from_one_folder(logs):
    folder = logs("field_logs")
    from dtdr.logs import group_files

    files, skipped = group_files([folder])
    read_names = {Path(path).name for paths in files.values() for path in paths}
    assert read_names == {*FIELD_LOGS, "rollout-parent.jsonl", "rollout-child.jsonl"}
    assert {path.name for paths in skipped.values() for path in paths} == {
        "gateway-long-names.json",
        "gateway-repeated-cursor.json",
    }
