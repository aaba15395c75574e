"""Sessions of coding agents: Gemini CLI, Qwen Code, opencode, Copilot CLI and Cursor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.times import find_time
from dtdr.conversation.values import as_mapping, as_text, each_object, first_of
from dtdr.logs.envelopes import NO_QUERY, Envelope, Talk, call_message, result_message
from dtdr.logs.log_format import LogFormat

_FAILED = ("error", "failed", "cancelled", "rejected")


class GeminiCLI(Envelope):
    """Gemini CLI: ``~/.gemini/tmp/*/chats/session-*.json`` or ``.jsonl``, or ``stream-json``."""

    name: ClassVar[str] = "gemini-cli"
    title: ClassVar[str] = "Gemini CLI sessions"
    spans_files: ClassVar[str] = "a session may repeat turns of another file"
    whole_keys: ClassVar[tuple[str, ...] | None] = ("messages",)

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a session, its header, a message of the model, or an event of a stream."""
        if not isinstance(record, dict):
            return False
        if "projectHash" in record and "sessionId" in record:
            return True
        is_call = record.get("type") == "tool_use" and "tool_id" in record
        return (record.get("type") == "gemini" and "content" in record) or is_call

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The session, without what was taken back."""
        head = next((r for r in records if "projectHash" in r), records[0])
        identifier = as_text(first_of(head, "sessionId", "session_id"))
        messages: dict[str, Any] = {}
        for position, record in enumerate(records):
            listed = record.get("messages", as_mapping(record.get("$set")).get("messages"))
            if isinstance(listed, list):
                messages = {str(n): item for n, item in enumerate(listed)}
            elif (back := record.get("$rewindTo")) is not None:
                kept = list(messages)
                messages = (
                    {k: messages[k] for k in kept[: kept.index(back)]} if back in kept else messages
                )
            elif "type" in record and "$set" not in record:
                messages[str(record.get("id") or position)] = record
        stream = any(r.get("type") in ("tool_use", "init") for r in records)
        said = [m for m in messages.values() if stream or m.get("type") in ("user", "gemini")]
        self.ignored += Counter({"note of the program": len(messages) - len(said)})
        read = map(_of_stream, said) if stream else said
        # A session that goes on may be written to another file.
        yield Talk(read, "", identifier, at=find_time(head), replays=bool(identifier))


def _of_stream(event: Mapping[str, Any]) -> Any:
    """An event of ``--output-format stream-json`` as a message."""
    kind, identifier = event.get("type"), as_text(event.get("tool_id"))
    if kind == "tool_use":
        return call_message(
            [(identifier, as_text(event.get("tool_name")), event.get("parameters"))]
        )
    if kind == "tool_result":
        output = first_of(event, "output") or first_of(event.get("error"), "message")
        return result_message(identifier, output, failed=event.get("status") in _FAILED)
    return event if kind == "message" else None


class QwenCode(Envelope):
    """Qwen Code: ``~/.qwen/projects/*/chats/*.jsonl``, one message of Gemini's form a line."""

    name: ClassVar[str] = "qwen-code"
    title: ClassVar[str] = "Qwen Code sessions"
    spans_files: ClassVar[str] = LogFormat.spans_files
    whole_keys: ClassVar[tuple[str, ...] | None] = ()

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a message with parts."""
        has_parts = isinstance(first_of(first_of(record, "message"), "parts"), list)
        return has_parts and isinstance(record.get("sessionId"), str)

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The session; lines without a message are skipped."""
        if not isinstance(record.get("message"), dict):
            self.ignored[f"line of the type {record.get('type')!r}"] += 1
            return ""
        return as_text(record.get("sessionId")) or str(origin[0])

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The session, each line once."""
        lines = {str(r.get("uuid") or n): r for n, r in enumerate(records)}
        session = as_text(records[0].get("sessionId"))
        yield Talk(map(self._message, lines.values()), session, session)

    def _message(self, line: Mapping[str, Any]) -> dict[str, Any]:
        message = {**line["message"], "timestamp": line.get("timestamp")}
        if as_mapping(line.get("toolCallResult")).get("status") not in _FAILED:
            return message
        parts = [
            {"functionResponse": {**part["functionResponse"], "status": "error"}}
            if isinstance(part.get("functionResponse"), dict)
            else part
            for part in each_object(message.get("parts"))
        ]
        return {**message, "parts": parts}


class OpenCode(Envelope):
    """opencode: ``opencode export``, the files of its storage folder, or ``run --format json``."""

    name: ClassVar[str] = "opencode"
    title: ClassVar[str] = "opencode sessions (export, storage folder or run --format json)"
    spans_files: ClassVar[str] = LogFormat.spans_files
    whole_keys: ClassVar[tuple[str, ...] | None] = ("messages",)

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an export, or a session, message, part or event with opencode's ids."""
        if not isinstance(record, dict):
            return False
        if isinstance(record.get("info"), dict) and isinstance(record.get("messages"), list):
            return any(
                "info" in item and "parts" in item for item in each_object(record["messages"])
            )
        if isinstance(record.get("part"), dict):
            return "sessionID" in record
        is_session = "projectID" in record and "directory" in record and "time" in record
        return is_session or ("sessionID" in record and ("messageID" in record or "role" in record))

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The session."""
        return as_text(first_of(record, "sessionID", "id"))

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The session, with its parts in the messages that they belong to."""
        head = as_mapping(records[0].get("info")) or next(
            (r for r in records if "projectID" in r and "role" not in r), records[0]
        )
        listed = records[0].get("messages")
        messages = listed if isinstance(listed, list) else self._join(records)
        identifier = as_text(first_of(head, "id")) if "sessionID" not in head else head["sessionID"]
        group = as_text(head.get("parentID")) or identifier
        at = find_time({"created": first_of(head.get("time"), "created")})
        is_run = not any(item["info"].get("role") == "user" for item in messages if "info" in item)
        yield Talk(
            (item for item in messages if first_of(item.get("info"), "agent") != "compaction"),
            identifier, group, at=at, default_query=NO_QUERY if is_run else "",
        )  # fmt: skip

    def _join(self, records: list[Any]) -> list[dict[str, Any]]:
        messages: dict[str, dict[str, Any]] = {}
        parts: dict[str, dict[str, Any]] = {}
        for record in records:
            part = record.get("part", record)
            if "messageID" in part:
                parts[as_text(part.get("id")) or str(len(parts))] = part
            elif "role" in record:
                messages[as_text(record.get("id"))] = {"info": record, "parts": []}
        for part in parts.values():
            whole = messages.setdefault(
                as_text(part["messageID"]), {"info": {"role": "assistant"}, "parts": []}
            )
            whole["parts"].append(part)

        def created(name: str) -> tuple[float, str]:
            time = first_of(messages[name]["info"].get("time"), "created")
            return time if isinstance(time, (int, float)) else 0, name

        return [messages[name] for name in sorted(messages, key=created)]


class CopilotCLI(Envelope):
    """Copilot CLI: ``~/.copilot/session-state/*/events.jsonl``, one event a line."""

    name: ClassVar[str] = "copilot-cli"
    title: ClassVar[str] = "Copilot CLI sessions (events.jsonl)"
    whole_keys: ClassVar[tuple[str, ...] | None] = ()

    _READ = ("user.message", "assistant.message", "tool.execution_start", "tool.execution_complete")

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an event of a session."""
        kind = as_text(first_of(record, "type"))
        starts = ("session.", "user.message", "assistant.", "tool.execution")
        return kind.startswith(starts) and isinstance(record.get("data"), dict)

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The file; events that say nothing of messages and calls are skipped."""
        kind = record.get("type")
        if kind != "session.start" and kind not in self._READ:
            self.ignored[f"event {kind!r}"] += 1
            return ""
        return str(origin[0])

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The session, without what ran inside a sub-agent."""
        session, at = "", 0
        messages: list[dict[str, Any]] = []
        known: set[str] = set()
        for record in records:
            kind, data = record["type"], as_mapping(record.get("data"))
            call = as_text(data.get("toolCallId"))
            if kind == "session.start":
                session, at = as_text(data.get("sessionId")), find_time(record)
            elif data.get("parentToolCallId"):
                self.ignored["event of a sub-agent"] += 1
            elif kind == "user.message":
                time = record.get("timestamp")
                messages.append({"role": "user", "content": data.get("content"), "timestamp": time})
            elif kind == "assistant.message":
                asked = list(each_object(data.get("toolRequests")))
                known.update(as_text(item.get("toolCallId")) for item in asked)
                messages.append({**data, "role": "assistant", "toolRequests": asked})
            elif kind == "tool.execution_start" and call not in known:
                known.add(call)
                tool = as_text(first_of(data, "toolName", "name"))
                messages.append(call_message([(call, tool, data.get("arguments"))]))
            elif kind == "tool.execution_complete":
                output = first_of(data.get("result"), "content") or first_of(
                    data.get("error"), "message"
                )
                failed = data.get("success") is False
                messages.append(result_message(call, output, failed=failed))
        yield Talk(messages, session, session, at=at)


