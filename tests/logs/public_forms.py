"""Small logs of our own in the forms that programs and platforms write, each with its source.

Everyone asks to book a room in Oslo: ``search_rooms`` returns RM-40417, ``book_room`` fails.
"""

# ruff: noqa: E501  # a record is easier to read on one line

import json

QUERY = "Book a room in Oslo"
FIND, BOOK = {"city": "Oslo"}, {"room": "RM-40417"}
ROOM, ERROR = {"room": "RM-40417"}, "sold out"


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def document(record):
    return json.dumps(record, indent=1)


def chat(arguments=json.dumps):
    """Messages of OpenAI's chat completions."""
    return [
        {"role": "user", "content": QUERY},
        {"role": "assistant", "content": "", "tool_calls": [call("c1", "search_rooms", arguments(FIND))]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps(ROOM)},
        {"role": "assistant", "content": None, "tool_calls": [call("c2", "book_room", arguments(BOOK))]},
        {"role": "tool", "tool_call_id": "c2", "content": f"Error: {ERROR}"},
    ]  # fmt: skip


def call(identifier, name, arguments):
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def inspect():
    """https://inspect.aisi.org.uk/eval-logs.html"""
    messages = [
        {"id": "m0", "role": "system", "content": "Be brief."},
        {"id": "m1", "role": "user", "content": QUERY, "source": "input"},
        {"id": "m2", "role": "assistant", "source": "generate", "content": [{"type": "reasoning", "reasoning": "…"}, {"type": "text", "text": "I look."}],
         "tool_calls": [{"id": "c1", "function": "search_rooms", "arguments": FIND, "type": "function"}]},
        {"id": "m3", "role": "tool", "tool_call_id": "c1", "function": "search_rooms", "content": json.dumps(ROOM)},
        {"id": "m4", "role": "assistant", "content": "", "tool_calls": [{"id": "c2", "function": "book_room", "arguments": BOOK, "type": "function"}]},
        {"id": "m5", "role": "tool", "tool_call_id": "c2", "function": "book_room", "content": "", "error": {"type": "unknown", "message": ERROR}},
    ]  # fmt: skip
    sample = {"id": "room-1", "epoch": 1, "input": QUERY, "target": "RM", "messages": messages, "scores": {"match": {"value": "I"}}, "uuid": "u1"}  # fmt: skip
    return document(
        {"version": 2, "status": "success", "eval": {"task": "rooms"}, "samples": [sample]}
    )


def tau2():
    """https://github.com/sierra-research/tau2-bench, data/tau2/results"""
    messages = [
        {"role": "assistant", "content": "Hi! How can I help?", "tool_calls": None, "turn_idx": 0},
        {"role": "user", "content": QUERY, "tool_calls": None, "turn_idx": 1},
        {"role": "user", "content": None, "tool_calls": [{"id": "u1", "name": "check_phone", "arguments": {}, "requestor": "user"}]},
        {"id": "u1", "role": "tool", "content": "on", "requestor": "user", "error": False},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "search_rooms", "arguments": FIND, "requestor": "assistant"}]},
        {"id": "c1", "role": "tool", "content": json.dumps(ROOM), "requestor": "assistant", "error": False},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c2", "name": "book_room", "arguments": BOOK, "requestor": "assistant"}]},
        {"id": "c2", "role": "tool", "content": ERROR, "requestor": "assistant", "error": True},
    ]  # fmt: skip
    simulation = {"id": "s1", "task_id": "4", "trial": 0, "termination_reason": "user_stop", "reward_info": {"reward": 0.0}, "messages": messages}  # fmt: skip
    return document(
        {"timestamp": "2026-03-01", "info": {}, "tasks": [{"id": "4"}], "simulations": [simulation]}
    )


def toolbench():
    """https://github.com/OpenBMB/ToolBench, data/answer"""
    asked = [
        {"role": "system", "content": "You are AutoGPT."},
        {"role": "user", "content": QUERY},
        {"role": "assistant", "content": "I look.", "function_call": {"name": "search_rooms", "arguments": json.dumps(FIND)}},
        {"role": "function", "name": "search_rooms", "content": json.dumps({"error": "", "response": ROOM})},
        {"role": "assistant", "content": "", "function_call": {"name": "book_room", "arguments": json.dumps(BOOK)}},
        {"role": "function", "name": "book_room", "content": json.dumps({"error": ERROR, "response": ""})},
        {"role": "assistant", "content": "", "function_call": {"name": "Finish", "arguments": '{"return_type": "give_up"}'}},
    ]  # fmt: skip
    functions = [{"name": "search_rooms"}, {"name": "book_room"}, {"name": "Finish"}]
    answer = {
        "valid_data": True,
        "query": QUERY,
        "function": functions,
        "train_messages": [asked[:3], asked],
    }
    return document({"win": True, "answer_generation": answer})


