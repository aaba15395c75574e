"""``replay:file``: answers recorded from another backend, for tests."""

from __future__ import annotations

import hashlib
import json
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from dtdr.data.jsonl import BadRecords, has_content, iter_json_lines
from dtdr.errors import InputError, OutputError
from dtdr.llm.backends.backend import LLM, Completion, Decoding, LLMError, PromptTooLongError
from dtdr.llm.prompting import Prompt

FORMAT = "dtdr-replay"
FORMAT_VERSION = 1


class _Recording(LLM):
    """Answers by a key of everything that was asked."""

    _path: Path
    _answers: dict[str, Any]

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        choices = decoding.choices and list(decoding.choices)
        options: list[Any] = [decoding.max_tokens, choices, list(decoding.stop)]
        if decoding.form is not None:  # keys of answers without one stay as they were
            options.append(decoding.form.grammar)
        answer = self._answer(
            "complete",
            prompt,
            options,
            lambda llm: asdict(
                llm.complete(
                    prompt,
                    max_tokens=decoding.max_tokens,
                    choices=decoding.choices,
                    stop=decoding.stop,
                    form=decoding.form,
                )
            ),
        )
        return Completion(**answer)

    def count_tokens(self, text: str) -> int:
        """See ``LLM.count_tokens``."""
        return int(self._answer("count", text, None, lambda llm: llm.count_tokens(text)))

    def _answer(
        self, kind: str, prompt: Prompt | str, options: Any, ask: Callable[[LLM], Any]
    ) -> Any:
        key = _key(kind, prompt, options)
        if key not in self._answers:
            self._add(kind, key, ask)
        answer = self._answers[key]
        if isinstance(answer, dict) and "too_long" in answer:
            raise PromptTooLongError(str(answer["too_long"]))
        return answer

    @abstractmethod
    def _add(self, kind: str, key: str, ask: Callable[[LLM], Any]) -> None:
        """Add the answer to what was not asked yet."""


class Replay(_Recording):
    """Answers from a file; asks no model.

    Raises:
        InputError: the file cannot be read or is not a recording. When asked for what was not
            recorded: LLMError.
    """

    kind: ClassVar[str] = "replay"

    def __init__(self, path: str | Path) -> None:
        self.name = f"replay:{path}"
        self._path = Path(path)
        self.recorded, self._answers = _read(self._path)

    def _add(self, kind: str, key: str, ask: Callable[[LLM], Any]) -> None:
        raise LLMError(
            f"{self._path} has no answer to this prompt ({kind}, {key[:12]}); record it "
            "again with the model, with the same settings"
        )


class Recorder(_Recording):
    """Asks a backend once for each distinct request and keeps the answers in a file.

    A file that is there already is continued, so an interrupted run asks nothing twice. A prompt
    that was too long is recorded as such; other errors are not, and are asked again.

    Args:
        llm: the backend that answers.
        path: the recording.

    Raises:
        InputError: the file holds something else, or the answers of another model.
        OutputError: it cannot be written.
    """

    def __init__(self, llm: LLM, path: str | Path) -> None:
        self.name = llm.name
        self._llm = llm
        self._path = Path(path)
        self._lock = threading.Lock()
        self._answers = {}
        try:
            is_continued = has_content(self._path, FORMAT)
            if is_continued:
                recorded, self._answers = _read(self._path)
                if recorded != llm.name:
                    raise InputError(f"{path} has answers of {recorded}, not of {llm.name}")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        if not is_continued:
            header = {"format": FORMAT, "format_version": FORMAT_VERSION, "model": llm.name}
            self._write(header)

    def forget(self) -> None:
        """See ``LLM.forget``."""
        self._llm.forget()

    def close(self) -> None:
        """Close the recording and the backend."""
        super().close()
        self._stream.close()
        self._llm.close()

    def _add(self, kind: str, key: str, ask: Callable[[LLM], Any]) -> None:
        try:
            answer = ask(self._llm)
        except PromptTooLongError as error:
            answer = {"too_long": str(error)}
        self.counts_exactly = self._llm.counts_exactly
        with self._lock:
            self._answers[key] = answer
            self._write({"key": key, "answer": answer})

    def _write(self, record: dict[str, Any]) -> None:
        try:
            self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._stream.flush()
        except OSError as error:
            raise OutputError(f"cannot write {self._path}: {error.strerror or error}") from error


def _key(kind: str, prompt: Prompt | str, options: Any) -> str:
    text: Any = prompt
    if isinstance(prompt, Prompt):
        text = [
            prompt.guidelines,
            prompt.listing,
            prompt.variable,
            prompt.cue,
            *(prompt.example or ()),
        ]
    record = json.dumps([kind, text, options], ensure_ascii=False)
    return hashlib.sha256(record.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    lines = iter_json_lines(path, bad=BadRecords())
    _, header = next(lines, (0, None))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path} is not a recording of an LLM's answers; make one with --record")
    if header.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has recording version {header.get('format_version')!r}, this dtdr reads "
            f"version {FORMAT_VERSION}; record it again"
        )
    answers = {
        str(record["key"]): record["answer"]
        for _, record in lines
        if isinstance(record, dict) and "key" in record and "answer" in record
    }
    return str(header.get("model", "")), answers
