# aim-adapters: every way to work on it. `make` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
RUN := $(VENV)/bin
PY := $(RUN)/python
STAMP := $(VENV)/.installed
PYTEST := $(RUN)/pytest
WORKERS ?= 2
# tests on a cluster wait for a third of their time
CLUSTER_WORKERS ?= 3
# each file on one worker, the longest first (tests/order.py) instead of the one with the most tests
BY_FILE := --dist loadfile --no-loadscope-reorder
DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
AUDIT_VENV ?= .venv-audit
AUDIT_STAMP := $(AUDIT_VENV)/.installed
LOWEST_VENV ?= .venv-lowest
LOWEST_STAMP := $(LOWEST_VENV)/.installed
# $(call install,VENV,LOCK): a venv with exactly what a lock file lists
define install
	@test -x $(1)/bin/python || python3 -m venv $(1)
	@echo "installing the locked dependencies into $(1)"
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(2)
endef
# $(call install-project,VENV): this checkout, so that its commands and metadata exist
define install-project
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endef
# $(call compile,ARGUMENTS OF uv pip compile): for every platform, with hashes, without names of registries
compile = $(RUN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q $(1)
# pypi or osv: the service to ask for known vulnerabilities
AUDIT_SERVICE ?= pypi

# Python keeps the bytecode that it compiles: each test run starts hundreds of interpreters
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## create .venv from the lock file

$(STAMP): requirements-dev.lock pyproject.toml
	$(call install,$(VENV),requirements-dev.lock)
	$(call install-project,$(VENV))
	@touch $@

.PHONY: tools
tools: $(STAMP) ## build the control plane, kubectl and helm (once; later runs find them in the cache)
	@$(RUN)/aim-adapters dev build

.PHONY: demo
demo: $(STAMP) ## the whole job on a cluster of its own, shown step by step (KEEP=1 leaves it running)
	@$(PY) -m devcluster.demo $(if $(KEEP),--keep)

.PHONY: lint
lint: $(STAMP) ## ruff, mypy --strict, import contracts
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

.PHONY: test
test: $(STAMP) $(AUDIT_STAMP) tools ## everything, with set-up (-j2: beside lint and docs, as .ci/run does)
	@+$(MAKE) --no-print-directory verify test-unit
	@+$(MAKE) --no-print-directory test-cluster
	@+$(MAKE) --no-print-directory test-chart

.PHONY: test-unit
test-unit: $(STAMP) ## unit tests: no cluster
	$(PYTEST) tests/unit -n $(WORKERS)

.PHONY: test-cluster
test-cluster: $(STAMP) tools ## the real control plane, the process node, real sources
	$(PYTEST) tests/cluster -n $(CLUSTER_WORKERS) $(BY_FILE)

.PHONY: test-chart
test-chart: $(STAMP) $(AUDIT_STAMP) tools ## the chart with the real helm on the real API server
	$(PYTEST) tests/chart -n $(WORKERS) $(BY_FILE)

.PHONY: test-lowest
test-lowest: $(LOWEST_STAMP) ## unit tests with the lowest versions that pyproject.toml allows
	$(LOWEST_VENV)/bin/pytest tests/unit -n $(WORKERS) -p no:cacheprovider

$(LOWEST_STAMP): requirements-lowest.lock pyproject.toml
	$(call install,$(LOWEST_VENV),requirements-lowest.lock)
	$(call install-project,$(LOWEST_VENV))
	@touch $@

.PHONY: test-long
test-long: $(STAMP) tools ## the same tests with larger numbers: long walks, many rounds
	AIM_TEST_LONG=1 $(PYTEST) tests

.venv-engine-%/.installed: requirements-engine-%.lock
	@test -x $(@D)/bin/python || python3 -m venv $(@D)
	@echo "installing the locked engine into $(@D)"
	@$(RUN)/uv pip install -q -p $(@D)/bin/python --no-deps --require-hashes -r $<
	@touch $@

ENGINES ?= 0.32.0 0.22.1 0.15.0
.PHONY: test-engine
test-engine: $(STAMP) $(ENGINES:%=.venv-engine-%/.installed) ## ask real engines about every generated adapter (opt-in: 8 GB each)
	@$(PY) -m tests.engine.run $(foreach version,$(ENGINES),$(version)=$(CURDIR)/.venv-engine-$(version)/bin/python)

.PHONY: fuzz
fuzz: $(STAMP) tools ## 50,000 spoilt bodies, 2,000 random objects of each kind in memory, 2,000 on a live server
	AIM_FUZZ_CASES=50000 $(PYTEST) tests/unit/webhooks -k fuzz
	AIM_FUZZ_OBJECTS=2000 $(PYTEST) tests/unit/tenants/test_objects.py
	AIM_FUZZ_LIVE=2000 $(PYTEST) tests/cluster/product/test_tenants_availability.py -k random

.PHONY: bench
bench: $(STAMP) tools ## benchmarks: print ratios, write JSON to build/bench/
	@for bench in bench/*/bench.py bench/admission/largest.py; do $(PY) $$bench || exit 1; done

.PHONY: generate
generate: $(STAMP) ## write all generated files: CRDs, chart schema, reference pages
	@$(PY) -m tools.generate write

.PHONY: verify
verify: $(STAMP) ## fail when a generated file is not what `make generate` would write
	@$(PY) -m tools.generate verify

.PHONY: golden
golden: $(STAMP) ## rewrite the golden files; review reads the diff
	GOLDEN=1 $(PYTEST) tests/unit tests/chart -q -k golden

.PHONY: pictures
pictures: $(STAMP) ## draw the pictures of README and docs again, from real output and with Chromium
	@$(PY) docs/pictures.py && $(PY) -m tests.console.pictures

.PHONY: docs
docs: $(DOCS_STAMP) ## build the documentation site into build/site, every link checked
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

$(DOCS_STAMP): requirements-docs.lock
	$(call install,$(DOCS_VENV),requirements-docs.lock)
	@touch $@

.PHONY: sbom
sbom: $(AUDIT_STAMP) ## the bill of materials of what the image holds: build/sbom.cdx.json (CycloneDX)
	@mkdir -p build
	@$(AUDIT_VENV)/bin/python -W ignore -m cyclonedx_py requirements requirements.lock --pyproject pyproject.toml --of JSON -o build/sbom.cdx.json
	@$(AUDIT_VENV)/bin/python -m tools.supply_chain sbom build/sbom.cdx.json requirements.lock aim-adapters

.PHONY: audit
audit: $(AUDIT_STAMP) ## known vulnerabilities of what the image holds; error 3: the service could not be asked
	@mkdir -p build && rm -f build/audit.json
	@$(AUDIT_VENV)/bin/pip-audit -r requirements.lock --require-hashes --disable-pip --vulnerability-service $(AUDIT_SERVICE) \
		--timeout 15 --progress-spinner off --format json --output build/audit.json >build/audit.log 2>&1 || true
	@$(AUDIT_VENV)/bin/python -m tools.supply_chain audit build/audit.json build/audit.log

$(AUDIT_STAMP): requirements-audit.lock
	$(call install,$(AUDIT_VENV),requirements-audit.lock)
	@touch $@

.PHONY: dist
dist: $(STAMP) ## build the wheel and package the chart into dist/
	@$(PY) -m hatchling build -t wheel -d dist
	@$(PY) -m tools.package_chart dist

.PHONY: lock
lock: $(STAMP) ## resolve the dependencies again, to the newest allowed versions (and to the lowest, for test-lowest)
	@mkdir -p build
	$(call compile,pyproject.toml --extra dev --upgrade -o requirements-dev.lock)
	$(call compile,pyproject.toml -c requirements-dev.lock -o requirements.lock)
	for group in docs audit; do $(call compile,--group $$group --upgrade -o requirements-$$group.lock) || exit 1; done
	echo hatchling | $(call compile,- --no-annotate -c requirements-dev.lock -o requirements-build.lock)
	$(call compile,pyproject.toml --no-annotate --resolution lowest-direct --upgrade -o build/lowest.txt)
	$(call compile,pyproject.toml --extra dev --no-annotate --upgrade -c build/lowest.txt -o requirements-lowest.lock)

.PHONY: clean
clean: ## remove what the targets made here (not the tool cache in ~/.cache/aim-adapters)
	rm -rf $(VENV) $(DOCS_VENV) $(AUDIT_VENV) $(LOWEST_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
