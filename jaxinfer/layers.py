"""The parts of a decoder layer: norm, rotary embedding, attention over the cache, gated feed-forward.

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

from jaxinfer import kv_cache
from jaxinfer.config import ModelConfig
from pallas_kernels.paged_attention import paged_attention


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class QueryBlocks:
    """Tokens of a step as attention sees them: N blocks of neighbouring tokens of one request each.

    Attributes:
        row: for each block its row of the page table.
        start: position of its first token.
        length: tokens that it really has; the rest is padding.
    """

    row: Int32[Array, "N"]
    start: Int32[Array, "N"]
    length: Int32[Array, "N"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TokenView:
    """What every layer needs to know of the T = B + C tokens of a step, decode rows first.

    Attributes:
        cos, sin: rotary angles of each token.
        page, offset: where each token's K and V go; page 0 for padding.
        page_table, first_page: for each row its pages, as ``paged_attention`` reads them.
        decode: the first B tokens, one block each.
        chunk: the other C tokens in blocks of ``block_q``, or None in a program without a chunk.
    """

    cos: Float[Array, "T half_D"]
    sin: Float[Array, "T half_D"]
    page: Int32[Array, "T"]
    offset: Int32[Array, "T"]
    page_table: Int32[Array, "B P"]
    first_page: Int32[Array, "B"]
    decode: QueryBlocks
    chunk: QueryBlocks | None


def rms_norm(x: Float[Array, "T E"], weight: Float[Array, "E"], eps: float) -> Float[Array, "T E"]:
    """x / sqrt(mean(x^2) + eps) * weight, computed in float32 (Zhang and Sennrich, 2019)."""
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return (normed * weight.astype(jnp.float32)).astype(x.dtype)


def rotary_angles(
    positions: Int32[Array, "T"], head_dim: int, theta: float
) -> tuple[Float[Array, "T half_D"], Float[Array, "T half_D"]]:
    """Cosine and sine of position * theta^(-2 i / D) for i < D / 2, in float32 (Su et al., RoFormer, 2021)."""
    inverse = theta ** -(jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = positions.astype(jnp.float32)[:, None] * inverse
    return jnp.cos(angles), jnp.sin(angles)


def rotate(
    x: Float[Array, "T heads D"], cos: Float[Array, "T half_D"], sin: Float[Array, "T half_D"]
) -> Float[Array, "T heads D"]:
    """Turn each pair (i, i + D / 2) of every head by its token's angle."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def project(
    x: Float[Array, "T inputs"], weight: Float[Array, "outputs inputs"], dtype: jnp.dtype | None = None
) -> Float[Array, "T outputs"]:
    """x W^T for a weight stored as [outputs, inputs]; the sums come out in ``dtype``, or in x's where it is None."""
    return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


class Attention(nnx.Module):
    """Grouped-query attention: writes the tokens' K and V to the cache, then attends to what the cache holds."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, jax.Array], layer: int) -> None:
        """Takes ``layers.{layer}.qkv`` and ``.attention_out`` of ``weights`` (shapes as in ``jaxinfer.weights``)."""
        self.qkv = nnx.Param(weights[f"layers.{layer}.qkv"])
        self.out = nnx.Param(weights[f"layers.{layer}.attention_out"])
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.window = config.windows[layer]

    def __call__(
        self, x: Float[Array, "T E"], kv_pages: Float[Array, "num_pages S 2 K D"], view: TokenView
    ) -> tuple[Float[Array, "T E"], Float[Array, "num_pages S 2 K D"]]:
        """The attended tokens after the output product, and the updated pages."""
        heads = project(x, self.qkv[...]).reshape(x.shape[0], -1, self.head_dim)
        q, k, v = jnp.split(heads, [self.num_heads, self.num_heads + self.num_kv_heads], axis=1)
        q, k = rotate(q, view.cos, view.sin), rotate(k, view.cos, view.sin)
        kv_pages = kv_cache.write(kv_pages, k, v, view.page, view.offset)
        num_rows = view.decode.row.shape[0]
        attended = self._attend(q[:num_rows], kv_pages, view, view.decode)
        if view.chunk is not None:
            attended = jnp.concatenate([attended, self._attend(q[num_rows:], kv_pages, view, view.chunk)])
        return project(attended.reshape(x.shape[0], -1), self.out[...]), kv_pages

    def _attend(self, q: Array, kv_pages: Array, view: TokenView, blocks: QueryBlocks) -> Array:
        num_blocks = blocks.row.shape[0]
        attended = paged_attention(
            q.reshape(num_blocks, -1, self.num_heads, self.head_dim),
            kv_pages,
            view.page_table,
            view.first_page,
            blocks.row,
            blocks.start,
            blocks.length,
            window=self.window,
            scale=1 / math.sqrt(self.head_dim),
        )
        return attended.reshape(q.shape)


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

    def __init__(self, config: ModelConfig, weights: Mapping[str, jax.Array], layer: int) -> None:
        """Takes the weights named ``layers.{layer}.*``."""
        self.attention_norm = nnx.Param(weights[f"layers.{layer}.attention_norm"])
        self.attention = Attention(config, weights, layer)
        self.mlp_norm = nnx.Param(weights[f"layers.{layer}.mlp_norm"])
        self.mlp = FeedForward(weights, layer)
        self.norm_eps = config.norm_eps

    def __call__(
        self, x: Float[Array, "T E"], kv_pages: Float[Array, "num_pages S 2 K D"], view: TokenView
    ) -> tuple[Float[Array, "T E"], Float[Array, "num_pages S 2 K D"]]:
        """The residual stream after the layer, and the layer's updated pages."""
        attended, kv_pages = self.attention(rms_norm(x, self.attention_norm[...], self.norm_eps), kv_pages, view)
        x = x + attended
        return x + self.mlp(rms_norm(x, self.mlp_norm[...], self.norm_eps)), kv_pages
