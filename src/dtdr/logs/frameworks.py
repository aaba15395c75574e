"""Logs that frameworks of agents save: Google ADK, smolagents, AutoGen and OpenHands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from dtdr.conversation.times import find_time
from dtdr.conversation.values import (
    arguments_of,
    as_list,
    as_mapping,
    as_text,
    each_object,
    first_of,
    walk,
)
from dtdr.logs.envelopes import Envelope, Talk, call_message, result_message
from dtdr.logs.log_format import run_failed


class GoogleADK(Envelope):
    """Google ADK: sessions with their events, events as lines, or sets of evaluations."""

    name: ClassVar[str] = "google-adk"
    title: ClassVar[str] = "Google ADK sessions, events or evaluation sets"

    @staticmethod
    def whole(record: Any) -> bool:
        """Whether a record is a whole conversation."""
        return "author" not in record

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an event, or has events or cases."""
        if isinstance(cases := first_of(record, "eval_cases", "evalCases"), list):
            return any("conversation" in case for case in each_object(cases))
        listed = first_of(record, "events")
        return any(map(cls._is_event, each_object(listed) if listed else [record]))

    @staticmethod
    def _is_event(event: Any) -> bool:
        has_id = first_of(event, "invocation_id", "invocationId") is not None
        return has_id and isinstance(event.get("author"), str)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The session, or one of each case."""
        first = records[0]
        for case in each_object(first_of(first, "eval_cases", "evalCases")):
            yield Talk(self._case(case), "", as_text(first_of(case, "eval_id", "evalId")))
        events = records if "author" in first else as_list(first.get("events"))
        if events:
            name = as_text(first.get("id")) if "author" not in first else ""
            kept = [
                e for e in each_object(events) if e.get("partial") is not True and e.get("content")
            ]
            yield Talk(kept, name, name, at=find_time(*kept[:1]))

    def _case(self, case: Mapping[str, Any]) -> Iterator[Any]:
        for turn in each_object(case.get("conversation")):
            yield first_of(turn, "user_content", "userContent")
            between = as_mapping(first_of(turn, "intermediate_data", "intermediateData"))
            for use in each_object(first_of(between, "tool_uses", "toolUses")):
                yield {"role": "model", "parts": [{"functionCall": use}]}
            for result in each_object(first_of(between, "tool_responses", "toolResponses")):
                yield {"role": "user", "parts": [{"functionResponse": result}]}
            answer = first_of(turn, "final_response", "finalResponse")
            yield {**answer, "role": "model"} if isinstance(answer, dict) else None


class Smolagents(Envelope):
    """smolagents: the steps of an agent's memory (``get_full_steps``), as a list or as lines."""

    name: ClassVar[str] = "smolagents"
    title: ClassVar[str] = "smolagents memories (steps)"
    whole_keys: ClassVar[tuple[str, ...] | None] = ("steps", "memory")

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a step, or has steps."""
        return any(map(cls._is_step, cls._steps([record])))

    @staticmethod
    def _is_step(step: Mapping[str, Any]) -> bool:
        if "step_number" in step and ("model_output" in step or "observations" in step):
            return True
        return "task" in step and "task_images" in step

    @staticmethod
    def _steps(records: list[Any]) -> list[dict[str, Any]]:
        first = records[0]
        inner = first_of(first, "steps") or first_of(first_of(first, "memory"), "steps")
        return list(each_object(inner if isinstance(inner, list) else records))

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The run."""
        messages: list[Any] = []
        for position, step in enumerate(self._steps(records)):
            if isinstance(step.get("task"), str):
                messages.append({"role": "user", "content": step["task"]})
            elif isinstance(step.get("system_prompt"), str):
                messages.append({"role": "system", "content": step["system_prompt"]})
            calls = list(each_object(step.get("tool_calls")))
            if not calls:
                continue
            for index, call in enumerate(calls):
                call.setdefault("id", f"{position}-{index}")
            text = step.get("model_output")
            messages.append({"role": "assistant", "content": as_text(text), "tool_calls": calls})
            error = step.get("error")
            output = first_of(error, "message") if error else step.get("observations")
            messages += [result_message(call["id"], output, failed=bool(error)) for call in calls]
        yield Talk(messages, failed=run_failed(as_mapping(records[0])))


class AutoGen(Envelope):
    """AutoGen: saved states of agents and teams, each agent's context a conversation."""

    name: ClassVar[str] = "autogen"
    title: ClassVar[str] = "AutoGen states of agents and teams"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a state."""
        is_state = as_text(first_of(record, "type")).endswith("State")
        return is_state and ("agent_states" in record or "llm_context" in record)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The context of each agent that called a tool, or spoke."""
        state = records[0]
        named = as_mapping(state.get("agent_states")) or {"": state}
        for inner in named.values():
            inner = first_of(inner, "agent_state") or inner
            messages = as_list(as_mapping(first_of(inner, "llm_context")).get("messages"))
            if messages:
                yield Talk(messages)


