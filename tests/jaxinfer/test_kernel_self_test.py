"""The test that an engine makes of its GPU kernels: it passes for kernels that are right and names those that are not.

Here the kernels are interpreted. What a wrong one computes is made from what the right one does.
"""

import dataclasses
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer import kernel_cases, kernel_self_test
from jaxinfer.config import EngineConfig, ModelConfig, Quantization
from jaxinfer.kernel_case_pages import number_error
from jaxinfer.kernel_cases import Shape, chunk_error, decode_error, relative_error
from jaxinfer.kernel_self_test import KernelSelfTestError, check_kernels
from jaxinfer.weights import formats_of
from pallas_kernels.device import Device
from pallas_kernels.paged_attention import LayerCache, decode_attention, paged_attention
from pallas_kernels.paged_attention.pallas_gpu import launch
from pallas_kernels.paged_attention.pallas_gpu.tile import Shares

FLOAT32, BFLOAT16, INT8 = np.dtype(jnp.float32), np.dtype(jnp.bfloat16), np.dtype(jnp.int8)
TOLERANCES = {FLOAT32: 2e-5, BFLOAT16: 2e-2}

MODEL = ModelConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=24,
    max_position_embeddings=4096,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    windows=(None, None),
)
LIMITS = EngineConfig(max_model_len=512, max_num_seqs=5, max_chunk_tokens=64, page_size=16, num_kv_pages=64)


def with_windows(*windows: int | None) -> ModelConfig:
    return dataclasses.replace(MODEL, num_layers=len(windows), windows=windows)


def shape_of(
    page_size: int = 16, window: int | None = None, dtype: np.dtype = FLOAT32, kv_dtype: np.dtype | None = None
) -> Shape:
    return Shape.of(MODEL, page_size=page_size, window=window, dtype=dtype, kv_dtype=kv_dtype or dtype)


def worst_error(shape: Shape) -> float:
    """Of both operations, with rows and blocks beyond the sequences and without."""
    errors = [decode_error(shape, b) for b in (1, 5)] + [chunk_error(shape, c, 16) for c in (16, 64)]
    return max(errors)


OPERATIONS = {
    decode_attention: lambda shape: decode_error(shape, 5),
    paged_attention: lambda shape: chunk_error(shape, 64, 16),
}
"""The operations under test, and what measures each."""


def run_instead(monkeypatch, operation, wrapper):
    """Let the cases run ``wrapper`` around the portable implementation, which compiles sooner than the interpreter."""

    def portable(*arguments, **options):
        return operation(*arguments, **options | {"implementation": "xla"})

    monkeypatch.setattr(kernel_cases, operation.__name__, lambda *args, **options: wrapper(portable, *args, **options))


def unchanged(operation, *arguments, **options):
    return operation(*arguments, **options)


# ---- kernels that are right ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("windows", "dtype"), [((None, None), FLOAT32), ((4096,), BFLOAT16)])
def test_kernels_that_are_right_pass(windows, dtype):
    check_kernels(with_windows(*windows), LIMITS, dtype)


def test_kernels_that_are_right_pass_over_int8_pages(without_products):
    check_kernels(MODEL, LIMITS, BFLOAT16, kv_dtype=INT8)


@pytest.mark.parametrize(("page_size", "window"), [(1, 7), (8, None), (8, 1), (16, 16), (512, 4096)])
def test_pages_and_windows_of_any_size_will_do(monkeypatch, page_size, window):
    for operation in OPERATIONS:
        run_instead(monkeypatch, operation, unchanged)
    assert worst_error(shape_of(page_size, window)) < 1e-6


def test_int8_pages_are_compared_as_closely(monkeypatch):
    for operation in OPERATIONS:
        run_instead(monkeypatch, operation, unchanged)
    assert worst_error(shape_of(window=16, kv_dtype=INT8)) < 1e-6


def test_the_pages_are_those_that_the_engine_has(monkeypatch, without_products):
    shapes = []
    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: shapes.append(shape) or 0.0)
    monkeypatch.setattr(kernel_self_test, "chunk_error", lambda shape, c, q: shapes.append(shape) or 0.0)
    for kv_dtype in (None, INT8):
        check_kernels(MODEL, LIMITS, BFLOAT16, kv_dtype=kv_dtype)
    assert [shape.kv_dtype for shape in shapes] == [BFLOAT16] * 4 + [INT8] * 4
    assert {shape.dtype for shape in shapes} == {BFLOAT16}


