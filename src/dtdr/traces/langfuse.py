"""Langfuse exports: observations, one a line or in a list, or traces with their observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr import json_codec
from dtdr.errors import InputError
from dtdr.traces.base import Trace, decode_json
from dtdr.traces.messages import ToolCallRequest, items_of
from dtdr.traces.spans import Span, SpanFormat, message_list, plain_output
from dtdr.traces.times import nanoseconds


class Langfuse(SpanFormat):
    """Observations: ``GENERATION`` with its messages, ``TOOL`` with its arguments and result.

    Keys may be written ``traceId`` (API, export from the UI) or ``trace_id`` (export to blob
    storage). A ``SPAN`` that is named as a tool which a generation of the trace asked for counts as
    that tool, since tools had no type of their own before 2025.
    """

    name: ClassVar[str] = "langfuse"
    title: ClassVar[str] = "Langfuse observations or traces (export or API)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an observation, or holds a list of them."""
        if not isinstance(record, dict):
            return False
        is_one = bool(_get(record, "traceId", "trace_id")) and "type" in record
        return is_one or isinstance(record.get("observations"), list)

    def spans(self, record: Any) -> Iterator[Span]:
        """An observation, or those of a trace; see ``SpanFormat.spans``."""
        if not isinstance(record, dict):
            raise InputError("an observation must be a JSON object")
        observations = record.get("observations")
        if isinstance(observations, list):
            inner = record.get("trace")
            trace = inner if isinstance(inner, dict) else record
            identifier = str(trace.get("id") or "")
            group = str(trace.get("sessionId") or "")
            top = Span(identifier, f"trace:{identifier}", group=group)
            _read_question(top, decode_json(trace.get("input")))
            top.start = nanoseconds(trace.get("timestamp"))
            yield top
            for item in observations:
                if isinstance(item, dict):
                    span = self._span(item, identifier)
                    span.parent = span.parent or top.id
                    yield span
        elif _get(record, "traceId", "trace_id") and "type" in record:
            yield self._span(record, "")
        else:
            raise InputError("not a Langfuse observation: it lacks 'traceId' or 'type'")

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The trace that a group of observations tells; see ``SpanFormat.traces``."""
        spans = [Span(*json_codec.loads(payload)) for payload in payloads]
        if not any(span.kind == "tool" for span in spans):
            asked = {
                item.tool
                for span in spans
                for message in span.outputs
                for item in items_of(message)
                if isinstance(item, ToolCallRequest)
            }
            for span in spans:
                if span.kind == "" and span.tool in asked:
                    span.kind = "tool"
        yield from super().traces([span.pack() for span in spans], key)

    def _span(self, item: Mapping[str, Any], trace: str) -> Span:
        kind = str(item.get("type", "")).upper()
        span = Span(
            trace or str(_get(item, "traceId", "trace_id") or ""),
            str(item.get("id", "")),
            str(_get(item, "parentObservationId", "parent_observation_id") or ""),
            start=nanoseconds(_get(item, "startTime", "start_time")),
            end=nanoseconds(_get(item, "endTime", "end_time")),
            failed=str(item.get("level", "")).upper() == "ERROR",
            group=str(_get(item, "sessionId", "session_id") or ""),
        )
        entered, left = decode_json(item.get("input")), decode_json(item.get("output"))
        if kind == "GENERATION":
            span.kind = "llm"
            if isinstance(entered, dict) and "messages" in entered:
                self.tools.add(entered.get("tools"))
                entered = entered["messages"]
            if isinstance(entered, str):
                entered = [{"role": "user", "content": entered}]
            span.inputs = message_list(entered)
            # Some integrations write tool definitions among the messages, as role "tool".
            self.tools.add([i["content"] for i in span.inputs if _is_definition(i)])
            span.inputs = [i for i in span.inputs if not _is_definition(i)]
            span.outputs = message_list(left)
            return span
        if kind == "EVENT":
            return span
        span.tool = str(item.get("name") or "")
        span.output = plain_output(left)
        metadata = decode_json(item.get("metadata"))
        if isinstance(metadata, dict) and isinstance(metadata.get("tool_call_id"), str):
            span.call_id = metadata["tool_call_id"]
        elif isinstance(left, dict) and isinstance(left.get("tool_call_id"), str):
            span.call_id = left["tool_call_id"]
        if kind == "TOOL":
            span.kind = "tool"
        else:
            span.kind = "agent" if kind == "AGENT" and span.tool else ""
            _read_question(span, entered)
        span.arguments = entered
        return span


def _read_question(span: Span, value: Any) -> None:
    """What an agent, chain or trace was asked: a text, messages, or an object around them."""
    if isinstance(value, dict):
        span.inputs = message_list(value.get("messages"))
        texts = (value.get(key) for key in ("input", "question", "query", "prompt", "text"))
        span.text = next((text for text in texts if isinstance(text, str) and text), "")
    elif isinstance(value, list):
        span.inputs = value
    elif isinstance(value, str):
        span.text = value


def _is_definition(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") != "tool":
        return False
    content = message.get("content")
    return isinstance(content, dict) and content.get("type") == "function"


def _get(item: Mapping[str, Any], *keys: str) -> Any:
    return next((item[key] for key in keys if item.get(key) is not None), None)
