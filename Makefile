# Verbs of this project; `make` alone lists them. Everything is built below this folder: .venv, .images, .state.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# The stack and its tests are hundreds of Python processes: without bytecode each would compile our sources anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.complete
PIP := -m pip --disable-pip-version-check --quiet install

# A runtime image is what a VM's disk would bring: a Python environment. Its stamp says that it is complete.
IMAGES := .images
IMAGE = $(IMAGES)/$(1)/.complete
SCHEMA := $(IMAGES)/google-provider/schema.json
# Not locked: its wheels differ by CPU and accelerator, and their dependencies fill gigabytes. The version is exact.
TORCH := torch==2.13.0

# Checks infra/ against rules that others keep.
CHECKOV := $(IMAGES)/checkov

LOCKS := functions provision tune
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-emit-index-url --no-annotate

# `make run EXAMPLE=pytorch_ddp`: another one of examples/. `FAULTS=1`, with digits: a worker is killed and another
# one's machine taken away while they train.
EXAMPLE ?= digits
FAULTS ?=

.PHONY: help
help: ## list these verbs
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: setup
setup: $(INSTALLED) ## install everything this checkout needs into .venv

.PHONY: run
run: $(if $(filter digits,$(EXAMPLE)),$(INSTALLED) $(call IMAGE,tensorflow),images) ## train the digits example on the local stack and watch it (FAULTS=1: and survive)
	@$(BIN)/trainmaster local run $(EXAMPLE) $(if $(FAULTS),--faults)

.PHONY: stack
stack: $(INSTALLED) ## start the local stack and keep it until Ctrl-C
	@$(BIN)/trainmaster local up

# One process more than cores: those that run whole jobs often wait.
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder

.PHONY: test
test: images ## the test suite with everything it needs, but for what trains for a minute or so
	@$(PYTEST) -m "not heavy"

.PHONY: test-all
test-all: images $(call IMAGE,aiplatform) $(CHECKOV)/.complete ## the whole test suite
	@$(PYTEST) --hypothesis-profile thorough

.PHONY: test-quick
test-quick: $(INSTALLED) ## the tests that need neither emulators nor images
	@$(BIN)/python -m pytest -m "not slow and not heavy and not e2e" --ignore=tests/integration/stack --ignore=tests/contract

.PHONY: mutants
mutants: $(INSTALLED) ## break each rule, fence and order of effects once: some test must go red
	@$(BIN)/python tests/mutants.py

SEEDS ?= 200000
.PHONY: soak
soak: $(INSTALLED) ## simulate SEEDS histories of jobs under every fault, all invariants checked after each step
	@$(BIN)/python -m simulator.soak --seeds $(SEEDS)

.PHONY: stage
stage: $(INSTALLED) ## build one source archive per function in build/stage/, as infra/ deploys them
	@$(BIN)/python infra/stage.py

.PHONY: bench-cold
bench-cold: $(INSTALLED) ## start-up time and memory of each staged function, beside a bare functions-framework app
	@$(BIN)/python -m infra.bench_cold

.PHONY: check
check: $(INSTALLED) ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -c 'import sys; sys.path.insert(0, "."); from importlinter.cli import lint_imports_command as run; run()'

.PHONY: check-infra
check-infra: $(CHECKOV)/.complete ## checkov's rules on infra/, each kept or skipped with its reason
	@$(CHECKOV)/bin/checkov --config-file infra/.checkov.yaml --quiet

.PHONY: format
format: $(INSTALLED) ## rewrite what ruff can put right by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: images
images: $(INSTALLED) $(call IMAGE,tensorflow) $(call IMAGE,scikit-learn) $(call IMAGE,pytorch) $(call IMAGE,jax) $(SCHEMA) ## build all runtime images and the schema that infra/ is checked against

.PHONY: lock
lock: $(INSTALLED) ## choose the newest versions the .in files allow and write them down with their hashes
	@$(LOCK) --upgrade requirements/dev.in --output-file requirements/dev.txt
	@for name in $(LOCKS); do \
		$(LOCK) --constraint requirements/dev.txt requirements/$$name.in --output-file requirements/$$name.txt; \
	done
	@for source in requirements/runtime-*.in requirements/checkov.in; do $(LOCK) --upgrade $$source --output-file $${source%.in}.txt; done

.PHONY: clean
clean: ## remove everything that can be made again
	@if [ -x $(BIN)/trainmaster ]; then $(BIN)/trainmaster local down || true; fi
	rm -rf $(VENV) $(IMAGES) .state build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# Stamps, written last: what was interrupted is not taken for complete.

.PHONY: python
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		version=$$($(PYTHON) --version 2>/dev/null | head -1) || version="not there"; \
		echo "Trainmaster needs Python 3.11 or newer; $(PYTHON) is $$version. Another one: make PYTHON=python3.12" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(INSTALLED): requirements/dev.txt pyproject.toml | python
	@echo "installing into $(VENV)"
	@rm -f $@
	@[ -x $(BIN)/python ] || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python $(PIP) --require-hashes -r requirements/dev.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# The google provider's whole schema is in the wheel of its CDK bindings; nothing of that is installed.
$(SCHEMA): requirements/provider-schema.txt tests/infra/provider_schema.py | $(INSTALLED)
	@echo "reading the schema of Terraform's google provider"
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(BIN)/python -m pip --disable-pip-version-check --quiet download --no-deps --require-hashes \
		--dest $(@D) --requirement $<
	@$(BIN)/python tests/infra/provider_schema.py $(@D)/*.whl $@
	@rm $(@D)/*.whl

$(CHECKOV)/.complete: requirements/checkov.txt | python
	@echo "installing checkov"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(PIP) --require-hashes -r $<
	@touch $@

$(IMAGES)/%/.complete: requirements/runtime-%.txt | python
	@echo "building the runtime image $*"
	@rm -rf $(@D)
	@$(PYTHON) -m venv --system-site-packages $(@D)
	@$(@D)/bin/python $(PIP) --require-hashes -r $<
	@$(if $(filter pytorch,$*),$(@D)/bin/python $(PIP) $(TORCH))
	@touch $@
