"""What the check for the day with a GPU divides by what: bytes, flops, peaks and times, against numbers by hand."""

import dataclasses

import jax
import numpy as np
import pytest

from checkpoints import PRESETS
from jaxinfer.config import Quantization
from jaxinfer.matmul_cases import model_products
from jaxinfer.weights import formats_of, weight_shapes
from scripts.on_gpu import decode_step, timing, versions
from scripts.on_gpu.attention_speed import Launch, bytes_of_launch
from scripts.on_gpu.matrices import ALL_FORMATS, INT8_DEVIATION, draw, group_size, num_bytes
from scripts.on_gpu.model import Model
from scripts.on_gpu.peaks import peaks_of, peaks_of_this_device
from scripts.on_gpu.product_reference import _matrix
from scripts.on_gpu.product_speed import Operands, program
from scripts.on_gpu.products import products_of
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.timing import num_launches, seconds_of

LARGE = Settings(seconds=86_400)
TINY = Settings(seconds=86_400, tiny=True)  # from when the tests are collected


def test_shares_of_the_peaks():
    peaks = peaks_of("NVIDIA H200")
    assert peaks.share_of_bandwidth(2.4e9, 1e-3) == pytest.approx(50)
    assert peaks.share_of_flops(989e9, 2e-3) == pytest.approx(50)
    unknown = peaks_of("NVIDIA Something New")
    assert unknown.share_of_bandwidth(1, 1) is None and unknown.share_of_flops(1, 1) is None


def test_a_cpu_is_refused_where_a_gpu_is_to_be_measured():
    with pytest.raises(RuntimeError, match="no GPU"):
        peaks_of_this_device(LARGE)
    assert peaks_of_this_device(TINY).bandwidth is None


def test_the_row_of_a_cpu_says_what_is_wrong_with_it():
    faults = {row.values["what"]: row for row in versions.rows(LARGE) if row.is_fault}
    assert list(faults) == ["device"] and "a CPU" in faults["device"].values["fault"]
    assert not any("fault" in row.values for row in versions.rows(TINY))


def test_the_arrays_of_a_program_are_far_larger_than_the_l2_cache():
    mib = 2**20
    for one, cache in ((13 * mib, 50 * mib), (13 * mib, 6 * mib), (236 * mib, 50 * mib), (1000, 6 * mib)):
        count = num_launches(one, cache, LARGE)
        assert count * one >= 4 * cache or count == 40
        assert 5 <= count <= 40
    assert num_launches(13 * mib, 50 * mib, LARGE) == 20  # 256 MiB


def test_a_time_is_the_best_run_over_its_calls(monkeypatch: pytest.MonkeyPatch):
    """Each call takes 1 ms of a clock that only calls move; one run is disturbed."""
    clock, calls = [0.0], [0]

    def call():
        calls[0] += 1
        clock[0] += 0.5 if calls[0] == 30 else 0.001
        return np.zeros(1)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    assert seconds_of(call, LARGE) == pytest.approx(0.001)
    assert calls[0] == 2 + 5 * 20  # 20 ms a run


def test_bytes_of_a_product():
    qkv = products_of("mistral-7b-v0.1")[0]
    operands = Operands.shapes(qkv, "int8", 16, peaks_of("NVIDIA H200"), LARGE)
    matrix = 6144 * 4096 + 6144 * 4
    assert operands.bytes_of_launch == matrix + 16 * 4096 * 2 + 4096 * 2 + 2 * 16 * 6144 * 2
    gate_up = products_of("mistral-7b-v0.1")[2]
    int4 = Operands.shapes(gate_up, "int4/64", 1, peaks_of("NVIDIA H200"), LARGE)
    assert num_bytes(int4.weights[0]) == 28672 * 4096 // 2 + 2 * 2 * 28672 * 4096 // 64
    assert int4.first.shape == (1, 14336)


