# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Python compiles what is imported, a quarter of the installed files.
PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
	--constraint constraints.txt
SOURCES = pyproject.toml constraints.txt
# pytest keeps the rewritten tests between runs: 5 s of processor time for each worker.
unexport PYTHONDONTWRITEBYTECODE
# Each worker begins with its share of the tests, in order, so that tests of a file share what they
# make. One worker per core, eight at most: each takes about 1 GB of memory.
JOBS ?= logical
PARALLEL = --numprocesses $(JOBS) --maxprocesses 8 --dist worksteal
# TESTS narrows the tests of `quick`, `test`, `blas` and `matrix`, PART those of `nightly`:
# PART=tests/nightly, or PART="tests -k clusters", whose Spark needs Java.
TESTS ?=
PART ?=
# SETTINGS of `blas`: SETTINGS="--settings Prescott Haswell --threads 1"; its logs are in build/blas.
SETTINGS ?=
# CASE of `matrix`: oldest (Python 3.10 or 3.11), newest, or without-torch, with the Python in PYTHON.
# WITH pins single libraries: make matrix CASE=newest PYTHON=python3.12 WITH="scikit-learn==1.8.*"
CASE ?= newest
WITH ?=
# TAG of `release-check`: the tag that the version must equal.
TAG ?=
MATRIX = .venv-$(CASE)-$(notdir $(PYTHON))
INSTALL_oldest = ".[test]" dp-accounting --constraint constraints-lowest.txt
INSTALL_newest = ".[test,peers]" --upgrade --upgrade-strategy eager
INSTALL_without-torch = ".[test,peers]" --constraint constraints.txt
.PHONY: help demo quick test nightly gpu blas matrix lint bench doc release-check clean
help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1|/p' Makefile | column -t -s '|'

$(VENV)/.made: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	@touch $@
$(VENV)/.installed-%: $(VENV)/.made
	$(PIP) --editable ".[$*]"
	@touch $@

# What develops the library runs the demo as well.
demo: $(firstword $(wildcard $(VENV)/.installed-dev) $(VENV)/.installed-torch,report) ## install, train, draw the privacy-utility curve: report.html and curve.png
	$(BIN)/skprivacy sweep demo --attack strongest --cv 3 --out report.html --plot curve.png
lint: $(VENV)/.installed-dev ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
quick: lint ## the inner loop, about a minute: style, types, and the tests that cost little
	$(BIN)/python -m pytest -q $(PARALLEL) tests -m "not slow and not heavy" $(TESTS)
test: lint ## install, check style and types, run the everyday tests and the doctests
	$(BIN)/python -m pytest -q $(PARALLEL) $(TESTS)
nightly: $(VENV)/.installed-dev ## all that `make test` leaves out: long proofs, benchmarks, fuzz, clusters
	-$(PIP) distributed "dask[dataframe]" pyspark "ray[data]"
	$(BIN)/python -m pytest -q -m slow $(PART)
	$(if $(PART),,SKPRIVACY_FUZZ=15 $(BIN)/python -m pytest -q $(PARALLEL) --hypothesis-profile=fuzz tests/fuzz)
gpu: $(VENV)/.installed-dev ## the tests that need a GPU, and those that simulate one
	$(PIP) triton
	$(BIN)/python -m pytest -q -m "" tests/mechanisms/test_chacha.py \
		tests/neural_network/_training/test_gpu.py tests/neural_network/_training/test_graph_step*.py \
		tests/neural_network/_gradients/test_trial.py tests/attacks/test_stacked_device.py tests/ensemble/test_teachers_device.py
blas: $(VENV)/.installed-dev ## the tests with the kernels of five processors, with one thread and two
	$(BIN)/python -m tests.tools.blas_settings $(SETTINGS) $(PARALLEL) $(TESTS)
matrix: ## the tests with the oldest or newest versions, or without torch: CASE=, PYTHON=
	$(PYTHON) -m venv $(MATRIX)
	$(MATRIX)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable $(INSTALL_$(CASE)) $(WITH)
	$(if $(filter without-torch,$(CASE)),$(MATRIX)/bin/python -m pip uninstall -qy torch skorch opacus)
	$(MATRIX)/bin/python -m pytest -q $(PARALLEL) $(if $(filter without-torch,$(CASE)),tests) $(TESTS)
bench: $(VENV)/.installed-dev ## times beside peers, one table; `benchmarks/run.py --list` has more
	$(BIN)/python benchmarks/run.py speed/summary
doc: $(VENV)/.installed-doc ## build the documentation into doc/_build
	$(BIN)/python -m sphinx -W -n -b html doc doc/_build
release-check: $(VENV)/.installed-torch,report ## build the archives into dist, twice, and check a release
	$(PIP) build twine cyclonedx-bom
	$(BIN)/python -m tests.tools.release_check --tag "$(TAG)"
clean: ## remove environments, builds and caches
	rm -rf $(VENV) .venv-* build dist doc/_build doc/gallery doc/generated .*_cache