class Cursor(Envelope):
    """Cursor: agents' transcripts, ``cursor-agent --output-format stream-json``, or an export.

    An export is a composer's object with its bubbles, in which ``toolFormerData`` is a call.
    """

    name: ClassVar[str] = "cursor"
    title: ClassVar[str] = "Cursor transcripts, stream-json or composer exports"
    spans_files: ClassVar[str] = LogFormat.spans_files

    @staticmethod
    def whole(record: Any) -> bool:
        """Whether a record is a whole conversation."""
        return bool(_bubbles(record))

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a line of a transcript or stream, or has bubbles."""
        if not isinstance(record, dict):
            return False
        if record.get("type") == "tool_call" and isinstance(record.get("tool_call"), dict):
            return "call_id" in record
        is_line = "role" in record and record.keys() <= {"role", "message", "timestamp"}
        has_content = first_of(record.get("message"), "content") is not None
        return (is_line and has_content) or bool(_bubbles(record))

    def key(self, record: Any, origin: tuple[int, int]) -> str:
        """The file, or the session of a stream."""
        return as_text(record.get("session_id")) or str(origin[0])

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The conversation."""
        first = records[0]
        name = as_text(first_of(first, "composerId", "tabId", "session_id"))
        bubbles = _bubbles(first)
        messages = map(_bubble, bubbles) if bubbles else map(self._line, records)
        yield Talk(messages, name, name, at=find_time(first))

    def _line(self, record: Mapping[str, Any]) -> Any:
        kind = record.get("type")
        if kind not in ("tool_call", "user", "assistant", None):
            self.ignored[f"line of the type {kind!r}"] += 1
            return None
        if kind != "tool_call":
            return record
        tool, inner = next(iter(as_mapping(record.get("tool_call")).items()), ("", {}))
        inner = as_mapping(inner)
        arguments = first_of(inner, "args", "arguments")
        name = as_text(first_of(inner, "name") or first_of(arguments, "toolName"))
        name = name or tool.removesuffix("ToolCall")
        arguments = as_mapping(first_of(arguments, "args")) if tool == "mcpToolCall" else arguments
        identifier = as_text(record.get("call_id"))
        if record.get("subtype") == "started":
            return call_message([(identifier, name, arguments)])
        outcome, output = next(iter(as_mapping(inner.get("result")).items()), ("success", None))
        return result_message(identifier, output, failed=outcome != "success")


def _bubbles(record: Any) -> list[Any]:
    listed = first_of(record, "bubbles", "conversation")
    return [b for b in each_object(listed) if b.get("type") in (1, 2, "user", "ai", "assistant")]


def _bubble(bubble: Mapping[str, Any]) -> dict[str, Any]:
    """A bubble as a message; a call's result is in the same bubble."""
    text = as_text(first_of(bubble, "text", "rawText"))
    if bubble.get("type") in (1, "user"):
        return {"role": "user", "content": text}
    call = bubble.get("toolFormerData")
    if not isinstance(call, dict) or not call.get("name"):
        return {"role": "assistant", "content": text}
    part = {
        "type": "dynamic-tool",
        "toolName": call["name"],
        "toolCallId": as_text(first_of(call, "toolCallId")),
        "input": first_of(call, "rawArgs", "params"),
        "output": call.get("result"),
        "state": "output-error" if call.get("status") in _FAILED else "output-available",
    }
    return {"role": "assistant", "content": [text, part] if text else [part]}