def test_the_head_is_the_model_s():
    head = products_of("mistral-7b-v0.1")[-1]
    *_, own = model_products(PRESETS["mistral-7b-v0.1"], {})
    for name in ("num_outputs", "num_inputs", "norm", "bias", "residual", "swiglu", "out_dtype"):
        assert getattr(head, name) == getattr(own, name)
    operands = Operands.shapes(head, "bfloat16", 16, peaks_of("NVIDIA H200"), LARGE)
    read = 2 * (32000 * 4096 + 16 * 4096 + 4096)
    assert operands.bytes_of_launch == read + 2 * 16 * 32000 * 4  # logits are float32
    result = jax.eval_shape(program(head, "xla"), *operands.arguments)
    assert (result.shape, result.dtype) == ((16, 32000), jax.numpy.float32)


def test_problems_are_those_that_the_self_test_looks_up():
    """Two ways to the same key of the tables of tile sizes."""
    formats = {"bfloat16": None, "int8": Quantization(bits=8), "int4/64": Quantization(bits=4, group_size=64)}
    model, dtype = PRESETS["mistral-7b-v0.1"], jax.numpy.dtype("bfloat16")
    for weight_format, quantization in formats.items():
        ours = [each.problem(weight_format, 16, dtype) for each in products_of("mistral-7b-v0.1")[:4]]
        *of_layer, _ = model_products(model, formats_of(model, quantization))
        assert ours == [each.problem(16, dtype) for each in of_layer]


def test_bytes_and_flops_of_attention():
    decode = Launch(model="mistral-7b-v0.1", block_q=1, num_blocks=16, context=512)
    new_and_result = 16 * (32 + 8 + 8 + 32 + 8 + 8) * 128 * 2
    assert bytes_of_launch(decode) == 16 * 512 * 2 * 8 * 128 * 2 + new_and_result
    assert decode.flops == pytest.approx(4 * 16 * 512 * 32 * 128)
    int8 = dataclasses.replace(decode, kv_dtype="int8")
    assert bytes_of_launch(int8) == 16 * 512 * 2 * 8 * (128 + 4) + new_and_result
    chunk = Launch(model="mistral-7b-v0.1", block_q=16, num_blocks=32, context=512)
    assert chunk.flops == pytest.approx(4 * (512 * 513 / 2) * 32 * 128)
    assert bytes_of_launch(chunk) == 512 * 2 * 8 * 128 * 2 + 2 * 512 * 32 * 128 * 2
    assert np.asarray(chunk.starts).tolist() == list(range(0, 512, 16))


def test_the_deviation_of_int8_numbers_is_that_of_an_even_distribution():
    assert pytest.approx((255**2 - 1) / 12) == INT8_DEVIATION**2  # of 255 whole numbers in a row


@pytest.mark.parametrize("weight_format", ALL_FORMATS)
def test_drawn_matrices_have_the_scale_that_keeps_a_products(weight_format: str):
    weight = draw(jax.random.key(0), weight_format, 96, 200)
    assert weight.shape == (96, 200)
    matrix = _matrix(weight)
    assert abs(matrix.mean()) < 0.003
    assert matrix.std() == pytest.approx(200**-0.5, rel=0.1)
    if weight_format.startswith("int4"):
        assert weight.group_size == group_size(weight_format, 200)


def test_bytes_of_a_decode_step(monkeypatch: pytest.MonkeyPatch):
    model = Model.random("bfloat16", "bfloat16", TINY)
    shapes = weight_shapes(model.decoder.config)
    assert model.step_bytes == 2 * sum(map(np.prod, shapes.values()))  # the embedding is the head too
    monkeypatch.setattr(decode_step, "_decoding", lambda runner, config, context: (FakeEngine(), None))
    monkeypatch.setattr(decode_step, "_back_to_back", lambda runner, batch, steps: (0.001, 0.002))
    limits = type("Limits", (), {"max_num_seqs": 8})()
    found = decode_step.decode_step(None, limits, 10**9, 10**5, peaks_of("NVIDIA H200"), LARGE)
    assert found["GB read"] == pytest.approx(1.8)  # 8 rows of 1,000 tokens of 100 KB
    assert found["% of bandwidth"] == pytest.approx(100 * 1.8e9 / 0.002 / 4.8e12)
    assert found["host gap us"] == pytest.approx(1e3 * found["ms in the loop"] - 2000)
    assert found["tokens/s"] == pytest.approx(8e3 / found["ms in the loop"])


class FakeEngine:
    def step(self) -> None:
        pass
