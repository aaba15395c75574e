"""Slow tests that ask a real model: set DTDR_TEST_GGUF to a GGUF file, a small one is enough."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def gguf() -> Path:
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: pip install 'dtdr[llm]'")
    found = os.environ.get("DTDR_TEST_GGUF", "")
    if not found:
        pytest.skip("needs a model: set DTDR_TEST_GGUF to a GGUF file")
    return Path(found)
