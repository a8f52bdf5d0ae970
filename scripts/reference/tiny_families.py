"""One random small model for each family beside Mistral's, with what is particular to it, and its logits.

The logits are those of the written folder, loaded anew: half of the configurations are rewritten into the form of
version 4 of transformers, and what a file says is what counts. Each peculiarity taken away must show in the logits.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from reference.fixture import Array, Sources, require, write_reference
from reference.random_weights import fill_with_random_weights

NUM_TOKENS = 48
SEED = 5
LEAST_CHANGE = 1e-2

Change = Callable[[torch.nn.Module], None]


@dataclass(frozen=True)
class Family:
    """A model to make.

    Attributes:
        about: what is particular to it.
        config: its configuration, as this version of transformers takes it.
        old_keys: None: the file stays as it is written; else it gets the form of version 4, with these keys.
        without: what is taken away -> how; each must change the logits.
    """

    about: str
    config: PreTrainedConfig
    old_keys: dict[str, Any] | None = None
    without: dict[str, Change] = field(default_factory=dict)


def recipes() -> dict[str, Callable[[Sources], None]]:
    """Name of the fixture -> the function that makes it."""
    return {name: _recipe(name, family) for name, family in _families().items()}


def _recipe(name: str, family: Family) -> Callable[[Sources], None]:
    def make(sources: Sources) -> None:
        folder = sources.fixtures / name
        _write_checkpoint(folder, family)
        token_ids = np.random.default_rng(SEED + 1).integers(3, family.config.vocab_size, NUM_TOKENS)
        logits = _logits(_load(folder), token_ids)
        require(1 <= logits.std() <= 3, f"logits spread with a std of 1 to 3, here {logits.std():.2f}")
        for what, change in family.without.items():
            model = _load(folder)
            change(model)
            least = np.abs(_logits(model, token_ids) - logits).max(axis=1)[NUM_TOKENS // 2 :].min()
            require(least > LEAST_CHANGE, f"without {what} every late position differs, here by {least:.4f}")
        write_reference(
            folder,
            {
                "token_ids": Array(token_ids.astype(np.int32), "T random tokens"),
                "logits": Array(logits, "[T, V], eager attention in float32 on the bfloat16 weights"),
            },
            f"Random bfloat16 {family.config.architectures[0]}: {family.about}.",
        )

    return make


def _families() -> dict[str, Family]:
    # Of its 8 frequencies one is kept, two are blended, five divided.
    llama3: dict[str, Any] = {
        "rope_type": "llama3",
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    of_llama31, of_llama32 = llama3 | {"factor": 8.0}, llama3 | {"factor": 32.0}
    yarn: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 4.0,
        "beta_slow": 0.5,
    }
    linear = {"rope_type": "linear", "factor": 4.0}
    scaling = {"the scaling": _unscale}
    return {
        "tiny_llama2": Family(
            "as many kv heads as query heads, and the file has no rope_theta, as Llama 2's own",
            _config(LlamaConfig, num_key_value_heads=4, head_dim=8, rope_parameters=_rope(1e4)),
            old_keys={"transformers_version": "4.31.0.dev0"},
        ),
        "tiny_llama31": Family(
            "rotary angles scaled as Llama 3.1's, past the original 32 positions, in the old form",
            _config(LlamaConfig, rope_parameters=_rope(100.0, **of_llama31)),
            old_keys={"rope_theta": 100.0, "rope_scaling": of_llama31, "transformers_version": "4.43.0.dev0"},
            without=scaling,
        ),
        "tiny_llama32": Family(
            "rotary angles scaled as Llama 3.2's, past the original 32 positions; tied embeddings",
            _config(LlamaConfig, rope_parameters=_rope(100.0, **of_llama32), tie_word_embeddings=True),
            without=scaling,
        ),
        "tiny_llama_linear": Family(
            "rotary angles divided by 4, past the original 16 positions, in the old form",
            _config(LlamaConfig, max_position_embeddings=64, rope_parameters=_rope(1e4, **linear)),
            old_keys={"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0}},
            without=scaling,
        ),
        "tiny_qwen2": Family(
            "biases of q, k and v, tied embeddings, a window of 8 from the second of three layers on",
            _config(
                Qwen2Config,
                num_hidden_layers=3,
                rope_parameters=_rope(1e4),
                tie_word_embeddings=True,
                use_sliding_window=True,
                sliding_window=8,
                max_window_layers=1,
            ),
            without={"q's bias": _drop("q_proj"), "v's bias": _drop("v_proj"), "the window": _widen},
        ),
        "tiny_qwen2_yarn": Family(
            "biases of q, k and v, and YaRN past the original 32 positions, in the old form",
            _config(Qwen2Config, max_position_embeddings=32, rope_parameters=_rope(1e4, **yarn)),
            old_keys={"rope_theta": 1e4, "rope_scaling": {"type": "yarn", **yarn}, "use_sliding_window": False},
            without=scaling | {"q's bias": _drop("q_proj"), "v's bias": _drop("v_proj")},
        ),
        "tiny_qwen3": Family(
            "norms of q and k, head_dim unlike hidden / heads",
            _config(Qwen3Config, rope_parameters=_rope(1e4)),
            without={"q's norm": _unnorm("q_norm"), "k's norm": _unnorm("k_norm")},
        ),
    }


def _config(kind: type[PreTrainedConfig], **changes: Any) -> PreTrainedConfig:
    config = kind(
        **{
            "vocab_size": 48,
            "hidden_size": 32,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
        }
        | ({} if kind is Qwen2Config else {"head_dim": 16})
        | changes
    )
    config.architectures = [kind.__name__.replace("Config", "ForCausalLM")]
    return config


def _rope(theta: float, **scaling: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta} | scaling


def _write_checkpoint(folder: Path, family: Family) -> None:
    model = AutoModelForCausalLM.from_config(family.config)
    # As an output head, an embedding of std 1 would spread the logits too far.
    fill_with_random_weights(model, SEED, embedding_std=0.4 if family.config.tie_word_embeddings else 1.0)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # transformers' defaults, which say nothing of it
    if family.old_keys is not None:
        path = folder / "config.json"
        written = json.loads(path.read_text(encoding="utf-8"))
        for new in ("rope_parameters", "layer_types", "dtype"):
            written.pop(new, None)
        if written.get("head_dim") == written["hidden_size"] // written["num_attention_heads"]:
            del written["head_dim"]
        written |= {"torch_dtype": "bfloat16", "transformers_version": "4.40.0", **family.old_keys}
        path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def _logits(model: torch.nn.Module, token_ids: np.ndarray) -> np.ndarray:
    return model(torch.from_numpy(token_ids)[None], use_cache=False).logits[0].numpy()


def _unscale(model: torch.nn.Module) -> None:
    rope, dim = model.model.rotary_emb, model.model.rotary_emb.inv_freq.shape[0] * 2
    theta = model.config.rope_parameters["rope_theta"]
    rope.inv_freq = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    rope.attention_scaling = 1.0


def _drop(product: str) -> Change:
    def change(model: torch.nn.Module) -> None:
        for layer in model.model.layers:
            getattr(layer.self_attn, product).bias.data.zero_()

    return change


def _unnorm(norm: str) -> Change:
    def change(model: torch.nn.Module) -> None:
        for layer in model.model.layers:
            setattr(layer.self_attn, norm, torch.nn.Identity())

    return change


def _widen(model: torch.nn.Module) -> None:
    model.config.sliding_window = NUM_TOKENS
