"""Every test here breaks a copy of a whole model, and must end with little memory and in little time."""

import resource
import shutil
from pathlib import Path

import pytest

from tests.hostile.models import write_models

MAX_GROWTH = 300 * 2**20  # a model takes less than one MiB; the rest is for libraries that are loaded on the way


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def copy(models, tmp_path):
    """A copy of the model of a layout: its folder, also for a GGUF file."""

    def copy(layout):
        return Path(shutil.copytree(models / layout, tmp_path / layout))

    return copy


@pytest.fixture(autouse=True)
def _memory_is_bounded():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_GROWTH
