"""``dtdr erase``: a user's or tenant's demonstrations out of the data."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dtdr.cli import options
from dtdr.cli.output import note, print_json, quote
from dtdr.errors import InputError

if TYPE_CHECKING:
    from dtdr.data.erasure import FileErasure


def erase(
    data: list[Path],
    *,
    group: list[str],
    model: list[Path] | None = None,
    refit: bool = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
    dry_run: bool = False,
    as_json: options.JSON = False,
) -> None:
    """Delete the demonstrations of a group from files; all others stay as they are.

    Models keep what they learned. With --refit, the models named with --model are fitted again;
    otherwise they are marked, and dtdr inspect and dtdr serve warn of it, until they are.

    Example: dtdr erase runs/ --group user-42 --model model --refit

    Args:
        data (DATA): Files of demonstrations: .jsonl, .parquet, folders, patterns.
        group (GROUP): Whose demonstrations; repeatable.
        model (MODEL): A model that learned from them, which is marked; repeatable.
        refit: Fit each MODEL again on what stays in DATA, as it was fitted; DATA are all that it
            learned from.
        dry_run: Count, and change nothing.
    """
    from dtdr.cli.refit import Refit
    from dtdr.data.erasure import erase_groups
    from dtdr.rankers.model_folder import mark_erased, read_config

    if "" in group:
        raise InputError("the group is empty; name the group whose demonstrations are erased")
    models = list(dict.fromkeys(model or []))
    if refit and not models:
        raise InputError("--refit fits models again; name them with --model")
    for folder in models:
        read_config(folder)  # known before anything is erased
    expected = erase_groups(data, group, dry_run=True)
    number = sum(item.erased for item in expected)
    with contextlib.ExitStack() as stack:
        refits = []
        for folder in models if refit and not dry_run else ():
            if number or read_config(folder)["training_data"].get("erased"):
                refits.append(Refit.of(folder, sum(item.erased + item.kept for item in expected)))
                stack.enter_context(refits[-1].lock())
        if not dry_run:
            for folder in models:  # first: after a break, a model is marked once too often
                if number:
                    mark_erased(folder, number)
            _drop_counts(models, expected)
        erasures = erase_groups(data, group, dry_run=dry_run)
        if not as_json:
            _tell(erasures, dry_run=dry_run)
        refitted = [one.run(data) for one in refits]
    erased = sum(item.erased for item in erasures)
    marked = [folder for folder in models if erased and not dry_run and not refit]
    if as_json:
        print_json(
            {
                "erased": erased,
                "dry_run": dry_run,
                "files": [
                    {"file": str(item.file), "erased": item.erased, "kept": item.kept}
                    for item in erasures
                    if item.erased
                ],
                "marked": list(map(str, marked)),
                "refitted": [str(one.model) for one in refits],
            }
        )
        return
    for one, training in zip(refits, refitted, strict=True):
        typer.echo(f"fitted {one.model} again on {training.demonstrations:,} demonstrations")
    places = " ".join(quote(str(path)) for path in data)
    groups = " ".join(f"--group {quote(name)}" for name in group)
    for folder in marked:
        note(
            f"{folder} is marked; fit it again: dtdr erase {places} {groups} --model "
            f"{quote(str(folder))} --refit"
        )
    if erased and not dry_run and not models:
        note("models that learned from them keep what they learned; fit them again")


def _tell(erasures: list[FileErasure], *, dry_run: bool) -> None:
    changed = [item for item in erasures if item.erased]
    for item in changed:
        typer.echo(f"{item.file}: {item.erased:,} of {item.erased + item.kept:,}")
    verb = "would be erased" if dry_run else "erased"
    erased = sum(item.erased for item in changed)
    typer.echo(f"{erased:,} demonstrations {verb} from {len(changed):,} of {len(erasures):,} files")


def _drop_counts(models: list[Path], expected: list[FileErasure]) -> None:
    """Delete the counts that models keep of files, but for those of files that stay as they are."""
    from dtdr.predict.counting import KeptCounts
    from dtdr.predict.counting.file_parts import find_parts, hash_part

    kept = [one for one in map(KeptCounts.of_model, models) if one.folder.is_dir()]
    if kept:
        files = [item.file for item in expected if not item.erased]
        names = set(map(hash_part, find_parts(files)))
        for one in kept:
            one.prune(names)
