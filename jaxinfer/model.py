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
from jaxinfer.layers import ChunkView, DecoderLayer, TokenView, rotary_angles
from jaxinfer.step_inputs import StepInputs, TableInputs
from pallas_kernels.paged_attention import Implementation, LayerCache
from pallas_kernels.quantized_matmul import matmul, take_rows


class Decoder(nnx.Module):
    """A decoder of the Mistral family; ``ModelConfig`` says which."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Any], *, kernels: Implementation | None) -> None:
        """The model of the given arrays.

        Args:
            config: the model's shape.
            weights: by the names and shapes of ``jaxinfer.weights.weight_shapes``; matrices may be quantized.
            kernels: the implementation that every program of the model runs; None: each operation takes the device's.
        """
        self.config = config
        self.kernels: Implementation | None = kernels
        self.embedding = nnx.Param(weights["embedding"])
        self.layers = nnx.List([DecoderLayer(config, weights, i, kernels) for i in range(config.num_layers)])
        self.final_norm = nnx.Param(weights["final_norm"])
        self.lm_head = None if config.tie_embeddings else nnx.Param(weights["lm_head"])

    def __call__(
        self, last_tokens: Int32[Array, "slots"], kv_cache: KVCache, inputs: StepInputs
    ) -> tuple[Float[Array, "B V"], KVCache, Float[Array, "T E"]]:
        """One step: logits of the B sample rows in float32, the cache with the step's tokens in it, and the hidden
        states of all its T = B + C tokens, of which ``logits`` makes logits.

        Args:
            last_tokens: for each slot the token drawn last; a decode row reads its own.
            kv_cache: of every layer, and the counters.
            inputs: the step.
        """
        token_ids = jnp.concatenate([last_tokens[inputs.slot], inputs.chunk_token])
        views = self._views(inputs, page_size=kv_cache.layers[0].pages.shape[1])
        x = take_rows(self.embedding.get_value(), token_ids, self.dtype)
        arrivals, new_layers = kv_cache.arrivals, []
        for layer, layer_cache, group in zip(self.layers, kv_cache.layers, self.config.layer_groups, strict=True):
            x, layer_cache, arrivals = _run_layer(*nnx.split(layer), x, layer_cache, arrivals, views[group])
            new_layers.append(layer_cache)
        return self.logits(x[inputs.sample_token]), KVCache(tuple(new_layers), arrivals), x

    def logits(self, x: Float[Array, "N E"]) -> Float[Array, "N V"]:
        """The logits after tokens with these hidden states.

        Asked of the product in float32: one that is rounded to bfloat16 first makes ties of near logits.
        """
        head = self.embedding if self.lm_head is None else self.lm_head
        return matmul(
            x,
            head.get_value(),
            norm=self.final_norm[...],
            norm_eps=self.config.norm_eps,
            out_dtype=jnp.float32,
            implementation=self.kernels,
        )

    @property
    def dtype(self) -> jnp.dtype:
        """Of the hidden states: that of the weights that are never quantized."""
        return self.final_norm.get_value().dtype

    def _views(self, inputs: StepInputs, page_size: int) -> tuple[TokenView, ...]:
        """The step as the layers of each cache group see it: they differ in the pages."""
        position, chunk_position = jnp.maximum(inputs.decode_position, 0), None
        if inputs.block_row.shape[0]:
            block_q = inputs.chunk_token.shape[0] // inputs.block_row.shape[0]
            chunk_position = inputs.block_start[:, None] + jnp.arange(block_q, dtype=jnp.int32)
            position = jnp.concatenate([position, chunk_position.reshape(-1)])
        cos, sin = rotary_angles(position, self.config)
        return tuple(
            TokenView(
                cos=cos,
                sin=sin,
                page_table=table.page_table,
                first_page=table.first_page,
                decode_position=inputs.decode_position,
                chunk=None if chunk_position is None else _chunk_view(inputs, table, chunk_position, page_size),
            )
            for table in inputs.tables
        )


def _chunk_view(inputs: StepInputs, table: TableInputs, position: Int32[Array, "N Q"], page_size: int) -> ChunkView:
    """The step's chunk, of which ``position`` has each token's place in its sequence."""
    row, in_block = inputs.block_row[:, None], position - inputs.block_start[:, None]
    entry = position // page_size - table.first_page[row]
    page = table.page_table[row, jnp.clip(entry, 0, table.page_table.shape[1] - 1)]
    page = jnp.where(in_block < inputs.block_len[:, None], page, 0)
    return ChunkView(
        row=inputs.block_row,
        start=inputs.block_start,
        length=inputs.block_len,
        page=page.reshape(-1),
        offset=(position % page_size).reshape(-1),
    )


@partial(jax.jit, static_argnums=0)
def _run_layer(
    graph: nnx.GraphDef[DecoderLayer],
    state: nnx.State[Any, Any],
    x: Array,
    cache: LayerCache,
    arrivals: Array,
    view: TokenView,
) -> tuple[Array, LayerCache, Array]:
    """One layer as a function of its own, so that layers of one kind are traced and lowered once, not once each."""
    return nnx.merge(graph, state)(x, cache, arrivals, view)