def test_every_program_that_may_differ_is_run(monkeypatch):
    """The fewest and the most rows and chunk tokens, once for each kind of layer; each product of a layer with what its
    launches need of all numbers of tokens, and the head of the rows alone.
    """
    run, products = [], []
    monkeypatch.setattr(kernel_self_test, "launches", lambda product, sizes, *how: sizes)
    monkeypatch.setattr(
        kernel_self_test, "product_error", lambda product, t, *how: products.append((product.name, t)) or 0.0
    )
    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: run.append((shape.window, b)) or 0.0)
    monkeypatch.setattr(kernel_self_test, "chunk_error", lambda shape, c, q: run.append((shape.window, c, q)) or 0.0)
    limits = dataclasses.replace(LIMITS, max_num_seqs=32, max_chunk_tokens=256)
    check_kernels(with_windows(None, 8, None, 8), limits, FLOAT32)
    assert len(run) == 8
    assert set(run) == {
        *((None, 1), (None, 32), (None, 64, 16), (None, 256, 16)),
        *((8, 1), (8, 32), (8, 64, 16), (8, 256, 16)),
    }
    of_layer = ("queries, keys and values", "attention output", "gate and up", "down")
    tokens = [b + c for b in (1, 8, 32) for c in (0, 64, 256)]
    assert sorted(products) == sorted([*product(of_layer, tokens), *product(["head"], (1, 8, 32))])


def test_an_engine_of_one_row_and_one_block_runs_each_kernel_once(monkeypatch):
    run = []
    monkeypatch.setattr(
        kernel_self_test, "product_error", lambda product, t, *how: run.append((product.name, t)) or 0.0
    )
    monkeypatch.setattr(kernel_self_test, "launches", lambda product, *how: [1] if product.name == "head" else [])
    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: run.append(b) or 0.0)
    monkeypatch.setattr(kernel_self_test, "chunk_error", lambda shape, c, q: run.append((c, q)) or 0.0)
    check_kernels(MODEL, dataclasses.replace(LIMITS, max_num_seqs=1, max_chunk_tokens=16), FLOAT32)
    assert len(run) == 3
    assert set(run) == {1, (16, 16), ("head", 1)}


@pytest.mark.parametrize("measure", [lambda shape: decode_error(shape, 1), lambda shape: chunk_error(shape, 16, 16)])
def test_the_keys_are_enough_for_several_shares(monkeypatch, measure):
    """As on a GPU, whose many multiprocessors make the kernel cut the keys of few rows."""
    gpu = Device(platform="cpu", kind="as an A10", num_cores=72, compute_capability=None)
    shares_of, active = Shares.of, []

    def spy(tile, geometry):
        shares = shares_of(tile, geometry)
        jax.debug.callback(lambda count: active.append(int(count)), shares.active)
        return shares

    monkeypatch.setattr(launch, "current_device", lambda: gpu)
    monkeypatch.setattr(Shares, "of", spy)
    assert measure(shape_of()) < TOLERANCES[FLOAT32]
    assert max(active) > 3


# ---- kernels that are wrong ------------------------------------------------------------------------------------------

# In bfloat16, whose tolerance is the wide one.

VALUE_FAULTS = {
    "a scale": lambda x: x * jnp.asarray(1.05, x.dtype),
    "zeros": jnp.zeros_like,
    "one nan": lambda x: x.at[1, 0, 0].set(jnp.nan),
    "one column": lambda x: x.at[..., 0].set(0),
    "heads in another order": lambda x: jnp.roll(x, 1, axis=1),
    "tokens in another order": lambda x: jnp.roll(x, 1, axis=0),
}


