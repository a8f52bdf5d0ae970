"""The host's core works where there is no jax: its tests pass with jax blocked from import."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCKED = ("jax", "jaxlib", "flax")
RUN_PYTEST = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # a None in sys.modules makes the import fail
import hypothesis, pytest
hypothesis.settings.register_profile("few", max_examples=5)  # here the question is only whether they run
hypothesis.settings.load_profile("few")
sys.exit(pytest.main(sys.argv[1:]))
"""


def run_pytest_without_jax(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own; without the conftest, for the other tests' fixtures may well need jax."""
    options = ["-q", "--noconftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-c", RUN_PYTEST, *options, *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)


def test_the_hosts_core_passes_its_tests_without_jax():
    names = (
        "page_allocator",
        "page_hashes",
        "kv_pages",
        "admission",
        "scheduler",
        "scheduler_admission",
        "scheduler_sharing",
        "scheduler_machine",
    )
    result = run_pytest_without_jax(*(f"tests/jaxinfer/test_{name}.py" for name in names))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("module", BLOCKED)
def test_the_block_holds(module, tmp_path):
    test_file = tmp_path / "test_import.py"
    test_file.write_text(f"import {module}\n\ndef test_it():\n    pass\n")
    result = run_pytest_without_jax(str(test_file))
    assert result.returncode != 0
    assert f"import of {module} halted" in result.stdout
