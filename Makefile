# Everything a newcomer needs, on a machine that has a Python >= 3.12 and nothing else. `make` alone lists the targets.
#
# An environment is remade only when pyproject.toml changes: its stamp is written last, so an interrupted installation
# is taken up again. `make venv PYTHON=/path/to/python3.12` names the interpreter; else scripts/find_python.sh does.

.DEFAULT_GOAL := help
# Two installations at a time would write the same egg-info, and two test runs would share the cores.
.NOTPARALLEL:

PYTHON =
# More arguments for pytest: make test ARGS='tests/jaxinfer/test_engine.py -x'
ARGS =
# The lower bound of jax in pyproject.toml.
OLDEST_JAX = 0.11.2
# With it goes what needs a jax that old, jax_triton, and the compiler for GPUs that are not there, of the same version;
# the extra `gpu-compile` has another, so its assembler is named here once more.
OLDEST = '.[test,jax-triton]' jax==$(OLDEST_JAX) jaxlib==$(OLDEST_JAX) jax-cuda12-plugin==$(OLDEST_JAX) \
	nvidia-cuda-nvcc-cu12==12.9.86
# Exported, so that the shell takes it as it is, quotes and all.
export PROMPT = What is the capital of France?

# Whole files go to as many processes as there are cores, but no more than memory has room for: one takes up to 4 GB.
# In the order of tests/conftest.py, the longest first. Not so with ARGS, which are for a look at a few tests.
PARALLEL = $(if $(ARGS),,-n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder)

VENV = .venv
VENV_OLDEST = .venv-oldest
VENV_GPU = .venv-gpu
BIN = $(VENV)/bin

$(VENV)/.installed: pyproject.toml
	@sh scripts/make_venv.sh --files $(VENV) "$(PYTHON)" --editable '.[dev]'
	@touch $@

$(VENV_OLDEST)/.installed: pyproject.toml
	@sh scripts/make_venv.sh --files $(VENV_OLDEST) "$(PYTHON)" --editable $(OLDEST)
	@touch $@

$(VENV_GPU)/.installed: pyproject.toml
	@sh scripts/make_venv.sh $(VENV_GPU) "$(PYTHON)" --editable '.[test,gpu-compile]'
	@touch $@

.PHONY: venv demo test test-all test-oldest-jax test-oldest-kernels test-gpu-compile gpu-static memory-figures lint format clean help

venv: $(VENV)/.installed  ## make the environment .venv

demo: venv  ## a small real model answers a question
	@$(BIN)/jaxinfer generate --chat --prompt "$$PROMPT" --temperature 0 --max-tokens 64

# ARGS are for the main environment, and with them nothing else runs: the files that they name are not in the others.
# Kernels are what a version of jax breaks, so the oldest one runs their tests every time.
test: venv  ## run the tests, without those marked slow
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)
	@$(if $(ARGS),,$(MAKE) --no-print-directory test-gpu-compile)
	@$(if $(ARGS),,$(MAKE) --no-print-directory test-oldest-kernels)

test-all: venv  ## run the tests, slow ones too
	$(BIN)/python -m pytest -m '' $(PARALLEL) $(ARGS)
	@$(if $(ARGS),,$(MAKE) --no-print-directory test-gpu-compile ARGS="tests/gpu_compile -m ''")

# Told which platform it has, JAX loads the plugin and does not look for a GPU; so in the two environments that have it.
test-oldest-jax: $(VENV_OLDEST)/.installed  ## run the tests with the oldest jax that is supported
	JAX_PLATFORMS=cpu $(VENV_OLDEST)/bin/python -m pytest $(PARALLEL) $(ARGS)

# Without the controls: that the comparison can fail is shown with the newest jax.
test-oldest-kernels: $(VENV_OLDEST)/.installed
	JAX_PLATFORMS=cpu $(VENV_OLDEST)/bin/python -m pytest $(PARALLEL) --ignore-glob='*_controls.py' \
		tests/pallas_kernels tests/gpu_compile

test-gpu-compile: $(VENV_GPU)/.installed  ## compile for GPUs that are not there and look at the result
	JAX_PLATFORMS=cpu $(VENV_GPU)/bin/python -m pytest $(PARALLEL) $(or $(ARGS),tests/gpu_compile)

gpu-static: $(VENV_GPU)/.installed $(VENV_OLDEST)/.installed  ## write the tables of docs/gpu-static.md anew
	JAX_PLATFORMS=cpu $(VENV_GPU)/bin/python -m scripts.gpu_static
	JAX_PLATFORMS=cpu $(VENV_OLDEST)/bin/python -m scripts.gpu_static.triton_matmul

memory-figures: venv  ## write the tables of docs/memory.md anew (reads ../shared/data)
	$(BIN)/python -m scripts.memory_figures $(ARGS)

lint: venv  ## check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: venv  ## sort the imports and format the code
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

clean:  ## remove what was made here: environments, caches, builds
	rm -rf .venv* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `make oracle` and `make reference`: the environment of the reference implementation and the fixtures made in it.
-include oracle.mk
