"""The parts of a decoder layer: attention over the cache and the gated feed-forward, each behind a norm.

Norms, biases and residuals go into the products beside them: on a GPU a layer is four products and an attention, each
one kernel.

Angles, positions and places in the cache are the same in every layer: the step computes them once and hands them down
as a ``TokenView``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int32

from jaxinfer.config import ModelConfig, RopeScaling
from pallas_kernels.norm import rms_norm
from pallas_kernels.paged_attention import Implementation, LayerCache, decode_attention, paged_attention, write
from pallas_kernels.quantized_matmul import matmul
from pallas_kernels.rotary import rotate


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ChunkView:
    """The C chunk tokens of a step: N blocks of neighbouring tokens of one request each.

    Attributes:
        row: for each block its row of the page table.
        start: position of its first token.
        length: tokens that it really has; the rest is padding.
        page, offset: where each token's K and V go; page 0 for padding.
    """

    row: Int32[Array, "N"]
    start: Int32[Array, "N"]
    length: Int32[Array, "N"]
    page: Int32[Array, "C"]
    offset: Int32[Array, "C"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TokenView:
    """What every layer needs to know of the T = B + C tokens of a step, decode rows first.

    Attributes:
        cos, sin: rotary angles of each token.
        page_table, first_page: for each row its pages, as ``paged_attention`` reads them.
        decode_position: of each of the first B tokens, or -1 for padding.
        chunk: the other C tokens, or None in a program without a chunk.
    """

    cos: Float[Array, "T half_D"]
    sin: Float[Array, "T half_D"]
    page_table: Int32[Array, "B P"]
    first_page: Int32[Array, "B"]
    decode_position: Int32[Array, "B"]
    chunk: ChunkView | None


def rotary_angles(
    positions: Int32[Array, "T"], config: ModelConfig
) -> tuple[Float[Array, "T half_D"], Float[Array, "T half_D"]]:
    """Cosine and sine of position * theta^(-2 i / D) for i < D / 2, in float32 (Su et al., RoFormer, 2021), scaled as
    ``config.rope_scaling`` says.
    """
    inverse = config.rope_theta ** -(jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim)
    scaling = config.rope_scaling or RopeScaling((1.0,) * (config.head_dim // 2))  # XLA drops what changes nothing
    angles = positions.astype(jnp.float32)[:, None] * (inverse / jnp.asarray(scaling.divisors, jnp.float32))
    return jnp.cos(angles) * scaling.attention_factor, jnp.sin(angles) * scaling.attention_factor


class Attention(nnx.Module):
    """Grouped-query attention: writes the tokens' K and V to the cache, and attends to what the cache holds."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Any], layer: int, kernels: Implementation | None
    ) -> None:
        """Takes the attention's of the weights ``layers.{layer}.*`` (shapes as in ``jaxinfer.weights``)."""
        self.norm = nnx.Param(weights[f"layers.{layer}.attention_norm"])
        self.qkv = nnx.Param(weights[f"layers.{layer}.qkv"])
        self.qkv_bias = nnx.Param(weights[f"layers.{layer}.qkv_bias"]) if config.qkv_bias else None
        self.q_norm = nnx.Param(weights[f"layers.{layer}.q_norm"]) if config.qk_norm else None
        self.k_norm = nnx.Param(weights[f"layers.{layer}.k_norm"]) if config.qk_norm else None
        self.out = nnx.Param(weights[f"layers.{layer}.attention_out"])
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.norm_eps = config.norm_eps
        self.window = config.windows[layer]
        self.kernels: Implementation | None = kernels

    def __call__(
        self,
        x: Float[Array, "T E"],
        cache: LayerCache,
        arrivals: Int32[Array, "max_num_seqs K"],
        view: TokenView,
    ) -> tuple[Float[Array, "T E"], LayerCache, Int32[Array, "max_num_seqs K"]]:
        """x with the attention added, the updated cache, and the counters, zero as they came."""
        attended, cache, arrivals = self.attend(x, cache, arrivals, view)
        return matmul(attended, self.out.get_value(), residual=x, implementation=self.kernels), cache, arrivals

    def attend(
        self,
        x: Float[Array, "T E"],
        cache: LayerCache,
        arrivals: Int32[Array, "max_num_seqs K"],
        view: TokenView,
    ) -> tuple[Float[Array, "T H_D"], LayerCache, Int32[Array, "max_num_seqs K"]]:
        """What the heads see, which the last product reads, the updated cache, and the counters."""
        qkv = matmul(
            x,
            self.qkv.get_value(),
            norm=self.norm[...],
            norm_eps=self.norm_eps,
            bias=_value(self.qkv_bias),
            implementation=self.kernels,
        )
        heads = qkv.reshape(len(x), -1, self.head_dim)
        if view.chunk is None:
            attended, cache, arrivals = self._decode(heads, cache, arrivals, view)
        else:
            q, cache = self._append_chunk(heads, cache, view, view.chunk)
            attended, cache, arrivals = self._decode(heads, cache, arrivals, view)
            attended = self._attend_chunk(q, attended, cache, view, view.chunk)
        return attended.reshape(len(x), -1), cache, arrivals

    def _decode(
        self, heads: Array, cache: LayerCache, arrivals: Array, view: TokenView
    ) -> tuple[Array, LayerCache, Array]:
        """The decode rows, from the heads of all tokens: to cut out the first B costs a GPU a kernel."""
        return decode_attention(
            heads,
            cache,
            arrivals,
            view.page_table,
            view.first_page,
            view.decode_position,
            view.cos,
            view.sin,
            q_norm=_value(self.q_norm),
            k_norm=_value(self.k_norm),
            norm_eps=self.norm_eps,
            window=self.window,
            scale=self._scale,
            implementation=self.kernels,
        )

    def _append_chunk(
        self, heads: Array, cache: LayerCache, view: TokenView, chunk: ChunkView
    ) -> tuple[Array, LayerCache]:
        """The chunk's queries, normed and rotated, and the cache with its K and V."""
        num_rows = view.decode_position.shape[0]
        q, k, v = jnp.split(heads[num_rows:], [self.num_heads, self.num_heads + self.num_kv_heads], axis=1)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = rms_norm(q, self.q_norm[...], self.norm_eps), rms_norm(k, self.k_norm[...], self.norm_eps)
        q, k = (rotate(x, view.cos[num_rows:], view.sin[num_rows:]) for x in (q, k))
        return q, write(cache, k, v, chunk.page, chunk.offset)

    def _attend_chunk(self, q: Array, attended: Array, cache: LayerCache, view: TokenView, chunk: ChunkView) -> Array:
        """The attended tokens of the step, the chunk's put behind the decode rows'."""
        return paged_attention(
            q.reshape(chunk.row.shape[0], -1, self.num_heads, self.head_dim),
            cache,
            view.page_table,
            view.first_page,
            chunk.row,
            chunk.start,
            chunk.length,
            window=self.window,
            scale=self._scale,
            into=attended,
            implementation=self.kernels,
        )

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.head_dim)


