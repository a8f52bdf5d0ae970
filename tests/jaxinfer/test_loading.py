"""What a model's files give when they are put together, and what is looked at before an engine is built of them."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from checkpoints.quantization import abstract_weights, num_bytes
from jaxinfer import device_memory, kv_cache, loading
from jaxinfer.config import Quantization
from jaxinfer.kernel_self_test import KernelSelfTestError
from jaxinfer.loading import build_engine, open_model
from jaxinfer.weights import formats_of
from tests.checkpoints.writers import HF_CONFIG, hf_tensors, known_weights, write_hf, write_json
from tests.vocabularies import write_byte_level_json


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ends"),
    [
        ({"eos_token_id": 5}, None, {"eos_token": "</s>"}, (5, 1)),
        ({"eos_token_id": 5}, {"eos_token_id": [7, 1, 9]}, {"eos_token": "</s>"}, (7, 1, 9)),
        ({"eos_token_id": 5}, None, {}, (5,)),
        ({"eos_token_id": None}, None, {"eos_token": "<s>"}, (0,)),
        ({"eos_token_id": None}, None, {}, ()),
    ],
)
def test_a_text_ends_where_the_checkpoint_says_and_at_the_tokenizers_eos(tmp_path, config, generation, tokenizer, ends):
    write_hf(tmp_path, hf_tensors(known_weights()), HF_CONFIG | config)
    write_byte_level_json(tmp_path, **tokenizer)
    if generation is not None:
        write_json(tmp_path / "generation_config.json", generation)
    assert open_model(tmp_path).eos_token_ids == ends


# ---- the device ------------------------------------------------------------------------------------------------------

LIMITS = {"max_model_len": 32, "num_kv_pages": 4, "max_num_seqs": 2, "max_chunk_tokens": 16, "page_size": 8}


class FakeGpu(SimpleNamespace):
    """What jax says of a GPU. What is put on it lies on the CPU."""

    def __init__(self, index: int) -> None:
        super().__init__(index=index, platform="gpu", device_kind="NVIDIA A10", core_count=72, compute_capability="8.6")

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 24 * 2**30, "bytes_in_use": 0}

    def __str__(self) -> str:
        return f"cuda:{self.index}"


@pytest.fixture
def with_gpus(monkeypatch):
    """Pretends that jax found a number of GPUs; 0 leaves the CPU."""

    def pretend(count):
        if count:
            monkeypatch.setattr(jax, "devices", lambda: [FakeGpu(index) for index in range(count)])

    return pretend


@pytest.fixture
def model(tmp_path):
    write_hf(tmp_path, hf_tensors(known_weights()), HF_CONFIG)
    write_byte_level_json(tmp_path)
    return open_model(tmp_path)


@pytest.fixture
def tested(monkeypatch):
    """The arguments of each test of the kernels, which is not made."""
    calls = []
    monkeypatch.setattr(loading, "check_kernels", lambda *arguments: calls.append(arguments))
    return calls


@pytest.mark.parametrize(
    ("num_gpus", "kernels", "is_tested"),
    [(1, "auto", True), (1, "pallas", True), (1, "xla", False), (0, "auto", False), (0, "pallas", False)],
)
@pytest.mark.parametrize("kv_dtype", ["auto", "int8"])
def test_kernels_are_tested_where_a_gpu_is_to_run_them(
    with_gpus, tested, model, num_gpus, kernels, is_tested, kv_dtype
):
    with_gpus(num_gpus)
    int8 = Quantization(bits=8)
    _, runner = build_engine(model, dtype="bfloat16", quantization=int8, kernels=kernels, kv_dtype=kv_dtype, **LIMITS)
    if not is_tested:
        assert tested == []
        return
    [(tested_model, config, dtype, formats, implementation, cache_dtype)] = tested
    assert (tested_model, formats) == (model.config, formats_of(model.config, int8))
    assert implementation == (None if kernels == "auto" else kernels)
    assert {name: getattr(config, name) for name in LIMITS} == LIMITS
    assert dtype == runner.programs.weights[0].dtype == "bfloat16"
    assert cache_dtype == runner._kv_cache.layers[0].pages.dtype == ("bfloat16" if kv_dtype == "auto" else "int8")


def test_kernels_that_fail_end_the_start_before_weights_are_read(with_gpus, monkeypatch, model):
    def fail(*arguments):
        raise KernelSelfTestError("wrong")

    def read(*how):
        raise AssertionError("the weights were read")

    with_gpus(1)
    monkeypatch.setattr(loading, "check_kernels", fail)
    with pytest.raises(KernelSelfTestError):
        build_engine(dataclasses.replace(model, weights=read), **LIMITS)


@pytest.mark.parametrize(
    ("num_gpus", "warnings"),
    [(0, []), (1, []), (3, ["3 GPUs are visible; the engine uses the first, cuda:0 (NVIDIA A10)"])],
)
def test_of_several_gpus_the_first_is_used_and_named(with_gpus, tested, model, caplog, num_gpus, warnings):
    with_gpus(num_gpus)
    build_engine(model, **LIMITS)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == warnings


# ---- the cache -------------------------------------------------------------------------------------------------------


def test_the_cache_is_as_the_activations_or_int8(model):
    dtypes = {
        (dtype, kv_dtype): build_engine(model, dtype=dtype, kv_dtype=kv_dtype, **LIMITS)[1]
        ._kv_cache.layers[0]
        .pages.dtype
        for dtype in ("float32", "bfloat16")
        for kv_dtype in ("auto", "int8")
    }
    assert dtypes == {
        ("float32", "auto"): "float32",
        ("float32", "int8"): "int8",
        ("bfloat16", "auto"): "bfloat16",
        ("bfloat16", "int8"): "int8",
    }


@pytest.mark.parametrize("kv_dtype", ["fp8", "float32", "", None, 8, ["int8"]])
def test_another_dtype_of_the_cache_is_refused(model, kv_dtype):
    with pytest.raises(ValueError, match=re.escape(f"kv_dtype is {kv_dtype!r}; it must be 'auto' or 'int8'")):
        build_engine(model, kv_dtype=kv_dtype, **LIMITS)


def test_room_for_the_cache_is_what_the_weights_and_the_slots_state_leave(model, monkeypatch):
    """One of the pages is the dummy page. A slot, and the padding's, has 8 bytes for each token of the vocabulary."""
    monkeypatch.setattr(device_memory, "cpu_memory", lambda: 400_000)
    weight_bytes = num_bytes(abstract_weights(model.config, np.dtype(np.float32), {}))
    token_bytes = kv_cache.bytes_per_token(model.config, np.dtype(np.float32))
    state_bytes = (100 + 1) * model.config.vocab_size * 8
    engine, _ = build_engine(model, dtype="float32", memory_fraction=0.5, max_num_seqs=100, page_size=8)
    assert engine.scheduler.num_free_pages == ((200_000 - weight_bytes - state_bytes) // (8 * token_bytes) - 1,)


def test_pages_are_those_of_one_model_in_one_form(model):
    """What keys and values depend on besides the tokens."""
    forms = [
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"dtype": "float32", "kv_dtype": "int8"},
        {"dtype": "float32", "quantization": Quantization(bits=8)},
    ]
    identities = [build_engine(model, **form, **LIMITS)[0]._intake._cache_identity for form in forms]
    renamed = dataclasses.replace(model, name="another")
    identities.append(build_engine(renamed, dtype="float32", **LIMITS)[0]._intake._cache_identity)
    assert len(set(identities)) == 5
