# make demo   a sweep on the simulated engine, no GPU needed
# make test   lint, types and tests
# make releases   what differs between SGLang releases, read anew from the wheels on PyPI
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint releases clean

demo: $(VENV)/.installed
	$(BIN)/specbench sweep sweeps/quickstart.yaml

test: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

lint: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

releases: $(VENV)/.installed
	$(BIN)/python scripts/releases.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specbench needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
