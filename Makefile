# aim-adapters: every way to work on it. `make` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
PY := $(VENV)/bin/python
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## create .venv from the lock file

$(STAMP): requirements-dev.lock pyproject.toml
	@test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: lint
lint: $(STAMP) ## ruff, mypy --strict, import contracts
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

.PHONY: test-unit
test-unit: $(STAMP) ## unit tests: seconds, no cluster
	$(RUN)/pytest tests/unit

.PHONY: lock
lock: $(STAMP) ## resolve the dependencies again
	$(RUN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header -q --upgrade -o requirements-dev.lock
	$(RUN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header -q -c requirements-dev.lock -o requirements.lock
