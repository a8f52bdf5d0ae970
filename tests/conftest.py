"""What all tests share: where the data lies, and shapes checked at run time."""

from pathlib import Path

import pytest

from tests import shape_checks

shape_checks.install()

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real weights and texts beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the repository")
    return SHARED_DATA
