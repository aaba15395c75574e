"""Writes a conversation as each format would log it."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Call:
    tool: str
    arguments: dict
    output: object = "fine"
    failed: bool = False
    id: str = ""
    start: int = 0
    end: int = 0


@dataclass
class Turn:
    query: str
    batches: list = field(default_factory=list)
    answer: str = "There you are."
    start: int = 0


def number(turns, prefix="call", clock=0):
    """Give calls ids and times: the calls of a batch overlap, batches follow each other."""
    for t, turn in enumerate(turns):
        clock += 10
        turn.start = clock
        for b, batch in enumerate(turn.batches):
            for c, call in enumerate(batch):
                call.id = f"{prefix}_{t}_{b}_{c}"
                call.start = clock + 2 + c
                call.end = clock + 2 + len(batch) + c
            clock += 10 + 2 * len(batch)
    return turns


def flat(turns):
    return [call for turn in turns for batch in turn.batches for call in batch]


def expected(turns):
    return [
        (turn.query.strip(), [call.tool for batch in turn.batches for call in batch])
        for turn in turns
        if turn.batches
    ]


def iso(ticks):
    return (START + timedelta(seconds=ticks)).isoformat().replace("+00:00", "Z")


def nano(ticks):
    return str(int((START + timedelta(seconds=ticks)).timestamp()) * 10**9)


def text_output(call):
    return call.output if isinstance(call.output, str) else json.dumps(call.output)


TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "find_user",
            "description": "Find a user by name",
            "parameters": {
                "type": "object",
                "properties": {"name": {"type": "string", "description": "full name"}},
                "required": ["name"],
            },
        },
    }
]


def chat_steps(turns):
    """(messages before, reply, start, end) of every model call, in chat-completions messages."""
    messages: list[Any] = [{"role": "system", "content": "You help."}]
    for turn in turns:
        messages.append({"role": "user", "content": turn.query})
        clock = turn.start
        for batch in turn.batches:
            reply = {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
                    }
                    for call in batch
                ],
            }
            yield list(messages), reply, batch[0].start - 2, batch[0].start - 1
            messages.append(reply)
            for call in batch:
                message = {"role": "tool", "tool_call_id": call.id, "content": text_output(call)}
                messages.append(message)
            clock = max(call.end for call in batch)
        reply = {"role": "assistant", "content": turn.answer}
        yield list(messages), reply, clock + 1, clock + 2
        messages.append(reply)


def openai_chat(turns, tools=TOOLS, run="7"):
    return [
        {
            "request": {"model": "m", "messages": before, "tools": tools},
            "response": {"id": "r", "choices": [{"index": 0, "message": reply}]},
        }
        for before, reply, _, _ in chat_steps(turns)
    ]


def openai_chat_bare(turns, tools=TOOLS, run="7"):
    before, reply, _, _ = list(chat_steps(turns))[-1]
    return [{"messages": [*before, reply], "tools": tools}]


def responses_items(turns):
    """(new input items, output items) of every request of a chain."""
    entered = []
    for turn in turns:
        entered.append({"role": "user", "content": [{"type": "input_text", "text": turn.query}]})
        for batch in turn.batches:
            output = [{"type": "reasoning", "id": "rs_1", "summary": []}]
            output += [
                {
                    "type": "function_call",
                    "id": f"fc_{call.id}",
                    "call_id": call.id,
                    "name": call.tool,
                    "arguments": json.dumps(call.arguments),
                }
                for call in batch
            ]
            yield entered, output
            entered = [
                {"type": "function_call_output", "call_id": call.id, "output": text_output(call)}
                for call in batch
            ]
        message = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": turn.answer}],
        }
        yield entered, [message]
        entered = []


def openai_responses_chained(turns, tools=(), run=""):
    records, former = [], None
    for index, (entered, output) in enumerate(responses_items(turns)):
        name = f"resp_{run or turns[0].query[:8]}_{index}"
        records.append(
            {
                "request": {"input": entered, "previous_response_id": former, "tools": list(tools)},
                "response": {"id": name, "output": output},
            }
        )
        former = name
    return records


def openai_responses_repeated(turns, tools=(), run=""):
    records: list[Any] = []
    history: list[Any] = []
    for entered, output in responses_items(turns):
        history = [*history, *entered]
        records.append({"request": {"input": history}, "response": {"output": output}})
        history = [*history, *output]
    return records


def anthropic(turns, tools=TOOLS, run="7"):
    messages: list[Any] = []
    records: list[Any] = []
    definitions = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in tools
    ]

    def request(content):
        body = {"system": "You help.", "messages": list(messages), "tools": definitions}
        response = {"type": "message", "role": "assistant", "content": content}
        records.append({"request": body, "response": response})
        messages.append({"role": "assistant", "content": content})

    for turn in turns:
        messages.append({"role": "user", "content": turn.query})
        for batch in turn.batches:
            request(
                [
                    {"type": "text", "text": "Let me see."},
                    *(
                        {
                            "type": "tool_use",
                            "id": call.id,
                            "name": call.tool,
                            "input": call.arguments,
                        }
                        for call in batch
                    ),
                ]
            )
            results = []
            for call in batch:
                result: dict[str, Any] = {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": [{"type": "text", "text": text_output(call)}],
                }
                if call.failed:
                    result["is_error"] = True
                results.append(result)
            messages.append({"role": "user", "content": results})
        request([{"type": "text", "text": turn.answer}])
    return records


def attributes(values):
    typed = []
    for key, value in values.items():
        if isinstance(value, bool):
            typed.append({"key": key, "value": {"boolValue": value}})
        elif isinstance(value, int):
            typed.append({"key": key, "value": {"intValue": str(value)}})
        elif isinstance(value, str):
            typed.append({"key": key, "value": {"stringValue": value}})
    return typed


def otlp_span(trace, span, parent, name, start, end, values, *, failed=False, events=()):
    record = {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": nano(start),
        "endTimeUnixNano": nano(end),
        "attributes": attributes(values),
        "events": list(events),
        "status": {"code": 2, "message": "boom"} if failed else {},
    }
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "x"}, "spans": [record]}]}]}


def parts_message(message):
    """A chat-completions message in the shape of gen_ai.input.messages."""
    if message["role"] == "tool":
        part = {
            "type": "tool_call_response",
            "id": message["tool_call_id"],
            "response": message["content"],
        }
        return {"role": "tool", "parts": [part]}
    parts = []
    if message.get("content"):
        parts.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        parts.append(
            {
                "type": "tool_call",
                "id": call["id"],
                "name": function["name"],
                "arguments": json.loads(function["arguments"]),
            }
        )
    return {"role": message["role"], "parts": parts}


def otel(turns, tools=TOOLS, run="4bf92f3577b34da6a3ce929d0e0e4736", *, executions=True):
    trace = run
    last = max((call.end for call in flat(turns)), default=0) + 20
    records = [
        otlp_span(
            trace, "root", "", "invoke_agent", 0, last, {"gen_ai.operation.name": "invoke_agent"}
        )
    ]
    for index, (before, reply, start, end) in enumerate(chat_steps(turns)):
        values = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": f"conversation-{run}",
            "gen_ai.input.messages": json.dumps([parts_message(m) for m in before]),
            "gen_ai.output.messages": json.dumps(
                [{**parts_message(reply), "finish_reason": "tool_calls"}]
            ),
            "gen_ai.tool.definitions": json.dumps(
                [{"type": "function", **tool["function"]} for tool in tools]
            ),
        }
        records.append(otlp_span(trace, f"m{index}", "root", "chat m", start, end, values))
    for call in flat(turns) if executions else ():
        values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.call.arguments": json.dumps(call.arguments),
            "gen_ai.tool.call.result": text_output(call),
        }
        name = f"execute_tool {call.tool}"
        span = otlp_span(
            trace, call.id, "root", name, call.start, call.end, values, failed=call.failed
        )
        records.append(span)
    return records


def flat_messages(prefix, messages):
    values = {}
    for index, message in enumerate(messages):
        base = f"{prefix}.{index}.message"
        values[f"{base}.role"] = message["role"]
        if message.get("content"):
            values[f"{base}.content"] = message["content"]
        if "tool_call_id" in message:
            values[f"{base}.tool_call_id"] = message["tool_call_id"]
        for number_, call in enumerate(message.get("tool_calls", ())):
            inner = f"{base}.tool_calls.{number_}.tool_call"
            values[f"{inner}.id"] = call["id"]
            values[f"{inner}.function.name"] = call["function"]["name"]
            values[f"{inner}.function.arguments"] = call["function"]["arguments"]
    return values


def openinference(turns, tools=TOOLS, run="bb" * 16, *, phoenix=False):
    trace = run
    last = max((call.end for call in flat(turns)), default=0) + 20
    spans = [
        (
            "root",
            "",
            "agent",
            0,
            last,
            {"openinference.span.kind": "AGENT", "session.id": f"s-{run}"},
            0,
        )
    ]
    for index, (before, reply, start, end) in enumerate(chat_steps(turns)):
        values = {
            "openinference.span.kind": "LLM",
            **flat_messages("llm.input_messages", before),
            **flat_messages("llm.output_messages", [reply]),
            **{
                f"llm.tools.{place}.tool.json_schema": json.dumps(tool)
                for place, tool in enumerate(tools)
            },
        }
        spans.append((f"m{index}", "root", "ChatCompletion", start, end, values, False))
    for call in flat(turns):
        values = {
            "openinference.span.kind": "TOOL",
            "tool.name": call.tool,
            "input.value": json.dumps(call.arguments),
            "input.mime_type": "application/json",
            "output.value": text_output(call),
        }
        spans.append((call.id, "root", call.tool, call.start, call.end, values, call.failed))
    if not phoenix:
        return [
            otlp_span(trace, span, parent, name, start, end, values, failed=bool(failed))
            for span, parent, name, start, end, values, failed in spans
        ]
    return [
        {
            "name": name,
            "context": {"trace_id": trace, "span_id": span},
            "parent_id": parent or None,
            "span_kind": values["openinference.span.kind"],
            "start_time": iso(start),
            "end_time": iso(end),
            "status_code": "ERROR" if failed else "OK",
            "attributes": values,
        }
        for span, parent, name, start, end, values, failed in spans
    ]


CLASSES = {
    "system": "SystemMessage",
    "user": "HumanMessage",
    "assistant": "AIMessage",
    "tool": "ToolMessage",
}


def langchain_message(message):
    """A message as LangChain dumps it."""
    kwargs = {"content": message.get("content") or ""}
    if message["role"] == "tool":
        kwargs["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_calls"):
        kwargs["tool_calls"] = [
            {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
                "id": call["id"],
                "type": "tool_call",
            }
            for call in message["tool_calls"]
        ]
    path = ["langchain", "schema", "messages", CLASSES[message["role"]]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


def langsmith(turns, tools=TOOLS, run="c0ffee00-0000-4000-8000-000000000001"):
    trace = run
    common = {"trace_id": trace, "session_id": "project", "error": None, "status": "success"}
    records = [
        {
            **common,
            "id": trace,
            "name": "AgentExecutor",
            "run_type": "chain",
            "parent_run_id": None,
            "start_time": iso(0),
            "end_time": iso(9999),
            "inputs": {"input": turns[0].query},
            "outputs": {"output": turns[-1].answer},
            "extra": {"metadata": {"thread_id": f"thread-{run}"}},
        }
    ]
    for index, (before, reply, start, end) in enumerate(chat_steps(turns)):
        records.append(
            {
                **common,
                "id": f"{trace}-m{index}",
                "name": "ChatOpenAI",
                "run_type": "llm",
                "parent_run_id": trace,
                "start_time": iso(start),
                "end_time": iso(end),
                "inputs": {"messages": [[langchain_message(m) for m in before]]},
                "outputs": {"generations": [[{"text": "", "message": langchain_message(reply)}]]},
                "extra": {"invocation_params": {"tools": tools}},
            }
        )
    for call in flat(turns):
        message = {"role": "tool", "content": text_output(call), "tool_call_id": call.id}
        records.append(
            {
                **common,
                "id": call.id,
                "name": call.tool,
                "run_type": "tool",
                "parent_run_id": trace,
                "start_time": iso(call.start),
                "end_time": iso(call.end),
                "inputs": {"input": str(call.arguments)},
                "outputs": {"output": langchain_message(message)},
                "error": "ToolException('boom')" if call.failed else None,
            }
        )
    return records


def langfuse(turns, tools=TOOLS, run="trace-7"):
    trace = run
    records = [
        {
            "id": f"{trace}-root",
            "traceId": trace,
            "type": "AGENT",
            "name": "agent",
            "startTime": iso(0),
            "endTime": iso(9999),
            "input": {"query": turns[0].query},
            "output": turns[-1].answer,
            "level": "DEFAULT",
            "sessionId": f"session-{run}",
        }
    ]
    for index, (before, reply, start, end) in enumerate(chat_steps(turns)):
        records.append(
            {
                "id": f"{trace}-m{index}",
                "traceId": trace,
                "parentObservationId": f"{trace}-root",
                "type": "GENERATION",
                "name": "chat",
                "startTime": iso(start),
                "endTime": iso(end),
                "input": {"messages": before, "tools": tools},
                "output": json.dumps(reply),
                "level": "DEFAULT",
            }
        )
    for call in flat(turns):
        records.append(
            {
                "id": call.id,
                "traceId": trace,
                "parentObservationId": f"{trace}-root",
                "type": "TOOL",
                "name": call.tool,
                "startTime": iso(call.start),
                "endTime": iso(call.end),
                "input": json.dumps(call.arguments),
                "output": call.output,
                "level": "ERROR" if call.failed else "DEFAULT",
            }
        )
    return records


def mcp(turns, tools=TOOLS, run="7"):
    records = []
    number_ = 1
    for turn in turns:
        for batch in turn.batches:
            for call in batch:
                call.rpc = number_
                number_ += 1
                records.append(
                    {
                        "timestamp": iso(call.start),
                        "session_id": f"s{run}",
                        "query": turn.query,
                        "message": {
                            "jsonrpc": "2.0",
                            "id": call.rpc,
                            "method": "tools/call",
                            "params": {"name": call.tool, "arguments": call.arguments},
                        },
                    }
                )
            for call in batch:
                result: dict[str, Any] = {"content": [{"type": "text", "text": text_output(call)}]}
                if call.failed:
                    result["isError"] = True
                records.append(
                    {
                        "timestamp": iso(call.end),
                        "session_id": f"s{run}",
                        "message": {"jsonrpc": "2.0", "id": call.rpc, "result": result},
                    }
                )
    return records


def claude_code(turns, tools=TOOLS, run="7"):
    lines: list[Any] = [{"type": "file-history-snapshot", "messageId": "m0"}]

    def add(kind, content, at, **more):
        number = len(lines)
        lines.append(
            {
                "parentUuid": f"{run}-{number - 1}" if number > 1 else None,
                "isSidechain": False,
                "sessionId": f"session-{run}",
                "type": kind,
                "message": {"role": kind, "content": content, **more},
                "uuid": f"{run}-{number}",
                "timestamp": iso(at),
            }
        )

    for turn in turns:
        clock = turn.start
        add("user", turn.query, clock)
        for b, batch in enumerate(turn.batches):
            for call in batch:  # one block of the answer a line
                block = {"type": "tool_use", "id": call.id, "name": call.tool}
                block["input"] = call.arguments
                add("assistant", [block], call.start, id=f"msg_{turn.start}_{b}")
            for call in batch:
                result = {"type": "tool_result", "tool_use_id": call.id}
                result["content"] = text_output(call)
                add("user", [{**result, "is_error": call.failed}], call.end)
            clock = max(call.end for call in batch)
        answer = [{"type": "text", "text": turn.answer}]
        add("assistant", answer, clock + 1, id=f"msg_{turn.start}")
    return lines


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
