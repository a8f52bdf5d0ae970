"""The decoder: token ids in, logits out, over a paged cache, for decode rows and pieces of prompts in one pass."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int32

from jaxinfer.config import ModelConfig
from jaxinfer.kv_cache import KVCache
from jaxinfer.layers import DecoderLayer, QueryBlocks, TokenView, project, rms_norm, rotary_angles
from jaxinfer.step_inputs import StepInputs


class Decoder(nnx.Module):
    """A decoder of the Mistral family; ``ModelConfig`` says which."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, jax.Array]) -> None:
        """Args: the model's shape, and its arrays by the names and shapes of ``jaxinfer.weights.weight_shapes``."""
        self.config = config
        self.embedding = nnx.Param(weights["embedding"])
        self.layers = nnx.List([DecoderLayer(config, weights, i) for i in range(config.num_layers)])
        self.final_norm = nnx.Param(weights["final_norm"])
        self.lm_head = None if config.tie_embeddings else nnx.Param(weights["lm_head"])

    def __call__(
        self, last_tokens: Int32[Array, "slots"], kv_cache: KVCache, inputs: StepInputs
    ) -> tuple[Float[Array, "B V"], KVCache]:
        """One step: logits of the B sample rows in float32, and the cache with the step's tokens in it.

        Args:
            last_tokens: for each slot the token drawn last; a decode row reads its own.
            kv_cache: pages of every layer.
            inputs: the step.
        """
        token_ids = jnp.concatenate([last_tokens[inputs.slot], inputs.chunk_token])
        view = self._view(inputs, page_size=kv_cache[0].shape[1])
        x = self.embedding[...][token_ids]
        new_cache = []
        for layer, kv_pages in zip(self.layers, kv_cache, strict=True):
            x, kv_pages = _run_layer(*nnx.split(layer), x, kv_pages, view)
            new_cache.append(kv_pages)
        x = rms_norm(x[inputs.sample_token], self.final_norm[...], self.config.norm_eps)
        head = self.embedding if self.lm_head is None else self.lm_head
        # Asked of the product itself: one that is rounded to bfloat16 first makes ties of near logits.
        return project(x, head[...], jnp.dtype(jnp.float32)), tuple(new_cache)

    def _view(self, inputs: StepInputs, page_size: int) -> TokenView:
        num_rows = inputs.slot.shape[0]
        all_rows = jnp.arange(num_rows, dtype=jnp.int32)
        decode_len = (inputs.decode_position >= 0).astype(jnp.int32)
        decode = QueryBlocks(all_rows, jnp.maximum(inputs.decode_position, 0), decode_len)
        row, position, valid = decode.row, decode.start, decode_len > 0
        chunk = None
        if num_blocks := inputs.block_row.shape[0]:
            chunk = QueryBlocks(inputs.block_row, inputs.block_start, inputs.block_len)
            block_q = inputs.chunk_token.shape[0] // num_blocks
            in_block = jnp.arange(block_q, dtype=jnp.int32)
            row = jnp.concatenate([row, jnp.repeat(chunk.row, block_q)])
            position = jnp.concatenate([position, (chunk.start[:, None] + in_block).reshape(-1)])
            valid = jnp.concatenate([valid, (in_block < chunk.length[:, None]).reshape(-1)])
        entry = jnp.clip(position // page_size - inputs.first_page[row], 0, inputs.page_table.shape[1] - 1)
        cos, sin = rotary_angles(position, self.config.head_dim, self.config.rope_theta)
        return TokenView(
            cos=cos,
            sin=sin,
            page=jnp.where(valid, inputs.page_table[row, entry], 0),
            offset=position % page_size,
            page_table=inputs.page_table,
            first_page=inputs.first_page,
            decode=decode,
            chunk=chunk,
        )


@partial(jax.jit, static_argnums=0)
def _run_layer(
    graph: nnx.GraphDef[DecoderLayer], state: nnx.State[Any, Any], x: Array, kv_pages: Array, view: TokenView
) -> tuple[Array, Array]:
    """One layer as a function of its own, so that layers of one kind are traced and lowered once, not once each."""
    return nnx.merge(graph, state)(x, kv_pages, view)
