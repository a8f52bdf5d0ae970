"""The parts of a decoder layer: attention over the cache and the gated feed-forward, each behind a norm.

Angles, positions and places in the cache are the same in every layer: the step computes them once and hands them down
as a ``TokenView``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int32

from jaxinfer.config import ModelConfig
from pallas_kernels.norm import rms_norm
from pallas_kernels.paged_attention import Implementation, LayerCache, decode_attention, paged_attention, write
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
    positions: Int32[Array, "T"], head_dim: int, theta: float
) -> tuple[Float[Array, "T half_D"], Float[Array, "T half_D"]]:
    """Cosine and sine of position * theta^(-2 i / D) for i < D / 2, in float32 (Su et al., RoFormer, 2021)."""
    inverse = theta ** -(jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = positions.astype(jnp.float32)[:, None] * inverse
    return jnp.cos(angles), jnp.sin(angles)


def project(
    x: Float[Array, "T inputs"], weight: Float[Array, "outputs inputs"], dtype: jnp.dtype | None = None
) -> Float[Array, "T outputs"]:
    """x W^T for a weight stored as [outputs, inputs]; the sums come out in ``dtype``, or in x's where it is None."""
    return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


class Attention(nnx.Module):
    """Grouped-query attention: writes the tokens' K and V to the cache, and attends to what the cache holds."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, jax.Array], layer: int, kernels: Implementation
    ) -> None:
        """Takes ``layers.{layer}.qkv`` and ``.attention_out`` of ``weights`` (shapes as in ``jaxinfer.weights``)."""
        self.qkv = nnx.Param(weights[f"layers.{layer}.qkv"])
        self.out = nnx.Param(weights[f"layers.{layer}.attention_out"])
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.window = config.windows[layer]
        self.kernels: Implementation = kernels

    def __call__(
        self,
        x: Float[Array, "T E"],
        cache: LayerCache,
        arrivals: Int32[Array, "max_num_seqs K"],
        view: TokenView,
    ) -> tuple[Float[Array, "T E"], LayerCache, Int32[Array, "max_num_seqs K"]]:
        """The attended tokens after the output product, the updated cache, and the counters, zero as they came."""
        heads = project(x, self.qkv[...]).reshape(x.shape[0], -1, self.head_dim)
        if view.chunk is None:
            attended, cache, arrivals = self._decode(heads, cache, arrivals, view)
        else:
            q, cache = self._append_chunk(heads, cache, view, view.chunk)
            attended, cache, arrivals = self._decode(heads, cache, arrivals, view)
            attended = self._attend_chunk(q, attended, cache, view, view.chunk)
        return project(attended.reshape(x.shape[0], -1), self.out[...]), cache, arrivals

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
            window=self.window,
            scale=self._scale,
            implementation=self.kernels,
        )

    def _append_chunk(
        self, heads: Array, cache: LayerCache, view: TokenView, chunk: ChunkView
    ) -> tuple[Array, LayerCache]:
        """The chunk's queries, rotated, and the cache with its K and V."""
        num_rows = view.decode_position.shape[0]
        q, k, v = jnp.split(heads[num_rows:], [self.num_heads, self.num_heads + self.num_kv_heads], axis=1)
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

    def __init__(self, weights: Mapping[str, jax.Array], layer: int) -> None:
        """Takes ``layers.{layer}.gate_up`` and ``.down`` of ``weights``."""
        self.gate_up = nnx.Param(weights[f"layers.{layer}.gate_up"])
        self.down = nnx.Param(weights[f"layers.{layer}.down"])

    def __call__(self, x: Float[Array, "T E"]) -> Float[Array, "T E"]:
        """The layer's output, in x's dtype."""
        gate, up = jnp.split(project(x, self.gate_up[...]), 2, axis=-1)
        return project(jax.nn.silu(gate) * up, self.down[...])


class DecoderLayer(nnx.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, jax.Array], layer: int, kernels: Implementation
    ) -> None:
        """Takes the weights named ``layers.{layer}.*``."""
        self.attention_norm = nnx.Param(weights[f"layers.{layer}.attention_norm"])
        self.attention = Attention(config, weights, layer, kernels)
        self.mlp_norm = nnx.Param(weights[f"layers.{layer}.mlp_norm"])
        self.mlp = FeedForward(weights, layer)
        self.norm_eps = config.norm_eps

    def __call__(
        self,
        x: Float[Array, "T E"],
        cache: LayerCache,
        arrivals: Int32[Array, "max_num_seqs K"],
        view: TokenView,
    ) -> tuple[Float[Array, "T E"], LayerCache, Int32[Array, "max_num_seqs K"]]:
        """The residual stream after the layer, and what the attention hands back."""
        normed = rms_norm(x, self.attention_norm[...], self.norm_eps)
        attended, cache, arrivals = self.attention(normed, cache, arrivals, view)
        x = x + attended
        return x + self.mlp(rms_norm(x, self.mlp_norm[...], self.norm_eps)), cache, arrivals
