"""What programs write into the user's messages is no part of what the user asked for."""

from typing import Any

import pytest
from examples.hotel.log_formats import write_lines

from dtdr.agents import ToolMask, anthropic, openai
from dtdr.conversation.injected import remove_blocks
from dtdr.data.demonstrations import Message
from dtdr.logs import CutOptions, open_demonstrations
from tests.integrations.tools import NotingRanker

REMINDER = "<system-reminder>\nThe to-do list is empty.\n</system-reminder>"


def call(number, tool):
    function = {"name": tool, "arguments": "{}"}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": "fine"},
    ]


MESSAGES = [
    {"role": "user", "content": f"{REMINDER}\nFix the test"},
    *call(1, "read_file"),
    {"role": "user", "content": REMINDER},
    *call(2, "edit_file"),
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Now run it <environment_details a='b'>x</environment_details>"},
    *call(3, "run_tests"),
]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"before {REMINDER} after", "before  after"),
        (f"{REMINDER}{REMINDER}\nDo it", "Do it"),
        (REMINDER, ""),
        ("<system-reminder> never closed", "<system-reminder> never closed"),
        ("a < b and <b>bold</b>", "a < b and <b>bold</b>"),
        ("<system-reminder>a</system-reminder-2> b", "<system-reminder>a</system-reminder-2> b"),
        ("<user_info>a <user_info>b</user_info> c", "c"),
        ("# AGENTS.md instructions for /a b\n\n<INSTRUCTIONS>\na\n</INSTRUCTIONS>\nDo it", "Do it"),
        ("# AGENTS.md instructions: write them", "# AGENTS.md instructions: write them"),
        ("[Request interrupted by user for tool use]\nNo, undo it", "No, undo it"),
        ("[Request interrupted by user]", ""),
        ("", ""),
    ],
)
def test_closed_blocks_of_known_tags_are_removed(text, left):
    assert remove_blocks(text) == left
    assert remove_blocks(text, ()) == text


@pytest.mark.parametrize("start", ["<system-reminder>", "# AGENTS.md instructions "])
def test_many_starts_of_blocks_are_read_in_one_pass(start):
    text = start * 200_000 + "<"
    assert remove_blocks(text) == text  # one search to the end for each would take minutes


def test_queries_and_earlier_messages_are_what_the_user_wrote(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [{"messages": MESSAGES}])
    first, second = open_demonstrations([log], "openai-chat")
    assert (first.query, first.plan.tools) == ("Fix the test", ("read_file", "edit_file"))
    assert [item.step for item in first.plan.calls] == [1, 2]
    assert (second.query, second.plan.tools) == ("Now run it", ("run_tests",))
    assert second.before[0] == Message("user", "Fix the test")


def test_the_rule_can_be_changed(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [{"messages": MESSAGES}])
    kept = CutOptions(leave_out=())
    assert [item.query for item in open_demonstrations([log], "openai-chat", kept)] == [
        MESSAGES[0]["content"],
        REMINDER,
        MESSAGES[-3]["content"],
    ]
    other = CutOptions(leave_out=("environment_details",))
    assert [*open_demonstrations([log], None, other)][-1].query == "Now run it"


def test_logged_requests_with_hints_are_one_run(tmp_path):
    use = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "fine"}
    asked = {"role": "assistant", "content": [use]}
    start = [{"role": "user", "content": "Fix the test"}]
    tools = [{"name": "read_file", "input_schema": {}}]
    records: list[dict[str, Any]] = []
    for messages in (start, [*start, asked, {"role": "user", "content": [result]}]):
        body = {"max_tokens": 9, "tools": tools, "messages": messages}
        request = anthropic.mask_request(body, ToolMask(NotingRanker()), "hint")
        assert len(request["messages"]) == len(messages) + 1
        again = {**asked, "content": [{**use, "id": f"c{len(records) + 1}"}]}
        records.append({"request": request, "response": {"type": "message", **again}})
    log = write_lines(tmp_path / "log.jsonl", records)
    (run,) = open_demonstrations([log], "anthropic")
    assert (run.query, run.plan.tools) == ("Fix the test", ("read_file", "read_file"))


def test_a_mask_reads_the_conversation_as_the_import_does(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [{"messages": MESSAGES}])
    imported = [(item.query, item.plan.tools) for item in open_demonstrations([log], "openai-chat")]
    tools = [
        {"type": "function", "function": {"name": name}}
        for name in ("read_file", "edit_file", "run_tests")
    ]
    asked = []
    for end in (6, len(MESSAGES)):
        model = NotingRanker()
        body = {"model": "m", "messages": MESSAGES[:end], "tools": tools}
        openai.mask_request(body, ToolMask(model))
        run = model.runs[-1]
        asked.append((run.query, run.history))
        assert [item.step for item in run.calls] == list(range(1, len(run.calls) + 1))
    assert asked == imported
