# The project's commands; `make` lists them. Everything is built below this folder, in .venv, .images, .state and build.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# The local stack and its tests start hundreds of Python processes. Without bytecode each of them would compile our sources.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.complete
# What `make run` needs; a part of the above.
RUNNABLE := $(VENV)/.runnable
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Without dependencies, because a lock file lists all of them.
LOCKED := --no-deps --require-hashes -r

# uv does not read pip's configuration. These are its variables for the same indexes, folders and certificates.
define PIP_TO_UV
s/\\n/ /g; s/^(global|:env:)\.//; s/=' +/='/
s/^index-url=/export UV_DEFAULT_INDEX=/p
s/^extra-index-url=/export UV_INDEX_STRATEGY=unsafe-best-match UV_INDEX=/p
s/^trusted-host=/export UV_INSECURE_HOST=/p
s/^cert=/export SSL_CERT_FILE=/p
s/^proxy=/export ALL_PROXY=/p
/^find-links=/{s/ +/,/g; s/^find-links=/export UV_FIND_LINKS=/p}
endef
export PIP_TO_UV
export UV_COMPILE_BYTECODE := 1
# In pip's list, the environment comes first and has precedence.
SET_UP_UV := eval "$$($(PIP) config list | tac | sed -nE "$$PIP_TO_UV")"
UV := $(SET_UP_UV); $(BIN)/uv pip install --python

# A runtime image is a Python environment that stands for a VM's disk image. The stamp file marks a complete one.
IMAGES := .images
IMAGE = $(IMAGES)/$(1)/.complete
SCHEMA := $(IMAGES)/google-provider/schema.json

JAVA := build/java/.complete
CHECKOV := $(IMAGES)/checkov
DOCS := $(IMAGES)/docs

LOCKS := functions api console upload provision tune
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-emit-index-url --no-annotate --no-emit-package trainmaster

# `make run EXAMPLE=pytorch_ddp` runs another one of examples/. `make run FAULTS=1` (digits only) kills one worker's program
# and preempts another worker's VM during the training.
# REALISTIC=1 makes VMs and Compute Engine's API as slow and unreliable as on Google Cloud.
EXAMPLE ?= digits
FAULTS ?=
WHEELS ?=
REALISTIC ?=

.PHONY: help
help: ## list these commands
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: setup
setup: $(INSTALLED) ## install everything this checkout needs into .venv

.PHONY: run
run: $(if $(filter digits,$(EXAMPLE)),$(RUNNABLE) $(call IMAGE,tensorflow),images) ## train the digits example on the local stack (FAULTS=1: with lost replicas; REALISTIC=1: at Google's speed)
	@$(BIN)/trainmaster local run $(EXAMPLE) $(if $(FAULTS),--faults) $(if $(REALISTIC),--realistic)

.PHONY: stack
stack: $(RUNNABLE) ## start the local stack and keep it running until Ctrl-C
	@$(BIN)/trainmaster local up

# Three processes more than cores, because tests of whole jobs and of the agent often wait.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 3)
IN_PROCESSES := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder --numprocesses
PYTEST := $(IN_PROCESSES) $(PROCESSES)
# Quick tests seldom wait.
PYTEST_QUICK := $(IN_PROCESSES) $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

.PHONY: test-unit
test-unit: $(INSTALLED) ## run the unit tests, which need nothing but .venv
	@$(PYTEST_QUICK) -m "not heavy" tests/unit

.PHONY: test-quick
test-quick: $(INSTALLED) ## run the quick tests, which need no emulators
	@$(PYTEST_QUICK) -m "not slow and not heavy and not e2e and not emulator"

.PHONY: test-emulators
test-emulators: $(JAVA) ## run the tests of the project's own emulators, after a change of them
	@$(PYTEST) -m "not heavy" $(addprefix tests/integration/,compute tpu logging monitoring scheduler stack)

.PHONY: test
test: images $(JAVA) ## run the test suite, except expensive tests; those of containers where docker is found
	@$(PYTEST) -m "not heavy"

