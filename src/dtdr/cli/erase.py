"""``dtdr erase``: a user's or tenant's demonstrations out of the data."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
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
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A model that learned from them, which is marked; may be given again.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    as_json: options.JSON = False,
) -> None:
    """Take the demonstrations of a group out of files; all others stay as they are.

    Models still hold what they learned: dtdr inspect and dtdr serve say so of those that are marked
    with --model, until they are fitted again.

    Example: dtdr erase runs/ --group user-42 --model model
    """
    from dtdr.erasure import erase_groups
    from dtdr.model_folder import mark_erased, read_config

    if "" in group:
        raise InputError("the group is empty; name the group whose demonstrations are erased")
    models = model or []
    for folder in models:
        read_config(folder)  # known before anything is erased
    expected = sum(item.erased for item in erase_groups(data, group, dry_run=True))
    if expected and not dry_run:
        for folder in models:  # first: after a break, a model is marked once too often
            mark_erased(folder, expected)
    found = erase_groups(data, group, dry_run=dry_run)
    erased = sum(item.erased for item in found)
    changed = [item for item in found if item.erased]
    if as_json:
        files = [
            {"file": str(item.file), "erased": item.erased, "kept": item.kept} for item in changed
        ]
        marked = [str(folder) for folder in models if erased and not dry_run]
        print_json({"erased": erased, "dry_run": dry_run, "files": files, "marked": marked})
        return
    for item in changed:
        typer.echo(f"{item.file}: {item.erased:,} of {item.erased + item.kept:,}")
    verb = "would be erased" if dry_run else "erased"
    typer.echo(f"{erased:,} demonstrations {verb} from {len(changed):,} of {len(found):,} files")
    if not erased or dry_run:
        return
    for folder in models:
        places = " ".join(quote(str(path)) for path in data)
        name = read_config(folder)["retriever"]
        note(
            f"{folder} is marked; fit it again: dtdr fit {places} -o {quote(str(folder))} --force "
            f"--retriever {name}, and the options that it was fitted with"
        )
    if not models:
        note("models that learned from them still hold what they learned; fit them again")
