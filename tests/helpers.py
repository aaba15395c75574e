"""Small things that several test files need."""

import hashlib
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
