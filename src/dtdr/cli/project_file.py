"""``dtdr.toml``: options that a project gives with every command.

The file of the current folder may have come with a repository that somebody else wrote, so it is
bounded in what it can say: see ``_PLAIN``, ``_NAMES`` and ``_FILES``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dtdr.errors import InputError

NAME = "dtdr.toml"
VARIABLE = "DTDR_CONFIG"

# An option stands in none of the three unless somebody looked at what a stranger could do with it:
# run a program, choose where data or keys go, replace files, or turn a protection off.
_PLAIN = frozenset((
    "alpha", "arguments", "batch", "budget", "by", "calibration", "called", "calls", "chat",
    "check", "confidence", "coverage", "dataset", "demonstrations", "dry-run", "empty",
    "fail-under", "failed", "fill", "folds", "format", "full", "gap", "history", "icl",
    "input-price", "json", "kind", "layout", "leave-out", "limit", "llm-context", "llm-threads",
    "markdown", "max-body", "max-connections", "max-history", "max-key-session-bytes",
    "max-session-bytes", "max-sessions", "max-steps", "max-tools", "metric", "min-probability",
    "minimum-prefix", "name", "note", "once", "only-known-tools", "open", "order",
    "output-length", "outputs",
    "parameters", "permutations", "plans", "port", "prefetch-probability", "prices", "query",
    "quick", "quiet", "ranking-seconds", "read-price", "recipe", "reference-length",
    "references", "result-tokens", "resume", "seconds", "seed", "seeds", "select",
    "session-seconds", "skip-bad", "steps", "sticky", "system-tokens", "test", "threshold",
    "times", "tool", "tool-tokens", "top", "tune-seconds", "turns", "verbose", "versions", "wait",
    "watch", "weight", "why", "window", "workers", "write-price",
))  # fmt: skip
"""Numbers, choices, switches and words that only change what is computed and shown."""
_NAMES = frozenset({"encoder", "retriever", "set"})
"""Of the names that come with dtdr; others name code or an address, as ``module:Class`` does."""
_FILES = frozenset((
    "cache", "data", "data-dir", "examples", "figure", "lab", "log", "output", "run", "runs",
    "split", "tools", "tools-out",
))  # fmt: skip
"""Files and folders, which must be inside the current one."""
_PLAIN_NAME = re.compile(r"[\w.-]+(?:=[\w., +\[\]-]*)?")


def read_defaults(root: Any) -> dict[str, Any]:
    """Values of options by command, from the ``dtdr.toml`` of the current folder.

    At the top of the file stand options of all commands that have them, in a table named like a
    command those of that command alone. ``DTDR_CONFIG`` names another file; empty, none is read.
    A file that is named may give every option.

    Args:
        root: the program's command with its subcommands.

    Raises:
        InputError: the file cannot be read, names something that is not an option, or was not
            named and gives an option that somebody else's file must not.
    """
    named = os.environ.get(VARIABLE)
    if named == "" or (named is None and not Path(NAME).is_file()):
        return {}
    path = Path(named or NAME)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise InputError(f"{path} is not TOML ({error})") from error
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    common = {key: value for key, value in content.items() if key not in tables}
    used: set[str] = set()
    defaults = _of_group(root, tables, common, used, path)
    if unused := sorted(common.keys() - used):
        raise InputError(f"{path}: no command has the option {unused[0]!r}; see: dtdr --help")
    if named is None:
        _refuse_what_strangers_must_not_choose(content, path)
    return defaults


def _refuse_what_strangers_must_not_choose(content: Mapping[str, Any], path: Path) -> None:
    for key, value in content.items():
        if isinstance(value, dict):
            _refuse_what_strangers_must_not_choose(value, path)
            continue
        reason = "" if key in _PLAIN else "may run programs, send data away or weaken a protection"
        values = [str(item) for item in (value if isinstance(value, list) else [value])]
        if key in _NAMES:
            is_ours = all(map(_PLAIN_NAME.fullmatch, values))
            reason = "" if is_ours else "names code or an address"
        elif key in _FILES:
            reason = "" if all(map(_is_inside, values)) else "names a file outside of the folder"
        if reason:
            raise InputError(
                f"{path}: {key!r} {reason}, which a file that may be somebody else's must not; "
                f"give it on the command line, or set {VARIABLE}={path} if you trust the file"
            )


def _is_inside(text: str) -> bool:
    """Whether a path is in the current folder: neither above it, nor linked to, nor a URL."""
    here = Path.cwd().resolve()
    return ":" not in text and (here / text).resolve().is_relative_to(here)


def _of_group(
    group: Any, tables: Mapping[str, Any], common: Mapping[str, Any], used: set[str], path: Path
) -> dict[str, Any]:
    if unknown := sorted(tables.keys() - group.commands.keys()):
        raise InputError(
            f"{path}: [{unknown[0]}] is not a command; choose one of "
            f"{', '.join(sorted(group.commands))}"
        )
    defaults: dict[str, Any] = {}
    for name, command in group.commands.items():
        table = tables.get(name, {})
        if hasattr(command, "commands"):
            if loose := sorted(key for key, value in table.items() if not isinstance(value, dict)):
                raise InputError(
                    f"{path}: {loose[0]!r} stands in [{name}], which has commands of its own; "
                    f"write it in [{name}.COMMAND]"
                )
            defaults[name] = _of_group(command, table, common, used, path)
            continue
        options = dict(_options(command))
        used.update(common.keys() & options.keys())
        if unknown := sorted(table.keys() - options.keys()):
            raise InputError(
                f"{path}: dtdr {name} has no option {unknown[0]!r}; see: dtdr {name} --help"
            )
        given = {key: value for key, value in common.items() if key in options} | table
        defaults[name] = {
            options[key].name: _value(options[key], value) for key, value in given.items()
        }
    return defaults


def _options(command: Any) -> Iterator[tuple[str, Any]]:
    """Options by their long names without dashes."""
    for parameter in command.params:
        for name in parameter.opts:
            if name.startswith("--"):
                yield name.removeprefix("--"), parameter


def _value(option: Any, value: Any) -> Any:
    if option.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)
