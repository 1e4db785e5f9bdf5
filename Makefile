# Everything that is done with this repository. Each target installs what it needs into .venv, once.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help install demo test test-full lint format reference bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/.development ## everything for working on samestep

demo: $(VENV)/.frameworks ## drill the transformers example and show the verdict
	@PATH="$(CURDIR)/$(BIN):$$PATH" samestep drill -- python examples/transformers_trainer.py --out {out} \
		|| test $$? -eq 1  # a drill that found a defect did its work

test: $(VENV)/.development ## the suite, with a seeded sample of the zoo
	$(PYTEST) -m "not full"

test-full: $(VENV)/.development ## the suite with the whole zoo, whose result tables it writes
	rm -rf build/zoo build/store-states.json
	mkdir -p build
	ZOO_ROWS=$(CURDIR)/build/zoo STORE_STATES_ROWS=$(CURDIR)/build/store-states.json $(PYTEST)
	$(BIN)/python scripts/write_zoo.py build/zoo
	$(BIN)/python scripts/write_store_states.py build/store-states.json
	$(BIN)/python scripts/cost_validation.py

lint: $(VENV)/.development ## ruff, mypy, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.development ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: $(VENV)/.development ## write the reference pages that follow from the code
	$(BIN)/python scripts/write_reference.py

bench: $(VENV)/.development ## the benchmarks, with their numbers
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

clean: ## remove .venv and all caches
	rm -rf $(VENV) .samestep .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# pip 25.1 brought --group. torch comes first and alone, so that no other package chooses its build.
$(VENV)/.torch: constraints.txt
	@test -n "$(PYTHON)" || { echo "error: samestep needs Python 3.11 or newer; none was found"; exit 2; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(PIP) torch
	@touch $@

$(VENV)/.frameworks: $(VENV)/.torch pyproject.toml
	$(PIP) --group frameworks --editable .
	@touch $@

$(VENV)/.development: $(VENV)/.frameworks
	$(PIP) --group test --group lint
	@touch $@
