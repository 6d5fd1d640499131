# Everything is set up in .venv by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A process for each core, and one thread for each process: small tests leave threads waiting.
TESTS := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile

.PHONY: demo test test-all browser check bench clean

demo: $(VENV)/installed
	$(BIN)/deepcluster demo

test: check
	$(TESTS) -m "not slow"

# What is slower than a person waits for: crash matrix, smoke studies, pages in a real browser.
test-all: $(VENV)/installed-dev browser
	$(TESTS) -m slow

# Debian's Chromium, where none is there and we may install it; without one its tests are skipped.
browser:
	@if command -v "$${CHROMIUM:-chromium}" >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "installing chromium for the tests in a browser"; \
		{ timeout 200 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 400 \
			apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
			|| echo "chromium could not be installed: the tests in a browser will be skipped"; \
	else echo "no chromium, and no right to install it: the tests in a browser will be skipped"; fi

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

$(VENV)/installed: pyproject.toml constraints.txt src/deepcluster/images/shrink.c src/deepcluster/images/checksum.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
