"""Models in fewer bits as they are loaded: which weights have which format, what is said of it, what they compute."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from checkpoints.quantization import abstract_weights, num_bytes
from jaxinfer import loading
from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.llm import LLM
from jaxinfer.loading import LoadedModel, build_engine, choose_formats, open_model
from jaxinfer.model import Decoder
from jaxinfer.runner import ModelRunner
from jaxinfer.weights import formats_of, weight_shapes
from pallas_kernels.device import Device
from pallas_kernels.quantized_matmul import Int4Weight, dequantize
from tests.checkpoints import writers
from tests.checkpoints.writers import CONFIG
from tests.command_line import jaxinfer
from tests.numpy_decoder import decoder_logits
from tests.scoring import prefill_logits

FLOAT32 = np.dtype(np.float32)
INT8, INT4_64, INT4_32 = Quantization(bits=8), Quantization(bits=4, group_size=64), Quantization(bits=4, group_size=32)
ROWS = Quantization(bits=4)
Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
LIMITS = {"max_model_len": 32, "num_kv_pages": 4, "max_num_seqs": 2, "max_chunk_tokens": 16, "page_size": 8}


@pytest.fixture(autouse=True)
def _no_tokenizer(monkeypatch):
    """The files here have none."""
    none = SimpleNamespace(eos_token_id=None, token_id=lambda spelling: None)
    monkeypatch.setattr(loading, "load_tokenizer", lambda path: none)


# ---- the choice ------------------------------------------------------------------------------------------------------

STORED = {**formats_of(CONFIG, INT4_32), "layers.0.qkv": INT8}
FLOAT_BYTES = num_bytes(abstract_weights(CONFIG, FLOAT32, {}))


def chosen(monkeypatch, quantization, *, is_gpu=False, memory=2 * FLOAT_BYTES, dtype=FLOAT32, **options):
    """Of a checkpoint that has ``STORED``."""
    platform = "gpu" if is_gpu else "cpu"
    device = Device(platform=platform, kind=platform, num_cores=1, compute_capability=None)
    monkeypatch.setattr(loading, "current_device", lambda: device)
    monkeypatch.setattr(loading, "cpu_memory", lambda: memory)
    loaded = LoadedModel("some", CONFIG, lambda dtype, formats: iter(()), None, (), stored=STORED)
    return choose_formats(loaded, dtype, quantization, **options)


@pytest.mark.parametrize("is_gpu", [False, True])
def test_what_is_asked_for_does_not_depend_on_the_device(monkeypatch, is_gpu):
    assert chosen(monkeypatch, None, is_gpu=is_gpu) == {}
    assert chosen(monkeypatch, "stored", is_gpu=is_gpu) == STORED
    for each in (INT8, INT4_64, ROWS):
        assert chosen(monkeypatch, each, is_gpu=is_gpu) == formats_of(CONFIG, each)
        asked = chosen(monkeypatch, each, is_gpu=is_gpu, quantize_embeddings=True)
        assert asked == formats_of(CONFIG, each, embeddings=True)
        assert set(asked) - set(formats_of(CONFIG, each)) == {"embedding", "lm_head"}


@pytest.mark.parametrize(
    ("is_gpu", "memory", "is_stored"),
    [
        (False, 2 * FLOAT_BYTES, False),
        (False, 2 * FLOAT_BYTES - 2, True),
        (False, 0, True),
        (True, 2 * FLOAT_BYTES, True),
        (True, 10**15, True),
    ],
)
def test_by_itself_a_cpu_has_floats_where_they_take_at_most_half_of_its_memory(monkeypatch, is_gpu, memory, is_stored):
    assert chosen(monkeypatch, "auto", is_gpu=is_gpu, memory=memory) == (STORED if is_stored else {})


def test_floats_of_half_the_bytes_fit_into_half_the_memory(monkeypatch):
    memory = FLOAT_BYTES
    assert chosen(monkeypatch, "auto", memory=memory) == STORED
    assert chosen(monkeypatch, "auto", memory=memory, dtype=np.dtype(jnp.bfloat16)) == {}


@pytest.mark.parametrize("quantization", [None, "auto", "stored"])
def test_embeddings_are_not_quantized_without_a_format(monkeypatch, quantization):
    with pytest.raises(ValueError, match=f"quantize_embeddings goes with quantization .* which is {quantization!r}"):
        chosen(monkeypatch, quantization, quantize_embeddings=True)


@pytest.mark.parametrize(
    ("quantization", "is_stored"), [(None, False), ("none", False), ("auto", True), ("stored", True)]
)
def test_a_user_names_what_is_stored_or_floats(tmp_path, monkeypatch, quantization, is_stored):
    monkeypatch.setattr(loading, "cpu_memory", lambda: 0)
    monkeypatch.setattr(ModelRunner, "warm_up", lambda runner, progress: None)  # nothing is computed
    llm = LLM(write(tmp_path / "m.gguf"), quantization=quantization, **LIMITS)
    num_packed = sum(weight.dtype == np.uint8 for weight in llm.engine._runner.programs.weights)
    assert num_packed == (9 if is_stored else 0)


# ---- what is said ----------------------------------------------------------------------------------------------------


ON_A_CPU = ": on a CPU floats are faster where memory has room; quantization 'stored' keeps what can stay"


def write(path: Path, config: ModelConfig = CONFIG, **kinds) -> Path:
    """A model of random weights as a GGUF, by default all Q4_1 but an embedding in Q8_0."""
    kinds = {"matrices": Q4_1, "others": {"token_embd.weight": Q8_0}} | kinds
    tensors = writers.gguf_tensors(drawn(config), config)
    return writers.write_gguf(path, tensors, writers.gguf_metadata(config, "llama"), **kinds)


def drawn(config: ModelConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(0, shape[-1] ** -0.5 if len(shape) > 1 else 1, shape).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }


@pytest.mark.parametrize(
    ("quantization", "memory", "line"),
    [
        ("auto", 10**12, "weights: 10 matrices are dequantized (Q8_0, Q4_1)" + ON_A_CPU),
        ("auto", 0, "weights: 9 matrices stay int4 in groups of 32 (Q4_1), 1 is dequantized (Q8_0)"),
        ("stored", 10**12, "weights: 9 matrices stay int4 in groups of 32 (Q4_1), 1 is dequantized (Q8_0)"),
        (None, 10**12, "weights: 10 matrices are dequantized (Q8_0, Q4_1)"),
        (INT8, 0, "weights: 8 matrices are rounded anew to int8 (Q4_1), 2 are dequantized (Q8_0, Q4_1)"),
        (INT4_32, 0, "weights: 8 matrices stay int4 in groups of 32 (Q4_1), 2 are dequantized (Q8_0, Q4_1)"),
    ],
    ids=["auto", "auto, little memory", "stored", "none", "int8", "int4"],
)
def test_what_becomes_of_quantized_matrices_is_one_line(tmp_path, monkeypatch, caplog, quantization, memory, line):
    monkeypatch.setattr(loading, "cpu_memory", lambda: memory)
    caplog.set_level(logging.INFO, "jaxinfer.loading")
    build_engine(open_model(write(tmp_path / "m.gguf")), quantization=quantization, **LIMITS)
    assert [r.getMessage() for r in caplog.records if r.name == "jaxinfer.loading"] == [line]


def test_a_command_tells_it_on_stderr(tmp_path):
    """Before the limits are settled, so one that cannot be ends the program before anything is compiled."""
    path = write(tmp_path / "m.gguf")
    result = jaxinfer("generate", "--model", path, "--token-ids", "--prompt", "1 2", "--max-model-len", 10**6)
    told, error = result.stderr.splitlines()
    assert told == "weights: 10 matrices are dequantized (Q8_0, Q4_1)" + ON_A_CPU
    assert (result.exit_code, result.stdout, error.split(";")[0]) == (2, "", "error: max_model_len is 1000000")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_of_floats_nothing_is_said(tmp_path, caplog, kind):
    caplog.set_level(logging.INFO, "jaxinfer.loading")
    path = write(tmp_path / "m.gguf", matrices=GGMLQuantizationType[kind], others={})
    build_engine(open_model(path), quantization=INT8, **LIMITS)
    assert [r for r in caplog.records if r.name == "jaxinfer.loading"] == []


def test_what_no_product_reads_is_dequantized_on_any_device(tmp_path, caplog):
    caplog.set_level(logging.INFO, "jaxinfer.loading")
    build_engine(open_model(write(tmp_path / "m.gguf", matrices=Q8_0)), **LIMITS)
    assert [r.getMessage() for r in caplog.records].count("weights: 10 matrices are dequantized (Q8_0)") == 1


# ---- what is computed ------------------------------------------------------------------------------------------------


def shaped(hidden: int, intermediate: int, **more) -> ModelConfig:
    return replace(
        CONFIG, hidden_size=hidden, intermediate_size=intermediate, num_layers=1, windows=(None,), vocab_size=23, **more
    )


def assert_computes_what_its_matrices_mean(loaded: LoadedModel, formats) -> dict[str, object]:
    """The logits of nine tokens against the definition, on the matrices that the products' formats stand for."""
    weights = dict(loaded.weights(FLOAT32, formats))
    token_ids = np.random.default_rng(1).integers(0, loaded.config.vocab_size, 9)
    logits = prefill_logits(Decoder(loaded.config, weights, kernels="xla"), token_ids, chunk=9)
    floats = {name: dequantize(w, FLOAT32) if w.shape[1:] else w for name, w in weights.items()}
    assert np.abs(logits - decoder_logits(loaded.config, floats, token_ids)).max() < 1e-4
    return floats


