"""Feedback of one model as an append-only log: a file, or a stream in Redis."""

from __future__ import annotations

from pathlib import Path

from dtdr.errors import InputError
from dtdr.net.redis_client import is_redis_url
from dtdr.serve.feedback.file_log import FileLog
from dtdr.serve.feedback.log import DuplicateError, Entry, FeedbackLog, order_of

MODEL_FIELD = "{model}"
"""In a path, the name of the model."""


def open_log(target: str, model: str, *, several: bool = False, redact: bool = True) -> FeedbackLog:
    """The log of a model.

    Args:
        target: an address of Redis, or a path, which may have ``{model}`` in it.
        model: its name.
        several: whether other models have logs at this target too.
        redact: remove secrets and personal data.

    Raises:
        InputError: several models would share one file, or the address is wrong.
        OutputError: the file cannot be written.
        MissingExtraError: the package redis is not installed.
    """
    if is_redis_url(target):
        from dtdr.serve.feedback.redis_log import RedisLog

        return RedisLog(target, model, redact=redact)
    if several and MODEL_FIELD not in target:
        raise InputError(
            f"{target} would have the feedback of several models; write {MODEL_FIELD} into its "
            f"name, as in feedback/{MODEL_FIELD}.jsonl"
        )
    return FileLog(Path(target.replace(MODEL_FIELD, model)), redact=redact)


__all__ = ["DuplicateError", "Entry", "FeedbackLog", "FileLog", "open_log", "order_of"]