@pytest.mark.parametrize("fault", VALUE_FAULTS.values(), ids=VALUE_FAULTS.keys())
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_values_are_far_off(monkeypatch, operation, fault):
    def wrong(operation, *arguments, **options):
        result = operation(*arguments, **options)
        return (fault(result[0]), *result[1:]) if isinstance(result, tuple) else fault(result)

    run_instead(monkeypatch, operation, wrong)
    assert OPERATIONS[operation](shape_of(dtype=BFLOAT16)) > 2 * TOLERANCES[BFLOAT16]


@pytest.mark.parametrize("page_size", [16, 64])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_wrong_page_is_far_off(monkeypatch, operation, page_size):
    """The first page of one sequence in the place of another's. (In what order a sequence has its own pages makes no
    difference without a window, since keys carry their positions.)"""

    def wrong(operation, *arguments, page_table, **options):
        return operation(*arguments, page_table=page_table.at[0, 0].set(page_table[1, 0]), **options)

    run_instead(monkeypatch, operation, wrong)
    assert OPERATIONS[operation](shape_of(page_size, dtype=BFLOAT16)) > 2 * TOLERANCES[BFLOAT16]


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_window_that_is_off_by_one_is_far_off(monkeypatch, operation, off):
    def wrong(operation, *arguments, window, **options):
        return operation(*arguments, window=window + off, **options)

    run_instead(monkeypatch, operation, wrong)
    assert OPERATIONS[operation](shape_of(window=4096, dtype=BFLOAT16)) > 2 * TOLERANCES[BFLOAT16]


def without_keys(before, after):
    return dataclasses.replace(after, pages=after.pages.at[:, :, 0].set(before.pages[:, :, 0]))


def without_an_old_number(before, after):
    return dataclasses.replace(after, pages=jnp.where(after.pages == jnp.nanmax(before.pages), 0, after.pages))


CACHE_FAULTS = {
    "nothing written": lambda before, after: dataclasses.replace(after, pages=before.pages),
    "no key written": without_keys,
    "every slot written": lambda before, after: dataclasses.replace(after, pages=jnp.nan_to_num(after.pages)),
    "an old number lost": without_an_old_number,
}


def leave_instead(monkeypatch, fault):
    """Let a decode leave what ``fault`` makes of the cache before and after it."""

    def wrong(operation, *arguments, cache, **options):
        attended, after, arrivals = operation(*arguments, cache=cache, **options)
        return attended, fault(cache, after), arrivals

    run_instead(monkeypatch, decode_attention, wrong)


@pytest.mark.parametrize("fault", CACHE_FAULTS.values(), ids=CACHE_FAULTS.keys())
def test_a_cache_in_disorder_is_far_off(monkeypatch, fault):
    leave_instead(monkeypatch, fault)
    assert decode_error(shape_of(dtype=BFLOAT16), 5) > 2 * TOLERANCES[BFLOAT16]


def test_a_count_that_is_left_is_seen(monkeypatch):
    def wrong(operation, *arguments, **options):
        attended, after, arrivals = operation(*arguments, **options)
        return attended, after, arrivals.at[0, 1].set(1)

    run_instead(monkeypatch, decode_attention, wrong)
    assert decode_error(shape_of(dtype=BFLOAT16), 5) == np.inf


def with_wrong_scales(scales):
    """The operation with scales that the kernel takes for the right ones; it writes to the right ones."""

    def wrong(operation, *arguments, cache, **options):
        seen = operation(*arguments, cache=dataclasses.replace(cache, scales=scales(cache.scales)), **options)
        if not isinstance(seen, tuple):
            return seen
        return seen[0], *operation(*arguments, cache=cache, **options)[1:]

    return wrong


SCALE_FAULTS = {
    "no scales": jnp.ones_like,
    "a key's for its value": lambda scales: scales.at[:, :, 1].set(scales[:, :, 0]),
    "of another token": lambda scales: jnp.roll(scales, 1, axis=1),
    "of another head": lambda scales: jnp.roll(scales, 1, axis=3),
}


@pytest.mark.parametrize("scales", SCALE_FAULTS.values(), ids=SCALE_FAULTS.keys())
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_scales_are_far_off(monkeypatch, operation, scales):
    run_instead(monkeypatch, operation, with_wrong_scales(scales))
    assert OPERATIONS[operation](shape_of(dtype=BFLOAT16, kv_dtype=INT8)) > 2 * TOLERANCES[BFLOAT16]


