"""Options that are no part of a group (``option_groups``): commands share one of them or two, or word its help alike.

Values are checked where they are used (``SamplingParams``, the loader, the engine), so the command line and the Python
API refuse the same things in the same words.
"""

from typing import Annotated

from jaxinfer.cli.option_groups import option_of

_prompts, _sampling, _engine, _output = map(option_of, ("Prompts", "Sampling", "Engine", "Output"))

Prompt = Annotated[list[str] | None, _prompts("A prompt; may be given several times.")]
PromptsFile = Annotated[
    str | None, _prompts("A UTF-8 file with one prompt per line; - reads stdin. A blank line is a prompt that fails.")
]
Chat = Annotated[bool, _prompts("Send each prompt as a user's message.", "--chat")]
System = Annotated[str | None, _prompts("The system message before each prompt of --chat.")]
ChatSystem = Annotated[str | None, _prompts("The system message of the conversation.", "--system")]
ChatTemplateKwargs = Annotated[
    str | None,
    _prompts("More variables for the model's chat template, as a JSON object: '{\"enable_thinking\": false}'."),
]
SafePrompt = Annotated[
    bool,
    _prompts("Put the guardrail of Mistral's API before the conversation, as its system message.", "--safe-prompt"),
]
TokenIds = Annotated[
    bool,
    _prompts(
        "The prompts are token ids, separated by commas or spaces; a model of random weights takes no text.",
        "--token-ids",
    ),
]

MaxTokens = Annotated[int, _sampling("Tokens to generate for each prompt.")]
AnswerTokens = Annotated[
    int | None, _sampling("Tokens of an answer. Without it: up to --max-model-len.", "--max-tokens")
]
N = Annotated[int, _sampling("Sequences for each prompt.", "--n")]
BestOf = Annotated[
    int | None, _sampling("Sequences to draw, of which the --n of highest log-probability per token are given.")
]
Logprobs = Annotated[
    int | None, _sampling("Tell each token's log-probability and those of so many of the most likely, with --json.")
]
PromptLogprobs = Annotated[int | None, _sampling("The same of the prompt's tokens, with --json.")]

Cache = Annotated[
    str,
    _engine(
        "paged, or contiguous: each prompt reserves room for the longest one, as engines did before paging. "
        "For comparison only."
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    _engine("Sequences, or windows of a text, that run at the same time. Without it: up to 32. Fewer start faster."),
]
MaxChunkTokens = Annotated[
    int,
    _engine("Tokens of prompts that one step reads. Fewer: tokens come more evenly; more: prompts are read faster."),
]
LoadFormat = Annotated[str, _engine("auto reads the weights; random draws them, for a preset.")]

Json = Annotated[bool, _output("Print one JSON object per prompt and line.", "--json")]
