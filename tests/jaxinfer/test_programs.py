"""The compiled forward programs, as XLA left them: they update the cache in place and copy nothing large."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer import kv_cache, slot_state
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.kv_cache import KVCache
from jaxinfer.programs import Programs
from jaxinfer.weights import weight_shapes
from tests.engines import random_decoder

MODEL = ModelConfig(
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_layers=4,
    num_heads=8,
    num_kv_heads=4,
    head_dim=32,
    max_position_embeddings=1024,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None, 64, None, 64),
)
"""Large enough for its weights and its cache to stand out among what a step computes."""

LIMITS = EngineConfig(
    max_model_len=512,
    max_num_seqs=2,
    max_chunk_tokens=16,
    page_size=16,
    num_kv_pages=512,
    windows=MODEL.group_windows,
)

FLOAT, FLOAT_BYTES = jnp.dtype(jnp.float32), 4
KEYS_PER_TILE = 128
"""Keys that attention gathers for each block at a time."""


@pytest.fixture(scope="module", params=["float32", "int8"])
def cache(request) -> KVCache:
    """With pages of as many bytes, whatever they are of."""
    dtype = jnp.dtype(request.param)
    return kv_cache.allocate(
        MODEL,
        num_pages=[number * FLOAT_BYTES // dtype.itemsize for number in LIMITS.group_pages],
        page_size=LIMITS.page_size,
        max_num_seqs=LIMITS.max_num_seqs,
        dtype=dtype,
    )


@pytest.fixture(scope="module")
def forward(cache) -> dict[tuple[int, int], jax.stages.Compiled]:
    """Every forward program, B = 1 among them: there XLA has copied a cache that it left in place for more rows.

    Over int8 pages only those with a chunk, which write to the cache in both ways.
    """
    weights = {name: np.ones(shape, np.float32) for name, shape in weight_shapes(MODEL).items()}
    programs = Programs(random_decoder(MODEL, weights), LIMITS, cache)
    assert list(programs.layouts) == [(1, 0), (1, 16), (2, 0), (2, 16)]
    for b, c in programs.layouts:
        if c > 0 or cache.layers[0].scales is None:
            programs._compile_forward(b, c)
    return programs.forward


def whole_cache_copies(program: jax.stages.Compiled, cache: KVCache) -> list[str]:
    """Copies of all pages of a layer, or of all their scales, in a program's optimized HLO."""
    return whole_copies(program, cache.layers)


def whole_copies(program: jax.stages.Compiled, of: object) -> list[str]:
    """Copies of arrays that have a shape of those in a tree, in a program's optimized HLO."""
    names = {"float32": "f32", "int8": "s8", "int32": "s32"}
    arrays = {f"{names[x.dtype.name]}\\[{','.join(map(str, x.shape))}\\]" for x in jax.tree.leaves(of)}
    return re.findall(rf".*= (?:{'|'.join(arrays)})\S* copy\(.*", program.as_text())


def test_no_program_copies_the_cache(forward, cache):
    """That the cache is donated proves nothing: XLA may copy it inside. So look at what it compiled."""
    for shape, program in forward.items():
        assert whole_cache_copies(program, cache) == [], shape
        memory = program.memory_analysis()
        assert memory.alias_size_in_bytes >= sum(x.nbytes for x in jax.tree.leaves(cache.layers)), shape


def test_a_copy_of_any_part_of_the_cache_would_be_seen(cache):
    for array in jax.tree.leaves(cache.layers[:2]):  # a layer of each group
        program = jax.jit(lambda x: x.at[0, 0].set(1)).lower(array).compile()  # not donated, so it must copy
        assert whole_cache_copies(program, cache)


def step_bytes(num_rows: int, num_chunk_tokens: int) -> int:
    """What a step may hold of its own at one time, generously.

    Four arrays as wide as the widest activation (the gate and up products), and three tiles of keys and values for
    each block of queries: as gathered, with what holds no token masked, and in the order that the products want.
    """
    num_tokens, num_blocks = num_rows + num_chunk_tokens, num_rows + num_chunk_tokens // LIMITS.block_q
    activation = num_tokens * 2 * MODEL.intermediate_size
    tile = num_blocks * KEYS_PER_TILE * 2 * MODEL.num_kv_heads * MODEL.head_dim
    return FLOAT_BYTES * (4 * activation + 3 * tile)


def test_the_memory_of_a_step_is_that_of_its_tokens_and_at_most_one_layer(forward, cache):
    """One layer's weights may be laid out anew for a product, and be dropped before the next layer's.

    Weights of two layers, or the pages of one, would be a copy of something that is meant to stay where it is.
    """
    shapes = weight_shapes(MODEL)
    layer = FLOAT_BYTES * sum(np.prod(shape) for name, shape in shapes.items() if name.startswith("layers.0."))
    for (b, c), program in forward.items():
        allowed = layer + step_bytes(b, c)
        assert allowed < min(2 * layer, cache.layers[0].pages.nbytes), "the bound would let such a copy pass"
        assert program.memory_analysis().temp_size_in_bytes < allowed, (b, c)


def test_no_program_copies_the_state_of_the_slots():
    """Three slots, so that nothing else looks like it; for one row too, where XLA may do what it does not for more."""
    weights = {name: np.ones(shape, np.float32) for name, shape in weight_shapes(MODEL).items()}
    limits = replace(LIMITS, max_num_seqs=3)
    cache = jax.eval_shape(
        partial(kv_cache.allocate, MODEL, num_pages=(1, 1), page_size=16, max_num_seqs=3, dtype=FLOAT)
    )
    programs = Programs(random_decoder(MODEL, weights), limits, cache)
    state = slot_state.allocate(3, MODEL.vocab_size)
    for b in programs.rows:
        programs._compile_adjust(b)
    programs._compile_set_slot()
    for program in (*programs.adjust.values(), programs.set_slot):
        assert whole_copies(program, state) == []
        assert program.memory_analysis().alias_size_in_bytes >= slot_state.num_bytes(3, MODEL.vocab_size)
    undonated = jax.jit(slot_state.set_slot).lower(*programs.set_slot_call()[1]).compile()
    assert whole_copies(undonated, state), "a copy would not be seen"