def with_number(change):
    """The cache with another number in the first head that was written."""

    def fault(before, after):
        is_new = jnp.isnan(before.scales) & ~jnp.isnan(after.scales)
        new = jnp.argwhere(is_new.at[0].set(False), size=1)[0]  # padding writes to page 0
        return dataclasses.replace(after, pages=after.pages.at[(*new, 3)].set(change(after.pages[(*new, 3)])))

    return fault


INT8_FAULTS = {
    "no scale written": lambda before, after: dataclasses.replace(after, scales=before.scales),
    "no number written": lambda before, after: dataclasses.replace(after, pages=before.pages),
    "a wrong scale": lambda before, after: dataclasses.replace(
        after, scales=jnp.where(jnp.isnan(before.scales), after.scales * 1.05, after.scales)
    ),
    "an old scale lost": lambda before, after: dataclasses.replace(
        after, scales=jnp.where(after.scales == jnp.nanmax(before.scales), 0, after.scales)
    ),
    "a number where no token is": lambda before, after: dataclasses.replace(
        after, pages=jnp.where(jnp.isnan(after.scales)[..., None], 0, after.pages)
    ),
    "two steps off": with_number(lambda number: number + 2),
}


@pytest.mark.parametrize("fault", INT8_FAULTS.values(), ids=INT8_FAULTS.keys())
def test_int8_pages_in_disorder_are_far_off(monkeypatch, fault):
    leave_instead(monkeypatch, fault)
    assert decode_error(shape_of(dtype=BFLOAT16, kv_dtype=INT8), 5) > 2 * TOLERANCES[BFLOAT16]


def test_a_newest_token_that_is_attended_to_before_it_is_rounded_is_seen(monkeypatch):
    """In float32; of bfloat16 the tolerance is wider than the half of a step."""

    def wrong(operation, *arguments, cache, **options):
        exact = LayerCache(cache.pages * cache.scales[..., None], None)
        return operation(*arguments, cache=exact, **options)[0], *operation(*arguments, cache=cache, **options)[1:]

    run_instead(monkeypatch, decode_attention, wrong)
    assert decode_error(shape_of(kv_dtype=INT8), 5) > 2 * TOLERANCES[FLOAT32]


@pytest.mark.parametrize(
    ("numbers", "error"),
    [
        ([127, -64, 3], 0),  # of 127, -64.2 and 3.499
        ([127, -65, 3], 0.3 / 127),
        ([127, -64, 4], 0.001 / 127),
        ([126, -64, 3], 0.5 / 127),
        ([127, -64, 5], np.inf),
        ([127, 64, 3], np.inf),
    ],
)
def test_a_number_may_be_a_step_off_where_two_meet(numbers, error):
    heads = np.array([[127, -64.2, 3.499]]) * 0.01
    assert number_error(np.array([numbers], np.int8), heads) == pytest.approx(error, abs=1e-9)


# ---- what is said ----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_products(monkeypatch):
    """Attention alone is tested."""
    monkeypatch.setattr(kernel_self_test, "_product_cases", lambda *model: [])


@pytest.fixture
def on_a_gpu(monkeypatch, without_products):
    """What jax would say on a machine with one."""
    gpu, backend = SimpleNamespace(device_kind="NVIDIA A10"), SimpleNamespace(platform_version="PJRT C API\ncuda 13000")
    monkeypatch.setattr(kernel_self_test, "get_backend", lambda: backend)
    monkeypatch.setattr(kernel_self_test.jax, "devices", lambda: [gpu])


def test_the_message_says_which_kernel_how_wrong_where_and_what_can_be_done(on_a_gpu, monkeypatch):
    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: 0.0499 if b == 5 else 0.0)
    monkeypatch.setattr(kernel_self_test, "chunk_error", lambda shape, c, q: 0.0)
    with pytest.raises(KernelSelfTestError) as caught:
        check_kernels(MODEL, LIMITS, BFLOAT16)
    assert str(caught.value) == (
        "the GPU kernel for decode attention (B = 5, window None, bfloat16 pages) computes wrong values on NVIDIA A10 "
        f"with jax {jax.__version__} and CUDA 13.0: an error of 0.0499 where 0.02 is allowed. --kernels xla (in "
        "Python: kernels='xla') does without the GPU kernels; another version of jax may be right"
    )


