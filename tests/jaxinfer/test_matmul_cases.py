"""The cases of products that an engine tests its kernels with: right ones pass, and each kind of fault is far off."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer import matmul_cases
from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.matmul_cases import Product, launches, model_products, product_error
from jaxinfer.weights import formats_of, weight_shapes
from pallas_kernels.quantized_matmul import Config, Int4Weight, Int8Weight, matmul

FLOAT32, BFLOAT16 = np.dtype(jnp.float32), np.dtype(jnp.bfloat16)
INT8, INT4, ROWS = Quantization(bits=8), Quantization(bits=4, group_size=64), Quantization(bits=4)
MODEL = ModelConfig(
    vocab_size=190,
    hidden_size=144,
    intermediate_size=330,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=24,
    max_position_embeddings=4096,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    windows=(None, None),
    qkv_bias=True,
)
EVERYTHING = Product(
    name="all", num_outputs=300, num_inputs=200, norm=True, bias=True, residual=True, swiglu=True, quantization=INT4
)


def run_instead(monkeypatch, change):
    """Let the cases run the portable implementation on operands that ``change`` has got at: it compiles sooner."""

    def portable(x, weight, *, implementation, config, **options):
        return matmul(*change(x, weight, options), **options)

    monkeypatch.setattr(matmul_cases, "matmul", portable)


def unchanged(x, weight, options):
    return x, weight


@pytest.mark.parametrize("quantization", [None, INT8, INT4, ROWS], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(FLOAT32, 1e-5), (BFLOAT16, 2e-2)])
def test_products_that_are_right_pass(monkeypatch, quantization, dtype, tolerance):
    run_instead(monkeypatch, unchanged)
    for product in model_products(MODEL, formats_of(MODEL, quantization)):
        assert product_error(product, 3, dtype, "pallas") < tolerance, product


def test_the_products_are_those_of_the_models_matrices():
    shapes = {shape for name, shape in weight_shapes(MODEL).items() if len(shape) == 2}
    products = [*model_products(MODEL, formats_of(MODEL, INT8))]
    assert {(product.num_outputs, product.num_inputs) for product in products} == shapes


@pytest.mark.parametrize("tied", [True, False])
def test_each_product_has_the_format_of_its_own_matrix(tied):
    """The head that of the embedding where they are one; a layer's that is unlike the others' is one more product."""
    model = dataclasses.replace(MODEL, tie_embeddings=tied)
    head, other = ("embedding", "lm_head") if tied else ("lm_head", "embedding")
    formats = {"layers.0.down": INT4, "layers.1.down": INT8, "layers.1.qkv": ROWS, head: INT8, other: INT4}
    found = [(product.name, product.quantization) for product in model_products(model, formats)]
    assert len(found) == len(set(found))
    assert {how for name, how in found if name == "head"} == {INT8}
    assert {how for name, how in found if name.startswith("queries")} == {None, ROWS}
    assert {how for name, how in found if how is not None} == {INT4, INT8, ROWS}
    assert len(found) == 4 + 2 + 1


def scale_of_the_neighbour(x, weight, options):
    return x, dataclasses.replace(weight, scales=jnp.roll(weight.scales, 1, axis=0))


def nibbles_swapped(x, weight, options):
    return x, dataclasses.replace(weight, values=weight.values << 4 | weight.values >> 4)


def offset_dropped(x, weight, options):
    return x, dataclasses.replace(weight, offsets=weight.offsets * 0)


def one_piece_dropped(x, weight, options):
    return x.at[:, 128:].set(0) if isinstance(x, jnp.ndarray) else np.where(np.arange(x.shape[1]) < 128, x, 0), weight


def without(name):
    def change(x, weight, options):
        options[name] = None
        return x, weight

    change.__name__ = f"without {name}"
    return change


FAULTS = [
    scale_of_the_neighbour,
    nibbles_swapped,
    offset_dropped,
    one_piece_dropped,
    *map(without, ("norm", "bias", "residual")),
]


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_far_off(monkeypatch, fault, dtype):
    run_instead(monkeypatch, fault)
    assert product_error(EVERYTHING, 3, dtype, "pallas") > 2.5 * 2e-2


@pytest.mark.parametrize("num_rows", [1, 70])
def test_the_wrong_scale_of_int8_is_far_off(monkeypatch, num_rows):
    run_instead(monkeypatch, scale_of_the_neighbour)
    assert product_error(dataclasses.replace(EVERYTHING, quantization=INT8), num_rows, FLOAT32, "pallas") > 2.5 * 2e-2


@pytest.mark.parametrize("quantization", [None, INT8, INT4, ROWS], ids=str)
def test_the_tiles_are_those_of_the_whole_product(monkeypatch, quantization):
    """As a launch finds them, which must be for the very problem that the case names."""
    asked, found = [], matmul_cases.find_config
    monkeypatch.setattr(matmul_cases, "find_config", lambda *problem: asked.append(problem[0]) or found(*problem))
    ran = []
    monkeypatch.setattr(matmul_cases, "matmul", lambda x, weight, **options: ran.append((x, weight)) or jnp.zeros(1))
    monkeypatch.setattr(matmul_cases, "relative_error", lambda *arrays: 0.0)
    product = dataclasses.replace(EVERYTHING, quantization=quantization, num_outputs=40_000)
    product_error(product, 5, BFLOAT16, "pallas")
    (problem,), ((x, weight),) = asked, ran
    assert (problem.num_rows, problem.num_outputs, problem.num_inputs) == (5, 40_000, 200)
    assert problem.dtype == x.dtype.name
    if isinstance(weight, Int4Weight):
        assert (problem.weight, problem.group_size) == ("int4", weight.group_size)
    else:
        assert problem.weight == ("int8" if isinstance(weight, Int8Weight) else weight.dtype.name)
        assert problem.group_size == 0


def test_every_kind_of_launch_is_run_with_the_most_rows_that_lead_to_it(monkeypatch):
    """Tiles of 16 rows up to 16, of 64 up to 96, and the library beyond; the fewest rows in any case."""

    def find(problem, device):
        rows = problem.num_rows
        return Config(block_rows=16 if rows <= 16 else 64, method="fused" if rows <= 96 else "library")

    monkeypatch.setattr(matmul_cases, "find_config", find)
    sizes = [1, 8, 32, 65, 72, 96, 257, 288]
    assert launches(EVERYTHING, sizes, BFLOAT16, "pallas") == [1, 8, 96]
    assert launches(EVERYTHING, [257], BFLOAT16, "pallas") == []


def test_a_kernel_that_chooses_its_tiles_runs_in_each_size_of_them(monkeypatch):
    """By the device's own choice, which may be another kernel than the one whose tiles the tables hold."""
    monkeypatch.setattr(
        matmul_cases, "pick_implementation", lambda asked, problem: "triton" if problem.num_rows <= 16 else "pallas"
    )
    monkeypatch.setattr(matmul_cases, "find_config", lambda *problem: Config(block_rows=64, method="library"))
    assert launches(EVERYTHING, [1, 7, 8, 16, 32], BFLOAT16, None) == [1, 8, 16]
