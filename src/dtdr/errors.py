"""Errors that users see: one sentence each, naming the value, what was expected and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePath


class DtdrError(Exception):
    """Base of every error that dtdr raises on purpose.

    >>> DtdrError.exit_code, InputError.exit_code
    (1, 2)
    """

    exit_code = 1


class InputError(DtdrError, ValueError):
    """An argument or a record of the input is not what it must be."""

    exit_code = 2


class ModelError(DtdrError):
    """A model folder is missing, damaged, of another version, or of another ranker."""


class EncoderError(DtdrError):
    """An encoder gave vectors that cannot be used, or could not be reached."""


class OutputError(DtdrError):
    """A result could not be written; what was there before is intact."""


class UnavailableError(DtdrError):
    """A service such as Redis is temporarily unavailable."""


class MissingExtraError(DtdrError, ImportError):
    """A capability needs packages that the base install does not bring."""

    def __init__(self, capability: str, extra: str, missing: str) -> None:
        super().__init__(
            f"{capability} needs the package {missing!r}, which is not installed; "
            f"install it with: pip install 'dtdr[{extra}]'"
        )


def unknown_choice(kind: str, value: str, choices: Iterable[str]) -> InputError:
    """An error for a name that is not registered, with the names that are."""
    return InputError(f"unknown {kind} {value!r}; choose one of {', '.join(sorted(choices))}")


def cannot_read(path: object, error: OSError, remedy: str = "") -> InputError:
    """An error for a file that the operating system does not let us read."""
    return InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}{remedy}")


def check_choice(kind: str, value: str, choices: Collection[str]) -> None:
    """Raise ``unknown_choice`` for a name that is not one of the choices."""
    if value not in choices:
        raise unknown_choice(kind, value, choices)


def nothing_to_learn(failures: int) -> InputError:
    """An error where all demonstrations, if there were any, are failures that are left out."""
    why = f": all {failures} are failures" if failures else ""
    wanted = "one that did not fail" if failures else "one"
    return InputError(f"there are no demonstrations to learn from{why}; give at least {wanted}")


def check_at_least(low: float, **values: float | None) -> None:
    """Check parameters by their names; None passes.

    Raises:
        InputError: one is below ``low``, or not a number.
    """
    for name, value in values.items():
        if value is not None and not value >= low:
            raise InputError(f"{name} is {value}; it must be at least {low}")


def check_lists(**values: object) -> None:
    """Check that no parameter is one text or path where a list of them is due; None passes.

    Python would go through the text letter by letter.

    Raises:
        InputError: one is a text or a path.
    """
    for name, value in values.items():
        if isinstance(value, (str, bytes, PurePath)):
            raise InputError(f"{name} must be a list, not {value!r}; write [{value!r}]")


def other_version(what: str, version: object, readable: int, remedy: str) -> InputError:
    """An error for a file of another format version than this package reads."""
    return InputError(
        f"{what} has format version {version!r}, but this dtdr reads version {readable}; {remedy}"
    )
