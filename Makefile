# `make reproduce` and `make test` are the two commands; both set up .venv first, once. `make help` lists all.

PYTHON ?= python3
# The processes that run the tests.
WORKERS ?= 2
# Where the report is written.
OUT ?= out

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
INSTALL := -m pip install --quiet --quiet --no-input --disable-pip-version-check
TORCH := $(shell grep '^torch==' constraints.txt)
FRESH := build/resolve

# A checkout that was moved or copied with its .venv needs a new one: the library is installed from a path.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.PHONY: reproduce test prove lint setup constraints clean distclean help check-python
.DEFAULT_GOAL := help

reproduce: $(STAMP)  ## verify the divergences, audit the tokens, compare the rules; writes out/report.html and out/report.json
	@$(BIN)/python -m benchmarks.reproduce --out "$(OUT)"

test: $(STAMP)  ## run the whole test suite
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

prove: $(STAMP)  ## prove every theorem and closed form, and say what each proof rests on
	@OMP_NUM_THREADS=1 $(BIN)/python -m proofs

lint: $(STAMP)  ## ruff, its formatter as a check, and mypy
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

setup: $(STAMP)  ## set up .venv, which the commands above do by themselves

$(STAMP): constraints.txt pyproject.toml
	@$(MAKE) --no-print-directory check-python
	@echo "Setting up $(VENV) with $$($(PYTHON) --version): one to two minutes, once"
	@rm -f $(STAMP)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@# setuptools comes first so that building uses the pinned one
	@$(BIN)/python $(INSTALL) --constraint constraints.txt setuptools
	@$(BIN)/python $(INSTALL) $(TORCH)
	@$(BIN)/python $(INSTALL) --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@printf '%s' "$(CURDIR)" > $(STAMP)

check-python:
	@command -v $(PYTHON) >/dev/null \
	  || { echo "error: $(PYTHON) not found; install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $$($(PYTHON) --version 2>&1) is too old; Python 3.11 or newer is needed, or name one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }

constraints: check-python  ## resolve pyproject.toml anew and rewrite constraints.txt (torch stays as pinned)
	rm -rf $(FRESH)
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python $(INSTALL) $(TORCH)
	$(FRESH)/bin/python $(INSTALL) 'setuptools>=77' '.[dev]'
	grep '^#' constraints.txt > $(FRESH)/constraints.txt
	$(FRESH)/bin/python -m pip freeze --all --exclude pip --exclude wheel --exclude bandtheory \
	  | grep -v -i -E '^(nvidia-|cuda-|triton)' | sed 's/+[A-Za-z0-9.]*$$//' >> $(FRESH)/constraints.txt
	mv $(FRESH)/constraints.txt constraints.txt
	rm -rf $(FRESH)

clean:  ## remove what the commands wrote; .venv stays
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find bandtheory benchmarks proofs trainer tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv as well
	rm -rf $(VENV)

help:
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/\1\t\2/' | expand -t 14