.PHONY: test-all
test-all: images $(JAVA) $(call IMAGE,aiplatform) $(CHECKOV)/.complete ## run the whole test suite, with more examples per property
	@$(PYTEST) --hypothesis-profile thorough

# make test-ecosystem LIBRARIES="jax or ray" FAULTS="lost VM,preemption"
LIBRARIES ?=
FAULTS ?=
.PHONY: test-ecosystem
test-ecosystem: images ## run programs of public libraries through faults; their packages come from PyPI (build/frameworks.md)
	@FAULTS="$(FAULTS)" WHEELS="$(WHEELS)" $(BIN)/python -m pytest tests/e2e/faults/test_libraries.py -s -k "$(or $(LIBRARIES),library)"

# One module only: make mutants MODULE=shared/trainmaster/core/rules/capacity.py
MODULE ?=
.PHONY: mutants
mutants: $(INSTALLED) ## change each expression of the rules; list the changes that no unit test notices
	@$(BIN)/python tests/mutation/run.py $(MODULE)

SEEDS ?= 200000
FUZZ_INPUTS ?= 1000000
FUZZ_S ?= 7200
.PHONY: soak
soak: $(INSTALLED) ## simulate SEEDS job histories with faults, and throw FUZZ_INPUTS hostile inputs at all entrances, in at most FUZZ_S seconds
	@$(BIN)/python -m tests.sim.soak --seeds $(SEEDS)
	@$(BIN)/python -m tests.fuzz.run --inputs $(FUZZ_INPUTS) --seconds $(FUZZ_S) --seed $$RANDOM --jobs $$(getconf _NPROCESSORS_ONLN)

HISTORIES ?= 20000
.PHONY: explore
explore: $(INSTALLED) ## explore HISTORIES histories in which functions interleave in any order, and judge them by facts
	@$(BIN)/python -m tests.explorer --histories $(HISTORIES)

.PHONY: stage
stage: $(INSTALLED) ## build the source archive of each function, the agent and the algorithms in build/stage/, for infra/
	@$(BIN)/python -m infra.stage

.PHONY: bench
bench: $(INSTALLED) ## measure gangs, queues and costs on the Firestore emulator; write docs/benchmarks.json
	@$(BIN)/python -m bench

.PHONY: bench-quick
bench-quick: $(INSTALLED) ## measure one small size of everything that `make bench` measures
	@$(BIN)/python -m bench --quick

# Each peer has an environment of its own; `build/peers/NAME/.complete` installs one. torch comes from the runtime image.
PEER_ray := ray[train,tune]==2.60.*
PEER_rayserver := ray[default]==2.60.*
PEER_ftlauncher := nvidia-resiliency-ext==0.4.*
PEER_dlrover := dlrover[k8s]==0.6.*
PEER_metaflow := metaflow==2.19.*
PEER_dbos := dbos==2.31.*
PEER_dstack := dstack[server]==0.22.*
PEER_skypilot := skypilot[gcp]==0.14.*
PEER_plots := matplotlib==3.*
PEERS := $(foreach name,ray rayserver ftlauncher dlrover metaflow dbos dstack skypilot plots,build/peers/$(name)/.complete)
.PHONY: bench-peers
bench-peers: $(INSTALLED) $(call IMAGE,pytorch) $(call IMAGE,scikit-learn) $(PEERS) ## run the same programs on the local stack and on other systems, in about 40 minutes; write docs/benchmarks.json
	@$(BIN)/python -m bench.peers --page

# make image RUNTIME=2.21 PROJECT=my-project ZONE=us-central1-a
RUNTIME ?=
PROJECT ?=
ZONE ?=
.PHONY: image
image: $(INSTALLED) ## build a boot image with a runtime's packages in your project, which starts VMs sooner
	@$(BIN)/python -m infra.bake_image --runtime "$(RUNTIME)" --project "$(PROJECT)" --zone "$(ZONE)"

