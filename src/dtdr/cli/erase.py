"""``dtdr erase``: a user's or tenant's demonstrations out of the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dtdr.cli import options
from dtdr.cli.output import note, print_json
from dtdr.errors import InputError


def erase(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...", help="Files of demonstrations: .jsonl, .parquet, folders, patterns."
        ),
    ],
    group: Annotated[
        list[str],
        typer.Option("--group", metavar="GROUP", help="Whose demonstrations; may be given again."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    as_json: options.JSON = False,
) -> None:
    """Take the demonstrations of a group out of files; all others stay as they are.

    Models still hold what they learned; fit them again.

    Example: dtdr erase runs/ --group user-42
    """
    from dtdr.erasure import erase_groups

    if "" in group:
        raise InputError("the group is empty; name the group whose demonstrations are erased")
    found = erase_groups(data, group, dry_run=dry_run)
    erased = sum(item.erased for item in found)
    changed = [item for item in found if item.erased]
    if as_json:
        files = [
            {"file": str(item.file), "erased": item.erased, "kept": item.kept} for item in changed
        ]
        print_json({"erased": erased, "dry_run": dry_run, "files": files})
        return
    for item in changed:
        typer.echo(f"{item.file}: {item.erased:,} of {item.erased + item.kept:,}")
    verb = "would be erased" if dry_run else "erased"
    typer.echo(f"{erased:,} demonstrations {verb} from {len(changed):,} of {len(found):,} files")
    if erased and not dry_run:
        note("models that learned from them still hold what they learned; fit them again")
