"""The real engine over a model whose tokens can be known beforehand."""

from collections.abc import Sequence
from typing import Any

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from tests.fake_runner import FakeRunner


def fake_engine(*, eos_token_ids: Sequence[int] = (), **limits: Any) -> Engine:
    """The real engine and scheduler over the fake runner."""
    small = {"max_model_len": 64, "num_kv_pages": 32, "page_size": 4, "max_num_seqs": 4, "max_chunk_tokens": 16}
    config = EngineConfig(**(small | limits))
    return Engine(FakeRunner(config), config, tokenizer=None, eos_token_ids=eos_token_ids)  # type: ignore[arg-type]
