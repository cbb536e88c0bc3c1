# `make` alone lists the targets. Another Python: `make setup PYTHON=python3.12`. Another place: `make setup VENV=/tmp/venv`.
PYTHON ?= python3
VENV ?= .venv
# Test processes, and further arguments for pytest: `make test JOBS=2 ARGS="tests/envs -k budget"`.
JOBS ?= auto
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
SOURCES := rao_envs agents baselines leaderboard tests examples .ci

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format bench wheel clean

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## create .venv with everything; a second run does nothing until the requirements change

# An interrupted or failed installation leaves no stamp, so the next run starts it again; a virtual environment whose
# Python is gone or has no pip is made anew.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "'$(PYTHON)' was not found. Install Python 3.10 or newer, or name yours: make setup PYTHON=/path/to/python3"; exit 1; } >&2
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "RAO-envs needs Python 3.10 or newer, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name another: make setup PYTHON=python3.12"; exit 1; } >&2
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; } >&2
	@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || \
		"$(PYTHON)" -m venv $$([ ! -e "$(VENV)/pyvenv.cfg" ] || echo --clear) "$(VENV)"
	"$(BIN)/python" -m pip install --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@
	@echo "Ready. Next: make demo, or . $(BIN)/activate"

demo: $(STAMP) ## train a recursive and a monolithic agent on a small maze, side by side (about 5 minutes)
	"$(BIN)/rao" demo

test: $(STAMP) ## run the tests, without the slow ones
	"$(BIN)/python" -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-slow: $(STAMP) ## run the slow tests
	"$(BIN)/python" -m pytest -n $(JOBS) --dist worksteal -m slow $(ARGS)

lint: $(STAMP) ## check style, formatting and types; changes nothing
	"$(BIN)/python" -m ruff check $(SOURCES)
	"$(BIN)/python" -m ruff format --check $(SOURCES)
	"$(BIN)/python" -m mypy

format: $(STAMP) ## format the code and repair what Ruff can repair
	"$(BIN)/python" -m ruff check --fix --exit-zero --quiet $(SOURCES)
	"$(BIN)/python" -m ruff format $(SOURCES)

bench: $(STAMP) ## measure speed, side by side with other environments
	"$(BIN)/rao" bench

wheel: $(STAMP) ## build the wheel into dist/ and prove that it works alone, without torch
	rm -rf dist
	"$(BIN)/python" -m build --no-isolation
	"$(BIN)/python" .ci/check_wheel.py dist/*.whl

clean: ## delete caches and build results; .venv and your runs stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
