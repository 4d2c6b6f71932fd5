# Two commands set everything up: `make repro` and `make test`. Both need Python 3.11 or newer, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
# Where it is set, as in many containers, each of a hundred processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# DVC runs one stage after another, and takes others beside it that run stages which do not wait for its own. So each
# part of the graph is a DVC of its own here, JOBS at a time; `dvc repro` alone does the same, one by one.
JOBS ?= 2
DVC := dvc --wait-for-lock repro --keep-going
listed = $(shell tr -d "\r\"'" < params.yaml | awk '/^[a-z]/ { on = $$1 == "$1:" } on && /^ *- / { print $$2 }')
# Every other one: relatives, which take as long, stand beside each other there.
records-1 := $(shell printf '%s\n' $(call listed,checkpoints) | awk 'NR % 2')
records-2 := $(filter-out $(records-1),$(call listed,checkpoints))
# What needs no torch.
LIGHT := $(filter vllm-rust-0.33.0 minijinja-3.1.0 llama.cpp-b10775,$(call listed,engines))
HEAVY := $(filter-out $(LIGHT),$(call listed,engines))
ENGINES := $(LIGHT:%=engine-%) $(HEAVY:%=engine-%)
GATEWAYS := $(patsubst %,gateway-%,$(call listed,targets))
# Environments are built one at a time: a gateway's takes seconds, so it comes before an engine's. What is short comes
# last, when little is left to go beside.
PARTS := $(firstword $(GATEWAYS)) $(patsubst %,engine-%,$(firstword $(HEAVY))) \
	$(GATEWAYS) $(HEAVY:%=engine-%) $(LIGHT:%=engine-%) patterns
LIGHT_STAGES := patterns $(LIGHT:%=fixtures/witnesses/dvc.yaml:witness@%)

.PHONY: help env repro repro-light test test-data lint bench clean all light sources records-1 records-2 $(PARTS)

help:           ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

env: $(VENV)/.ready    ## make .venv with the pinned packages

# Python compiles what is imported, once; pip would compile all there is.
$(VENV)/.ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint requirements.lock --editable '.[test]'
	touch $@

repro: env      ## record what is stale: corpora, oracle inputs, references, witnesses, reports
	dvc status --quiet || $(MAKE) --no-print-directory --keep-going --jobs $(JOBS) all

repro-light: env  ## the same with the small engines alone, without gateways and the stored reports
	dvc status --quiet --with-deps $(LIGHT_STAGES) || $(MAKE) --no-print-directory --keep-going --jobs $(JOBS) light

all: $(PARTS)
	$(DVC)

light: $(LIGHT:%=engine-%) patterns
	$(DVC) $(LIGHT_STAGES)

sources:
	$(DVC) import second-references

# Two recordings beside each other share the processors.
SHARED := $(shell $(PYTHON) -c 'import os; print(-(-(os.cpu_count() or 1) // min($(JOBS), 2)))')
records-1 records-2: export BELLWETHER_JOBS := $(or $(BELLWETHER_JOBS),$(SHARED))
records-1 records-2: sources
	$(if $($@),$(DVC) --single-item $(foreach slug,$($@),fixtures/dvc.yaml:inputs@$(slug) record@$(slug)))

$(ENGINES): engine-%: records-1 records-2
	$(DVC) --single-item fixtures/witnesses/dvc.yaml:witness@$*

$(GATEWAYS): gateway-%: records-1 records-2
	$(DVC) --single-item fixtures/observations/dvc.yaml:observe@$*

patterns: records-1 records-2
	$(DVC) --single-item patterns

test: env       ## run the tests; downloads the checkpoints' material on first use
	ruff check .
	ruff format --check .
	pytest -n 2 --dist loadgroup --ignore tests/data

test-data: env  ## test the recorded tables; run `make repro` or `dvc pull` before
	pytest tests/data

lint: env       ## mend style
	ruff check --fix .
	ruff format .

bench: env      ## measure speed, memory and size against their floors
	python -m bellwether.bench

clean:          ## remove the environment and what is only a cache
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
