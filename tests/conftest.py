"""What all tests share: where the data lies, and shapes checked at run time."""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from tests import shape_checks

shape_checks.install()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


_LONGEST_FILES = (
    "test_real_models.py",
    "test_serving.py",
    "test_forward.py",
    "test_sample.py",
    "test_model.py",
    "test_gpu_check.py",
    "test_small_pool.py",
    "test_scheduler_machine.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files go to a process of their own, and one that begins last should not be the one that ends last."""
    items.sort(key=lambda item: item.path.name not in _LONGEST_FILES)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real weights and texts beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the repository")
    return SHARED_DATA


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_file() -> Iterator[None]:
    """Dropped after it: kept to the end, they take gigabytes, and most of the mappings that a process may have."""
    yield
    jax.clear_caches()
