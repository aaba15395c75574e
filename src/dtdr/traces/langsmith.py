"""LangSmith exports: runs, one a line, in a list, or as trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.errors import InputError
from dtdr.traces.base import decode_json
from dtdr.traces.spans import Span, SpanFormat, message_list, plain_output
from dtdr.traces.times import nanoseconds

_TEXT_KEYS = ("input", "question", "query", "text", "prompt")


class LangSmith(SpanFormat):
    """Runs with ``run_type``, ``inputs`` and ``outputs``; ``llm`` and ``tool`` runs matter.

    ``inputs`` and ``outputs`` may be objects or JSON texts, messages LangChain's own or a
    provider's. Runs without a start time are put in the order of ``dotted_order``.
    """

    name: ClassVar[str] = "langsmith"
    title: ClassVar[str] = "LangSmith runs (JSON lines, list, or run trees)"
    wrappers: ClassVar[Mapping[str, str]] = {"runs": "runs.item", "data": "data.item"}

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
        children = run.get("child_runs")
        for child in children if isinstance(children, list) else ():
            if isinstance(child, dict):
                yield from self._tree(child, span.id, trace)

    def _span(self, run: Mapping[str, Any], parent: str, trace: str) -> Span:
        start = nanoseconds(run.get("start_time")) or _read_dotted_order(run.get("dotted_order"))
        span = Span(
            trace,
            str(run.get("id", "")),
            str(run.get("parent_run_id") or parent),
            start=start,
            end=nanoseconds(run.get("end_time")),
            failed=bool(run.get("error")) or run.get("status") == "error",
        )
        inputs, outputs = decode_json(run.get("inputs")), decode_json(run.get("outputs"))
        extra = decode_json(run.get("extra"))
        extra = extra if isinstance(extra, dict) else {}
        span.group = _group(extra, run)
        kind = run["run_type"]
        if kind == "tool":
            span.kind = "tool"
            span.tool = str(run.get("name", ""))
            span.arguments = _arguments(inputs)
            span.call_id = _call_id(outputs, extra)
            span.output = _output(outputs)
        elif kind == "llm":
            span.kind = "llm"
            if isinstance(inputs, dict):
                span.inputs = message_list(inputs.get("messages", inputs.get("input")))
                self.tools.add(inputs.get("tools"))
                if isinstance(prompts := inputs.get("prompts"), list) and not span.inputs:
                    span.inputs = [{"role": "user", "content": text} for text in prompts[:1]]
            span.outputs = _replies(outputs)
            parameters = extra.get("invocation_params")
            if isinstance(parameters, dict):
                self.tools.add(parameters.get("tools") or parameters.get("functions"))
        elif isinstance(inputs, dict):
            span.inputs = message_list(inputs.get("messages"))
            texts = (inputs.get(key) for key in _TEXT_KEYS)
            span.text = next((text for text in texts if isinstance(text, str) and text), "")
        elif isinstance(inputs, str):
            span.text = inputs
        return span


def _read_dotted_order(value: object) -> int:
    """Start time out of ``20240501T120000000000Z<id>.20240501T120001000000Z<id>``."""
    if not isinstance(value, str):
        return 0
    moment = value.rsplit(".", 1)[-1].split("Z", 1)[0]
    if len(moment) < 15:
        return 0
    return nanoseconds(f"{moment[:15]}.{moment[15:] or '0'}+00:00")


def _group(extra: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    metadata = extra.get("metadata")
    for place in (metadata, run):
        if isinstance(place, dict):
            for key in ("thread_id", "conversation_id", "session_id"):
                # A run's own session_id is the project, which is not a conversation.
                if isinstance(place.get(key), str) and not (place is run and key == "session_id"):
                    return str(place[key])
    return ""


def _arguments(inputs: Any) -> Any:
    """Arguments; LangChain writes those of a tool as the text of a Python object."""
    if isinstance(inputs, dict) and inputs.keys() == {"input"}:
        inner = inputs["input"]
        value = decode_json(inner)
        if isinstance(value, str) and value[:1] == "{" and len(value) < 1_000_000:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return inputs
        return value if isinstance(value, dict) else inputs
    return inputs


def _output(outputs: Any) -> Any:
    if isinstance(outputs, dict) and outputs.keys() == {"output"}:
        outputs = decode_json(outputs["output"])
    return plain_output(outputs)


def _call_id(outputs: Any, extra: Mapping[str, Any]) -> str:
    output = outputs.get("output") if isinstance(outputs, dict) else None
    for place in (output, output.get("kwargs") if isinstance(output, dict) else None, extra):
        if isinstance(place, dict) and isinstance(place.get("tool_call_id"), str):
            return str(place["tool_call_id"])
    return ""


def _replies(outputs: Any) -> list[Any]:
    if not isinstance(outputs, dict):
        return message_list(outputs)
    generations = outputs.get("generations")
    if isinstance(generations, list):
        return [item["message"] for item in message_list(generations) if "message" in item][:1]
    choices = outputs.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return message_list(choices[0].get("message"))
    for key in ("messages", "message", "output"):
        if isinstance(outputs.get(key), (list, dict)):
            return message_list(outputs[key])
    return message_list(dict(outputs)) if "role" in outputs or "content" in outputs else []
