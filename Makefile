# Nothing but Python 3.11 to 3.13 is needed: `make setup` brings the rest into $(VENV).
#   make test PYTHON=python3.12 VENV=.venv312      another interpreter, another environment
#   make test PYTEST_ARGS="-m 'not slow'"          any arguments of pytest

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
    && { echo $$p; break; }; done)
VENV ?= .venv
DEMO_DIR ?= runs/demo
PYTEST_ARGS ?=

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format goldens

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## the environment, in VENV (.venv); does nothing when it is up to date

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found: name one with PYTHON=..."; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "$(PYTHON) has no venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "installing into $(VENV): minutes the first time"
	$(PY) -m pip install -qq --disable-pip-version-check -e '.[test]' -c constraints.txt
	@touch $@

demo: setup  ## the whole detour on a small model, on the CPU; report in DEMO_DIR (runs/demo)
	$(PY) -m launch.demo --workdir $(DEMO_DIR)

test: setup  ## all tests
	$(PY) -m pytest -q -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

lint: setup  ## ruff, pyright, the launchers' scripts and manifests; changes nothing
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)
	$(PY) -m launch.lint

format: setup  ## ruff's fixes and formatting
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

goldens: setup  ## writes the golden files of tests/ anew, from the code as it is: read the diff
	UPDATE_GOLDENS=1 $(PY) -m pytest -q -k golden
