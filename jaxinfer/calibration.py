"""Quantizing a model by what goes into its matrices: the walk through its layers over a calibration text.

Layer by layer, each matrix is fitted to the inputs that it will meet, which those before it, quantized already, give
it; ``checkpoints.gptq`` does the fitting. The layers that run are the model's own, over a cache that holds one window.

Only one layer's floats and the hidden states between two layers are held. What goes into the second matrix of a block,
which is several times as wide, is therefore computed twice: for its second moments, and for the block's result.
"""

import reprlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int32, Integer

from checkpoints.gptq import add_moments, calibrate
from checkpoints.quantization import on_device
from jaxinfer.config import ModelConfig
from jaxinfer.layers import Attention, ChunkView, FeedForward, TokenView, rotary_angles
from jaxinfer.weights import Formats
from pallas_kernels.norm import rms_norm
from pallas_kernels.paged_attention import LayerCache
from pallas_kernels.quantized_matmul import Weight, take_rows

_FLOAT32 = jnp.dtype(jnp.float32)

_BLOCK_Q, _PAGE_SIZE = 16, 16
"""Tokens of a tile of the attention and of a page; these are the engine's."""

_BLOCKS = (
    (Attention, "attention_norm", "qkv", "attention_out"),
    (FeedForward, "mlp_norm", "gate_up", "down"),
)
"""The blocks of a layer: each a norm and two matrices."""


def calibrated(
    config: ModelConfig,
    weights: Iterable[tuple[str, Any]],
    formats: Formats,
    token_ids: Integer[np.ndarray, "n length"],
) -> Iterator[tuple[str, Weight | Array]]:
    """Each weight of a model as the device holds it, in the order in which they come: matrices of 4 bits by GPTQ, all
    others as ``checkpoints.quantization.on_device`` does it, and the embedding too, of which rows are read.

    Lazy: each layer is calibrated when its first weight is asked for.

    Args:
        config: the model's shape.
        weights: (name, float32 array) of ``jaxinfer.weights.weight_shapes``, in that order.
        formats: of the weights that are to be quantized.
        token_ids: windows of the calibration text, each of them a text of its own.

    Raises:
        ValueError: windows of another shape, too long for the model or with ids that it has not; while it runs, a
            matrix that cannot be quantized, or whose inputs are not finite.
    """
    return _Walk(config, formats, _checked(config, token_ids)).weights(weights)


def _checked(config: ModelConfig, token_ids: Integer[np.ndarray, "n length"]) -> Int32[np.ndarray, "n length"]:
    if not token_ids.size or token_ids.shape[1] > config.max_position_embeddings:
        raise ValueError(
            f"the calibration text has shape {token_ids.shape}; it must be [windows, tokens], with 1 to "
            f"{config.max_position_embeddings} tokens"
        )
    outside = token_ids[(token_ids < 0) | (token_ids >= config.vocab_size)]
    if outside.size:
        raise ValueError(
            f"the calibration text has the token {reprlib.repr(int(outside[0]))}; it must be in "
            f"[0, {config.vocab_size - 1}]"
        )
    return token_ids.astype(np.int32)


@partial(jax.jit, static_argnums=2)
def _norm(x: Float[Array, "length E"], weight: Float[Array, "E"], eps: float) -> Float[Array, "length E"]:
    return rms_norm(x, weight, eps)