class FeedForward(nnx.Module):
    """SwiGLU: down(silu(gate x) * up x) (Shazeer, GLU Variants Improve Transformer, 2020)."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Any], layer: int, kernels: Implementation | None
    ) -> None:
        """Takes ``layers.{layer}.mlp_norm``, ``.gate_up`` and ``.down`` of ``weights``."""
        self.norm = nnx.Param(weights[f"layers.{layer}.mlp_norm"])
        self.gate_up = nnx.Param(weights[f"layers.{layer}.gate_up"])
        self.down = nnx.Param(weights[f"layers.{layer}.down"])
        self.norm_eps = config.norm_eps
        self.kernels: Implementation | None = kernels

    def __call__(self, x: Float[Array, "T E"]) -> Float[Array, "T E"]:
        """x with the layer's output added."""
        return matmul(self.hidden(x), self.down.get_value(), residual=x, implementation=self.kernels)

    def hidden(self, x: Float[Array, "T E"]) -> Float[Array, "T F"]:
        """silu(gate x) * up x, which the last product reads."""
        return matmul(
            x,
            self.gate_up.get_value(),
            norm=self.norm[...],
            norm_eps=self.norm_eps,
            swiglu=True,
            implementation=self.kernels,
        )


class DecoderLayer(nnx.Module):
    """Attention and feed-forward, each with its norm, and added to the residual stream."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Any], layer: int, kernels: Implementation | None
    ) -> None:
        """Takes the weights named ``layers.{layer}.*``."""
        self.attention = Attention(config, weights, layer, kernels)
        self.mlp = FeedForward(config, weights, layer, kernels)

    def __call__(
        self,
        x: Float[Array, "T E"],
        cache: LayerCache,
        arrivals: Int32[Array, "max_num_seqs K"],
        view: TokenView,
    ) -> tuple[Float[Array, "T E"], LayerCache, Int32[Array, "max_num_seqs K"]]:
        """The residual stream after the layer, and what the attention hands back."""
        x, cache, arrivals = self.attention(x, cache, arrivals, view)
        return self.mlp(x), cache, arrivals


def _value(parameter: nnx.Param[Array] | None) -> Array | None:
    return None if parameter is None else parameter[...]
