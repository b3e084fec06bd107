# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.tec-setup
PIP_INSTALL := $(PY) -m pip install -q --disable-pip-version-check -e

.PHONY: setup demo test check bench conformance fuzz fuzz-models networks docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) '.[dev]'
	touch $(STAMP)

demo: setup
	$(PY) tutorials/demo.py

test: setup
	$(PY) -m pytest -n 2 -m "not slow and not gpu"

check: setup
	$(VENV)/bin/ruff check tec frontends tests benchmarks tutorials tools
	$(VENV)/bin/ruff format --check tec frontends tests benchmarks tutorials tools
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: setup
	for b in gemm_cpu math_cpu compile_time call_cost emulator networks; do OPENBLAS_CORETYPE=SkylakeX $(PY) benchmarks/$$b.py; done

conformance: setup
	$(PY) -m pytest -m slow tests/conformance

fuzz: setup
	$(PY) -m pytest -m slow tests/fuzz

# Mutated models, graphs and packages, five minutes each: refused with an error, or the right numbers.
fuzz-models: setup
	$(PY) -m pytest -m slow tests/fuzz/test_models.py tests/fuzz/test_onnx_mutations.py

networks: setup
	$(PY) -m pytest -m slow tests/networks

$(VENV)/.tec-docs: $(STAMP)
	$(PIP_INSTALL) '.[docs]'
	touch $@

docs: $(VENV)/.tec-docs
	$(PY) -m tools.render_tutorials docs/tutorials
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site docs/tutorials .mypy_cache .ruff_cache .pytest_cache
