"""The options that ``generate`` and ``chat`` have beside those of every model and every answer: name, type, help.

Values are checked where they are used (``SamplingParams``, the loader, the engine), so the command line and the Python
API refuse the same things in the same words.
"""

from typing import Annotated

import typer

_PROMPTS, _SAMPLING, _ENGINE, _OUTPUT = "Prompts", "Sampling", "Engine", "Output"

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
SafePrompt = Annotated[
    bool,
    typer.Option(
        "--safe-prompt",
        help="Put the guardrail of Mistral's API before the conversation, as its system message.",
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
N = Annotated[int, typer.Option("--n", help="Sequences for each prompt.", rich_help_panel=_SAMPLING)]
BestOf = Annotated[
    int | None,
    typer.Option(
        help="Sequences to draw, of which the --n of highest log-probability per token are given.",
        rich_help_panel=_SAMPLING,
    ),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        help="Tell each token's log-probability and those of so many of the most likely, with --json.",
        rich_help_panel=_SAMPLING,
    ),
]
PromptLogprobs = Annotated[
    int | None, typer.Option(help="The same of the prompt's tokens, with --json.", rich_help_panel=_SAMPLING)
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
        help="Sequences that run at the same time. Without it: all of them, at most 32. Fewer start faster.",
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
