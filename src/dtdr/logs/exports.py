"""Exports of LangSmith (runs, also as trees) and Langfuse (observations, also in their traces)."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.times import nanoseconds
from dtdr.conversation.values import as_list, as_mapping, as_text, decode_json, first_of
from dtdr.errors import InputError
from dtdr.logs.log_format import run_failed
from dtdr.logs.spans import Span, SpanFormat, message_list, read_output, read_question, span_of


class LangSmith(SpanFormat):
    """Runs with ``run_type``, ``inputs`` and ``outputs``, which may be objects or JSON texts.

    Messages are LangChain's or a provider's.
    """

    name: ClassVar[str] = "langsmith"
    title: ClassVar[str] = "LangSmith runs (JSON lines, list, or run trees)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a ``run_type``."""
        return isinstance(record, dict) and isinstance(record.get("run_type"), str)

    def spans(self, record: Any) -> Iterator[Span]:
        """A run, and the runs below it; see ``SpanFormat.spans``."""
        if not self.recognizes(record):
            raise InputError("not a LangSmith run: it has no 'run_type'")
        yield from self._tree(record, "", str(record.get("trace_id") or record.get("id") or ""))

    def _tree(self, run: Mapping[str, Any], parent: str, trace: str) -> Iterator[Span]:
        span = self._span(run, parent, trace)
        yield span
        for child in as_list(run.get("child_runs")):
            if isinstance(child, dict):
                yield from self._tree(child, span.id, trace)

    def _span(self, run: Mapping[str, Any], parent: str, trace: str) -> Span:
        span = span_of(run)
        name, span.tool, span.kind = span.tool, "", run["run_type"]
        span.trace, span.parent = trace, span.parent or parent
        inputs, outputs = decode_json(run.get("inputs")), decode_json(run.get("outputs"))
        extra = as_mapping(run.get("extra"))
        if not span.parent:
            span.failed = span.failed or run_failed(run) or run_failed(extra)
        # A run's own session_id is the project, which is not a conversation.
        keys = ("thread_id", "conversation_id")
        group = first_of(extra.get("metadata"), *keys, "session_id") or first_of(run, *keys)
        span.group = as_text(group)
        if span.kind == "tool":
            span.tool = name
            span.arguments = _arguments(inputs)
            span.call_id = _call_id(outputs, extra)
            is_wrapped = isinstance(outputs, dict) and outputs.keys() == {"output"}
            read_output(span, outputs["output"] if is_wrapped else outputs)
        elif span.kind == "llm":
            span.inputs = message_list(first_of(inputs, "messages", "input"))
            prompts = [] if span.inputs else as_list(first_of(inputs, "prompts"))
            span.inputs += [{"role": "user", "content": text} for text in prompts[:1]]
            span.outputs = _replies(outputs)
            listed = first_of(extra.get("invocation_params"), "tools", "functions")
            span.offered = self.tools.add(first_of(inputs, "tools")) + self.tools.add(listed)
        else:
            span.kind = ""
            read_question(span, inputs)
        return span


def _arguments(inputs: Any) -> Any:
    """Arguments; LangChain writes those of a tool as the text of a Python object."""
    if not isinstance(inputs, dict) or inputs.keys() != {"input"}:
        return inputs
    value = decode_json(inputs["input"])
    if isinstance(value, str) and value[:1] == "{" and len(value) < 1_000_000:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(value)
    return value if isinstance(value, dict) else inputs


def _call_id(outputs: Any, extra: Mapping[str, Any]) -> str:
    output = first_of(outputs, "output")
    parts = (output, first_of(output, "kwargs"), extra)
    names = (as_text(first_of(part, "tool_call_id")) for part in parts)
    return next(filter(None, names), "")


def _replies(outputs: Any) -> list[Any]:
    if not isinstance(outputs, dict):
        return message_list(outputs)
    if isinstance(generations := outputs.get("generations"), list):
        return [item["message"] for item in message_list(generations) if "message" in item][:1]
    if choices := as_list(outputs.get("choices")):
        return message_list(first_of(choices[0], "message"))
    for key in ("messages", "message", "output"):
        if isinstance(outputs.get(key), (list, dict)):
            return message_list(outputs[key])
    return message_list(dict(outputs)) if "role" in outputs or "content" in outputs else []


class Langfuse(SpanFormat):
    """Observations: ``GENERATION`` with its messages, ``TOOL`` with its arguments and result.

    Keys may be written ``traceId`` (API, export from the UI) or ``trace_id`` (export to blob
    storage). A ``SPAN`` with the name of a tool that a generation asked for counts as that tool,
    since tools had no type before 2025.
    """

    name: ClassVar[str] = "langfuse"
    title: ClassVar[str] = "Langfuse observations or traces (export or API)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an observation, or has a list of them."""
        is_one = bool(first_of(record, "traceId", "trace_id")) and "type" in record
        return is_one or isinstance(first_of(record, "observations"), list)

    def spans(self, record: Any) -> Iterator[Span]:
        """An observation, or those of a trace; see ``SpanFormat.spans``."""
        if not isinstance(record, dict):
            raise InputError("an observation must be a JSON object")
        observations = record.get("observations")
        if isinstance(observations, list):
            trace = as_mapping(record.get("trace")) or record
            identifier = str(trace.get("id") or "")
            top = Span(identifier, f"trace:{identifier}", failed=run_failed(trace))
            top.group = str(trace.get("sessionId") or "")
            top.start = nanoseconds(trace.get("timestamp"))
            read_question(top, trace.get("input"))
            yield top
            for item in observations:
                if isinstance(item, dict):
                    span = self._span(item, identifier)
                    span.parent = span.parent or top.id
                    yield span
        elif first_of(record, "traceId", "trace_id") and "type" in record:
            yield self._span(record, "")
        else:
            raise InputError("not a Langfuse observation: it lacks 'traceId' or 'type'")

    def _span(self, item: Mapping[str, Any], trace: str) -> Span:
        kind = str(item.get("type", "")).upper()
        span = span_of(item)
        name, span.tool, span.kind = span.tool, "", ""
        span.trace = trace or span.trace
        span.group = str(first_of(item, "sessionId", "session_id") or "")
        entered, left = decode_json(item.get("input")), decode_json(item.get("output"))
        if kind == "GENERATION":
            span.kind = "llm"
            if isinstance(entered, dict) and "messages" in entered:
                span.offered += self.tools.add(entered.get("tools"))
                entered = entered["messages"]
            if isinstance(entered, str):
                entered = [{"role": "user", "content": entered}]
            span.inputs = message_list(entered)
            # Some integrations write tool definitions among the messages, as role "tool".
            definitions = [i for i in span.inputs if _is_definition(i)]
            span.offered += self.tools.add([item["content"] for item in definitions])
            span.inputs = [i for i in span.inputs if i not in definitions]
            span.outputs = message_list(left)
            return span
        if kind == "EVENT":
            return span
        span.tool = name
        read_output(span, left)
        metadata = as_mapping(item.get("metadata"))
        span.call_id = as_text(first_of(metadata, "tool_call_id") or first_of(left, "tool_call_id"))
        if kind == "TOOL":
            span.kind = "tool"
        else:
            span.kind = "agent" if kind == "AGENT" and span.tool else ""
            read_question(span, entered)
        span.arguments = entered
        return span


def _is_definition(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") != "tool":
        return False
    content = message.get("content")
    return isinstance(content, dict) and content.get("type") == "function"