def atif():
    """https://www.harborframework.com/docs/agents/trajectory-format"""
    steps = [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": QUERY, "timestamp": "2026-03-01T12:00:00Z"},
        {"step_id": 3, "source": "agent", "message": "I look.", "tool_calls": [{"tool_call_id": "c1", "function_name": "search_rooms", "arguments": FIND}],
         "observation": {"results": [{"source_call_id": "c1", "content": json.dumps(ROOM)}]}},
        {"step_id": 4, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "c2", "function_name": "book_room", "arguments": BOOK}],
         "observation": {"results": [{"source_call_id": "c2", "content": f"Error: {ERROR}"}]}},
    ]  # fmt: skip
    return document(
        {
            "schema_version": "ATIF-v1.4",
            "session_id": "s1",
            "agent": {"name": "desk", "version": "1"},
            "steps": steps,
        }
    )


def swe_agent():
    """https://swe-agent.com/latest/usage/trajectories"""
    history = [
        {"role": "system", "content": "Be brief.", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "a demonstration", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": QUERY}], "agent": "main"},
        {"role": "assistant", "content": "I look.", "thought": "I look.", "tool_calls": [call("c1", "search_rooms", json.dumps(FIND))]},
        {"role": "tool", "content": [{"type": "text", "text": json.dumps(ROOM)}], "tool_call_ids": ["c1"]},
        {"role": "assistant", "content": "", "tool_calls": [call("c2", "book_room", json.dumps(BOOK))]},
        {"role": "tool", "content": f"Error: {ERROR}", "tool_call_ids": ["c2"]},
    ]  # fmt: skip
    steps = [{"action": "search_rooms Oslo", "observation": "…", "response": "…", "state": {}}]
    return document(
        {
            "environment": "main",
            "trajectory": steps,
            "history": history,
            "info": {"exit_status": "submitted"},
        }
    )


def swe_agent_commands():
    """https://github.com/SWE-agent/SWE-agent/tree/v0.7.0/trajectories/demonstrations"""
    steps = [
        {"action": "search_rooms Oslo\n", "observation": json.dumps(ROOM), "response": "I look.", "thought": "I look.", "state": "{}"},
        {"action": "book_room RM-40417\n", "observation": f"Error: {ERROR}", "response": "", "thought": "", "state": "{}"},
    ]  # fmt: skip
    history = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUERY}, {"role": "assistant", "content": "I look."}]  # fmt: skip
    return document(
        {
            "environment": "swe_main",
            "trajectory": steps,
            "history": history,
            "info": {"exit_status": "submitted"},
        }
    )


def openhands():
    """https://github.com/All-Hands-AI/OpenHands, openhands/events/serialization"""

    def about(number, name):
        return {
            "function_name": name,
            "tool_call_id": f"c{number}",
            "model_response": {"id": f"r{number}"},
        }

    return document([
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "Be brief.", "tools": []}},
        {"id": 1, "timestamp": "2026-03-01T12:00:00", "source": "user", "message": QUERY, "action": "message", "args": {"content": QUERY, "image_urls": None}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": QUERY}},
        {"id": 3, "source": "agent", "message": "…", "action": "call_tool_mcp", "args": {"city": "Oslo", "thought": "I look."}, "tool_call_metadata": about(1, "search_rooms")},
        {"id": 4, "source": "environment", "cause": 3, "observation": "mcp", "content": json.dumps(ROOM), "extras": {}, "tool_call_metadata": about(1, "search_rooms")},
        {"id": 5, "source": "agent", "action": "run", "args": {"room": "RM-40417", "thought": "", "blocking": False}, "tool_call_metadata": about(2, "book_room")},
        {"id": 6, "source": "environment", "cause": 5, "observation": "run", "content": ERROR, "extras": {"metadata": {"exit_code": 1}}, "tool_call_metadata": about(2, "book_room")},
        {"id": 7, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {"agent_state": "finished"}},
    ])  # fmt: skip


def openhands_new():
    """https://docs.openhands.dev/sdk/arch/events"""
    return lines(
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"text": "Be brief."}, "tools": []},
        {"kind": "MessageEvent", "source": "user", "timestamp": "2026-03-01T12:00:00", "llm_message": {"role": "user", "content": [{"type": "text", "text": QUERY}]}},
        {"kind": "ActionEvent", "source": "agent", "thought": [{"type": "text", "text": "I look."}], "action": FIND, "tool_name": "search_rooms", "tool_call_id": "c1",
         "tool_call": {"id": "c1", "name": "search_rooms", "arguments": json.dumps(FIND)}, "llm_response_id": "r1"},
        {"kind": "ObservationEvent", "source": "environment", "tool_name": "search_rooms", "tool_call_id": "c1", "action_id": "a", "observation": {"content": [{"type": "text", "text": json.dumps(ROOM)}], "is_error": False}},
        {"kind": "ActionEvent", "source": "agent", "thought": [], "action": BOOK, "tool_name": "book_room", "tool_call_id": "c2",
         "tool_call": {"id": "c2", "name": "book_room", "arguments": json.dumps(BOOK)}, "llm_response_id": "r2"},
        {"kind": "AgentErrorEvent", "source": "environment", "tool_name": "book_room", "tool_call_id": "c2", "error": ERROR},
    )  # fmt: skip


