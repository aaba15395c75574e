"""Writes the demonstrations and tools of an import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.data.demonstrations import Demonstration
from dtdr.data.progress import progress_bar
from dtdr.errors import InputError, OutputError
from dtdr.logs.importer import Importer
from dtdr.logs.left_out import explain_dropped
from dtdr.logs.streams import file_size

_MEGABYTE = 1_000_000


def import_traces(
    importer: Importer, output: Path, *, tools_output: Path | None = None, force: bool = False
) -> None:
    """Write demonstrations as JSON lines or (``.parquet``) as Parquet, as a whole or not at all.

    Raises:
        InputError: a record cannot be used, or nothing could be kept.
        OutputError: a file exists and ``force`` is False, or cannot be written.
    """
    if tools_output is not None and tools_output.exists() and not force:
        raise OutputError(f"{tools_output} exists; pass --force to replace it")
    save_demonstrations(output, _with_progress(importer), force=force)
    if tools_output is not None:
        save_tools(tools_output, importer.tools(), force=force)


def _with_progress(importer: Importer) -> Iterator[Demonstration]:
    paths = importer.reader.paths
    is_packed = any(path.suffix == ".gz" for path in paths)
    size = 0 if is_packed else sum(map(file_size, paths))
    megabytes = 0
    with progress_bar("Importing", size // _MEGABYTE + 1 if size else None) as advance:
        for demonstration in importer.demonstrations():
            yield demonstration
            for _ in range(megabytes, importer.reader.read_bytes // _MEGABYTE):
                megabytes += 1
                advance()
    about = importer.summary()
    if about["kept"]:
        return
    if about["dropped"]:
        raise InputError(f"nothing was kept: {explain_dropped(about['dropped'], about['runs'])}")
    raise InputError(
        f"no run was found in {about['records']:,} records ({about['bad_records']:,} bad); "
        f"is this {importer.format.title}?"
    )