def test_a_kernel_that_does_not_run_is_named_too(on_a_gpu, monkeypatch):
    def fails(shape, c, q):
        raise NotImplementedError("head_dim is 512; the GPU kernel takes at most 256\nand more lines")

    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: 0.0)
    monkeypatch.setattr(kernel_self_test, "chunk_error", fails)
    with pytest.raises(KernelSelfTestError) as caught:
        check_kernels(with_windows(8), LIMITS, FLOAT32)
    assert str(caught.value).startswith(
        "the GPU kernel for chunk attention (C = 16, window 8, float32 pages) does not run on NVIDIA A10 with jax "
        f"{jax.__version__} and CUDA 13.0: NotImplementedError: head_dim is 512; the GPU kernel takes at most 256. "
        "--kernels xla "
    )
    assert isinstance(caught.value.__cause__, NotImplementedError)


def test_a_kernel_that_computes_a_wrong_scale_stops_the_engine(monkeypatch, without_products):
    def wrong(operation, *arguments, **options):
        return operation(*arguments, **options) * 1.05

    run_instead(monkeypatch, decode_attention, unchanged)
    run_instead(monkeypatch, paged_attention, wrong)
    with pytest.raises(KernelSelfTestError, match=r"chunk attention .* wrong values on cpu .* an error of 0\.05 where"):
        check_kernels(MODEL, LIMITS, FLOAT32)


def test_a_product_that_is_wrong_is_named(monkeypatch):
    monkeypatch.setattr(kernel_self_test, "_attention_cases", lambda *model: [])
    monkeypatch.setattr(kernel_self_test, "launches", lambda product, sizes, *how: sizes)
    monkeypatch.setattr(
        kernel_self_test, "product_error", lambda product, t, *how: 0.3 if (product.name, t) == ("down", 5) else 0.0
    )
    with pytest.raises(KernelSelfTestError, match=r"the product down \(T = 5\) computes wrong values on .* of 0\.3 "):
        check_kernels(MODEL, LIMITS, FLOAT32, formats_of(MODEL, Quantization(bits=4, group_size=64)))


@pytest.mark.parametrize("error", [float("inf"), 2.1e-5])
def test_no_error_above_the_tolerance_passes(monkeypatch, without_products, error):
    monkeypatch.setattr(kernel_self_test, "decode_error", lambda shape, b: error)
    with pytest.raises(KernelSelfTestError):
        check_kernels(MODEL, LIMITS, FLOAT32)


@pytest.mark.parametrize(
    ("platform_version", "said"),
    [
        ("PJRT C API\ncuda 12090", "CUDA 12.9"),
        ("PJRT C API\ncuda 13020", "CUDA 13.2"),
        ("PJRT C API\nrocm 60300", "PJRT C API rocm 60300"),
        ("cpu", "cpu"),
    ],
)
def test_the_cuda_version_is_read_from_what_the_backend_says(platform_version, said):
    assert kernel_self_test._cuda_version(platform_version) == said


@pytest.mark.parametrize(
    ("result", "expected", "error"),
    [
        ([[3.0, 4.0]], [[3.0, 4.0]], 0),
        ([[3.0, 4.0], [0.0, 1.1]], [[3.0, 4.0], [0.0, 1.0]], 0.1),
        ([[3.0, 4.5]], [[3.0, 4.0]], 0.1),
        ([[0.0, 0.0]], [[0.0, 0.0]], 0),
        ([[0.0, 1e-9]], [[0.0, 0.0]], np.inf),
        ([[np.nan, 4.0]], [[3.0, 4.0]], np.inf),
        ([[np.inf, 4.0]], [[3.0, 4.0]], np.inf),
        ([[np.nan, np.nan]], [[np.nan, np.nan]], 0),
        ([[0.0, np.nan]], [[np.nan, np.nan]], np.inf),
    ],
)
def test_the_error_is_that_of_the_worst_head_relative_to_its_norm(result, expected, error):
    assert relative_error(np.array(result), np.array(expected)) == pytest.approx(error, rel=1e-9)