def opencode():
    """https://opencode.ai/docs/cli, export"""

    def part(number, tool, entered, status, **more):
        state = {"status": status, "input": entered, "time": {"start": number}, **more}
        return {
            "id": f"prt_{number}",
            "type": "tool",
            "callID": f"c{number}",
            "tool": tool,
            "state": state,
        }

    user = {"info": {"id": "msg_1", "role": "user", "time": {"created": 1772366400000}}, "parts": [{"type": "text", "text": QUERY}, {"type": "text", "text": "<system-reminder>…</system-reminder>"}]}  # fmt: skip
    first = [{"type": "step-start"}, {"type": "reasoning", "text": "…"}, {"type": "text", "text": "I look."}, part(1, "search_rooms", FIND, "completed", output=json.dumps(ROOM)), {"type": "step-finish"}]  # fmt: skip
    second = [
        {"type": "step-start"},
        part(2, "book_room", BOOK, "error", error=ERROR),
        {"type": "step-finish"},
    ]
    messages = [user, {"info": {"id": "msg_2", "role": "assistant"}, "parts": first}, {"info": {"id": "msg_3", "role": "assistant"}, "parts": second}]  # fmt: skip
    return document(
        {
            "info": {"id": "ses_1", "directory": "/w", "time": {"created": 1772366400000}},
            "messages": messages,
        }
    )


def opencode_run():
    """https://opencode.ai/docs/cli, run --format json: without what the user wrote"""

    def event(kind, part):
        return {
            "type": kind,
            "timestamp": 1772366400000,
            "sessionID": "ses_1",
            "part": {"sessionID": "ses_1", **part},
        }

    def tool(number, message, name, entered, **state):
        state = {"input": entered, **state}
        return event("tool_use", {"id": f"prt_{number}", "messageID": message, "type": "tool", "callID": f"c{number}", "tool": name, "state": state})  # fmt: skip

    return lines(
        event("step_start", {"id": "prt_0", "messageID": "msg_1", "type": "step-start"}),
        tool(1, "msg_1", "search_rooms", FIND, status="completed", output=json.dumps(ROOM)),
        tool(2, "msg_2", "book_room", BOOK, status="error", error=ERROR),
    )


def copilot_cli():
    """https://docs.github.com/copilot/concepts/agents/about-copilot-cli, session-state"""

    def event(kind, **data):
        return {
            "type": kind,
            "data": data,
            "id": kind,
            "timestamp": "2026-03-01T12:00:00.000Z",
            "parentId": None,
        }

    return lines(
        event("session.start", sessionId="s1", version=1, producer="copilot-agent"),
        event("user.message", content=QUERY, transformedContent=f"<now/>{QUERY}", attachments=[]),
        event("assistant.turn_start", turnId="0"),
        event("assistant.message", messageId="m1", content="I look.", toolRequests=[{"toolCallId": "c1", "name": "search_rooms", "arguments": FIND, "type": "function"}]),
        event("tool.execution_start", toolCallId="c1", toolName="search_rooms", arguments=FIND),
        event("tool.execution_complete", toolCallId="c1", success=True, result={"content": json.dumps(ROOM)}),
        event("assistant.message", messageId="m2", content="", toolRequests=[{"toolCallId": "c2", "name": "book_room", "arguments": BOOK}]),
        event("tool.execution_complete", toolCallId="c2", success=False, error={"message": ERROR, "code": "failure"}),
    )  # fmt: skip


def cursor_stream():
    """https://cursor.com/docs/cli/reference/output-format"""

    def tool(subtype, number, name, entered, **more):
        inner = {
            "args": {"name": name, "args": entered, "toolName": name, "providerIdentifier": "desk"},
            **more,
        }
        return {
            "type": "tool_call",
            "subtype": subtype,
            "call_id": f"c{number}",
            "tool_call": {"mcpToolCall": inner},
            "session_id": "s1",
        }

    return lines(
        {"type": "system", "subtype": "init", "cwd": "/w", "session_id": "s1", "model": "m"},
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": QUERY}]}, "session_id": "s1"},
        {"type": "thinking", "subtype": "delta", "text": "…", "session_id": "s1"},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}, "session_id": "s1"},
        tool("started", 1, "search_rooms", FIND),
        tool("completed", 1, "search_rooms", FIND, result={"success": {"content": [{"text": {"text": json.dumps(ROOM)}}]}}),
        tool("started", 2, "book_room", BOOK),
        tool("completed", 2, "book_room", BOOK, result={"error": {"error": ERROR}}),
        {"type": "result", "subtype": "success", "is_error": False, "session_id": "s1"},
    )  # fmt: skip


def cursor_composer():
    """https://forum.cursor.com, exports of composers with bubbles"""

    def tool(number, name, entered, status, result):
        data = {
            "toolCallId": f"c{number}",
            "name": name,
            "rawArgs": json.dumps(entered),
            "status": status,
            "result": result,
        }
        return {"type": 2, "bubbleId": f"b{number}", "text": "", "toolFormerData": data}

    bubbles = [
        {"type": 1, "bubbleId": "b0", "text": QUERY},
        {"type": 2, "bubbleId": "b1", "text": "I look."},
        tool(1, "search_rooms", FIND, "completed", json.dumps(ROOM)),
        tool(2, "book_room", BOOK, "error", json.dumps(ERROR)),
    ]
    return document({"composerId": "s1", "createdAt": 1772366400000, "conversation": bubbles})


