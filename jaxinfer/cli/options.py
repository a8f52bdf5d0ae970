"""The options of ``generate`` and ``chat``: name, type and help of each, so that a command reads as a list of them.

Values are checked where they are used (``SamplingParams``, the loader, the engine), so the command line and the Python
API refuse the same things in the same words.
"""

from typing import Annotated

import typer

_PROMPTS, _SAMPLING, _ENGINE, _OUTPUT = "Prompts", "Sampling", "Engine", "Output"

Model = Annotated[
    str,
    typer.Option(help="A folder, a .gguf file, the name of a preset, or a Hugging Face id.", rich_help_panel=_ENGINE),
]
Prompt = Annotated[
    list[str] | None,
    typer.Option(help="A prompt; may be given several times.", rich_help_panel=_PROMPTS),
]
PromptsFile = Annotated[
    str | None,
    typer.Option(
        help="A UTF-8 file with one prompt per line; - reads stdin. A blank line is a prompt that fails.",
        rich_help_panel=_PROMPTS,
    ),
]
Chat = Annotated[bool, typer.Option("--chat", help="Send each prompt as a user's message.", rich_help_panel=_PROMPTS)]
System = Annotated[
    str | None, typer.Option(help="The system message before each prompt of --chat.", rich_help_panel=_PROMPTS)
]
ChatSystem = Annotated[
    str | None, typer.Option("--system", help="The system message of the conversation.", rich_help_panel=_PROMPTS)
]
ChatTemplateKwargs = Annotated[
    str | None,
    typer.Option(
        help="More variables for the model's chat template, as a JSON object: '{\"enable_thinking\": false}'.",
        rich_help_panel=_PROMPTS,
    ),
]
TokenIds = Annotated[
    bool,
    typer.Option(
        "--token-ids",
        help="The prompts are token ids, separated by commas or spaces; a model of random weights takes no text.",
        rich_help_panel=_PROMPTS,
    ),
]

MaxTokens = Annotated[int, typer.Option(help="Tokens to generate for each prompt.", rich_help_panel=_SAMPLING)]
AnswerTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", help="Tokens of an answer. Without it: up to --max-model-len.", rich_help_panel=_SAMPLING
    ),
]
MinTokens = Annotated[int, typer.Option(help="Tokens before which nothing ends the output.", rich_help_panel=_SAMPLING)]
Temperature = Annotated[
    float, typer.Option(help="Divides the logits; 0 takes the most likely token.", rich_help_panel=_SAMPLING)
]
TopK = Annotated[int, typer.Option(help="Keep the k most likely tokens; 0: all.", rich_help_panel=_SAMPLING)]
TopP = Annotated[
    float, typer.Option(help="Keep the most likely tokens of this probability together.", rich_help_panel=_SAMPLING)
]
MinP = Annotated[
    float,
    typer.Option(help="Drop tokens less likely than this times the most likely.", rich_help_panel=_SAMPLING),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of every prompt's draws. Without it each prompt has its own, the same ones in every run.",
        rich_help_panel=_SAMPLING,
    ),
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Go on after the model's end tokens.", rich_help_panel=_SAMPLING)
]
StopTokenId = Annotated[
    list[int] | None,
    typer.Option(help="A further token that ends the output; may be given several times.", rich_help_panel=_SAMPLING),
]

Dtype = Annotated[
    str,
    typer.Option(help="float32, bfloat16, or auto: float32 on a CPU and bfloat16 elsewhere.", rich_help_panel=_ENGINE),
]
Quantization = Annotated[
    str | None,
    typer.Option(
        help="int8 or int4: the layers' matrices, rounded to nearest as they are loaded. Without it: as --dtype says.",
        rich_help_panel=_ENGINE,
    ),
]
GroupSize = Annotated[
    int | None,
    typer.Option(
        help="Inputs of a group of int4: 32, 64, 128, or 0 for the whole row. Without it: 64.", rich_help_panel=_ENGINE
    ),
]
Kernels = Annotated[
    str,
    typer.Option(
        help="xla, pallas, or auto: the GPU kernels (pallas) on a GPU and xla elsewhere. "
        "On a CPU pallas is interpreted: slow, for a look at what a GPU would compute.",
        rich_help_panel=_ENGINE,
    ),
]
KvDtype = Annotated[
    str,
    typer.Option(help="int8, or auto: the KV cache has the dtype of --dtype.", rich_help_panel=_ENGINE),
]
MaxModelLen = Annotated[
    int | None,
    typer.Option(help="The longest prompt and output together, in tokens.", rich_help_panel=_ENGINE),
]
NumKvPages = Annotated[
    int | None,
    typer.Option(help="Pages of the KV cache. Without it: what the memory allows.", rich_help_panel=_ENGINE),
]
MemoryFraction = Annotated[
    float | None,
    typer.Option(
        help="Share of what XLA takes of a GPU, or of a CPU's memory, for weights and KV cache. "
        "Without it: 0.9 of a GPU's, and on a CPU 1 GiB of cache.",
        rich_help_panel=_ENGINE,
    ),
]
PageSize = Annotated[int, typer.Option(help="Tokens of one KV page.", rich_help_panel=_ENGINE)]
NoPrefixCache = Annotated[
    bool,
    typer.Option("--no-prefix-cache", help="Compute equal beginnings of prompts again.", rich_help_panel=_ENGINE),
]
Cache = Annotated[
    str,
    typer.Option(
        help="paged, or contiguous: each prompt reserves room for the longest one, as engines did before paging. "
        "For comparison only.",
        rich_help_panel=_ENGINE,
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option(
        help="Prompts that run at the same time. Without it: all of them, at most 32. Fewer start faster.",
        rich_help_panel=_ENGINE,
    ),
]
LoadFormat = Annotated[
    str,
    typer.Option(help="auto reads the weights; random draws them, for a preset.", rich_help_panel=_ENGINE),
]

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per prompt and line.", rich_help_panel=_OUTPUT)
]
