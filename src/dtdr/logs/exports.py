"""Exports of observability: LangSmith, Langfuse, OpenAI Agents' own spans, and W&B Weave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.exchanges import (
    asked_messages,
    is_message,
    message_list,
    offered_tools,
    replied_messages,
)
from dtdr.conversation.times import nanoseconds
from dtdr.conversation.values import (
    as_list,
    as_mapping,
    as_text,
    decode_json,
    decode_value,
    each_object,
    first_of,
)
from dtdr.errors import InputError
from dtdr.logs.conventions import (
    flatten,
    kind_of,
    open_arguments,
    read_agent,
    read_attributes,
    read_output,
    read_question,
    read_tool,
)
from dtdr.logs.log_format import run_failed
from dtdr.logs.spans import Span, SpanFormat, span_of


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
        top = as_text(record.get("dotted_order")).partition(".")[0].partition("Z")[2]
        trace = first_of(record, "trace_id", "session_trace_id") or top or span_of(record).id
        yield from self._tree(record, "", str(trace or ""))

    def _tree(self, run: Mapping[str, Any], parent: str, trace: str) -> Iterator[Span]:
        span = self._span(run, parent, trace)
        yield span
        for child in each_object(run.get("child_runs")):
            yield from self._tree(child, span.id, trace)

    def _span(self, run: Mapping[str, Any], parent: str, trace: str) -> Span:
        span = span_of(run)
        name, span.tool, span.kind = span.tool, "", str(run.get("run_type"))
        span.kind = "llm" if span.kind == "chat_model" else span.kind
        span.trace, span.parent = trace, span.parent or parent
        inputs, outputs = decode_value(run.get("inputs")), decode_value(run.get("outputs"))
        extra = as_mapping(run.get("extra"))
        if not span.parent:
            span.failed = span.failed or run_failed(run) or run_failed(extra)
        # A run's own session_id is the project, which is not a conversation.
        keys = ("thread_id", "conversation_id")
        group = first_of(extra.get("metadata"), *keys, "session_id") or first_of(run, *keys)
        span.group = as_text(group)
        if span.kind == "tool":
            span.tool = name
            span.arguments = open_arguments(inputs)
            span.call_id = _call_id(outputs, extra)
            is_wrapped = isinstance(outputs, dict) and outputs.keys() == {"output"}
            read_output(span, outputs["output"] if is_wrapped else outputs)
        elif span.kind == "llm":
            span.inputs = asked_messages(inputs)
            span.outputs = replied_messages(outputs)
            listed = first_of(extra.get("invocation_params"), "tools", "functions")
            span.offered = self.tools.add(offered_tools(inputs)) + self.tools.add(listed)
        else:
            span.kind = ""
            read_question(span, inputs)
        return span


def _call_id(outputs: Any, extra: Mapping[str, Any]) -> str:
    output = first_of(outputs, "output")
    parts = (output, first_of(output, "kwargs"), extra)
    names = (as_text(first_of(part, "tool_call_id")) for part in parts)
    return next(filter(None, names), "")


class Langfuse(SpanFormat):
    """Observations: ``GENERATION`` with its messages, ``TOOL`` with its arguments and result.

    Keys may be written ``traceId`` (API, export from the UI) or ``trace_id`` (export to blob
    storage). What came in over OpenTelemetry has its attributes in ``metadata``: they name the tool
    and its call, and may say that a ``SPAN`` is a tool. So does its name, if a model asked for it.
    """

    name: ClassVar[str] = "langfuse"
    title: ClassVar[str] = "Langfuse observations or traces (export or API)"
    _TYPES: ClassVar[dict[str, str]] = {"GENERATION": "llm", "TOOL": "tool", "AGENT": "agent"}

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
            for item in each_object(observations):
                span = self._span(item, identifier)
                span.parent = span.parent or top.id
                yield span
        elif first_of(record, "traceId", "trace_id") and "type" in record:
            yield self._span(record, "")
        else:
            raise InputError("not a Langfuse observation: it lacks 'traceId' or 'type'")

    def _span(self, item: Mapping[str, Any], trace: str) -> Span:
        span = span_of(item)
        span.trace = trace or span.trace
        span.group = str(first_of(item, "sessionId", "session_id") or "")
        metadata = as_mapping(item.get("metadata"))
        attributes = flatten(as_mapping(metadata.get("attributes")))
        entered, left = decode_value(item.get("input")), decode_value(item.get("output"))
        kind = str(item.get("type", "")).upper()
        if kind == "EVENT":
            span.tool = span.kind = ""
            return span
        span.kind = self._TYPES.get(kind) or kind_of(attributes)
        if span.kind == "llm":
            self._read_model(span, attributes, metadata, entered, left)
            return span
        span.call_id = as_text(first_of(metadata, "tool_call_id") or first_of(left, "tool_call_id"))
        span.offered += self.tools.add(decode_value(attributes.get("gen_ai.tool.definitions")))
        if span.kind == "tool":
            read_tool(span, attributes, entered, left)
            return span
        span.arguments = open_arguments(entered)  # a model may have asked for it by its name
        read_output(span, left)
        read_agent(span, attributes, entered)
        return span

    def _read_model(
        self, span: Span, attributes: Any, metadata: Any, entered: Any, left: Any
    ) -> None:
        """Read what a model was asked and replied; attributes before what Langfuse made of them."""
        read_attributes(span, attributes, self.tools)
        span.kind, span.tool = "llm", ""
        for source in (entered, {"tools": as_list(metadata.get("tools"))}):
            span.offered += self.tools.add(offered_tools(source))
        listed = message_list(entered) if isinstance(entered, list) else ()
        # Some integrations write tool definitions among the messages, as role "tool".
        definitions = [i for i in listed if _is_definition(i)]
        span.offered += self.tools.add([item["content"] for item in definitions])
        asked = [i for i in asked_messages(entered) if i not in definitions]
        replied = replied_messages(left)
        if any(isinstance(i, dict) and is_message(i) for i in asked) or not span.inputs:
            span.inputs = asked
        span.outputs = replied or span.outputs


def _is_definition(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("role") != "tool":
        return False
    content = message.get("content")
    return isinstance(content, dict) and content.get("type") == "function"


class OpenAIAgents(SpanFormat):
    """Spans that the OpenAI Agents SDK exports: ``{"object": "trace.span", "span_data": …}``."""

    name: ClassVar[str] = "openai-agents"
    title: ClassVar[str] = "OpenAI Agents SDK traces (trace.span)"
    _KINDS: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("generation", "response"), "llm"),
        **dict.fromkeys(("function", "handoff"), "tool"),
        "agent": "agent",
    }

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a span of the SDK."""
        return isinstance(first_of(record, "span_data"), dict) and "trace_id" in record

    def spans(self, record: Any) -> Iterator[Span]:
        """A span; the record of a trace has none, and gives its group."""
        if not isinstance(record, dict):
            raise InputError("a span must be a JSON object")
        if record.get("object") == "trace":
            identifier = str(first_of(record, "id", "trace_id") or "")
            yield Span(identifier, f"trace:{identifier}", group=as_text(record.get("group_id")))
            return
        if not self.recognizes(record):
            raise InputError("not a span of OpenAI Agents: it has no 'span_data'")
        span, data = span_of(record), record["span_data"]
        kind = data.get("type")
        span.kind, span.tool = self._KINDS.get(str(kind), ""), as_text(data.get("name"))
        if span.kind == "llm":
            response = data.get("response")
            span.inputs = asked_messages(first_of(data, "input"))
            span.outputs = replied_messages(first_of(data, "output") or response)
            span.offered = self.tools.add(offered_tools(response))
        elif kind == "handoff":
            span.tool = f"agent:{data.get('to_agent')}"
        elif span.kind == "tool":
            span.arguments = open_arguments(data.get("input"))
            read_output(span, data.get("output"))
        yield span