def gemini_stream():
    """https://geminicli.com/docs/cli/headless, --output-format stream-json"""
    return lines(
        {"type": "init", "timestamp": "2026-03-01T12:00:00Z", "session_id": "s1", "model": "m"},
        {"type": "message", "role": "user", "content": QUERY},
        {"type": "message", "role": "assistant", "content": "I look.", "delta": True},
        {"type": "tool_use", "tool_name": "search_rooms", "tool_id": "c1", "parameters": FIND},
        {"type": "tool_result", "tool_id": "c1", "status": "success", "output": json.dumps(ROOM)},
        {"type": "tool_use", "tool_name": "book_room", "tool_id": "c2", "parameters": BOOK},
        {"type": "tool_result", "tool_id": "c2", "status": "error", "error": {"type": "x", "message": ERROR}},
        {"type": "result", "status": "success", "stats": {}},
    )  # fmt: skip


def gemini_lines():
    """https://geminicli.com/docs/cli/session-management, sessions as lines since 0.40"""

    def model(number, name, entered, status, response):
        result = [{"functionResponse": {"id": f"c{number}", "name": name, "response": response}}]
        calls = [
            {"id": f"c{number}", "name": name, "args": entered, "status": status, "result": result}
        ]
        return {
            "id": f"m{number}",
            "timestamp": "2026-03-01T12:00:01Z",
            "type": "gemini",
            "content": "",
            "toolCalls": calls,
        }

    return lines(
        {"sessionId": "s1", "projectHash": "p", "startTime": "2026-03-01T12:00:00Z", "kind": "main"},
        {"id": "u0", "type": "user", "content": [{"text": "No, wait"}]},
        {"$rewindTo": "u0"},
        {"id": "u1", "type": "user", "content": [{"text": QUERY}]},
        {"$set": {"lastUpdated": "2026-03-01T12:00:02Z"}},
        model(1, "search_rooms", FIND, "success", {"output": json.dumps(ROOM)}),
        model(2, "book_room", BOOK, "error", {"error": ERROR}),
    )  # fmt: skip


def codex_exec():
    """https://developers.openai.com/codex/noninteractive, exec --json: without what the user wrote"""

    def item(kind, number, tool, entered, **more):
        more = {"server": "desk", "tool": tool, "arguments": entered, **more}
        return {"type": kind, "item": {"id": f"item_{number}", "type": "mcp_tool_call", **more}}

    blocks = {"content": [{"type": "text", "text": json.dumps(ROOM)}], "structured_content": None}
    return lines(
        {"type": "thread.started", "thread_id": "s1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "item_0", "type": "reasoning", "text": "…"}},
        item("item.started", 1, "search_rooms", FIND, status="in_progress"),
        item("item.completed", 1, "search_rooms", FIND, status="completed", result=blocks),
        item("item.completed", 2, "book_room", BOOK, status="failed", error={"message": ERROR}),
        {
            "type": "item.completed",
            "item": {"id": "item_3", "type": "agent_message", "text": "Sold out."},
        },
        {"type": "turn.completed", "usage": {}},
    )


def cline():
    """https://github.com/cline/cline, api_conversation_history.json before native calls"""

    def user(text):
        return {"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": "<environment_details>\nnow\n</environment_details>"}]}  # fmt: skip

    def assistant(text):
        return {"role": "assistant", "content": [{"type": "text", "text": text}]}

    return document([
        user(f"<task>\n{QUERY}\n</task>"),
        assistant("I look.\n\n<search_rooms>\n<city>Oslo</city>\n</search_rooms>"),
        user(f"[search_rooms for 'Oslo'] Result:\n{json.dumps(ROOM)}"),
        assistant("<book_room>\n<room>RM-40417</room>\n</book_room>"),
        user(f"[book_room] Result:\nError: {ERROR}"),
    ])  # fmt: skip


