# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.tec-setup
# Bytecode is made where a module is imported: of 11,000 files that packages bring some 3,000 ever are, and compiling all is a third of pip's work.
PIP := $(PY) -m pip --disable-pip-version-check
# uv resolves and unpacks what `dev` and `docs` name in 18 processor seconds, pip in 98, to the same versions. It reads none of pip's settings: where these name an index,
# and where uv is not to be had or fails, pip does it.
INSTALL = { ! $(PIP) config list | grep -q '[.]index-url=' && $(PIP) install -q --no-compile uv && $(VENV)/bin/uv pip install -q --python $(PY) -e $(1); } \
	|| $(PIP) install -q --no-compile -e $(1)
EXTRAS ?= dev

.PHONY: setup demo test night mutants baseline cliffs unseen model triton triton-language triton-libraries tinygrad guide foreign array-api torch torch-models check bench conformance fuzz fuzz-models fuzz-nnsmith networks docs release clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(call INSTALL,'.[$(EXTRAS)]')
	touch $(STAMP) $(if $(findstring docs,$(EXTRAS)),$(VENV)/.tec-docs)

demo: setup
	$(PY) tutorials/demo.py

test: setup
	$(PY) -m pytest -n 2 --dist worksteal -m "not slow and not gpu"

# The tests that draw, which are all that take tests/seeds.py, with the date's seeds, and those of which rows wait for the night; `make night TEC_SEED=20270131` draws a night's again.
DRAWN = tests/fuzz $(shell sed -n 's/::.*//p' tests/night_rows.txt | sort -u) $(shell grep -rlE 'seeds[.](first|some|stream|number)|^from hypothesis|^@thinned' tests/unit tests/errors tests/conformance tests/ir --include='test_*.py' | grep -v /test_seeds.py)
night: export TEC_SEED := $(or $(TEC_SEED),$(shell date +%Y%m%d))
night: setup
	@echo TEC_SEED=$(TEC_SEED)
	TEC_FUZZ=600 TEC_FUZZ_SEEDS=200 TEC_FUZZ_SECONDS=60 TEC_FUZZ_KERNELS=60 TEC_FUZZ_MUTATIONS=2000 TEC_FUZZ_CASES=2000 TEC_LOWER_DRAWS=10000 $(PY) -m pytest -n 2 --dist worksteal -m "not slow and not gpu" $(DRAWN)

# Small errors planted in a copy of the sources: the tests that reach them must notice nine of ten. MUTANTS=30 plants fewer, JOBS=16 as many at once.
mutants: setup
	$(PY) -m tools.mutants --count $(or $(MUTANTS),100) --jobs $(or $(JOBS),1)

# Environments of their own, with tec and what INSTALLED says.
build/%/.tec-setup: pyproject.toml
	test -x build/$*/bin/python || $(PYTHON) -m venv build/$*
	build/$*/bin/python -m pip install -q --disable-pip-version-check -e $(INSTALLED)
	touch $@

# Triton's kernels on the software GPU, in an environment of its own: triton is some 200 MB.
TRITON := build/triton

$(TRITON)/.tec-setup: INSTALLED = . 'triton>=3.9,<3.10' 'pytest>=8'

triton: $(TRITON)/.tec-setup
	$(TRITON)/bin/python -m pytest tests/unit/emulator/test_triton.py

# tinygrad's HIP backend on the software GPU, which compiles with the system's LLVM (libLLVM), and AMD's HIP Python.
TINYGRAD := build/tinygrad

$(TINYGRAD)/.tec-setup: INSTALLED = '.[cli]' 'tinygrad>=0.14,<0.15' hip-python 'pytest>=8'

tinygrad: $(TINYGRAD)/.tec-setup
	$(TINYGRAD)/bin/python -m pytest tests/unit/emulator/test_hip.py

# The CI files of docs/amd-kernels.md as a runner runs them, with a wheel of this checkout: six environments, a GB of packages.
guide: setup
	TEC_GUIDE_CI=1 $(PY) -m pytest -m slow tests/unit/emulator/test_guide_ci.py

# Kernels of Triton, HIP (clang with lld, where they are installed), IREE and tinygrad on the software GPU under every check; how many were right.
FOREIGN := build/foreign

$(FOREIGN)/.tec-setup: INSTALLED = . 'triton>=3.9,<3.10' 'tinygrad>=0.14,<0.15' iree-base-compiler 'pytest>=8'

foreign: $(FOREIGN)/.tec-setup
	$(FOREIGN)/bin/python -m pytest tests/foreign

# The suite of the array API standard on tec.array; CHECKOUT names one of data-apis/array-api-tests with its submodule. TEC_ARRAY_API_CHIP=gfx942 runs it on that chip in software.
array-api: setup
	$(PY) -m pip install -q --disable-pip-version-check ndindex pytest-json-report
	TEC_ARRAY_API_CHECKOUT=$(CHECKOUT) $(PY) -m pytest -q -s tests/foreign/test_array_api.py