class Weave(SpanFormat):
    """Calls of W&B Weave, as its API and exports give them: ``op_name``, ``inputs``, ``output``."""

    name: ClassVar[str] = "weave"
    title: ClassVar[str] = "W&B Weave calls"
    _MODELS = ("completions", "messages", "responses", "generate_content", "acompletion")

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a call of an op in a trace."""
        return isinstance(first_of(record, "op_name"), str) and "trace_id" in record

    def spans(self, record: Any) -> Iterator[Span]:
        """A call as a span; see ``SpanFormat.spans``."""
        if not self.recognizes(record):
            raise InputError("not a call of Weave: it has no 'op_name' or 'trace_id'")
        span = span_of(record)
        op = record["op_name"].rpartition("/op/")[2].rpartition(":")[0] or record["op_name"]
        span.failed = span.failed or bool(record.get("exception"))
        inputs = {k: v for k, v in as_mapping(record.get("inputs")).items() if k != "self"}
        kind = as_text(first_of(as_mapping(record.get("attributes")), "kind", "type"))
        span.kind = kind_of({"langfuse.observation.type": kind})
        span.tool = op.rpartition(".")[2] if span.kind == "tool" else op
        is_model = not span.kind and any(name in op.lower().split(".") for name in self._MODELS)
        if span.kind == "llm" or is_model:
            span.kind, span.tool = "llm", ""
            span.inputs = asked_messages(inputs)
            span.outputs = replied_messages(record.get("output"))
            span.offered = self.tools.add(offered_tools(inputs))
            return iter([span])
        span.arguments = inputs
        read_output(span, decode_json(record.get("output")))
        if span.kind != "tool":
            read_question(span, inputs)
        return iter([span])
