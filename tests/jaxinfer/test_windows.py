"""The real engine on models whose text is ten windows long, against transformers' logits at every position.

A group with a window gives pages back while a text is read or drawn. What is compared is that nothing is missed that a
token sees; what is counted, in every step, that nothing is kept that no token sees.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.programs import Draw
from jaxinfer.runner import ForwardStep, ModelRunner
from tests.engines import finish, greedy, keep_few_programs, random_decoder, record_greedy, run_alone
from tests.reference import TINY_TWO_GROUPS, TINY_WINDOWS, Reference, load_reference, read_hf_weights

WINDOW = 12
CHUNK = 16
MAX_MODEL_LEN = 128
LENGTHS = range(3 * WINDOW, 10 * WINDOW + 1, 7)
MODELS = {"tiny_windows": TINY_WINDOWS, "tiny_two_groups": TINY_TWO_GROUPS}
CASES = [
    ("tiny_windows", 4),
    ("tiny_windows", 5),
    ("tiny_windows", 16),
    pytest.param(("tiny_two_groups", 4), marks=pytest.mark.slow),
    ("tiny_two_groups", 5),
    pytest.param(("tiny_two_groups", 16), marks=pytest.mark.slow),
]
"""Pages smaller than the window, not dividing it, and larger."""


def most_pages(page_size: int) -> int:
    """What a request may hold of a group with a window."""
    return -(-(WINDOW + CHUNK) // page_size) + 1


def smallest_pool(config: EngineConfig) -> int:
    """Pages of the first group with which one request of the longest length runs: in a group with a window far fewer
    than its text has."""
    return -(-MAX_MODEL_LEN // config.page_size) if config.windows[0] is None else most_pages(config.page_size)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A fixture's name and the tokens of a page."""
    return request.param


@pytest.fixture(scope="module")
def reference(case: tuple[str, int]) -> Reference:
    """The text and its logits."""
    return load_reference(case[0])


@pytest.fixture(scope="module")
def config(case: tuple[str, int]) -> EngineConfig:
    """Limits with a roomy pool."""
    return EngineConfig(
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=2,
        max_chunk_tokens=CHUNK,
        page_size=case[1],
        num_kv_pages=64,
        windows=MODELS[case[0]].group_windows,
    )


@pytest.fixture(scope="module")
def runner(reference: Reference, config: EngineConfig) -> ModelRunner:
    """Programs for decode rows and for chunks, and the one greedy sampler, which is all that is needed here; every
    request's page tables are looked at in each step."""
    model = MODELS[reference.folder.name]
    runner = ModelRunner(
        random_decoder(model, read_hf_weights(reference.folder, model)), config, kv_dtype=jnp.dtype(jnp.float32)
    )
    keep_few_programs(runner)
    for shape in runner.programs.layouts:
        runner.programs._compile_forward(*shape)
    runner.programs._compile_sample(Draw.GREEDY, config.max_num_seqs)
    forward = runner.forward

    def looking(batch: Batch) -> ForwardStep:
        for row in batch.rows:
            check_tables(row, config)
        return forward(batch)

    runner.forward = looking  # type: ignore[method-assign]
    return runner


def check_tables(row: ScheduledRow, config: EngineConfig) -> None:
    """The tables hold what the row's tokens see, and of a group with a window nothing that left it before them."""
    num_pages = -(-(row.start + row.num_tokens) // config.page_size)
    for window, table in zip(config.windows, row.request.page_tables, strict=True):
        oldest = 0 if window is None else max(0, row.start - window + 1)
        assert (table.first_page, table.first_page + len(table.pages)) == (oldest // config.page_size, num_pages)
        assert window is None or len(table.pages) <= most_pages(config.page_size)


def new_engine(runner: ModelRunner, config: EngineConfig, num_kv_pages: int) -> Engine:
    """An engine that knows no prefix, with a pool of its own size; what is in its pages shows in all that reads it."""
    runner._kv_cache = jax.tree.map(lambda pages: jnp.full_like(pages, 1e4), runner._kv_cache)
    return Engine(runner, replace(config, num_kv_pages=num_kv_pages), tokenizer=None, eos_token_ids=())


def test_decoding_from_three_tokens_to_ten_windows(
    reference: Reference, config: EngineConfig, runner: ModelRunner
) -> None:
    """In a pool that holds no more than one request needs."""
    text, logits = reference.arrays["token_ids"].tolist(), reference.arrays["logits"]
    ids, drawn_from = record_greedy(new_engine(runner, config, smallest_pool(config)), text[:3], len(text) - 3)
    assert ids == text[3:]
    np.testing.assert_allclose(drawn_from, logits[2:-1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("is_small", [False, True])
def test_prompts_from_three_to_ten_windows(
    reference: Reference, config: EngineConfig, runner: ModelRunner, is_small: bool
) -> None:
    """Read in chunks of 16 tokens, in a roomy pool and in one that holds no more than one request needs."""
    text, logits = reference.arrays["token_ids"].tolist(), reference.arrays["logits"]
    for length in LENGTHS:
        engine = new_engine(runner, config, smallest_pool(config) if is_small else config.num_kv_pages)
        ids, drawn_from = record_greedy(engine, text[:length], 1)
        assert ids == [logits[length - 1].argmax()]
        np.testing.assert_allclose(drawn_from[0], logits[length - 1], atol=1e-4, rtol=0, err_msg=str(length))


def test_requests_that_take_over_each_others_pages(
    reference: Reference, config: EngineConfig, runner: ModelRunner
) -> None:
    """Two at a time, in a pool for two; what one gives back, the other writes."""
    text = reference.arrays["token_ids"].tolist()
    engine = new_engine(runner, config, 2 * smallest_pool(config))
    starts = [3, 50, 17, 81, 36]
    for start in starts:
        engine.add_request(str(start), text[:start], greedy(len(text) - start))
    outputs = finish(engine)
    assert {start: outputs[str(start)].outputs[0].token_ids for start in starts} == {n: text[n:] for n in starts}


def test_prefixes_of_which_a_window_lost_the_beginning(
    reference: Reference, config: EngineConfig, runner: ModelRunner
) -> None:
    """The whole text was read, in a pool for less; then prompts that begin like it, up to where that is lost, in the
    middle of a window, and where all that a token sees is left."""
    text, logits = reference.arrays["token_ids"].tolist(), reference.arrays["logits"]
    num_cached = []
    for length in LENGTHS:
        engine = new_engine(runner, config, 2 * smallest_pool(config))
        run_alone(engine, text[:-1], greedy(1))
        ids, drawn_from = record_greedy(engine, text[:length], 1)
        num_cached.append(engine.scheduler.counters.num_cached_tokens)
        assert ids == [logits[length - 1].argmax()]
        np.testing.assert_allclose(drawn_from[0], logits[length - 1], atol=1e-4, rtol=0, err_msg=str(length))
    whole_pages = (len(text) - 1) // config.page_size
    assert (num_cached[0], num_cached[-1]) == (0, whole_pages * config.page_size)


@pytest.mark.parametrize("page_size", [4, 5, 16])
def test_the_smallest_pool_is_a_part_of_the_text(page_size: int) -> None:
    """So the model of one group reads far more than its pool holds: the context is bounded by the model alone."""
    sizes = {"max_model_len": MAX_MODEL_LEN, "num_kv_pages": 64, "page_size": page_size}
    config = EngineConfig(**sizes, max_chunk_tokens=CHUNK, windows=TINY_WINDOWS.group_windows)
    assert smallest_pool(config) * page_size <= 4 * WINDOW
