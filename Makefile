# Two commands set everything up: `make repro` and `make test`. Both need Python 3.11 or newer, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
# Where it is set, as in many containers, each of a hundred processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# What needs no torch: the references, and the engines that are small.
LIGHT := vllm-rust-0.33.0 minijinja-3.1.0 llama.cpp-b10775
LIGHT_STAGES = patterns $(LIGHT:%=fixtures/witnesses/dvc.yaml:witness@%)

.PHONY: help env repro repro-light test test-data lint bench clean

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
	dvc repro --keep-going

repro-light: env  ## the same with the small engines alone, without gateways and the stored reports
	dvc repro --keep-going $(LIGHT_STAGES)

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
