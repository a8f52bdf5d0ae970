"""The Triton kernel: what it refuses, everywhere; and where Triton is, its own body in Triton's interpreter.

The interpreter runs every program of the grid one after another with NumPy, so loads, masks, the places of groups and
what is fused are as on a GPU; the assembly, which it does not run, is worked through by hand.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.quantized_matmul import Config, Int4Weight, Int8Weight, implementation, matmul
from pallas_kernels.quantized_matmul.configs import Problem
from pallas_kernels.quantized_matmul.jax_triton_gpu import launch
from tests.pallas_kernels.gpus import described, tracing_for
from tests.pallas_kernels.quantized_matmul.int4_numbers import EPS, Product, defined, draw, packed, relative_error
from tests.pallas_kernels.quantized_matmul.ptx_by_hand import as_bfloat16, carry_out, four_bytes

needs_triton = pytest.mark.skipif(not find_spec("jax_triton"), reason="needs jax_triton: make test-oldest-jax")

SMALL = Config(block_rows=16, block_outputs=32, num_warps=4, num_stages=2)
PRODUCTS = [
    *[Product(num_rows=rows, num_outputs=64, num_inputs=256) for rows in (1, 3, 8, 16, 33, 64)],
    *[Product(num_rows=3, num_outputs=40, num_inputs=inputs) for inputs in (64, 128, 576, 1024, 1536)],
    *[
        Product(num_rows=3, num_outputs=40, num_inputs=inputs, group_size=size, norm=True)
        for size in (32, 64, 128, 0)
        for inputs in (512, 576)
    ],
    *[Product(num_rows=9, num_outputs=80, num_inputs=576, swiglu=True, group_size=size) for size in (32, 128)],
    Product(num_rows=3, num_outputs=40, num_inputs=512, bias=True),
    Product(num_rows=3, num_outputs=40, num_inputs=512, residual=True),
    Product(num_rows=17, num_outputs=40, num_inputs=576, norm=True, bias=True, residual=True),
    Product(num_rows=17, num_outputs=144, num_inputs=576, norm=True, bias=True, residual=True, swiglu=True),
]


def tolerance(product):
    """With a norm its weight goes into x, which is rounded to bfloat16 once more."""
    return 1e-2 if product.norm else 2e-5


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """What the kernel makes of every product, float32; one process runs them all."""
    folder = tmp_path_factory.mktemp("interpreted")
    arrays = {}
    for number, product in enumerate(PRODUCTS):
        arrays |= {f"{number}.{name}": array for name, array in arguments(product).items()}
    np.savez(folder / "in.npz", **arrays)
    module = "tests.pallas_kernels.quantized_matmul.triton_interpreter"
    subprocess.run(
        [sys.executable, "-m", module, folder / "in.npz", folder / "out.npz"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=240,
    )
    with np.load(folder / "out.npz") as file:
        return {product: file[str(number)] for number, product in enumerate(PRODUCTS)}


def arguments(product):
    numbers = draw(product)
    weight = weight_of(product, numbers)
    grid, keywords = launch.cut(product.num_rows, weight, norm_eps=EPS, swiglu=product.swiglu, config=SMALL)
    arrays = {
        "x": numbers.x.view(np.uint16),
        "values": weight.values,
        "scales": weight.scales,
        "offsets": weight.offsets,
        "norm": None if numbers.norm is None else numbers.norm.view(np.uint16),
        "bias": numbers.bias,
        "residual": None if numbers.residual is None else numbers.residual.view(np.uint16),
        "out": np.full((product.num_rows, product.num_columns), np.nan, np.float32),
        "options": json.dumps(keywords | {"grid": grid}),
    }
    return {name: array for name, array in arrays.items() if array is not None}


def weight_of(product, numbers):
    arrays = {"values": packed(numbers.q), "scales": numbers.scales, "offsets": numbers.offsets}
    return Int4Weight(**{name: jnp.asarray(array) for name, array in arrays.items()}, num_inputs=product.num_inputs)


@needs_triton
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_the_kernel_computes_what_is_defined(interpreted, product):
    assert relative_error(interpreted[product], defined(product, draw(product))) <= tolerance(product)


WRONG = {
    "scale of the neighbour": lambda n: replace(n, scales=np.roll(n.scales, 1, axis=1)),
    "scale of the next output": lambda n: replace(n, scales=np.roll(n.scales, 1, axis=0)),
    "halves swapped": lambda n: replace(n, q=n.q.reshape(len(n.q), -1, 2, 64)[:, :, ::-1].reshape(n.q.shape)),
    "no offsets": lambda n: replace(n, offsets=np.zeros_like(n.offsets)),
    "offset of the neighbour": lambda n: replace(n, offsets=np.roll(n.offsets, 1, axis=1)),
    "no norm": lambda n: replace(n, norm=np.ones_like(n.norm)),
    "no bias": lambda n: replace(n, bias=None),
    "no residual": lambda n: replace(n, residual=None),
}


@needs_triton
@pytest.mark.parametrize("wrong", WRONG)
def test_the_tolerance_tells_a_fault(interpreted, wrong):
    product = PRODUCTS[-1]
    assert relative_error(interpreted[product], defined(product, WRONG[wrong](draw(product)))) > tolerance(product)


@needs_triton
def test_the_assembly_takes_every_byte_apart():
    from pallas_kernels.quantized_matmul.jax_triton_gpu.kernel import TAKE_APART

    for first in range(0, 256, 4):
        words = carry_out(TAKE_APART.value, {"$6": four_bytes(first)}, num_results=6)
        low, high, ones = (as_bfloat16(words[number : number + 2]) for number in (0, 2, 4))
        assert low == [128 + (byte & 15) for byte in range(first, first + 4)]
        assert high == [128 + (byte >> 4) for byte in range(first, first + 4)]
        assert ones == [1.0] * 4


def small_product(dtype=jnp.bfloat16):
    numbers = draw(product := Product(num_rows=2, num_outputs=8, num_inputs=128))
    return jnp.asarray(numbers.x, dtype), weight_of(product, numbers)


def test_a_cpu_is_refused():
    with pytest.raises(NotImplementedError, match="on a GPU only"):
        matmul(*small_product(), implementation="triton")


def test_without_jax_triton_a_gpu_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with tracing_for(described("NVIDIA A10")), pytest.raises(NotImplementedError, match=r"jaxinfer\[jax-triton\]"):
        matmul(*small_product(), implementation="triton")


def test_jax_triton_is_of_no_use_to_a_newer_jax(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: True)
    monkeypatch.setattr(jax, "__version_info__", (0, 12, 0))
    with tracing_for(described("NVIDIA A10")), pytest.raises(NotImplementedError, match=r"works with jax below 0\.12"):
        matmul(*small_product(), implementation="triton")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weight": jnp.zeros((8, 128))}, "takes Int4Weight only"),
        (
            {"weight": Int8Weight(values=jnp.zeros((8, 128), jnp.int8), scales=jnp.zeros(8), num_inputs=128)},
            "weight is a Int8Weight; the Triton kernel takes Int4Weight only",
        ),
        ({"x": jnp.zeros((2, 128))}, "x is float32"),
        ({"config": Config(block_rows=16, block_inputs=64)}, "block_inputs 128"),
        ({"config": Config(block_rows=16, method="library")}, "method 'fused'"),
    ],
)
def test_what_the_kernel_does_not_take(monkeypatch, changed, reason):
    monkeypatch.setattr(implementation, "why_not_triton", lambda device: None)
    x, weight = small_product()
    with tracing_for(described("NVIDIA A10")), pytest.raises(NotImplementedError, match=reason):
        matmul(**{"x": x, "weight": weight, "implementation": "triton"} | changed)


@pytest.mark.parametrize(
    ("changed", "picked"),
    [
        ({}, "triton"),
        ({"num_rows": 8}, "triton"),
        ({"num_rows": 9}, "pallas"),
        ({"dtype": "float32"}, "pallas"),
        ({"weight": "int8", "group_size": 0}, "pallas"),
        ({"weight": "bfloat16", "group_size": 0}, "pallas"),
    ],
)
def test_a_gpu_takes_it_by_itself_for_int4_and_few_rows_where_it_is(monkeypatch, changed, picked):
    problem = Problem(
        num_rows=1, num_outputs=64, num_inputs=128, weight="int4", group_size=64, swiglu=False, dtype="bfloat16"
    )
    problem = replace(problem, **changed)
    assert implementation.pick_implementation(None, problem) == "xla", "on a CPU"
    with tracing_for(described("NVIDIA A10", "8.6")):
        monkeypatch.setattr(implementation, "why_not_triton", lambda device: None)
        assert implementation.pick_implementation(None, problem) == picked
        monkeypatch.setattr(implementation, "why_not_triton", lambda device: "it is not there")
        assert implementation.pick_implementation(None, problem) == "pallas"
