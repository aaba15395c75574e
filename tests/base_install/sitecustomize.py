"""Hides the packages of the extras from an interpreter and its workers, as if not installed.

``DTDR_HIDE`` names them, joined by commas. Put this folder on PYTHONPATH.
"""

import os
import sys
from importlib import metadata

HIDDEN = frozenset(os.environ["DTDR_HIDE"].split(","))
find_distribution = metadata.Distribution.from_name


class Hider:
    """A finder that comes first, and finds nothing of a hidden package."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def find_visible(cls, name):
    """A distribution that is not hidden."""
    if name.replace("-", "_") in HIDDEN:
        raise metadata.PackageNotFoundError(name)
    return find_distribution(name)


setattr(metadata.Distribution, "from_name", classmethod(find_visible))  # noqa: B010
sys.meta_path.insert(0, Hider())