# Triton's own tests of its language on tec.tile; CHECKOUT names a checkout of triton-lang/triton. TEC_TRITON_CHIP=cuda runs them on the GPU at hand.
triton-language: $(TORCH)/.tec-setup
	TEC_TRITON_CHECKOUT=$(CHECKOUT) $(TORCH)/bin/python -m pytest -q -s -m slow tests/foreign/test_triton_language.py

# Kernels of public libraries for Triton; CHECKOUTS names a folder with checkouts of Liger-Kernel, flash-linear-attention, unsloth and aiter.
triton-libraries: $(TORCH)/.tec-setup
	$(TORCH)/bin/pip install -q --disable-pip-version-check einops
	TEC_TRITON_LIBRARIES=$(CHECKOUTS) $(TORCH)/bin/python -m pytest -q -s -m slow tests/foreign/test_triton_libraries.py

# The PyTorch frontend, in an environment of its own: torch is some 200 MB.
TORCH := build/torch

$(TORCH)/.tec-setup: INSTALLED = '.[torch-test]'

torch: $(TORCH)/.tec-setup
	$(TORCH)/bin/python -m pytest -m "not slow" tests/torch

# The networks of torchvision and transformers, and torch's own samples of every operator: half an hour.
torch-models: $(TORCH)/.tec-setup
	$(TORCH)/bin/python -m pytest -m slow -s tests/torch

check: setup
	$(VENV)/bin/ruff check tec frontends tests benchmarks tutorials tools
	$(VENV)/bin/ruff format --check tec frontends tests benchmarks tutorials tools
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: setup
	for b in gemm_cpu math_cpu compile_time call_cost emulator networks; do OPENBLAS_CORETYPE=SkylakeX $(PY) benchmarks/$$b.py; done

# Counted and modelled figures of this tree beside the stored ones (benchmarks/results); WORDS="--quick", "--kind cpu", "--write".
baseline: setup
	$(PY) -m benchmarks.baseline $(WORDS)

# Random operators beside ONNX Runtime, and beside the limits of an AMD chip by the time model; WORDS="--seed 7 --kinds conv".
cliffs: setup
	$(PY) -m benchmarks.cliffs llvm $(WORDS)
	$(PY) -m benchmarks.cliffs gfx942 $(WORDS)

# Networks drawn from timm, torchvision, transformers and diffusers beside ONNX Runtime; WORDS="--seed 7 --count 40 --write".
unseen: $(TORCH)/.tec-setup
	$(TORCH)/bin/pip install -q --disable-pip-version-check timm diffusers 'onnxruntime>=1.31' '.[onnx]'
	$(TORCH)/bin/python -m benchmarks.unseen $(WORDS)

# The time model and tec's kernels against published times on AMD GPUs, drawn; AITER names a checkout of ROCm/aiter. WORDS="--seed 7 --count 0 --side judged".
model: setup
	$(PY) -m benchmarks.amd_model $(WORDS)

conformance: setup
	TEC_ALL_LEVELS=1 $(PY) -m pytest -n 2 tests/conformance/test_table.py -k host
	$(PY) -m pytest -m slow tests/conformance

fuzz: setup
	$(PY) -m pytest -m slow tests/fuzz

# Mutated models, graphs and packages, five minutes each: refused with an error, or the right numbers.
fuzz-models: setup
	$(PY) -m pytest -m slow tests/fuzz/test_models.py tests/fuzz/test_onnx_mutations.py

# 500 models made by nnsmith, which needs torch and so has an environment of its own; then tec on them. Half an hour the first time.
NNSMITH := build/nnsmith

$(NNSMITH)/.tec-setup:
	$(PYTHON) -m venv $(NNSMITH)
	$(NNSMITH)/bin/pip install -q --disable-pip-version-check 'nnsmith==0.1.0' torch onnx onnxruntime onnxscript
	touch $@

fuzz-nnsmith: setup $(NNSMITH)/.tec-setup
	test -d $(NNSMITH)/models || XDG_CACHE_HOME=$(NNSMITH)/cache $(NNSMITH)/bin/python tests/fuzz/nnsmith_models.py $(NNSMITH)/models 0 500
	TEC_NNSMITH=$(NNSMITH)/models $(PY) -m pytest -m slow -s tests/fuzz/test_nnsmith.py

networks: setup
	$(PY) -m pytest -m slow tests/networks tests/unit

$(VENV)/.tec-docs: $(STAMP)
	$(call INSTALL,'.[docs]')
	touch $@

docs: $(VENV)/.tec-docs
	$(PY) -m tools.render_tutorials docs/tutorials
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# The archives of a release, built, checked, installed in a fresh environment and tried by the demo; WORDS=--rehearse for a tree that is not ready. Uploads nothing.
release:
	$(PYTHON) -m tools.release $(WORDS)

clean:
	rm -rf $(VENV) build dist site docs/tutorials .mypy_cache .ruff_cache .pytest_cache
