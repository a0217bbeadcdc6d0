# Everything here works on a machine with Python 3.11 or newer and make; nothing is installed outside
# .venv and .environments.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PyTorch for the tests, and nothing else. One version by name, so that pip takes a small build for
# the processor where one is at hand: whatever is newest may bring gigabytes of CUDA packages.
TORCH  := 2.13.0
# Hundreds of tests start a Python of their own, which need not compile what is compiled.
unexport PYTHONDONTWRITEBYTECODE
# One BLAS thread per test process: more would wait for each other.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto

# Other environments than .venv, one directory each.
OTHERS := .environments
# Packages of the tests on Spark: PySpark wants an older pandas than the other tests are run with.
SPARK  := $(OTHERS)/spark
# Which Pythons `make test-pythons` looks for.
PYTHONS ?= python3.11 python3.12 python3.13
# Options for pip: `make test-lowest` holds dependencies at their lowest versions with it.
PIP_OPTIONS :=
# What `make bench-compare` runs, and how; empty for every benchmark that has ratios.
NAMES :=
OPTIONS :=
BENCHMARKS := cut kernels noise private audit learn theory hostile faults inference \
              ledger

.PHONY: demo test checked test-all test-spark pytest test-pythons test-lowest test-bare wheel coverage lint types \
        layers tables notebooks docs reproduce bench bench-compare clean

demo: $(VENV)/.installed
	$(BIN)/bagwise demo -o bagwise-demo --force

# Spark in one process beside everything else, which ends with the tests on all cores.
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory -j2 test-spark checked

checked: lint types layers docs
	$(PYTEST)

# Slow statistics too, and new draws: `make test` repeats the same ones (conftest.py).
test-all: export BAGWISE_FRESH := 1
test-all: $(VENV)/.installed-dev lint types layers docs
	$(PYTEST) -m "slow or not slow"
	$(MAKE) --no-print-directory test-spark MARKED="slow or not slow"

# On Spark, in an environment of its own, and in one process: a session is slow to start. Java is
# the machine's, or comes with the packages.
MARKED := not slow
test-spark: $(SPARK)/.installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(SPARK)/bin/python -m pytest -m "$(MARKED)" tests/spark

pytest: $(VENV)/.installed-dev
	$(PYTEST)

# A Python that is not there is named and passed over.
test-pythons:
	@for python in $(PYTHONS); do \
	  if $$python -c "" 2>/dev/null; then \
	    echo "== $$python"; \
	    $(MAKE) --no-print-directory pytest PYTHON=$$python VENV=$(OTHERS)/$$python || exit 1; \
	  else \
	    echo "== $$python is not there: not tested"; \
	  fi; \
	done

# On the lowest Python, too: the lowest numpy has no builds for the newest.
test-lowest:
	mkdir -p $(OTHERS)
	$(PYTHON) -m tools.lowest > $(OTHERS)/lowest.txt
	$(MAKE) --no-print-directory pytest VENV=$(OTHERS)/lowest \
	  PIP_OPTIONS="--constraint $(OTHERS)/lowest.txt"

# Nothing but what `pip install bagwise` brings. Only tests that need no more are run, by name: none
# is skipped in `make test`, where every extra is installed. Then the wheel.
test-bare:
	test -x $(OTHERS)/bare/bin/python || $(PYTHON) -m venv $(OTHERS)/bare
	$(OTHERS)/bare/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(OTHERS)/bare/bin/pip install --quiet --editable . --group bare
	for extra in altair vl_convert torch lightgbm dp_accounting adbc_driver_sqlite \
	  cryptography starlette jinja2; do \
	  ! $(OTHERS)/bare/bin/python -c "import $$extra" 2>/dev/null || exit 1; \
	done
	$(OTHERS)/bare/bin/pytest tests/bare tests/golden tests/files
	$(MAKE) --no-print-directory wheel

# The wheel as others get it: built, checked, installed where nothing else is, and used.
wheel:
	test -x $(OTHERS)/build/bin/python || $(PYTHON) -m venv $(OTHERS)/build
	$(OTHERS)/build/bin/python -m pip install --quiet --upgrade build twine
	rm -rf dist $(OTHERS)/wheel
	$(OTHERS)/build/bin/python -m build --outdir dist
	$(OTHERS)/build/bin/twine check --strict dist/*
	$(PYTHON) -m venv $(OTHERS)/wheel
	$(OTHERS)/wheel/bin/pip install --quiet dist/*.whl
	$(OTHERS)/wheel/bin/python -m tools.readme $(OTHERS)/wheel/bin/bagwise
	ls -l dist

# Not part of `make test`: a trace takes minutes more.
coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=term tests/privacy tests/release tests/golden tests/fuzz \
	  src/bagwise/privacy src/bagwise/release

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

# What the notebooks show, for readers who do not run them.
notebooks: $(VENV)/.installed-dev
	$(BIN)/python -m tools.notebooks

# The site, in build/docs: open build/docs/index.html. A link that leads nowhere is an error.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs build/docs

# The paper's five tables, in bagwise-reproduction; about ten minutes on two cores. A look:
# `make reproduce OPTIONS=--quick`.
reproduce: $(VENV)/.installed
	$(BIN)/python -m reproduction $(OPTIONS)

bench: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --group bench
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit 1; done

# Writes nothing; `make bench-compare NAMES="cut noise" OPTIONS="--fail-above 1.3"`.
bench-compare: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --group bench
	$(BIN)/python -m benchmarks.compare $(NAMES) $(OPTIONS)

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet $(PIP_OPTIONS) --editable ".[all]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(BIN)/pip install --quiet $(PIP_OPTIONS) "torch==$(TORCH)"
	$(BIN)/pip install --quiet $(PIP_OPTIONS) --group dev
	touch $@

$(SPARK)/.installed: pyproject.toml
	test -x $(SPARK)/bin/python || $(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(SPARK)/bin/pip install --quiet $(PIP_OPTIONS) --editable ".[spark]" "pandas<3" \
	  "pyspark[connect]" --group bare
	touch $@

clean:
	rm -rf $(VENV) $(OTHERS) .coverage bagwise-demo bagwise-reproduction \
	  dist build
