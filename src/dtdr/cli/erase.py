"""``dtdr erase``: delete a user's or tenant's demonstrations from the data."""

from __future__ import annotations

from pathlib import Path

import typer

from dtdr.cli import options
from dtdr.cli.output import note, plural, print_json
from dtdr.data.erasure import delete_unfinished, erase_groups, find_unfinished
from dtdr.errors import InputError
from dtdr.rankers.model_folder import mark_erased, read_config


def erase(
    data: list[Path],
    *,
    group: list[str],
    model: list[Path] | None = None,
    dry_run: bool = False,
    as_json: options.JSON = False,
) -> None:
    """Delete the demonstrations of a group, such as a user.

    Models keep what they learned until you fit them again. If you name a model with --model, dtdr
    inspect and dtdr serve warn about it until then.

    Example: dtdr erase runs/ --group user-42 --model model

    Args:
        data (DATA): Demonstrations: .jsonl or .parquet files, folders, patterns such as "*.jsonl".
        group (GROUP): Delete demonstrations whose "group" is this; repeatable.
        model (MODEL): A model that learned from the group; repeatable.
        dry_run: Only count; delete nothing.
    """
    if "" in group:
        raise InputError("the group is empty; name the group to delete")
    models = list(dict.fromkeys(model or []))
    for folder in models:
        read_config(folder)  # a broken model ends the command before anything is erased
    places = [*data, *models]
    unfinished = len(find_unfinished(places))
    if not dry_run:
        delete_unfinished(places)
    erasures = erase_groups(data, group, dry_run=True)
    count = sum(item.erased for item in erasures)
    if not dry_run:
        for folder in models if count else ():
            mark_erased(folder, count)  # before the files: an interruption may only mark twice
        erasures = erase_groups(data, group)
    changed = [item for item in erasures if item.erased]
    erased = sum(item.erased for item in changed)
    marked = [str(folder) for folder in models if erased and not dry_run]
    if as_json:
        print_json(
            {
                "erased": erased,
                "dry_run": dry_run,
                "unfinished": unfinished,
                "files": [
                    {"file": str(item.file), "erased": item.erased, "kept": item.kept}
                    for item in changed
                ],
                "marked": marked,
            }
        )
        return
    for item in changed:
        typer.echo(f"{item.file}: {item.erased:,} of {item.erased + item.kept:,}")
    verb = "would be erased" if dry_run else "erased"
    files = f"{len(changed):,} of {plural(len(erasures), 'file')}"
    typer.echo(f"{plural(erased, 'demonstration')} {verb} from {files}")
    if unfinished:
        copies = plural(unfinished, "unfinished file")
        note(f"{copies} of interrupted commands {'would be ' if dry_run else ''}deleted")
    for name in marked:
        note(f"{name} learned from them; fit it again with dtdr fit")
    if erased and not dry_run and not models:
        note("models that learned from these demonstrations keep what they learned; fit them again")
