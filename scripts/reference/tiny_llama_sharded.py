"""A random small Llama in bfloat16 with tied embeddings, saved in several shards with an index."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.random_weights import fill_with_random_weights

NUM_TOKENS = 24
SEED = 3


def make(sources: Sources) -> None:
    """Write the sharded checkpoint and the float32 logits of 24 random tokens."""
    folder = sources.fixtures / "tiny_llama_sharded"
    for stale in folder.glob("model*"):  # another number of shards has other names
        stale.unlink()
    model = LlamaForCausalLM(_config()).eval()
    fill_with_random_weights(model, SEED, embedding_std=0.4)  # as an output head, std 1 would spread the logits too far
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="16KB")
    (folder / "generation_config.json").unlink()  # transformers' defaults, which say nothing of this model
    require(len(list(folder.glob("model-*.safetensors"))) >= 3, "at least 3 shards")

    token_ids = np.random.default_rng(SEED + 1).integers(3, model.config.vocab_size, NUM_TOKENS)
    # Loaded anew: the cast to bfloat16 also rounded the model's table of rotary frequencies, which no file holds.
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        logits = model(torch.from_numpy(token_ids)[None]).logits[0].numpy()
    require(1 <= logits.std() <= 3, f"logits spread with a std of 1 to 3, here {logits.std():.2f}")
    write_reference(
        folder,
        {
            "token_ids": Array(token_ids.astype(np.int32), "T random tokens"),
            "logits": Array(logits, "[T, V], eager attention in float32 on the bfloat16 weights"),
        },
        "Random bfloat16 LlamaForCausalLM in shards: tied embeddings, 3 query heads per kv head.",
    )


def _config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=96,
        hidden_size=36,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        rms_norm_eps=1e-6,
        rope_theta=500000.0,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