# make smoke PROJECT=my-project REGION=us-central1. YES=1 skips the question. REMOVE=1 only removes what an interrupted run left.
# LOCAL=1 runs the same steps on a realistic local stack; TIME_SCALE=0.1 makes the stack ten times as fast.
REGION ?=
LOCAL ?=
TIME_SCALE ?= 0.1
YES ?=
REMOVE ?=
.PHONY: smoke
smoke: $(INSTALLED) $(if $(LOCAL),$(call IMAGE,tensorflow) $(call IMAGE,scikit-learn)) ## try a whole installation in your project, compare it with the documentation, remove it
	@$(BIN)/python -m smoke $(if $(LOCAL),--local --time-scale $(TIME_SCALE),--project "$(PROJECT)" --region "$(REGION)" \
		$(if $(YES),--yes) $(if $(REMOVE),--remove))

.PHONY: bench-kept
bench-kept: $(INSTALLED) $(call IMAGE,scikit-learn) $(call IMAGE,tensorflow) ## measure how soon programs start on kept machines, at Google's speed, in about 25 minutes; write docs/benchmarks.json
	@$(BIN)/python -m bench.kept_machines --page

.PHONY: bench-cold
bench-cold: $(INSTALLED) $(foreach name,$(LOCKS),$(call IMAGE,function-$(name))) ## compare cold starts of the functions with an app that imports the same client libraries
	@$(BIN)/python -m bench.cold_starts

.PHONY: check
check: $(INSTALLED) ## check lint rules, formatting, types, dense code and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.support.squeezes
	@$(BIN)/python -c 'import sys; sys.path[:0] = [".", "shared", "emulators"]; from importlinter.cli import lint_imports_command as run; run()'

.PHONY: check-infra
check-infra: $(CHECKOV)/.complete ## check infra/ with checkov
	@$(CHECKOV)/bin/checkov --config-file infra/.checkov.yaml --quiet

# Pages link to each other and to sources. Both keep their places in the folder that the generator reads. Tables that are made of the code are
# written into the copies of the pages.
.PHONY: docs
docs: $(DOCS)/.complete $(INSTALLED) ## build the documentation as a site in build/site; a broken link is an error
	@rm -rf build/docs && mkdir -p build/docs
	@find -L *.md mkdocs.yml pyproject.toml docs examples functions infra shared smoke -type f -not -path '*/.*' \
		-regex '.*\.\(md\|py\|tf\|yaml\|yml\|toml\|json\|proto\|svg\|png\|js\|css\)' -print0 | xargs -0 cp --dereference --parents --target-directory build/docs
	@$(BIN)/python -m tests.support.pages build/docs
	@$(DOCS)/bin/zensical build --strict --clean

.PHONY: format
format: $(INSTALLED) ## format the sources and apply ruff's automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: images
images: $(INSTALLED) $(call IMAGE,tensorflow) $(call IMAGE,scikit-learn) $(call IMAGE,pytorch) $(call IMAGE,jax) $(SCHEMA) ## build all runtime images and the provider schema for tests of infra/

.PHONY: lock
lock: $(INSTALLED) ## lock the newest versions that requirements/*.in allow, with hashes; list changes of Google's APIs
	@$(LOCK) --upgrade pyproject.toml --extra tensorboard --extra goodput --extra mcp emulators/pyproject.toml requirements/dev.in --output-file requirements/dev.txt
	@$(LOCK) --constraint requirements/dev.txt emulators/pyproject.toml requirements/run.in --output-file requirements/run.txt
	@for name in $(LOCKS); do \
		$(LOCK) --constraint requirements/dev.txt requirements/$$name.in --output-file requirements/$$name.txt; \
	done
	@$(LOCK) --constraint requirements/dev.txt requirements/stage.in --output-file requirements/stage.txt
	@for source in requirements/runtime-*.in requirements/checkov.in requirements/docs.in; do $(LOCK) --upgrade $$source --output-file $${source%.in}.txt; done
	@$(PIP) install --quiet --no-deps --upgrade --target build/discovery "$$(sed -nE 's/^(google-api-python-client==[^ ]+).*/\1/p' requirements/dev.txt)"
	@documents=googleapiclient/discovery_cache/documents; \
		$(BIN)/python -m tests.support.conformance.changes "$$(echo $(VENV)/lib/python*/site-packages)/$$documents" build/discovery/$$documents

