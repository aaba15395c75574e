"""Formats whose records are whole runs: demonstrations, agent trajectories, benchmark run files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr import json_codec
from dtdr.demonstrations import Demonstration, parse_demonstration
from dtdr.errors import InputError
from dtdr.traces.base import AssistantMessage, Trace, TracedCall, TraceFormat, UserMessage, nest
from dtdr.traces.messages import (
    Item,
    SystemMessage,
    ToolCallRequest,
    ToolResult,
    conversation,
    looks_failed,
    output_of,
    read_conversation,
    text_of,
)
from dtdr.traces.times import find_time


class RecordFormat(TraceFormat):
    """One run a record: nothing has to be held until others come."""

    @abstractmethod
    def trace(self, record: Any) -> Trace:
        """The run that a record tells.

        Raises:
            InputError: it is not a record of this format.
        """

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """Check a record and pass it on at once; see ``TraceFormat.add``."""
        if not self.recognizes(record):
            raise InputError(f"not a record of {self.title}")
        key = f"{place[0]}/{place[1]}"
        self.window.put(key, [raw], place)
        self.window.finish(key)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The run of a record."""
        yield self.trace(json_codec.loads(payloads[0]))


class Canonical(RecordFormat):
    """The project's own ``demonstrations.jsonl``: to scrub it, to check it, or to join several.

    References, links, steps and outcome are taken as they stand.
    """

    name: ClassVar[str] = "dtdr"
    title: ClassVar[str] = "demonstrations.jsonl, the canonical format"

    def decode(self, line: bytes) -> Any:
        """The demonstration of a line, or the JSON value of one that is none."""
        try:
            return parse_demonstration(line)
        except (InputError, RecursionError):
            return super().decode(line)

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a query and calls."""
        is_object = isinstance(record, dict) and "query" in record and "calls" in record
        return is_object or isinstance(record, Demonstration)

    def add(self, record: Any, raw: bytes, place: tuple[int, int]) -> None:
        """Check a demonstration and pass it on at once; see ``TraceFormat.add``."""
        self.trace(record)
        super().add(record, raw, place)

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The demonstration of a line."""
        yield self.trace(self.decode(payloads[0]))

    def trace(self, record: Any) -> Trace:
        """The demonstration of a record."""
        is_read = isinstance(record, Demonstration)
        demonstration = record if is_read else Demonstration.from_dict(record)
        return Trace(demonstration.id, [], demonstration=demonstration)


class AgentTrajectory(RecordFormat):
    """ATIF, the trajectory format of Harbor and Terminal-Bench: ``{"steps": [{"source", ...}]}``.

    A step of the agent may hold calls (``tool_calls``) and their results (``observation``). A
    result may refer to the trajectory of a sub-agent that stands in the same record
    (``subagent_trajectories``); one that no result refers to is a run by itself.
    """

    name: ClassVar[str] = "atif"
    title: ClassVar[str] = "ATIF agent trajectories (Harbor, Terminal-Bench)"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has steps that name their source."""
        steps = record.get("steps") if isinstance(record, dict) else None
        if not isinstance(steps, list):
            return False
        version = str(record.get("schema_version", ""))
        return version.upper().startswith("ATIF") or any(
            isinstance(step, dict) and "source" in step for step in steps
        )

    def traces(self, payloads: list[bytes], key: str) -> Iterator[Trace]:
        """The run of a trajectory, and those of its sub-agents that no call refers to."""
        record = json_codec.loads(payloads[0])
        alone: list[Trace] = []
        trace = self._read(record, alone)
        for other in (trace, *alone):
            other.group = trace.id
            yield other

    def trace(self, record: Any) -> Trace:
        """The run of a trajectory."""
        return self._read(record, [])

    def _read(self, record: Mapping[str, Any], alone: list[Trace]) -> Trace:
        agent = record.get("agent")
        if isinstance(agent, dict):
            self.tools.add(agent.get("tool_definitions"))
        steps = [step for step in record["steps"] if isinstance(step, dict)]
        trace = conversation(
            # What a step observed comes after its calls, which are parallel.
            (2 * position + isinstance(item, ToolResult), item)
            for position, step in enumerate(steps)
            for item in _step_items(step)
        )
        session = record.get("session_id") or record.get("trajectory_id")
        trace.id = session if isinstance(session, str) else ""
        trace.at = find_time(*steps)
        self._nest(record, steps, trace, alone)
        return trace

    def _nest(
        self,
        record: Mapping[str, Any],
        steps: list[dict[str, Any]],
        trace: Trace,
        alone: list[Trace],
    ) -> None:
        """Put the sub-agents of a trajectory into the calls whose results refer to them."""
        embedded = record.get("subagent_trajectories")
        calls = {event.id: event for event in trace.events if isinstance(event, TracedCall)}
        callers: dict[str, str] = {}
        for step in steps:
            for result in _results(step):
                references = result.get("subagent_trajectory_ref")
                for reference in references if isinstance(references, list) else [references]:
                    if isinstance(reference, dict):
                        caller = str(result.get("source_call_id") or "")
                        for key in ("trajectory_id", "session_id"):
                            if isinstance(name := reference.get(key), str) and name:
                                callers.setdefault(name, caller)
        for number, item in enumerate(embedded if isinstance(embedded, list) else (), start=1):
            if not self.recognizes(item):
                continue
            nested = self._read(item, alone)
            names = [str(item.get(key) or "") for key in ("trajectory_id", "session_id")]
            call = next((calls[callers[n]] for n in names if callers.get(n) in calls), None)
            name = f"{trace.id}/{names[0] or number}" if trace.id else ""
            if call is None:
                nested.id = name
                alone.append(nested)
            else:
                nest(call, nested, name)


class AgentDojo(RecordFormat):
    """Run files as AgentDojo writes them: messages beside ``utility`` and ``user_task_id``.

    A run whose ``utility`` is false, or that ended in an error, is a failure.
    """

    name: ClassVar[str] = "agentdojo"
    title: ClassVar[str] = "AgentDojo run files"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has messages of a task of a suite."""
        return (
            isinstance(record, dict)
            and isinstance(record.get("messages"), list)
            and ("user_task_id" in record or "suite_name" in record)
        )

    def trace(self, record: Any) -> Trace:
        """The run of a file."""
        trace = read_conversation(record["messages"])
        names = ("suite_name", "user_task_id", "injection_task_id", "attack_type", "pipeline_name")
        parts = [str(record[name]) for name in names if record.get(name)]
        trace.group = "/".join(parts[:2])
        trace.salt = "/".join(parts)
        trace.at = find_time(record)
        trace.failed = record.get("utility") is False or bool(record.get("error"))
        return trace


def _step_items(step: Mapping[str, Any]) -> Iterator[Item]:
    text = text_of(step.get("message"))
    source = step.get("source")
    if text.strip() and source == "user":
        yield UserMessage(text, at=find_time(step))
    elif text.strip() and source == "system":
        yield SystemMessage(text)
    elif text.strip():
        yield AssistantMessage(text)
    calls = step.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            name = call.get("function_name", call.get("name"))
            identifier = str(call.get("tool_call_id") or call.get("id") or "")
            tool = name if isinstance(name, str) else ""
            yield ToolCallRequest(identifier, tool, call.get("arguments"))
    for result in _results(step):
        identifier = str(result.get("source_call_id") or "")
        output = output_of(result.get("content"))
        yield ToolResult(identifier, output, failed=looks_failed(output))


def _results(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a step observed."""
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    return [item for item in results if isinstance(item, dict)] if isinstance(results, list) else []
