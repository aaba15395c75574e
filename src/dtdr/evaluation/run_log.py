"""The run log: a versioned JSON-lines file from which every metric and table is computed.

The first line is the header; each further line is one teacher-forced step with its full ranking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dtdr.errors import InputError
from dtdr.files import replacing_file

FORMAT = "dtdr-run"
FORMAT_VERSION = 2
READABLE = (1, 2)
"""Version 1 says nothing about confidence, familiarity and coverage."""

DIGITS = 6
"""Decimals of a logged probability: enough for ten bins of calibration, and a third of the bytes
that full precision takes."""

COVERAGES = 99
"""Whole percentages from 1 whose cuts a header holds."""


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
        coverage_cuts: for a coverage of 1, 2, … 99 %, the probability from which on tools are in
            the set that ``Ranking.select`` shows; None where the retriever is not calibrated.
        familiarity_floor: steps less familiar are of queries unlike the demonstrations; None where
            the retriever has none.
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
    coverage_cuts: tuple[float, ...] | None = None
    familiarity_floor: float | None = None


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
        confidence: ``Ranking.confidence``; None in a log of version 1.
        familiarity: ``Ranking.familiarity``; None where the retriever cannot tell.
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
    confidence: float | None = None
    familiarity: float | None = None
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
            "confidence": self.confidence,
            "familiarity": self.familiarity,
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
        confidence: float | None = None,
        familiarity: float | None = None,
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
            None if confidence is None else round(confidence, DIGITS),
            familiarity,
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
    if version not in READABLE:
        raise InputError(
            f"{path}:1: this run log has format version {version!r}, this dtdr reads versions "
            f"{' and '.join(map(str, READABLE))}; run the evaluation again"
        )
    missing = [
        item.name
        for item in fields(RunHeader)
        if item.name not in record and (item.default is MISSING or version != 1)
    ]
    if missing:
        raise InputError(f"{path}:1: the header lacks {missing[0]!r}; run the evaluation again")
    tools, encoder = record["tools"], record["encoder"]
    objects = [record[key] for key in ("split", "parameters", "training_data", "versions")]
    if (
        not _texts(tools)
        or not isinstance(record["steps"], int)
        or not all(isinstance(value, dict) for value in objects)
        or not (encoder is None or isinstance(encoder, dict))
        or not _is_cuts(record.get("coverage_cuts"))
        or not _is_number(record.get("familiarity_floor"))
    ):
        raise InputError(f"{path}:1: the header is damaged; run the evaluation again")
    record["tools"] = tuple(tools)
    if record.get("coverage_cuts") is not None:
        record["coverage_cuts"] = tuple(record["coverage_cuts"])
    known = [item.name for item in fields(RunHeader) if item.name in record]
    return RunHeader(**{name: record[name] for name in known})


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
    confidence, familiarity = record.get("confidence"), record.get("familiarity")
    if not _is_number(confidence) or not _is_number(familiarity):
        raise InputError("'confidence' and 'familiarity' must be numbers or null")
    if confidence is not None and not 0 <= confidence <= 1:
        raise InputError("'confidence' must be from 0 to 1")
    return {
        **{key: record[key] for key in _STEP_KEYS},
        "confidence": confidence,
        "familiarity": familiarity,
    }


def _is_number(value: object) -> bool:
    """Whether it is a finite number, or None."""
    return value is None or (type(value) in (int, float) and math.isfinite(cast(float, value)))


def _is_cuts(value: object) -> bool:
    return value is None or (
        isinstance(value, list)
        and len(value) == COVERAGES
        and all(item is not None and _is_number(item) for item in value)
    )


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
