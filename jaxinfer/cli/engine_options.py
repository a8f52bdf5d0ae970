"""The options of every command that loads a model: which one, in which numbers, and with how much memory."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

from jaxinfer.cli.load import load
from jaxinfer.cli.option_groups import option_of

if TYPE_CHECKING:
    from jaxinfer.llm import LLM
    from jaxinfer.loading import LoadedModel


MOST_SEQS = 32
"""Sequences that run together unless the user says otherwise: more programs to compile, and more memory, beyond."""

_option = option_of("Engine")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What the command line says of the model and its engine; the help of each option is its documentation."""

    model: Annotated[str, _option("A folder, a .gguf file, the name of a preset, or a Hugging Face id.")] = (
        "smollm2-135m"
    )
    dtype: Annotated[str, _option("float32, bfloat16, or auto: float32 on a CPU and bfloat16 elsewhere.")] = "auto"
    quantization: Annotated[
        str,
        _option(
            "int8 or int4: the layers' matrices, rounded to nearest as they are loaded; stored: as the checkpoint has "
            "them; none: all as --dtype says; auto: stored, but none on a CPU where that takes at most half of the "
            "memory."
        ),
    ] = "auto"
    group_size: Annotated[
        int | None, _option("Inputs of a group of int4: 32, 64, 128, or 0 for the whole row. Without it: 64.")
    ] = None
    quantize_embeddings: Annotated[
        bool,
        _option("Round the embedding and the output head to int8 or int4 too.", "--quantize-embeddings"),
    ] = False
    kernels: Annotated[
        str,
        _option(
            "xla, pallas, or auto: the GPU kernels (pallas) on a GPU and xla elsewhere. "
            "On a CPU pallas is interpreted: slow, for a look at what a GPU would compute."
        ),
    ] = "auto"
    kv_dtype: Annotated[str, _option("int8, or auto: the KV cache has the dtype of --dtype.")] = "auto"
    max_model_len: Annotated[int | None, _option("The longest prompt and output together, in tokens.")] = None
    num_kv_pages: Annotated[int | None, _option("Pages of the KV cache. Without it: what the memory allows.")] = None
    memory_fraction: Annotated[
        float | None,
        _option(
            "Share of what XLA takes of a GPU, or of a CPU's memory, for weights and KV cache. "
            "Without it: 0.9 of a GPU's, and on a CPU 1 GiB of cache."
        ),
    ] = None
    page_size: Annotated[int, _option("Tokens of one KV page.")] = 16
    no_prefix_cache: Annotated[bool, _option("Compute equal beginnings of prompts again.", "--no-prefix-cache")] = False

    @property
    def settings(self) -> dict[str, Any]:
        """All but the model, as arguments of ``LLM``."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        del settings["model"]
        settings["prefix_cache"] = not settings.pop("no_prefix_cache")
        return settings

    def load(self, opened: "LoadedModel", **more: Any) -> "LLM":
        """The model that was opened, with these settings and ``more`` arguments of ``LLM``; errors as ``load``."""
        return load(opened, **self.settings, **more)