def pydantic_ai():
    """https://ai.pydantic.dev/message-history"""

    def response(*parts):
        return {
            "kind": "response",
            "parts": list(parts),
            "model_name": "m",
            "timestamp": "2026-03-01T12:00:01Z",
        }

    return document([
        {"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "Be brief."}, {"part_kind": "user-prompt", "content": QUERY, "timestamp": "2026-03-01T12:00:00Z"}]},
        response({"part_kind": "thinking", "content": "…"}, {"part_kind": "text", "content": "I look."}, {"part_kind": "tool-call", "tool_name": "search_rooms", "args": json.dumps(FIND), "tool_call_id": "c1"}),
        {"kind": "request", "parts": [{"part_kind": "tool-return", "tool_name": "search_rooms", "content": ROOM, "tool_call_id": "c1"}]},
        response({"part_kind": "tool-call", "tool_name": "book_room", "args": BOOK, "tool_call_id": "c2"}),
        {"kind": "request", "parts": [{"part_kind": "retry-prompt", "tool_name": "book_room", "content": ERROR, "tool_call_id": "c2"}]},
    ])  # fmt: skip


def langchain_dicts():
    """https://python.langchain.com, messages_to_dict"""

    def message(kind, content, **more):
        return {
            "type": kind,
            "data": {"content": content, "type": kind, "additional_kwargs": {}, **more},
        }

    return document([
        message("human", QUERY),
        message("ai", "I look.", tool_calls=[{"name": "search_rooms", "args": FIND, "id": "c1", "type": "tool_call"}]),
        message("tool", json.dumps(ROOM), tool_call_id="c1", status="success"),
        message("ai", "", tool_calls=[{"name": "book_room", "args": BOOK, "id": "c2", "type": "tool_call"}]),
        message("tool", ERROR, tool_call_id="c2", status="error"),
    ])  # fmt: skip


def ui_messages():
    """https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message"""
    parts = [
        {"type": "step-start"},
        {"type": "text", "text": "I look.", "state": "done"},
        {"type": "tool-search_rooms", "toolCallId": "c1", "state": "output-available", "input": FIND, "output": ROOM},
        {"type": "step-start"},
        {"type": "dynamic-tool", "toolName": "book_room", "toolCallId": "c2", "state": "output-error", "input": BOOK, "errorText": ERROR},
        {"type": "data-progress", "data": {}},
    ]  # fmt: skip
    return document([{"id": "1", "role": "user", "parts": [{"type": "text", "text": QUERY}]}, {"id": "2", "role": "assistant", "parts": parts}])  # fmt: skip


def ui_invocations():
    """https://ai-sdk.dev, messages before version 5"""

    def part(number, name, entered, result):
        inner = {
            "state": "result",
            "step": number - 1,
            "toolCallId": f"c{number}",
            "toolName": name,
            "args": entered,
            "result": result,
        }
        return {"type": "tool-invocation", "toolInvocation": inner}

    parts = [{"type": "text", "text": "I look."}, part(1, "search_rooms", FIND, ROOM), {"type": "step-start"}, part(2, "book_room", BOOK, {"isError": True, "content": [{"type": "text", "text": ERROR}]})]  # fmt: skip
    return document([{"role": "user", "content": QUERY, "parts": []}, {"role": "assistant", "content": "I look.", "parts": parts}]).replace('"parts": []', '"id": "1"')  # fmt: skip


def autogen():
    """https://microsoft.github.io/autogen, TaskResult of AgentChat"""

    def event(kind, source, content):
        return {
            "type": kind,
            "source": source,
            "content": content,
            "models_usage": None,
            "metadata": {},
        }

    messages = [
        event("TextMessage", "user", QUERY),
        event("ThoughtEvent", "desk", "I look."),
        event("ToolCallRequestEvent", "desk", [{"id": "c1", "name": "search_rooms", "arguments": json.dumps(FIND)}]),
        event("ToolCallExecutionEvent", "desk", [{"call_id": "c1", "name": "search_rooms", "content": json.dumps(ROOM), "is_error": False}]),
        event("ToolCallRequestEvent", "desk", [{"id": "c2", "name": "book_room", "arguments": json.dumps(BOOK)}]),
        event("ToolCallExecutionEvent", "desk", [{"call_id": "c2", "name": "book_room", "content": ERROR, "is_error": True}]),
        event("ToolCallSummaryMessage", "desk", ERROR),
    ]  # fmt: skip
    return document({"messages": messages, "stop_reason": "done"})


def google_adk():
    """https://google.github.io/adk-docs/sessions"""

    def event(author, role, *parts):
        return {"id": author, "invocationId": "i1", "author": author, "timestamp": 1772366400.5, "content": {"role": role, "parts": list(parts)}, "actions": {}}  # fmt: skip

    events = [
        event("user", "user", {"text": QUERY}),
        event("desk", "model", {"text": "I look."}, {"functionCall": {"id": "c1", "name": "search_rooms", "args": FIND}}),
        event("desk", "user", {"functionResponse": {"id": "c1", "name": "search_rooms", "response": ROOM}}),
        event("desk", "model", {"functionCall": {"id": "c2", "name": "book_room", "args": BOOK}}),
        event("desk", "user", {"functionResponse": {"id": "c2", "name": "book_room", "response": {"error": ERROR}}}),
    ]  # fmt: skip
    return document({"id": "s1", "appName": "desk", "userId": "u", "state": {}, "events": events})


def smolagents():
    """https://huggingface.co/docs/smolagents/tutorials/memory, get_full_steps"""

    def step(number, name, entered, **more):
        return {"step_number": number, "timing": {}, "model_output": "I look." if number == 1 else "", "tool_calls": [call(f"c{number}", name, entered)], "error": None, "is_final_answer": False, **more}  # fmt: skip

    return document([
        {"system_prompt": "Be brief."},
        {"task": QUERY, "task_images": None},
        step(1, "search_rooms", FIND, observations=json.dumps(ROOM)),
        step(2, "book_room", BOOK, observations=None, error={"type": "AgentToolExecutionError", "message": ERROR}),
    ])  # fmt: skip


def langgraph():
    """https://docs.langchain.com/langsmith/use-threads, the history of a thread, newest first"""
    messages = [
        {"type": "human", "content": QUERY, "id": "1"},
        {"type": "ai", "content": "I look.", "tool_calls": [{"id": "c1", "name": "search_rooms", "args": FIND}], "id": "2"},
        {"type": "tool", "content": json.dumps(ROOM), "tool_call_id": "c1", "status": "success", "id": "3"},
        {"type": "ai", "content": "", "tool_calls": [{"id": "c2", "name": "book_room", "args": BOOK}], "id": "4"},
        {"type": "tool", "content": ERROR, "tool_call_id": "c2", "status": "error", "id": "5"},
    ]  # fmt: skip
    checkpoint = {"thread_id": "s1", "checkpoint_ns": ""}
    return document(
        [
            {"values": {"messages": messages[:n]}, "next": [], "checkpoint": checkpoint}
            for n in (5, 3, 1)
        ]
    )


def openai_agents():
    """https://openai.github.io/openai-agents-python/tracing"""

    def span(number, parent, kind, **data):
        return {"object": "trace.span", "id": f"span_{number}", "trace_id": "trace_1", "parent_id": parent, "started_at": f"2026-03-01T12:00:0{number}+00:00",
                "ended_at": f"2026-03-01T12:00:0{number}.5+00:00", "span_data": {"type": kind, **data}, "error": None}  # fmt: skip

    asked = [{"role": "user", "content": QUERY}]
    reply = [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call("c1", "search_rooms", json.dumps(FIND))],
        }
    ]
    failed = span(4, "span_0", "function", name="book_room", input=json.dumps(BOOK), output=ERROR)
    return lines(
        {"object": "trace", "id": "trace_1", "workflow_name": "desk", "group_id": "s1", "metadata": None},
        span(0, None, "agent", name="desk", tools=["search_rooms", "book_room"]),
        span(1, "span_0", "generation", input=asked, output=reply, model="m"),
        span(2, "span_0", "function", name="search_rooms", input=json.dumps(FIND), output=json.dumps(ROOM)),
        {**failed, "error": {"message": "Error running tool", "data": {}}},
    )  # fmt: skip


