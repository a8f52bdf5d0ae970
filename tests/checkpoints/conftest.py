"""What the tests of several readers share."""

import pytest

from checkpoints.huggingface_config import read_description
from tests.checkpoints.writers import write_json


@pytest.fixture
def read(tmp_path):
    """The shape of a model whose ``config.json`` has these values."""

    def read(config):
        write_json(tmp_path / "config.json", config)
        return read_description(tmp_path).config

    return read
