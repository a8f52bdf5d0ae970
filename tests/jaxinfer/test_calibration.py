"""The walk of a calibration text: what each matrix is said to meet, against a forward pass from the definition."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.quantization import on_device, quantize
from checkpoints.stored_rows import Int4Rows
from jaxinfer import calibration
from jaxinfer.calibration import calibrated
from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.weights import formats_of, weight_shapes
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, dequantize
from tests.numpy_decoder import attention, feed_forward, rms_norm

INT4 = Quantization(bits=4, group_size=32)
WITH_ALL = ModelConfig(
    vocab_size=40,
    hidden_size=24,
    intermediate_size=56,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=10,
    max_position_embeddings=64,
    rope_theta=1000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(6, 6),
    qkv_bias=True,
    qk_norm=True,
)
PLAIN = replace(WITH_ALL, num_layers=1, tie_embeddings=True, windows=(None,), qkv_bias=False, qk_norm=False)
TOKEN_IDS = np.random.default_rng(5).integers(0, WITH_ALL.vocab_size, (3, 21))


def random_floats(config: ModelConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weight_shapes(config).items()}


def moments(inputs: np.ndarray) -> np.ndarray:
    return np.einsum("ntk,ntl->kl", inputs, inputs)


def expected_moments(config: ModelConfig, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The second moments of what goes into each matrix but the embedding, in float64. What goes into the second matrix
    of a block is what the block gives with the identity in its place.
    """
    w = {name: np.asarray(array).astype(float) for name, array in weights.items()}
    x, found = w["embedding"][TOKEN_IDS], {}
    for i, window in enumerate(config.windows):
        layer = f"layers.{i}."
        normed = rms_norm(x, w[layer + "attention_norm"], config.norm_eps)
        bare = w | {layer + "attention_out": np.eye(config.num_heads * config.head_dim)}
        attended = np.stack([attention(config, window, bare, layer, sequence) for sequence in normed])
        found |= {layer + "qkv": moments(normed), layer + "attention_out": moments(attended)}
        x = x + attended @ w[layer + "attention_out"].T
        normed = rms_norm(x, w[layer + "mlp_norm"], config.norm_eps)
        hidden = feed_forward(w | {layer + "down": np.eye(config.intermediate_size)}, layer, normed)
        found |= {layer + "gate_up": moments(normed), layer + "down": moments(hidden)}
        x = x + hidden @ w[layer + "down"].T
    if not config.tie_embeddings:
        found["lm_head"] = moments(rms_norm(x, w["final_norm"], config.norm_eps))
    return found


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The moments that each matrix is calibrated with; it is rounded to nearest instead."""
    seen = {}

    def record(name, matrix, moments, quantization):
        seen[name] = np.asarray(moments)
        return on_device(name, matrix, quantization)

    monkeypatch.setattr(calibration, "calibrate", record)
    return seen


@pytest.mark.parametrize("config", [WITH_ALL, PLAIN], ids=["all", "plain"])
def test_each_matrix_meets_what_the_quantized_ones_before_it_give(config: ModelConfig, met: dict) -> None:
    """Embeddings too are quantized; with a head of its own, biases, norms of heads and windows, and with none of it."""
    weights, formats = random_floats(config), formats_of(config, INT4, embeddings=True)
    quantized = dict(calibrated(config, iter(weights.items()), formats, TOKEN_IDS))
    assert list(quantized) == list(weight_shapes(config))
    assert {name for name, weight in quantized.items() if isinstance(weight, Int4Weight)} == set(formats)
    floats = {name: dequantize(w, jnp.dtype(jnp.float32)) if name in formats else w for name, w in quantized.items()}
    expected = expected_moments(config, floats)
    assert list(met) == list(expected)
    for name, array in expected.items():
        assert np.abs(met[name] - array).max() < 1e-4 * np.abs(array).max(), name


def test_the_moments_of_the_floats_are_others(met: dict) -> None:
    """The tolerance notices that a matrix before is quantized."""
    weights = random_floats(WITH_ALL)
    list(calibrated(WITH_ALL, iter(weights.items()), formats_of(WITH_ALL, INT4), TOKEN_IDS))
    expected = expected_moments(WITH_ALL, weights)
    differ = {name for name in met if np.abs(met[name] - expected[name]).max() > 1e-3 * np.abs(expected[name]).max()}
    assert differ == set(met) - {"layers.0.qkv"}


def test_only_matrices_of_4_bits_are_calibrated_and_those_that_are_so_stay(met: dict) -> None:
    weights = random_floats(PLAIN)
    names = ["embedding", "layers.0.qkv", "layers.0.attention_out"]
    formats = dict.fromkeys(names, INT4) | {"layers.0.down": Quantization(bits=8)}
    shape = weight_shapes(PLAIN)["layers.0.attention_out"]
    stored = Int4Rows(
        values=np.arange(shape[0] * shape[1]).reshape(shape).astype(np.uint8) % 16,
        scales=np.ones((shape[0], 2), np.float16),
        offsets=np.ones((shape[0], 2), np.float16),
        group_size=32,
    )
    quantized = dict(calibrated(PLAIN, iter((weights | {names[2]: stored}).items()), formats, TOKEN_IDS))
    assert list(met) == ["layers.0.qkv"]
    assert isinstance(quantized["layers.0.down"], Int8Weight)
    for name in ("embedding", "layers.0.down"):
        expected = quantize(jnp.asarray(weights[name]), formats[name])
        np.testing.assert_array_equal(quantized[name].values, expected.values)
    np.testing.assert_array_equal(dequantize(quantized[names[2]], jnp.dtype(jnp.float32)), stored.dequantized())
    np.testing.assert_array_equal(quantized["layers.0.gate_up"], weights["layers.0.gate_up"])


def test_a_layer_is_read_when_its_first_weight_is_asked_for(met: dict) -> None:
    read = []

    def reading():
        for name, weight in random_floats(WITH_ALL).items():
            read.append(name)
            yield name, weight

    quantized = calibrated(WITH_ALL, reading(), formats_of(WITH_ALL, INT4), TOKEN_IDS)
    assert read == []
    for name, _ in quantized:
        if name == "layers.0.attention_norm":
            break
    assert read == [name for name in weight_shapes(WITH_ALL) if name == "embedding" or name.startswith("layers.0")] + [
        "layers.1.attention_norm"
    ]


def test_a_calibrated_layer_comes_out_as_gptq_has_it() -> None:
    """Nothing between is replaced here: less error in what the last matrix gives than by rounding to nearest."""
    weights, formats = random_floats(PLAIN), formats_of(PLAIN, INT4)
    quantized = dict(calibrated(PLAIN, iter(weights.items()), formats, TOKEN_IDS))
    inputs = expected_moments(
        PLAIN,
        {
            name: dequantize(weight, jnp.dtype(jnp.float32)) if name in formats else weight
            for name, weight in quantized.items()
        },
    )
    for name, h in inputs.items():
        errors = []
        for weight in (quantized[name], quantize(jnp.asarray(weights[name]), INT4)):
            error = np.asarray(dequantize(weight, jnp.dtype(jnp.float32))).astype(float) - weights[name]
            errors.append(np.einsum("nk,kl,nl->", error, h, error))
        assert errors[0] < 0.9 * errors[1], name


@pytest.mark.parametrize(
    ("token_ids", "message"),
    [
        (TOKEN_IDS[:0], r"has shape \(0, 21\)"),
        (
            TOKEN_IDS.repeat(4, axis=1),
            r"the calibration text has shape \(3, 84\); it must be \[windows, tokens\], with 1 to 64 tokens",
        ),
        (TOKEN_IDS + 1, r"the calibration text has the token 40; it must be in \[0, 39\]"),
        (TOKEN_IDS - 1, r"the calibration text has the token -1"),
    ],
)
def test_another_text_is_refused_before_anything_is_read(token_ids: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrated(PLAIN, iter([]), {}, token_ids)


def test_inputs_that_overflow_name_the_weight() -> None:
    weights = random_floats(WITH_ALL)
    weights["layers.1.attention_norm"] *= np.float32(1e30)
    with pytest.raises(ValueError, match=r"layers\.1\.qkv cannot be calibrated: what goes into it"):
        list(calibrated(WITH_ALL, iter(weights.items()), formats_of(WITH_ALL, INT4), TOKEN_IDS))
