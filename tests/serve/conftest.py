import random

import pytest


@pytest.fixture(autouse=True)
def _fixed_salts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which demonstrations are held out depends on a folder's secret salt: the same in each run."""
    salts = random.Random(1)
    monkeypatch.setattr("secrets.token_hex", lambda size: salts.randbytes(size).hex())
