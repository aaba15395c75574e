"""Writes what an import yields, so that it can be interrupted at any time and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from dtdr.data import json_codec
from dtdr.data.demonstration_files import save_tools
from dtdr.data.files import explain_os_errors
from dtdr.errors import InputError, OutputError
from dtdr.logs.importer import Importer
from dtdr.logs.left_out import explain_dropped
from dtdr.logs.streams import file_size

CHECKPOINT_BYTES = 128_000_000
"""Read between two checkpoints; writing one takes some 50 ms, reading that much takes seconds."""


def import_traces(
    importer: Importer,
    output: Path,
    *,
    tools_output: Path | None = None,
    force: bool = False,
    resume: bool = False,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
) -> Iterator[int]:
    """Write ``demonstrations.jsonl``; yields bytes read so far, about once a megabyte.

    The file takes its name only when all is read. Until then it is ``NAME.partial``, and
    ``NAME.checkpoint`` tells ``resume`` where to go on; both stay behind when the import is
    interrupted after a first checkpoint.

    Raises:
        InputError: a record cannot be used, nothing could be kept, or there is nothing to resume.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    for path in (output, tools_output):
        if path is not None and path.exists() and not force:
            raise OutputError(f"{path} exists; pass --force to replace it")
    if resume and importer.reader.has_pipes:
        raise InputError("what comes through a pipe cannot be resumed; give files, or leave it out")
    work = _Work(importer, output)
    if not resume and not force and work.checkpoint.exists():
        raise OutputError(
            f"{work.checkpoint} is from an import that was interrupted; pass --resume to go on "
            "with it or --force to begin again"
        )
    try:
        with work.open(resume=resume) as stream:
            next_checkpoint = importer.reader.read_bytes + checkpoint_bytes
            told = 0
            for _ in importer.steps():
                for demonstration in importer.take_ended():
                    stream.write(json_codec.dumps(demonstration.to_dict()) + b"\n")
                read = importer.reader.read_bytes
                if read - told >= 1_000_000:
                    told = read
                    yield read
                if read >= next_checkpoint and not importer.reader.has_pipes:
                    work.save(stream)
                    next_checkpoint = read + checkpoint_bytes
            stream.flush()
            os.fsync(stream.fileno())
        if not importer.cutter.counts["kept"]:
            work.discard()
            raise InputError(_explain_nothing(importer))
        if tools_output is not None:
            save_tools(tools_output, importer.tools(), force=force)
        work.finish()
    except BaseException:
        if not work.checkpoint.exists():
            work.discard()
        with explain_os_errors(output):
            raise
    finally:
        importer.close()
    yield importer.reader.read_bytes


class _Work:
    """The unfinished output and its checkpoint."""

    def __init__(self, importer: Importer, output: Path) -> None:
        self.importer = importer
        self.output = output
        self.partial = output.with_name(output.name + ".partial")
        self.checkpoint = output.with_name(output.name + ".checkpoint")

    def open(self, *, resume: bool) -> IO[bytes]:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            self.checkpoint.unlink(missing_ok=True)
            return self.partial.open("wb")
        try:
            lines = self.checkpoint.open("rb")
        except FileNotFoundError as error:
            raise InputError(
                f"there is nothing to resume: {self.checkpoint} does not exist; leave --resume out"
            ) from error
        with lines:
            try:
                header = json_codec.loads(next(lines))
                length = int(header["length"])
                fingerprint, state = header["fingerprint"], header["state"]
                if self.partial.stat().st_size < length:
                    raise ValueError("the partial output is shorter than it was")
            except (ValueError, KeyError, TypeError, StopIteration, OSError) as error:
                raise InputError(
                    f"{self.checkpoint} cannot be used ({error}); begin again with --force"
                ) from error
            if fingerprint != self._fingerprint():
                raise InputError(
                    f"{self.checkpoint} is about other logs or other options; give the same ones, "
                    "or begin again with --force"
                )
            os.truncate(self.partial, length)
            groups = (json.loads(line) for line in lines)
            self.importer.restore(state, groups, self._ids())
        return self.partial.open("ab")

    def save(self, stream: IO[bytes]) -> None:
        """Write a checkpoint, whole or not at all."""
        stream.flush()
        os.fsync(stream.fileno())
        header = {
            "fingerprint": self._fingerprint(),
            "length": stream.tell(),
            "state": self.importer.state(),
        }
        # For the user alone: open conversations stand in it as they do in the log, not scrubbed.
        temporary = self.checkpoint.with_name(self.checkpoint.name + ".new")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as checkpoint:
            json.dump(header, checkpoint)
            checkpoint.write("\n")
            for key, group in self.importer.window.open_groups():
                payloads = [item.decode("utf-8", "surrogateescape") for item in group.payloads]
                json.dump([key, group.place, payloads], checkpoint)
                checkpoint.write("\n")
            checkpoint.flush()
            os.fsync(checkpoint.fileno())
        temporary.replace(self.checkpoint)

    def finish(self) -> None:
        self.partial.replace(self.output)
        self.checkpoint.unlink(missing_ok=True)

    def discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)

    def _ids(self) -> Iterator[str]:
        with self.partial.open("rb") as written:
            for line in written:
                yield json_codec.loads(line)["id"]

    def _fingerprint(self) -> list[Any]:
        importer = self.importer
        rules = () if importer.redactor is None else importer.redactor.rules
        return [
            importer.format.name,
            [[str(path), file_size(path)] for path in importer.paths],
            json.loads(json.dumps(asdict(importer.options))),
            [[rule.name, rule.pattern.pattern] for rule in rules],
        ]


def _explain_nothing(importer: Importer) -> str:
    dropped = importer.cutter.dropped
    if dropped:
        return f"nothing was kept: {explain_dropped(dropped, importer.cutter.counts['runs'])}"
    left_out = importer.bad.count if importer.bad is not None else 0
    return (
        f"no run was found in {importer.records:,} records ({left_out:,} bad); "
        f"is this {importer.format.title}?"
    )
