"""Results of benchmarks: Inspect, tau-bench and tau2, ToolBench, SWE-agent, and ATIF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dtdr.conversation.times import find_time
from dtdr.conversation.values import as_list, as_mapping, as_text, each_object, first_of
from dtdr.logs.envelopes import Envelope, Talk, call_message, result_message
from dtdr.logs.log_format import run_failed


class Inspect(Envelope):
    """Inspect: samples of an evaluation, from ``inspect log dump`` or the ``.eval`` file."""

    name: ClassVar[str] = "inspect"
    title: ClassVar[str] = "Inspect logs (samples)"
    _WRONG = ("I", "incorrect", False, 0)

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a sample with its messages."""
        has_messages = isinstance(first_of(record, "messages"), list)
        return has_messages and "epoch" in record and ("scores" in record or "target" in record)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The conversation of a sample; one whose scores are all wrong has failed."""
        sample = records[0]
        scores = as_mapping(sample.get("scores")).values()
        values = [first_of(score, "value") for score in scores]
        wrong = [isinstance(v, (str, int, float)) and v in self._WRONG for v in values]
        task = str(sample.get("id", ""))
        name = as_text(sample.get("uuid"))  # the id is that of the task
        failed = bool(sample.get("error")) or (bool(wrong) and all(wrong))
        yield Talk(sample["messages"], name, task, failed, at=find_time(sample))


class Tau(Envelope):
    """tau-bench and tau2: simulations with ``reward_info``, or ``traj`` with ``reward``."""

    name: ClassVar[str] = "tau2"
    title: ClassVar[str] = "tau2 and tau-bench results"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it is a simulation."""
        if not isinstance(record, dict) or "task_id" not in record:
            return False
        is_new = "messages" in record and (
            "reward_info" in record or "termination_reason" in record
        )
        return is_new or (isinstance(record.get("traj"), list) and "reward" in record)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The conversation; calls of the simulated user are left out."""
        record = records[0]
        task = str(record["task_id"])
        messages, name = as_list(first_of(record, "messages", "traj")), as_text(record.get("id"))
        yield Talk(messages, name, f"task-{task}", run_failed(record), at=find_time(record))


class ToolBench(Envelope):
    """ToolBench answers: ``answer_generation`` with the messages of the final path."""

    name: ClassVar[str] = "toolbench"
    title: ClassVar[str] = "ToolBench answers"
    _FINISH = "Finish"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has an answer."""
        return isinstance(first_of(record, "answer_generation"), dict)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The messages of the last request; the call that hands in the answer is left out."""
        answer = as_mapping(records[0]["answer_generation"])
        listed = as_list(answer.get("train_messages"))
        messages = next((m for m in reversed(listed) if isinstance(m, list)), listed)
        kept = []
        for message in each_object(messages):
            name = first_of(message.get("function_call"), "name") or message.get("name")
            if name != self._FINISH:
                kept.append(message)
        if not any(message.get("role") == "user" for message in kept):
            kept.insert(0, {"role": "user", "content": answer.get("query")})
        failed = records[0].get("win") is False or answer.get("valid_data") is False
        tools = [t for t in each_object(answer.get("function")) if t.get("name") != self._FINISH]
        yield Talk(kept, failed=failed, tools=tools)


class SWEAgent(Envelope):
    """SWE-agent: ``.traj`` files, with calls in ``history`` or, before 1.0, commands in steps."""

    name: ClassVar[str] = "swe-agent"
    title: ClassVar[str] = "SWE-agent trajectories"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it has a trajectory of steps, or the messages of mini-SWE-agent."""
        steps = first_of(record, "trajectory")
        if isinstance(steps, list) and (
            isinstance(record.get("history"), list) or "info" in record
        ):
            return True
        return as_text(first_of(record, "trajectory_format")).startswith("mini-swe-agent")

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The run; one that did not submit has failed."""
        record = records[0]
        status = as_text(first_of(record.get("info"), "exit_status"))
        failed = bool(status) and "submitted" not in status.lower()
        name = as_text(first_of(record, "instance_id"))
        history = [
            m for m in each_object(first_of(record, "history", "messages")) if not m.get("is_demo")
        ]
        calls = any(message.get("tool_calls") for message in history)
        messages = history if calls else self._steps(record, history)
        yield Talk(messages, "", name, failed)

    def _steps(self, record: Any, history: list[Any]) -> Iterator[Any]:
        """Steps as calls of the command's first word."""
        yield from history[
            : next((n for n, m in enumerate(history) if m.get("role") == "assistant"), None)
        ]
        for position, step in enumerate(each_object(record.get("trajectory")), start=1):
            tool, _, rest = as_text(step.get("action")).strip().partition(" ")
            if not tool:
                continue
            text = as_text(first_of(step, "thought", "response"))
            yield call_message(
                [(str(position), tool.splitlines()[0], {"input": rest} if rest else {})], text
            )
            yield result_message(str(position), step.get("observation"), failed=None)


class ATIF(Envelope):
    """The Agent Trajectory Interchange Format of Harbor: steps with calls and observations."""

    name: ClassVar[str] = "atif"
    title: ClassVar[str] = "ATIF trajectories"

    @classmethod
    def recognizes(cls, record: Any) -> bool:
        """Whether it names the version of the format."""
        version = as_text(first_of(record, "schema_version"))
        return version.startswith("ATIF") and isinstance(record.get("steps"), list)

    def talks(self, records: list[Any]) -> Iterator[Talk]:
        """The run."""
        record = records[0]
        messages: list[Any] = []
        for step in each_object(record["steps"]):
            source = step.get("source")
            role = "assistant" if source == "agent" else source
            calls = [
                (
                    as_text(c.get("tool_call_id")),
                    as_text(c.get("function_name")),
                    c.get("arguments"),
                )
                for c in each_object(step.get("tool_calls"))
            ]
            time, text = step.get("timestamp"), step.get("message")
            messages.append(
                {**call_message(calls), "role": role, "content": text, "timestamp": time}
            )
            for result in each_object(as_mapping(step.get("observation")).get("results")):
                call = as_text(result.get("source_call_id")) or (
                    calls[0][0] if len(calls) == 1 else ""
                )
                if calls:
                    messages.append(result_message(call, result.get("content"), failed=None))
        tools = as_mapping(record.get("agent")).get("tool_definitions")
        name = as_text(first_of(record, "trajectory_id", "session_id"))
        reward = as_mapping(as_mapping(record.get("final_metrics")).get("extra")).get("reward")
        failed = run_failed({**record, "reward": reward})
        yield Talk(messages, name, as_text(record.get("session_id")), failed, tools)