def otlp(*spans):
    """OTLP JSON of spans, each ``(id, parent, name, attributes, status)``."""

    def attribute(key, value):
        return {
            "key": key,
            "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)},
        }

    written = [
        {"traceId": "t1", "spanId": i, "parentSpanId": parent, "name": name, "startTimeUnixNano": f"177236640{n}000000000", "endTimeUnixNano": f"177236640{n}500000000",
         "attributes": [attribute(*item) for item in attributes.items()], "status": {"code": status}}
        for n, (i, parent, name, attributes, status) in enumerate(spans)
    ]  # fmt: skip
    return document(
        {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "x"}, "spans": written}]}]}
    )


def otel_numbered():
    """https://github.com/traceloop/openllmetry before 0.55; https://docs.koog.ai/opentelemetry-support"""
    chat_1 = {"gen_ai.system": "openai", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.", "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": QUERY,
              "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "I look.", "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "search_rooms",
              "gen_ai.completion.0.tool_calls.0.arguments": json.dumps(FIND), "llm.request.functions.0.name": "search_rooms", "llm.request.functions.1.name": "book_room"}  # fmt: skip
    wrapped = json.dumps({"inputs": FIND, "input_str": str(FIND), "tags": []})
    return otlp(
        ("s1", "", "openai.chat", chat_1, 0),
        ("s2", "", "search_rooms.tool", {"traceloop.span.kind": "tool", "traceloop.entity.name": "search_rooms", "traceloop.entity.input": wrapped, "traceloop.entity.output": json.dumps({"output": json.dumps(ROOM), "kwargs": {}})}, 1),
        ("s3", "", "tool.book_room", {"gen_ai.tool.name": "book_room", "gen_ai.tool.call.id": "c2", "input.value": json.dumps(BOOK), "output.value": ERROR}, 2),
    )  # fmt: skip