WIDTHS = [(80, 172), (96, 80), (172, 576), (576, 96)]
FORMATS = [INT4_32, ROWS, INT4_64, Quantization(bits=4, group_size=128), INT8]


@pytest.mark.parametrize(
    ("hidden", "intermediate", "quantization"),
    [
        # Each format's rounding and packing has a quick test of its own.
        pytest.param(*widths, quantization, marks=() if i == j == 0 else pytest.mark.slow)
        for i, widths in enumerate(WIDTHS)
        for j, quantization in enumerate(FORMATS)
    ],
    ids=str,
)
def test_a_model_of_sizes_that_no_group_divides_is_filled_up(tmp_path, hidden, intermediate, quantization):
    """Every matrix, embedding and head too; what it stands for is the file's, rounded."""
    config = shaped(hidden, intermediate)
    weights = drawn(config)
    fields = {"vocab_size": 23, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": 1}
    loaded = open_model(writers.write_hf(tmp_path, writers.hf_tensors(weights, config), writers.HF_CONFIG | fields))
    formats = choose_formats(loaded, FLOAT32, quantization, quantize_embeddings=True)
    assert set(formats) == {name for name, array in weights.items() if array.ndim == 2}
    floats = assert_computes_what_its_matrices_mean(loaded, formats)
    steps = 15 if quantization.bits == 4 else 255
    for name in formats:
        assert 0 < np.abs(np.asarray(floats[name]) - weights[name]).max() < np.ptp(weights[name]) / steps, name


@pytest.mark.parametrize("tied", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_model_that_stays_as_it_is_stored_has_the_logits_of_its_floats(tmp_path, tied):
    """Rows of 96 and 160 numbers: three and five groups, where whole pieces have four and eight."""
    config = shaped(96, 160, tie_embeddings=tied)
    loaded = open_model(write(tmp_path / "m.gguf", config, others={}))
    assert set(loaded.stored) == {name for name, shape in weight_shapes(config).items() if len(shape) == 2}
    weights = dict(loaded.weights(FLOAT32, loaded.stored))
    assert all(isinstance(weights[name], Int4Weight) for name in loaded.stored)
    floats = assert_computes_what_its_matrices_mean(loaded, loaded.stored)
    for name, values in loaded.weights(FLOAT32, {}):
        np.testing.assert_array_equal(floats[name], values, err_msg=name)
    down = gguf.dequantize(gguf.quantize(drawn(config)["layers.0.down"], Q4_1), Q4_1)
    np.testing.assert_array_equal(floats["layers.0.down"], down)
