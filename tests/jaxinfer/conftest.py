"""A small real model behind the Python API, for the files of tests that ask it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxinfer.llm import LLM
from tests.engines import few_programs


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> LLM:
    with few_programs():
        return LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=128)


@pytest.fixture
def llm(stories: LLM) -> Iterator[LLM]:
    """The model with nothing running; nothing may run after the test either."""
    pages = stories.engine.scheduler.num_free_pages
    yield stories
    assert not stories.engine.has_unfinished
    assert stories.engine.scheduler.num_free_pages == pages