class OpenHands(Envelope):
    """OpenHands: events of a trajectory, as a list, as lines, or in results of an evaluation."""

    name: ClassVar[str] = "openhands"
    title: ClassVar[str] = "OpenHands trajectories (events)"
    whole_keys: ClassVar[tuple[str, ...] | None] = ("history", "trajectory")

    _KINDS = (
        "MessageEvent",
        "ActionEvent",
        "ObservationEvent",
        "AgentErrorEvent",
        "SystemPromptEvent",
    )
    _INNER = ("thought", "blocking", "confirmation_state", "hidden", "is_input", "security_risk")
    _QUIET = (
        "recall",
        "change_agent_state",
        "agent_state_changed",
        "null",
        "system",
        "condensation",
    )

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is an event, or has events."""
        listed = first_of(record, "history", "trajectory")
        return any(map(cls._is_event, cls._flat(listed) if isinstance(listed, list) else [record]))

    @classmethod
    def _is_event(cls, event: Any) -> bool:
        if not isinstance(event, dict) or "source" not in event:
            return False
        if event.get("kind") in cls._KINDS:
            return True
        return ("action" in event and "args" in event) or (
            "observation" in event and "extras" in event
        )

    @staticmethod
    def _flat(events: list[Any]) -> list[Any]:
        """Events; older results have pairs of action and observation."""
        return [e for item in events for e in (item if isinstance(item, list) else [item])]

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The run."""
        first = records[0]
        listed = first_of(first, "history", "trajectory")
        events = self._flat(listed) if isinstance(listed, list) else records
        messages: list[Any] = []
        last = ""
        for event in each_object(events):
            message, step = self._new(event) if "kind" in event else self._old(event)
            if message is None:
                continue
            if step and step == last:  # one answer of the model
                messages[-1]["tool_calls"] += message["tool_calls"]
            else:
                messages.append(message)
            last = step
        name = as_text(first_of(first, "instance_id"))
        failed = run_failed(first) or as_mapping(first.get("report")).get("resolved") is False
        yield Talk(messages, "", name, failed, at=find_time(*each_object(events)))

    def _old(self, event: Mapping[str, Any]) -> tuple[Any, str]:
        """A message, and the model's answer that it is a part of."""
        kind, args = event.get("action", event.get("observation")), as_mapping(event.get("args"))
        about = as_mapping(event.get("tool_call_metadata"))
        call = as_text(about.get("tool_call_id"))
        if kind in self._QUIET or kind is None:
            self.ignored[f"event {kind!r}"] += 1
            return None, ""
        if "observation" in event:
            extras = as_mapping(event.get("extras"))
            left = first_of(extras, "exit_code") or first_of(extras.get("metadata"), "exit_code")
            failed = kind == "error" or left not in (None, 0, -1) or event.get("success") is False
            return result_message(
                call or str(event.get("cause")), event.get("content"), failed=failed
            ), ""
        text = as_text(first_of(args, "thought", "content", "final_thought"))
        if kind == "message":
            role = "user" if event.get("source") == "user" else "assistant"
            return {"role": role, "content": text, "timestamp": event.get("timestamp")}, ""
        rest = {k: v for k, v in args.items() if k not in self._INNER}
        for choice in each_object(walk(about, "model_response", "choices")):
            for asked in each_object(walk(choice, "message", "tool_calls")):
                if asked.get("id") == call:
                    rest = arguments_of(walk(asked, "function", "arguments")) or rest
        tool = as_text(about.get("function_name")) or str(kind)
        answer = as_text(first_of(about.get("model_response"), "id"))
        return call_message([(call or str(event.get("id")), tool, rest)], text), answer

    def _new(self, event: Mapping[str, Any]) -> tuple[Any, str]:
        kind = event.get("kind")
        call = as_text(event.get("tool_call_id"))
        if kind == "MessageEvent":
            return {**as_mapping(event.get("llm_message")), "timestamp": event.get("timestamp")}, ""
        if kind == "ActionEvent":
            asked = as_mapping(event.get("tool_call"))
            inner = as_mapping(asked.get("function")) or asked
            arguments = first_of(inner, "arguments") or event.get("action")
            text = "\n".join(
                as_text(part.get("text")) for part in each_object(event.get("thought"))
            )
            message = call_message([(call, as_text(event.get("tool_name")), arguments)], text)
            return message, as_text(event.get("llm_response_id"))
        if kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            seen = as_mapping(event.get("observation"))
            output = first_of(seen, "content", "output") or first_of(
                event, "error", "rejection_reason"
            )
            left = first_of(seen, "exit_code", "exit_code_")
            failed = (
                kind != "ObservationEvent"
                or seen.get("is_error") is True
                or left not in (None, 0, -1)
            )
            return result_message(
                call, output if output is not None else dict(seen), failed=failed
            ), ""
        self.ignored[f"event {kind!r}"] += 1
        return None, ""