.PHONY: clean
clean: ## remove everything that can be rebuilt
	@if [ -x $(BIN)/trainmaster ]; then $(BIN)/trainmaster local down || true; fi
	rm -rf $(VENV) $(IMAGES) .state build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .cache

# Stamp files are written last, so that an interrupted build is repeated.

.PHONY: python
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		version=$$($(PYTHON) --version 2>/dev/null | head -1) || version="not installed"; \
		echo "Trainmaster needs Python 3.11 or newer; $(PYTHON) is $$version. Select another one: make PYTHON=python3.12" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' has no venv module. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(RUNNABLE): requirements/run.txt pyproject.toml emulators/pyproject.toml | python
	@echo "installing Trainmaster into $(VENV) (about 90 packages)"
	@rm -f $@
	@[ -x $(BIN)/python ] || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@$(PIP) --quiet install $(LOCKED) <(sed -n '/^uv==/,/[^\]$$/p' $<)
	@$(UV) $(BIN)/python $(LOCKED) $<
	@$(UV) $(BIN)/python --quiet --no-deps --no-build-isolation --editable . --editable emulators
	@$(BIN)/python -m compileall -q -j 0 shared emulators functions
	@touch $@

$(INSTALLED): requirements/dev.txt $(RUNNABLE)
	@echo "installing tests and checks into $(VENV)"
	@$(UV) $(BIN)/python $(LOCKED) $<
	@touch $@

# The wheel of the google provider's CDK bindings contains its whole schema. The wheel is read, not installed.
$(SCHEMA): requirements/provider-schema.txt tests/infra/provider_schema.py | $(INSTALLED)
	@echo "reading the schema of Terraform's google provider"
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PIP) --quiet download --no-deps --require-hashes \
		--dest $(@D) --requirement $<
	@$(BIN)/python tests/infra/provider_schema.py $(@D)/*.whl $@
	@rm $(@D)/*.whl

$(CHECKOV)/.complete $(DOCS)/.complete: $(IMAGES)/%/.complete: requirements/%.txt | $(RUNNABLE)
	@echo "installing $*"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(UV) $(@D)/bin/python $(LOCKED) $<
	@touch $@

$(JAVA): tests/support/java.py | $(INSTALLED)
	@echo "archiving the classes of Google's emulators"
	@$(BIN)/python -m tests.support.java
	@touch $@

# What Cloud Functions installs for one of its functions.
$(IMAGES)/function-%/.complete: requirements/%.txt | $(RUNNABLE)
	@echo "installing the requirements of $*"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(UV) $(@D)/bin/python $(LOCKED) $<
	@touch $@

# A peer that does not install is left out; the table says so.
build/peers/%/.complete: | $(RUNNABLE) $(call IMAGE,pytorch)
	@echo "installing $* for bench-peers"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(UV) $(@D)/bin/python --quiet --excludes <(printf 'torch\ntriton\n') '$(PEER_$*)' || { echo "$* does not install" >&2; rm -rf $(@D)/bin; }
	@$(if $(filter ftlauncher dlrover,$*),echo $(abspath $(IMAGES)/pytorch)/lib/python3*/site-packages >"$$(echo $(@D)/lib/python3*/site-packages)/torch.pth")
	@touch $@

# Vertex AI's SDK, for tests.
$(IMAGES)/aiplatform/.complete: requirements/runtime-aiplatform.txt | $(RUNNABLE)
	@echo "installing aiplatform"
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(UV) $(@D)/bin/python $(LOCKED) $<
	@touch $@

$(IMAGES)/%/.complete: requirements/runtime-%.txt | $(RUNNABLE)
	@$(SET_UP_UV); $(BIN)/trainmaster local images $*
