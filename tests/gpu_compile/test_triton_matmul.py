"""The Triton kernel of the INT4 product as it was compiled: within the limits that docs/gpu-static.md gives.

In the environment with the oldest jax, which has jax_triton.
"""

import re
from functools import cache

import jax
import jax.numpy as jnp
import pytest

from jaxinfer.gpu_compile import TARGETS, KernelKind, compile_for
from pallas_kernels.quantized_matmul import Int4Weight, matmul
from scripts.gpu_static.loops import main_loop, operations
from scripts.gpu_static.tables import PAGE, TARGET_NAMES, with_table
from scripts.gpu_static.triton_matmul import WEIGHTS_PER_ROUND, product_table, products, weight_cost

MOST_REGISTERS = 168
MOST_SHARED_BYTES = 99 * 1024
MOST_INSTRUCTIONS = 8

PRODUCTS = tuple(products())

on_every_target = pytest.mark.parametrize("target", TARGET_NAMES)
of_every_product = pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.label)


@cache
def report(product, target):
    return product.compile(TARGETS[target])


def loop_of(product, target):
    return operations(main_loop(report(product, target).kernels[0].code.ptx))


def test_the_products_have_every_place_in_a_layer_and_every_group():
    assert {product.name for product in PRODUCTS} == {"qkv", "out", "gate and up", "down"}
    assert {product.group_size for product in PRODUCTS} == {32, 64, 128, 0}
    assert {product.num_rows for product in PRODUCTS} == {1, 16, 64}
    assert {product.implementation for product in PRODUCTS} == {"triton"}


@on_every_target
@of_every_product
def test_a_product_is_one_kernel_within_the_limits(product, target):
    found = report(product, target)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.kind) == ("int4_matmul", KernelKind.TRITON)
    assert kernel.spill_bytes == 0
    assert kernel.code.registers <= MOST_REGISTERS
    assert kernel.shared_bytes <= MOST_SHARED_BYTES
    assert (found.copies, found.num_memsets, found.temporary_bytes) == ((), 0, 0)


@on_every_target
@of_every_product
def test_a_weight_costs_few_instructions(product, target):
    kernel = report(product, target).kernels[0]
    if product.group_size == 32 or product.num_rows > 16:
        pytest.skip("the limit is for groups of 64, and 16 rows in one tile")
    assert weight_cost(kernel) <= MOST_INSTRUCTIONS


@on_every_target
@of_every_product
def test_the_loop_multiplies_on_tensor_cores_what_came_sixteen_bytes_at_a_time(product, target):
    kernel = report(product, target).kernels[0]
    loop = loop_of(product, target)
    block_rows = 8 if product.num_rows <= 8 else 16
    # Of x four pieces of 128 bfloat16 a row, of the matrix half a byte a weight; of each thread 16 bytes at a time.
    sixteens = (block_rows * 4 * 128 * 2 + WEIGHTS_PER_ROUND // 2) // (16 * kernel.num_threads)
    assert loop["cp.async.cg.shared.global"] == sixteens
    assert loop["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] > 0
    assert not [name for name in loop if re.match(r"ld\.shared\.(v\d\.)?[bus]8$", name)]


@on_every_target
def test_x_has_one_layout(target):
    """If not all operands agree on one, Triton loads x without asynchronous copies, and waits."""
    loop = loop_of(PRODUCTS[0], target)
    assert not [name for name in loop if name.startswith("ld.global.v")]


@on_every_target
def test_products_one_after_another_are_one_cuda_graph(target):
    weight = Int4Weight(
        values=jax.ShapeDtypeStruct((128, 64), jnp.uint8),
        scales=jax.ShapeDtypeStruct((128, 2), jnp.float16),
        offsets=jax.ShapeDtypeStruct((128, 2), jnp.float16),
        num_inputs=128,
    )

    def six(x, weight):
        for _ in range(6):
            x = matmul(x, weight, residual=x, implementation="triton")
        return x

    found = compile_for(TARGETS[target], six, jax.ShapeDtypeStruct((16, 128), jnp.bfloat16), weight).report
    assert [kernel.kind for kernel in found.kernels] == [KernelKind.TRITON] * 6
    assert (found.num_command_buffers, found.num_outside_command_buffers) == (1, 0)


@on_every_target
def test_the_grid_covers_rows_and_outputs(target):
    (product,) = (each for each in PRODUCTS if (each.name, each.num_rows) == ("gate and up", 64))
    kernel = report(product, target).kernels[0]
    assert kernel.grid == (64 // 16, 28672 // 32, 1)


def test_the_page_is_up_to_date():
    rows = [(product, {target: report(product, target) for target in TARGET_NAMES}) for product in PRODUCTS]
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, "triton", product_table(rows)) == page, "run `make gpu-static`"