def otel_events():
    """https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events, messages as events"""
    base = {"context": {"trace_id": "0x1", "span_id": "0xa"}, "parent_id": None, "start_time": "2026-03-01T12:00:00Z", "end_time": "2026-03-01T12:00:01Z", "status": {"status_code": "UNSET"}}  # fmt: skip
    message = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call("c1", "search_rooms", json.dumps(FIND))],
    }
    events = [
        {"name": "gen_ai.user.message", "attributes": {"content": QUERY}},
        {"name": "gen_ai.choice", "attributes": {"index": 0, "message": json.dumps(message)}},
    ]
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_rooms", "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": json.dumps(FIND), "gen_ai.tool.call.result": json.dumps(ROOM)}  # fmt: skip
    book = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "book_room", "gen_ai.tool.call.arguments": json.dumps(BOOK), "gen_ai.tool.call.result": ERROR, "error.type": "x"}  # fmt: skip
    spans = [
        {**base, "name": "chat m", "attributes": {"gen_ai.operation.name": "chat"}, "events": events},
        {**base, "name": "execute_tool", "context": {"trace_id": "0x1", "span_id": "0xb"}, "start_time": "2026-03-01T12:00:02Z", "end_time": "2026-03-01T12:00:03Z", "attributes": tool},
        {**base, "name": "execute_tool", "context": {"trace_id": "0x1", "span_id": "0xc"}, "start_time": "2026-03-01T12:00:04Z", "end_time": "2026-03-01T12:00:05Z", "attributes": book},
    ]  # fmt: skip
    return "\n".join(json.dumps(span, indent=4) for span in spans)


