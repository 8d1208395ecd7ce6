# `make demo` and `make test` need Python 3.11 or newer and make; everything else they install into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-slow mutants lint wire clean

demo: $(VENV)/installed
	$(BIN)/pens run digits --methods local,random,pens,oracle --seeds 4 --out runs/demo-$$(date +%Y%m%d-%H%M%S)

test: lint
	$(BIN)/pytest -n 2

test-slow: $(VENV)/installed
	$(BIN)/pytest -m slow

# Faults in the rules that no test notices; up to an hour on two quiet cores, by estimate. CONTRIBUTING.md says more.
mutants: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants $(MODULES)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wire: $(VENV)/installed
	$(BIN)/python -m grpc_tools.protoc --proto_path=src --python_out=src --pyi_out=src pens/network/transport/wire.proto

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pens needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,network]'
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants.json