class _Walk:
    """The calibration text on its way through the model."""

    def __init__(
        self,
        config: ModelConfig,
        formats: Formats,
        token_ids: Int32[np.ndarray, "n length"],
    ) -> None:
        self.config = config
        self.formats = formats
        self.token_ids = token_ids
        self.hidden: list[Float[Array, "length E"]] = []  # of each window, between two layers

    def weights(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Weight | Array]]:
        """See ``calibrated``."""
        norm = None
        for layer, group in groupby(weights, key=lambda named: _layer_of(named[0])):
            part = {name: self._placed(name, weight) for name, weight in group}
            if layer is not None:
                self._run_layer(layer, part)
            if "embedding" in part:
                self.hidden = [take_rows(part["embedding"], jnp.asarray(ids), _FLOAT32) for ids in self.token_ids]
            if "final_norm" in part:
                norm = part["final_norm"]
            if "lm_head" in part:
                self._quantize(part, "lm_head", self._normed(norm))
            while part:
                name = next(iter(part))
                yield name, part.pop(name)

    def _placed(self, name: str, weight: Any) -> Weight | Array:
        """The weight on the device: as it is to be, or as floats if it is to be calibrated."""
        quantization = self.formats.get(name)
        is_float = isinstance(weight, np.ndarray | Array)
        if is_float and name != "embedding" and quantization is not None and quantization.bits == 4:
            quantization = None
        return on_device(name, weight, quantization)

    def _run_layer(self, layer: int, part: dict[str, Any]) -> None:
        """Replace the layer's weights by quantized ones and the hidden states before it by those after it."""
        for kind, norm, first, second in _BLOCKS:
            self._quantize(part, f"layers.{layer}.{first}", self._normed(part[f"layers.{layer}.{norm}"]))
            split = nnx.split(kind(self.config, part, layer, "xla"))
            inputs = (_run_block(*split, x, self.config, whole=False) for x in self.hidden)
            self._quantize(part, f"layers.{layer}.{second}", inputs)
            split = nnx.split(kind(self.config, part, layer, "xla"))
            for i, x in enumerate(self.hidden):
                self.hidden[i] = _run_block(*split, x, self.config, whole=True)

    def _normed(self, norm: Any) -> Iterator[Float[Array, "length E"]]:
        return (_norm(x, norm, self.config.norm_eps) for x in self.hidden)

    def _quantize(self, part: dict[str, Any], name: str, inputs: Iterable[Float[Array, "length K"]]) -> None:
        """Replace the matrix ``name``, if it is to be calibrated, by what fits these inputs."""
        matrix = part[name]
        if name not in self.formats or not isinstance(matrix, Array):
            return
        moments = jnp.zeros((matrix.shape[1],) * 2, jnp.float32)
        for x in inputs:
            moments = add_moments(moments, x)
        part[name] = calibrate(name, matrix, moments, self.formats[name])


def _layer_of(name: str) -> int | None:
    return int(name.split(".")[1]) if name.startswith("layers.") else None


@partial(jax.jit, static_argnums=(0, 3), static_argnames="whole")
def _run_block(
    graph: nnx.GraphDef[Attention | FeedForward],
    state: nnx.State[Any, Any],
    x: Float[Array, "length E"],
    config: ModelConfig,
    *,
    whole: bool,
) -> Float[Array, "length _"]:
    """x with what the block adds, for one window; or, unless it is to be the ``whole``, what its second matrix
    multiplies.
    """
    block = nnx.merge(graph, state)
    if isinstance(block, FeedForward):
        return block(x) if whole else block.hidden(x)
    step = _as_step(x, config)
    return (block(*step) if whole else block.attend(*step))[0][1 : 1 + len(x)]


def _as_step(
    x: Float[Array, "length E"], config: ModelConfig
) -> tuple[Float[Array, "T E"], LayerCache, Int32[Array, "1 K"], TokenView]:
    """The arguments of the attention for one window, as a step that reads it whole: token i is the step's token 1 + i,
    since a step has at least one decode row, which is padding here; what is missing to whole blocks follows. The cache
    is empty, and its page 1 + j is the window's j-th.
    """
    num_blocks = -(-len(x) // _BLOCK_Q)
    position = jnp.arange(num_blocks * _BLOCK_Q, dtype=jnp.int32)
    num_pages = -(-len(position) // _PAGE_SIZE)
    start, zero = position[::_BLOCK_Q], jnp.zeros(1, jnp.int32)
    cos, sin = rotary_angles(jnp.concatenate([zero, position]), config)
    view = TokenView(
        cos=cos,
        sin=sin,
        page_table=jnp.arange(1, 1 + num_pages, dtype=jnp.int32)[None],
        first_page=zero,
        decode_position=zero - 1,
        chunk=ChunkView(
            row=jnp.zeros_like(start),
            start=start,
            length=jnp.minimum(len(x) - start, _BLOCK_Q),
            page=jnp.where(position < len(x), 1 + position // _PAGE_SIZE, 0),
            offset=position % _PAGE_SIZE,
        ),
    )
    pages = jnp.zeros((1 + num_pages, _PAGE_SIZE, 2, config.num_kv_heads, config.head_dim), x.dtype)
    padded = jnp.pad(x, ((1, len(position) - len(x)), (0, 0)))
    return padded, LayerCache(pages=pages, scales=None), jnp.zeros((1, config.num_kv_heads), jnp.int32), view
