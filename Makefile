# Everything is set up in .venv by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check bench clean

demo: $(VENV)/installed
	$(BIN)/deepcluster demo

test: check
	$(BIN)/pytest -m "not slow"

# What is slower than a person waits for: crash matrix, smoke studies.
test-all: $(VENV)/installed-dev
	$(BIN)/pytest -m slow

check: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed
	$(BIN)/python benchmarks/alternation.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
