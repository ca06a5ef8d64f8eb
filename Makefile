# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SOURCES = pyproject.toml constraints.txt
# What pytest has rewritten of the tests is kept between runs: 5 s of processor time for each worker.
unexport PYTHONDONTWRITEBYTECODE
# Each worker begins with its part of the tests, in order, so that what the tests of a file share is
# made once; who has finished takes over from the others. A worker for each core, eight at most: each
# takes about 1 GB of memory.
JOBS ?= logical
PARALLEL = --numprocesses $(JOBS) --maxprocesses 8 --dist worksteal

# What asks a GPU, where there is one, and what shows the rest without.
GPU_TESTS = tests/mechanisms/test_chacha.py tests/neural_network/_training/test_gpu.py \
	tests/neural_network/_training/test_graph_step.py tests/neural_network/_training/test_graph_step_contracts.py \
	tests/neural_network/_gradients/test_trial.py tests/attacks/test_stacked_device.py \
	tests/ensemble/test_teachers_device.py

.PHONY: help demo quick test test-slow test-gpu test-clusters verification durations lint bench bench-pate doc dist clean

help:
	@echo "make demo       install, train, draw the privacy-utility curve, write report.html and curve.png"
	@echo "make quick      the inner loop, about a minute: style, types, and the tests that cost little"
	@echo "make test       install, check style and types, run the tests and the doctests"
	@echo "make test-slow  the long proofs: many models, whole data sets"
	@echo "make test-matrix  the tests with the oldest and newest versions of all, on each Python"
	@echo "make test-without-torch  the tests of all that works without the extra"
	@echo "make test-blas  the tests under the arithmetic of several processors, with one thread and two"
	@echo "make test-gpu   the tests that need a GPU, and what shows on the processor what it does"
	@echo "make test-clusters  sweeps on Dask and Ray, with a worker killed on the way"
	@echo "make fuzz       ten thousand odd inputs into every public entry"
	@echo "make verification  planted bugs by estimator, shown by verify_privacy: an hour or two"
	@echo "make durations  what each test costs in processor time, into costs.tsv"
	@echo "make bench      speed against peers, one table, with the load of the machine"
	@echo "make bench-pate PATE on MNIST and its students (SKPRIVACY_DATA, see skprivacy.datasets)"
	@echo "make doc        build the documentation into doc/_build"
	@echo "make dist       build the source archive and the wheel into dist"

$(VENV)/.installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[torch]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable ".[test]"
	@touch $@

$(VENV)/.installed-doc: $(VENV)/.installed
	$(PIP) --editable ".[doc]"
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/skprivacy sweep demo --out report.html --plot curve.png

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

quick: lint
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow and not heavy"

test: lint
	$(BIN)/python -m pytest -q $(PARALLEL)

test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m slow

test-gpu: $(VENV)/.installed-test
	$(PIP) triton
	$(BIN)/python -m pytest -q -m "" $(GPU_TESTS)

test-clusters: $(VENV)/.installed-test
	$(PIP) distributed ray
	$(BIN)/python -m pytest -q -m slow tests/nightly/test_clusters.py

verification: $(VENV)/.installed-test
	$(BIN)/python benchmarks/verification.py

durations: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -p tests.tools.cpu_durations --cpu-durations=costs.tsv

bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/bench.py

bench-pate: $(VENV)/.installed-test
	$(BIN)/python benchmarks/pate.py mnist students

doc: $(VENV)/.installed-doc
	$(BIN)/python -m sphinx -W -b html doc doc/_build

dist: $(VENV)/.installed
	$(PIP) build
	rm -rf build dist
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest-* .venv-without-torch build dist doc/_build doc/gallery doc/generated .pytest_cache .mypy_cache .ruff_cache

# The tests with the oldest and with the newest versions that pyproject.toml allows. The oldest have
# wheels for Python 3.10 and 3.11 only. `make test-newest-3.12 WITH="scikit-learn==1.8.*"` tries one
# in between; TESTS narrows what is run, such as TESTS='-m "not slow and not heavy"'.
LOWEST = .venv-lowest
PYTHONS ?= 3.10 3.11 3.12 3.13
WITH ?=
TESTS ?=

.PHONY: test-lowest test-matrix test-without-torch
test-matrix: test-lowest test-without-torch $(PYTHONS:%=test-newest-%)

test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -q $(PARALLEL) $(TESTS)

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints-lowest.txt --editable ".[test]"
	@touch $@

test-newest-%:
	python$* -m venv .venv-newest-$*
	.venv-newest-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager --editable ".[test]" $(WITH)
	.venv-newest-$*/bin/python -m pytest -q $(PARALLEL) $(TESTS)

test-without-torch:
	$(PYTHON) -m venv .venv-without-torch
	.venv-without-torch/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable ".[test]"
	.venv-without-torch/bin/python -m pip uninstall --quiet --yes torch skorch opacus
	.venv-without-torch/bin/python -m pytest -q $(PARALLEL) tests $(TESTS)

# The tests under the kernels of several processors (tests/tools/blas_settings.py). SETTINGS narrows what is
# set, such as SETTINGS="--settings Prescott Haswell --threads 1"; the logs are in build/blas.
SETTINGS ?=

.PHONY: test-blas
test-blas: $(VENV)/.installed-test
	$(BIN)/python -m tests.tools.blas_settings $(SETTINGS) $(PARALLEL) $(TESTS)

# Input that nobody expects, into every public entry: tests/fuzz draws anew in each run.
.PHONY: fuzz
fuzz: $(VENV)/.installed-test
	SKPRIVACY_FUZZ=9 $(BIN)/python -m pytest -q $(PARALLEL) --hypothesis-profile=fuzz tests/fuzz
