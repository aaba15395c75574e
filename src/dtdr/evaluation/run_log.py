"""The run log: a versioned JSON-lines file from which every metric and table is computed.

The first line is the header; each further line is one teacher-forced step with its full ranking.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError
from dtdr.files import replacing_file

FORMAT = "dtdr-run"
FORMAT_VERSION = 1

DIGITS = 6
"""Decimals of a logged probability: enough for ten bins of calibration, and a third of the bytes
that full precision takes."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What was run on what: all that is needed to say where a figure comes from, and to repeat it.

    Attributes:
        dataset: name of the demonstrations, as users type it.
        synthetic: whether a generator wrote them.
        split: ``{"name", "sha256", "train", "test"}``: the hash of which demonstrations are on
            which side, and how many.
        retriever: name of the retriever.
        encoder: its encoder's configuration, or None.
        parameters: its constructor's keywords.
        seed: its seed.
        training_data: ``{"demonstrations", "skipped_failures", "sha256"}`` of what it learned from.
        versions: of Python and of the packages that a result depends on.
        tools: the tool vocabulary; rankings hold positions in it.
        steps: how many steps the file holds, so that a truncated file is noticed.
        fit_seconds: wall-clock time of fitting, encoding included; texts whose vectors are in
            the encoder's cache on disk cost nothing.
        rank_microseconds_median: median time to rank one more step of a session whose query is
            already encoded; None where no step was timed.
    """

    dataset: str
    synthetic: bool
    split: Mapping[str, Any]
    retriever: str
    encoder: Mapping[str, Any] | None
    parameters: Mapping[str, Any]
    seed: int
    training_data: Mapping[str, Any]
    versions: Mapping[str, str]
    tools: tuple[str, ...]
    steps: int
    fit_seconds: float
    rank_microseconds_median: float | None


@dataclass(frozen=True, slots=True, eq=False)
class LoggedStep:
    """One teacher-forced step.

    Attributes:
        plan: id of the demonstration.
        step: how many calls were made before it, from 0.
        plan_length: calls of the whole plan, end of plan not counted.
        history: names called so far, oldest first.
        acceptable: names acceptable next, sorted; some may be no tools of the vocabulary.
        ranking: positions in the vocabulary, best first.
        probabilities: in the order of ``ranking``.
        ranks: places, from 1 and rising, at which the acceptable tools stand in ``ranking``; one
            that the retriever does not know has none. Not written: it follows from the rest.
    """

    plan: str
    step: int
    plan_length: int
    history: tuple[str, ...]
    acceptable: tuple[str, ...]
    ranking: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float64]
    ranks: tuple[int, ...] = field(default=())

    def to_json(self) -> str:
        """The step's line of the log."""
        record = {
            "plan": self.plan,
            "step": self.step,
            "plan_length": self.plan_length,
            "history": self.history,
            "acceptable": self.acceptable,
            "ranking": self.ranking.tolist(),
            "probabilities": self.probabilities.tolist(),
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, eq=False)
class RunLog:
    """A header and its steps."""

    header: RunHeader
    steps: tuple[LoggedStep, ...]


class StepFactory:
    """Makes the steps of one run; places of acceptable tools are looked up once a step."""

    def __init__(self, tools: Sequence[str]) -> None:
        self._position = {name: index for index, name in enumerate(tools)}

    def __call__(
        self,
        *,
        plan: str,
        step: int,
        plan_length: int,
        history: Iterable[str],
        acceptable: Iterable[str],
        ranking: npt.ArrayLike,
        probabilities: npt.ArrayLike,
    ) -> LoggedStep:
        """A step; ``probabilities`` are rounded to what the file keeps."""
        order = np.asarray(ranking, dtype=np.int32)
        names = tuple(sorted(acceptable))
        known = [self._position[name] for name in names if name in self._position]
        places = np.flatnonzero(np.isin(order, known)) + 1
        rounded: npt.NDArray[np.float64] = np.asarray(probabilities, dtype=np.float64)
        rounded = rounded.round(DIGITS)
        return LoggedStep(
            plan,
            step,
            plan_length,
            tuple(history),
            names,
            order,
            rounded,
            tuple(places.tolist()),
        )


