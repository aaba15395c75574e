"""The examples in docstrings run, and each public name has one."""

import doctest
from importlib import import_module

import pytest

import dtdr
from tests.test_architecture import MODULES

WITH_EXAMPLES = sorted(name for name, path in MODULES.items() if b">>> " in path.read_bytes())


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(import_module(name), optionflags=doctest.FAIL_FAST)
    assert failed == 0


def test_each_public_name_has_an_example():
    without = [name for name in dtdr.__all__ if ">>> " not in (getattr(dtdr, name).__doc__ or "")]
    assert without == []
