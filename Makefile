# make demo   a sweep on the simulated engine, no GPU needed
# make test   lint, types and tests
# make test-sglang   the tests on real SGLang servers, on this machine's CPU: minutes, and 3 GB in .venv-sglang
# make test-cluster   sweeps on a cluster of Ray's, several nodes on this machine, with played servers: minutes
# make test-gpu SGLANG=/path/to/python   the engine contract and draft TP on this machine's GPUs, with the SGLang of that Python
# make real-pair   a small real model and an EAGLE-3 draft of it, the kept one or DRAFT=DIR, in .venv-sglang/real-pair
# make fuzz   50,000 damaged inputs to everything that is read: about two minutes; INPUTS=N and SEED=N
# make chaos  1,000 trials with random faults and signals: about ten minutes; SEED=N
# make draft-tp-matrix   draft TP against stock SGLang on a CPU, sixteen releases, more than an hour
# make docs   the site of docs/ into build/site, every warning an error
# make sweep-reference   the table of keys in docs/sweep_file.md, from the schema
# make notebook   notebooks/analyse_sweep.ipynb run in Jupyter, with its outputs kept
# make requirements   choose requirements-ci.txt anew, what `make test` installs; CONSTRAINTS= installs the newest of everything
# make releases   what differs between SGLang releases, read anew from the wheels on PyPI
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
CONSTRAINTS ?= requirements-ci.txt
INSTALL = $(BIN)/python -m pip install --quiet
PAIR   := .venv-sglang/real-pair

.PHONY: requirements demo test fuzz chaos docs notebook sweep-reference test-sglang test-cluster test-gpu real-pair lint releases draft-tp-matrix draft-tp-facts clean

demo: $(VENV)/.installed
	$(BIN)/specbench sweep sweeps/quickstart.yaml

test: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 5 --dist worksteal --durations 15

# Not --quiet: it would silence what --strict counts.
docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

notebook: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --editable '.[notebook]'
	$(BIN)/python scripts/run_notebook.py

sweep-reference: $(VENV)/.installed
	$(BIN)/python scripts/sweep_reference.py

test-sglang: real-pair
	SPECBENCH_TEST_SGLANG=1 SPECBENCH_REAL_PAIR=$(PAIR) $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 12 tests/real_sglang

test-cluster: $(VENV)/.installed-test
	$(INSTALL) $(CONSTRAINTS:%=--constraint %) --editable '.[ray]'
	SPECBENCH_TEST_CLUSTER=1 $(BIN)/pytest --durations 12 tests/execution/ray

test-gpu: $(VENV)/.installed-test
	@test -n "$(SGLANG)" || { echo "name the Python that has SGLang: make test-gpu SGLANG=/path/to/python" >&2; exit 2; }
	SPECBENCH_TEST_GPU=$(SGLANG) $(BIN)/pytest -n 4 tests/gpu

fuzz: $(VENV)/.installed-test
	$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),50000) --seed $(or $(SEED),1)

chaos: $(VENV)/.installed-test
	SPECBENCH_CHAOS_TRIALS=1000 SPECBENCH_CHAOS_SEED=$(or $(SEED),1) $(BIN)/pytest tests/runner/test_chaos.py

real-pair: $(VENV)/.installed-test
	$(BIN)/python tests/real_sglang/build.py
	.venv-sglang/python-0.5.17 scripts/make_real_pair.py $(PAIR) $(if $(DRAFT),--draft $(DRAFT))

lint: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

requirements: $(VENV)/.installed
	$(INSTALL) uv
	{ head -1 requirements-ci.txt; $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra test --extra docs --extra ray --upgrade \
	  --no-header --no-annotate --no-emit-index-url pyproject.toml; } > $(VENV)/requirements-ci.txt
	mv $(VENV)/requirements-ci.txt requirements-ci.txt

releases: $(VENV)/.installed
	$(BIN)/python scripts/releases.py

draft-tp-matrix: $(VENV)/.installed-test
	$(BIN)/python -m tests.sglang.plugin.matrix --log results/draft_tp_matrix/cpu.log
	$(BIN)/python -m tests.sglang.plugin.matrix --set between --together 2 --log results/draft_tp_matrix/cpu_between.log
	$(BIN)/python -m tests.sglang.plugin.matrix --set 0.5.10 --log results/draft_tp_matrix/cpu_0.5.10.log
	$(BIN)/python -m tests.sglang.plugin.matrix --set 0.5.9 --log results/draft_tp_matrix/cpu_0.5.9.log
	$(BIN)/python -m tests.sglang.plugin.matrix --set 0.5.8 --log results/draft_tp_matrix/cpu_0.5.8.log

draft-tp-facts: $(VENV)/.installed
	$(BIN)/python scripts/draft_tp_facts.py

$(VENV)/.installed: pyproject.toml $(wildcard $(CONSTRAINTS))
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specbench needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) $(CONSTRAINTS:%=--constraint %) --editable . || \
	  { echo "$(CONSTRAINTS) cannot be had here: installing the newest" >&2; $(INSTALL) --editable .; }
	touch $@

$(VENV)/.installed-test: pyproject.toml $(wildcard $(CONSTRAINTS)) $(VENV)/.installed
	$(INSTALL) $(CONSTRAINTS:%=--constraint %) --editable '.[test,docs]' || \
	  { echo "$(CONSTRAINTS) cannot be had here: installing the newest" >&2; $(INSTALL) --editable '.[test,docs]'; }
	touch $@

clean:
	rm -rf $(VENV) .venv-sglang .pytest_cache .mypy_cache .ruff_cache