def ai_sdk_spans():
    """https://ai-sdk.dev/docs/ai-sdk-core/telemetry"""
    asked = [{"role": "user", "content": [{"type": "text", "text": QUERY}]}]
    tools = [
        json.dumps({"type": "function", "name": name, "inputSchema": {}})
        for name in ("search_rooms", "book_room")
    ]
    return otlp(
        ("s0", "", "ai.generateText", {"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"prompt": QUERY})}, 0),
        ("s1", "s0", "ai.generateText.doGenerate", {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": asked, "ai.prompt.tools": tools, "ai.response.text": "I look.",
         "ai.response.toolCalls": [{"toolCallId": "c1", "toolName": "search_rooms", "input": json.dumps(FIND)}]}, 0),
        ("s2", "s0", "ai.toolCall", {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search_rooms", "ai.toolCall.id": "c1", "ai.toolCall.args": FIND, "ai.toolCall.result": ROOM}, 0),
        ("s3", "s0", "ai.toolCall", {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "book_room", "ai.toolCall.id": "c2", "ai.toolCall.args": BOOK, "ai.toolCall.result": ERROR}, 2),
    )  # fmt: skip


def mlflow():
    """https://mlflow.org/docs/latest/genai/concepts/trace"""

    def span(number, name, kind, entered, left, code="STATUS_CODE_OK"):
        attributes = {
            "mlflow.spanType": json.dumps(kind),
            "mlflow.spanInputs": json.dumps(entered),
            "mlflow.spanOutputs": json.dumps(left),
        }
        return {"trace_id": "t1", "span_id": f"s{number}", "parent_span_id": None if number == 0 else "s0", "name": name, "start_time_unix_nano": 1772366400000000000 + number * 10**9,
                "end_time_unix_nano": 1772366400500000000 + number * 10**9, "status": {"code": code}, "attributes": attributes}  # fmt: skip

    reply = {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [call("c1", "search_rooms", json.dumps(FIND))],
                }
            }
        ]
    }
    spans = [
        span(0, "desk", "AGENT", {"question": QUERY}, None),
        span(
            1,
            "Completions",
            "CHAT_MODEL",
            {"messages": [{"role": "user", "content": QUERY}]},
            reply,
        ),
        span(2, "search_rooms", "TOOL", FIND, ROOM),
        span(3, "book_room", "TOOL", BOOK, ERROR, "STATUS_CODE_ERROR"),
    ]
    return document({"info": {"trace_id": "tr-1", "state": "OK"}, "data": {"spans": spans}})


def weave():
    """https://weave-docs.wandb.ai/reference/service-api, calls/stream_query"""

    def entry(number, parent, op, entered, left, **more):
        return {"id": str(number), "project_id": "e/p", "op_name": f"weave:///e/p/op/{op}:v1", "trace_id": "t1", "parent_id": parent, "started_at": f"2026-03-01T12:00:0{number}Z",
                "ended_at": f"2026-03-01T12:00:0{number}.5Z", "attributes": {}, "inputs": entered, "output": left, "exception": None, **more}  # fmt: skip

    reply = {"choices": [{"message": {"role": "assistant", "content": "I look.", "tool_calls": [call("c1", "search_rooms", json.dumps(FIND)), call("c2", "book_room", json.dumps(BOOK))]}}]}  # fmt: skip
    return lines(
        entry(0, None, "Desk.run", {"self": {}, "question": QUERY}, ERROR),
        entry(1, "0", "openai.chat.completions.create", {"self": {}, "messages": [{"role": "user", "content": QUERY}], "model": "m"}, reply),
        entry(2, "0", "search_rooms", FIND, ROOM),
        entry(3, "0", "book_room", BOOK, ERROR, exception="Traceback …"),
    )  # fmt: skip


def mcp_debug():
    """https://github.com/standardbeagle/mcp-debug, recordings with ts and dir"""

    def record(second, direction, number, **more):
        return {"ts": f"2026-03-01T12:00:0{second}Z", "dir": direction, "id": number, **more}

    def asks(name, entered):
        return {"method": "tools/call", "params": {"name": name, "arguments": entered}}

    return lines(
        record(0, "req", 1, method="initialize", params={}),
        record(1, "req", 2, **asks("search_rooms", FIND)),
        record(2, "res", 2, result={"content": [{"type": "text", "text": json.dumps(ROOM)}]}),
        record(3, "req", 3, **asks("book_room", BOOK)),
        record(4, "res", 3, result={"content": [{"type": "text", "text": ERROR}], "isError": True}),
    )


def mcp_pairs():
    """A request and its response in one record, as proxies log them"""

    def record(second, name, entered, **result):
        request = {
            "jsonrpc": "2.0",
            "id": second,
            "method": "tools/call",
            "params": {"name": name, "arguments": entered},
        }
        return {
            "timestamp": f"2026-03-01T12:00:0{second}Z",
            "request": request,
            "response": {"jsonrpc": "2.0", "id": second, "result": result},
        }

    return lines(
        record(1, "search_rooms", FIND, content=[{"type": "text", "text": json.dumps(ROOM)}]),
        record(2, "book_room", BOOK, content=[{"type": "text", "text": ERROR}], isError=True),
    )


def bedrock():
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html"""
    messages = [
        {"role": "user", "content": [{"text": QUERY}]},
        {"role": "assistant", "content": [{"text": "I look."}, {"toolUse": {"toolUseId": "c1", "name": "search_rooms", "input": FIND}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"json": ROOM}], "status": "success"}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c2", "name": "book_room", "input": BOOK}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c2", "content": [{"text": ERROR}], "status": "error"}}]},
    ]  # fmt: skip
    tools = [
        {"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}}
        for name in ("search_rooms", "book_room")
    ]
    return lines({"modelId": "m", "messages": messages, "toolConfig": {"tools": tools}})


def gemini_requests():
    """https://ai.google.dev/gemini-api/docs/function-calling"""
    contents = [
        {"role": "user", "parts": [{"text": QUERY}]},
        {"role": "model", "parts": [{"thought": True, "text": "…"}, {"text": "I look."}, {"function_call": {"name": "search_rooms", "args": FIND}}]},
        {"role": "user", "parts": [{"function_response": {"name": "search_rooms", "response": {"result": ROOM}}}]},
        {"role": "model", "parts": [{"function_call": {"name": "book_room", "args": BOOK}}]},
        {"role": "user", "parts": [{"function_response": {"name": "book_room", "response": {"error": ERROR}}}]},
    ]  # fmt: skip
    tools = [{"function_declarations": [{"name": "search_rooms"}, {"name": "book_room"}]}]
    return lines(
        {"contents": contents, "config": {"system_instruction": "Be brief.", "tools": tools}}
    )


def sharegpt():
    """https://huggingface.co/datasets/NousResearch/hermes-function-calling-v1"""

    def tagged(name, entered):
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': entered})}\n</tool_call>"

    return lines({"id": "s1", "conversations": [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": QUERY},
        {"from": "gpt", "value": f"I look.\n{tagged('search_rooms', FIND)}"},
        {"from": "tool", "value": json.dumps(ROOM)},
        {"from": "gpt", "value": tagged("book_room", BOOK)},
        {"from": "tool", "value": f"Error: {ERROR}"},
    ]})  # fmt: skip


def toolllama():
    """https://github.com/OpenBMB/ToolBench, toolllama_G123_dfs_train.json"""

    def action(tool, entered, thought=""):
        return {
            "from": "assistant",
            "value": f"\nThought: {thought}\nAction: {tool}\nAction Input: {json.dumps(entered)}",
        }

    return document([{"id": "s1", "conversations": [
        {"from": "system", "value": "You are AutoGPT."},
        {"from": "user", "value": f"\n{QUERY}\nBegin!\n"},
        action("search_rooms", FIND, "I look."),
        {"from": "function", "value": json.dumps(ROOM)},
        action("book_room", BOOK),
        {"from": "function", "value": json.dumps({"error": ERROR})},
    ]}])  # fmt: skip


FORMS = {
    form.__name__: (form, fmt)
    for fmt, forms in {
        "inspect": (inspect,),
        "tau2": (tau2,),
        "toolbench": (toolbench,),
        "atif": (atif,),
        "swe-agent": (swe_agent, swe_agent_commands),
        "openhands": (openhands, openhands_new),
        "opencode": (opencode, opencode_run),
        "copilot-cli": (copilot_cli,),
        "cursor": (cursor_stream, cursor_composer),
        "gemini-cli": (gemini_stream, gemini_lines),
        "codex": (codex_exec,),
        "messages": (cline, pydantic_ai, langchain_dicts, ui_messages, ui_invocations, sharegpt, toolllama),
        "openai-chat": (autogen,),
        "google-adk": (google_adk,),
        "smolagents": (smolagents,),
        "langgraph": (langgraph,),
        "openai-agents": (openai_agents,),
        "otel": (otel_numbered, otel_events, ai_sdk_spans, mlflow),
        "weave": (weave,),
        "mcp": (mcp_debug, mcp_pairs),
        "bedrock": (bedrock,),
        "gemini": (gemini_requests,),
    }.items()
    for form in forms
}  # fmt: skip
"""Each form by its name, with the format that reads it."""
