# Everything here works on a machine with Python 3.11 or newer and make; nothing is installed outside .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PyTorch for the tests, and nothing else. One version by name, so that pip takes a small build for
# the processor where one is at hand: whatever is newest may bring gigabytes of CUDA packages.
TORCH  := 2.13.0
# One BLAS thread per test process: more would wait for each other.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto

.PHONY: demo test test-all lint types layers tables bench clean

demo: $(VENV)/.installed
	$(BIN)/bagwise demo -o bagwise-demo --force

test: $(VENV)/.installed-dev lint types layers
	$(PYTEST)

test-all: $(VENV)/.installed-dev lint types layers
	$(PYTEST) -m "slow or not slow"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# What README and docs list of strategies and families.
tables: $(VENV)/.installed-dev
	$(BIN)/python -m tools.tables

bench: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --group bench
	for name in cut kernels release noise private audit learn theory plan hostile; do $(BIN)/python -m benchmarks.$$name || exit 1; done

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable ".[all]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(BIN)/pip install --quiet "torch==$(TORCH)"
	$(BIN)/pip install --quiet --group dev
	touch $@

clean:
	rm -rf $(VENV) bagwise-demo bagwise-reproduction dist build
