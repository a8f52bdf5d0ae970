"""The kernel of the product as it was compiled: within the limits that docs/gpu-static.md gives."""

import re

import pytest

from jaxinfer.gpu_compile import TARGETS, KernelKind
from pallas_kernels.quantized_matmul import Config
from scripts.gpu_static.loops import main_loop, operations
from scripts.gpu_static.matmul import FORMATS, Product, products
from scripts.gpu_static.tables import TARGET_NAMES, product_table
from tests.gpu_compile.reports import assert_on_the_page, assert_row_on_the_page, everywhere, on_targets, report

MOST_REGISTERS_AT_16_ROWS = 128
MOST_SHARED_BYTES = 99 * 1024
MOST_INSTRUCTIONS = {"bfloat16": 2.4, "int8": 3.6, "int4": 5.6}
"""For each weight, of a tile of 16 rows and 64 outputs without a norm; INT4 in groups of 64."""

MOST_INSTRUCTIONS_WITH_NORM = {"bfloat16": 3.2, "int8": 4.4, "int4": 6.0}
"""Likewise with one, which each program applies to its tile of x."""

PRODUCTS = tuple(products())
MISTRAL = "mistral-7b-v0.1"

ON_TARGETS = on_targets(PRODUCTS)

on_every_target = pytest.mark.parametrize("target", TARGET_NAMES)
of_every_format = pytest.mark.parametrize("weight", FORMATS)


def of_mistral(**fields):
    """For the products of Mistral-7B, as tiled by default and in groups of 64, that have one of each field's values."""
    fields |= {"model": (MISTRAL,), "weight": FORMATS, "group_size": (64,), "config": (None,)}
    chosen = [
        each for each in ON_TARGETS if all(getattr(each.values[0], name) in values for name, values in fields.items())
    ]
    return pytest.mark.parametrize(("product", "target"), chosen)


def code(product, target):
    """The PTX of a product's one kernel."""
    (kernel,) = report(product, target).kernels
    return kernel.code.ptx


def in_tiles_of_64(name, weight):
    inputs = 64 if weight == "bfloat16" else 128
    config = Config(block_rows=16, block_outputs=64, block_inputs=inputs, num_warps=4, num_stages=4)
    return Product(model=MISTRAL, name=name, weight=weight, config=config)


def test_the_products_have_every_format_place_and_number_of_rows():
    assert {product.weight for product in PRODUCTS} == {*FORMATS, "float32"}
    assert {product.name for product in PRODUCTS} == {"qkv", "out", "gate and up", "down", "head"}
    assert {product.group_size for product in PRODUCTS if product.weight == "int4"} == {32, 64, 128, 0}
    assert {product.num_rows for product in PRODUCTS} >= {1, 16, 32, 64, 256}
    assert {product.shape[1] % 128 for product in PRODUCTS} > {0}


@pytest.mark.parametrize(("product", "target"), ON_TARGETS)
def test_a_product_keeps_to_the_limits(product, target):
    found = report(product, target)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.kind) == ("multiply", KernelKind.PALLAS)
    # Of float32, which is for comparisons, one spills two registers on an H100.
    assert kernel.spill_bytes <= (8 if product.dtype == "float32" else 0)
    assert kernel.shared_bytes <= MOST_SHARED_BYTES
    if product.num_rows <= 16:
        assert kernel.code.registers <= MOST_REGISTERS_AT_16_ROWS
    assert (found.copies, found.num_memsets, found.temporary_bytes) == ((), 0, 0)


@on_every_target
@of_every_format
def test_a_weight_takes_few_instructions(weight, target):
    product = in_tiles_of_64("down", weight)
    assert product.weight_cost(TARGETS[target], report(product, target)) <= MOST_INSTRUCTIONS[weight]
    product = in_tiles_of_64("qkv", weight)
    assert product.weight_cost(TARGETS[target], report(product, target)) <= MOST_INSTRUCTIONS_WITH_NORM[weight]


@of_mistral(name=("gate and up", "down"), num_rows=(1, 16, 64))
def test_the_matrix_comes_by_the_widest_copies_and_products_run_on_tensor_cores(product, target):
    ptx = code(product, target)
    counted = operations(main_loop(ptx))
    assert any(re.match(r"(wgmma\.mma_async|mma)\.sync\.aligned\..*bf16", each) for each in counted)
    assert counted["cp.async.cg.shared.global"] > 0
    assert "cp.async.ca" not in ptx
    assert not re.search(r"ld\.shared\.[bus]8", ptx)


@on_every_target
@of_every_format
def test_a_round_loads_each_part_of_the_matrix_once(weight, target):
    """The high and the low halves of INT4's bytes come from one load."""
    product = in_tiles_of_64("down", weight)
    copies = operations(main_loop(code(product, target)))["cp.async.cg.shared.global"]
    config = product.config_for(TARGETS[target])
    bytes_per_weight = {"bfloat16": 2, "int8": 1, "int4": 0.5}[weight]
    tiles = config.block_outputs * config.block_inputs * bytes_per_weight + config.block_rows * config.block_inputs * 2
    assert copies == tiles / (16 * 32 * config.num_warps)


@of_mistral(num_rows=(16,))
def test_most_multiprocessors_have_work(product, target):
    x, y, z = report(product, target).kernels[0].grid
    assert x * y * z >= TARGETS[target].core_count / 2


@pytest.mark.parametrize("target", sorted(set(TARGETS) - set(TARGET_NAMES)))
@of_every_format
@pytest.mark.parametrize("num_rows", [16, pytest.param(64, marks=pytest.mark.slow)])  # each takes a second
def test_the_other_targets_compile_within_the_limits_too(weight, num_rows, target):
    test_a_product_keeps_to_the_limits(
        Product(model=MISTRAL, name="gate and up", weight=weight, num_rows=num_rows), target
    )


def test_a_tile_that_is_too_large_is_seen_to_break_the_limits():
    too_many_rows = Config(block_rows=64, block_outputs=64, num_warps=4, num_stages=2)
    product = Product(model=MISTRAL, name="gate and up", weight="int4", num_rows=64, config=too_many_rows)
    (kernel,) = report(product, "A10").kernels
    assert kernel.spill_bytes > 0
    assert kernel.code.registers > MOST_REGISTERS_AT_16_ROWS


@on_every_target
def test_float32_is_exact_with_many_rows_too(target):
    """XLA's own products would be of TF32, which has the digits of float16."""
    product = Product(model="smollm2-135m", name="out", weight="float32", dtype="float32", num_rows=128)
    found = report(product, target)
    assert all(kernel.kind is not KernelKind.PALLAS for kernel in found.kernels)
    assert "tf32" not in "".join(kernel.code.ptx for kernel in found.kernels if kernel.code)
    assert "operand_precision={highest,highest}" in found.hlo


@pytest.mark.parametrize(("product", "target"), ON_TARGETS)
def test_a_row_of_the_page_is_up_to_date(product, target):
    assert_row_on_the_page(product_table, product, target)


# Compiles every program for every target.
@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert_on_the_page("products", product_table((each, everywhere(each)) for each in PRODUCTS))
