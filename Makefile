# The house's front door. `make run` and `make test` work on a machine that has only Python 3.11+ and make.
# The recipes use the virtual environment in .venv, which is made and filled once (and again when pyproject.toml changes).

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.kvplan-installed
# By their paths, not their names: an error of a point then names the same place on every machine.
SWEEPS := $(sort $(wildcard scenarios/sweep-*.yaml))
PYTEST := $(BIN)/python -m pytest
# Python with the peer simulator of `make bench`, see tests/bench/peer.py
PEER_PYTHON ?= .peer-venv/bin/python
export PEER_PYTHON

.DEFAULT_GOAL := help
.PHONY: help install run samples test test-all check format bench clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "kvplan needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "no virtual environment could be made (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "installing kvplan and its tools into $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

install: $(STAMP)  ## make .venv and install kvplan and the developers' tools into it

run: $(STAMP)  ## simulate the quickstart scenario and say where its report lies
	@$(BIN)/kvplan run quickstart --out out/quickstart
	@echo
	@echo "report: $(CURDIR)/out/quickstart/report.html   (open it in a browser)"

samples: $(STAMP)  ## redraw the pictures of README.md and the sweeps' reports in reports/samples
	@$(BIN)/kvplan run quickstart --quiet --out out/quickstart > /dev/null
	@$(BIN)/kvplan run seed-capacity --quiet --out out/seed-capacity > /dev/null
	@$(BIN)/python -m reports.sample_drawings reports/samples \
	  out/quickstart/plots/memory_split.svg out/seed-capacity/plots/admitted_by_block_size.svg
	@for path in $(SWEEPS); do \
	  $(BIN)/kvplan sweep $$path --restart --quiet --allow-missed --out out/$$(basename $$path .yaml) > /dev/null || exit 1; \
	done
	@$(BIN)/python -m reports.sweep_samples reports/samples $(SWEEPS:scenarios/%.yaml=out/%)

test: $(STAMP)  ## the tests, in minutes, on all cores
	@$(PYTEST) -n auto -m "not slow"

test-all: $(STAMP)  ## the slow tests too, with fresh random examples, and a sweep on Ray
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'ray>=2.40' || echo "no Ray: its test will skip"
	@$(PYTEST) -n auto --hypothesis-profile=search

check: $(STAMP)  ## format, lint, types, who may import whom
	@bad=; \
	$(BIN)/ruff format --check --quiet . || { bad=1; echo "not formatted: make format"; }; \
	$(BIN)/ruff check --quiet . || bad=1; \
	$(BIN)/mypy || bad=1; \
	$(BIN)/lint-imports || bad=1; \
	test -z "$$bad"

format: $(STAMP)  ## format and mend what ruff can mend
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

bench: $(STAMP)  ## speed against the peer simulator, memory of a million requests, start-up time
	@$(PYTEST) -n 0 -s -o python_files='bench_*.py' -o python_functions='bench_*' tests/bench

clean:  ## remove what was made here
	rm -rf $(VENV) out dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