def write_run_log(path: str | Path, log: RunLog, *, force: bool = False) -> None:
    """Write a run log as a whole or not at all.

    Raises:
        OutputError: the file exists and ``force`` is False, or it cannot be written.
    """
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(log.header)}
    with replacing_file(path, force=force) as stream:
        stream.write(json.dumps(header, ensure_ascii=False) + "\n")
        for step in log.steps:
            stream.write(step.to_json() + "\n")


def read_run_log(path: str | Path) -> RunLog:
    """Read and check a run log.

    Raises:
        InputError: naming file and line: the file cannot be read, is no run log or one of another
            version, is truncated, or a line of it is damaged.
    """
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  # closed below, opened here to explain
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    with stream:
        header = _header(path, stream.readline())
        make_step = StepFactory(header.tools)
        steps: list[LoggedStep] = []
        seen: set[tuple[str, int]] = set()
        number = 1
        for number, line in enumerate(stream, start=2):
            try:
                step = make_step(**_step(json.loads(line), len(header.tools)))
            except ValueError as error:  # InputError and JSONDecodeError are ValueErrors
                if not line.endswith(b"\n"):
                    raise _truncated(path, number, header.steps) from error
                reason = str(error) if isinstance(error, InputError) else "it is not JSON"
                raise InputError(
                    f"{path}:{number}: this line of the run log is damaged ({reason}); "
                    "run the evaluation again"
                ) from error
            if (step.plan, step.step) in seen:
                raise InputError(
                    f"{path}:{number}: step {step.step} of plan {step.plan!r} is there twice; "
                    "run the evaluation again"
                )
            seen.add((step.plan, step.step))
            steps.append(step)
    if len(steps) != header.steps:
        raise _truncated(path, number, header.steps)
    return RunLog(header, tuple(steps))


def _truncated(path: str | Path, number: int, steps: int) -> InputError:
    return InputError(
        f"{path}:{number}: the run log ends here, but its header promises {steps} steps; "
        "run the evaluation again"
    )


def _header(path: str | Path, line: bytes) -> RunHeader:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(
            f"{path}:1: this is no dtdr run log; write one with: dtdr evaluate --runs FOLDER"
        )
    version = record.get("format_version")
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}:1: this run log has format version {version!r}, this dtdr reads version "
            f"{FORMAT_VERSION}; run the evaluation again"
        )
    missing = [item.name for item in fields(RunHeader) if item.name not in record]
    if missing:
        raise InputError(f"{path}:1: the header lacks {missing[0]!r}; run the evaluation again")
    tools, encoder = record["tools"], record["encoder"]
    objects = [record[key] for key in ("split", "parameters", "training_data", "versions")]
    if (
        not _texts(tools)
        or not isinstance(record["steps"], int)
        or not all(isinstance(value, dict) for value in objects)
        or not (encoder is None or isinstance(encoder, dict))
    ):
        raise InputError(f"{path}:1: the header is damaged; run the evaluation again")
    record["tools"] = tuple(tools)
    return RunHeader(**{item.name: record[item.name] for item in fields(RunHeader)})


_STEP_KEYS = {
    "plan": str,
    "step": int,
    "plan_length": int,
    "history": list,
    "acceptable": list,
    "ranking": list,
    "probabilities": list,
}


def _step(record: object, tools: int) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise InputError("it is no JSON object")
    for key, kind in _STEP_KEYS.items():
        if not isinstance(record.get(key), kind):
            raise InputError(f"{key!r} is missing or of another type")
    if not _texts(record["history"]) or not _texts(record["acceptable"]):
        raise InputError("'history' and 'acceptable' must be lists of tool names")
    if not record["acceptable"] or record["step"] != len(record["history"]):
        raise InputError("'step' must count 'history', and 'acceptable' must name a tool")
    ranking, probabilities = record["ranking"], record["probabilities"]
    if (
        len(ranking) != tools
        or any(type(place) is not int for place in ranking)
        or set(ranking) != set(range(tools))
    ):
        raise InputError(f"'ranking' must hold each of the {tools} tools once")
    if len(probabilities) != tools or not all(
        isinstance(value, int | float) and 0 <= value <= 1 for value in probabilities
    ):
        raise InputError(f"'probabilities' must be {tools} numbers from 0 to 1")
    return {key: record[key] for key in _STEP_KEYS}


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
