"""Writes a model of floats in Hugging Face's layout, so that other engines can load it.

Weights come one by one and are written as they come, a file for each layer, so a model needs no more memory than that.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from checkpoints.tables import HUGGINGFACE, part_rows
from jaxinfer.config import ModelConfig

_INDEX = "model.safetensors.index.json"


def write_huggingface(
    folder: Path, config: ModelConfig, weights: Iterable[tuple[str, np.ndarray]], eos_token_ids: tuple[int, ...] = ()
) -> None:
    """Write ``config.json`` and the weights into a folder, which is made if it is not there.

    Args:
        folder: where to; what it holds beside is left alone.
        config: the shape of the model.
        weights: every weight of ``jaxinfer.weights.weight_shapes(config)``, in that order, as floats.
        eos_token_ids: what ends a text.

    Raises:
        ValueError: the layout has no words for the model's rotary scaling, or for its windows.
    """
    description = _description(config, eos_token_ids)
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for part, arrays in _parts(weights):
        file = f"model-{part}.safetensors"
        tensors = dict(_tensors(config, arrays))
        description.setdefault("torch_dtype", next(iter(tensors.values())).dtype.name)
        save_file(tensors, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(tensors, file)
    (folder / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=1))
    (folder / "config.json").write_text(json.dumps(description, indent=1))  # last: without it there is no model


def _parts(weights: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Weights that go into one file: those of a layer, or one that belongs to none."""
    part, arrays = "", dict[str, np.ndarray]()
    for name, array in weights:
        of = "-".join(name.split(".")[:2])
        if arrays and of != part:
            yield part, arrays
            arrays = {}
        part = of
        arrays[name] = array
    yield part, arrays


def _tensors(config: ModelConfig, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of the layout that some weights are cut into."""
    rows = part_rows(config)
    for entry in HUGGINGFACE.entries:
        for name, array in arrays.items():
            layer = name.split(".")[1] if name.startswith("layers.") else ""
            if entry.weight.replace("{layer}", layer) == name:
                yield entry.source.replace("{layer}", layer), np.ascontiguousarray(array[rows[entry.part]])


def _description(config: ModelConfig, eos_token_ids: tuple[int, ...]) -> dict[str, Any]:
    if config.rope_scaling is not None:
        raise ValueError("a model whose rotary angles are scaled cannot be written in this layout yet")
    kind, architecture, more = _family(config)
    return {
        "model_type": kind,
        "architectures": [architecture],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,
        "eos_token_id": list(eos_token_ids) or None,
        **more,
    }


def _family(config: ModelConfig) -> tuple[str, str, dict[str, Any]]:
    """``model_type``, the class, and the keys that only this family has."""
    windows = set(config.windows)
    if len(windows) > 1:
        raise ValueError("a model with several windows cannot be written in this layout yet")
    window = config.windows[0]
    if config.qkv_bias or config.qk_norm:
        if config.qkv_bias and config.qk_norm:
            raise ValueError("no family of this layout has both a bias on q, k and v and norms of their heads")
        kind, name = ("qwen3", "Qwen3") if config.qk_norm else ("qwen2", "Qwen2")
        every = {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 0}
        return kind, f"{name}ForCausalLM", every
    if window is not None:
        return "mistral", "MistralForCausalLM", {"sliding_window": window}
    return "llama", "LlamaForCausalLM", {}
