"""``jaxinfer generate``: prompts in, answers out.

One prompt streams its text as it comes; several, several sequences of one, or ``--json``, give one result for each
prompt, in their order.
"""

import time
from typing import TYPE_CHECKING

import typer

from jaxinfer.cli import options
from jaxinfer.cli.engine_options import MOST_SEQS, EngineOptions
from jaxinfer.cli.exits import PROMPT_FAILED, print_error, print_text, shown_warnings, usage_errors
from jaxinfer.cli.json_values import parse_object
from jaxinfer.cli.load import check_form, open_model
from jaxinfer.cli.option_groups import with_option_groups
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import PromptForm, UserPrompt, gather_prompts
from jaxinfer.cli.results import OrderedResults, Result, ResultWriter, print_speed, print_totals, shown_text
from jaxinfer.cli.sampling_options import SamplingOptions
from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams

if TYPE_CHECKING:
    from jaxinfer.llm import LLM


@with_option_groups
def generate(
    *,
    prompt: options.Prompt = None,
    prompts_file: options.PromptsFile = None,
    chat: options.Chat = False,
    system: options.System = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    safe_prompt: options.SafePrompt = False,
    token_ids: options.TokenIds = False,
    max_tokens: options.MaxTokens = 128,
    sampling: SamplingOptions,
    n: options.N = 1,
    best_of: options.BestOf = None,
    logprobs: options.Logprobs = None,
    prompt_logprobs: options.PromptLogprobs = None,
    engine: EngineOptions,
    cache: options.Cache = "paged",
    max_num_seqs: options.MaxNumSeqs = None,
    load_format: options.LoadFormat = "auto",
    json: options.Json = False,
) -> None:
    """Generate text for one prompt or many.

    One prompt streams its text. Several, or several sequences of one, print each text under its prompt, in their
    order. Exit code 1: a prompt failed; 2: the options are wrong; 3: stdout cannot be written; 4: a GPU kernel fails
    its test.
    """
    with shown_warnings():
        with usage_errors():
            prompts = gather_prompts(prompt, prompts_file)
            form = PromptForm(
                chat=chat,
                system=system,
                template_kwargs=parse_object("--chat-template-kwargs", chat_template_kwargs),
                token_ids=token_ids,
                safe_prompt=safe_prompt,
            )
            params = sampling.params(
                max_tokens=max_tokens, n=n, best_of=best_of, logprobs=logprobs, prompt_logprobs=prompt_logprobs
            )
            _check_that_it_is_shown(params, json)
            request = _single_request(prompts, form) if not json and params.num_sequences == 1 else None
            opened = open_model(engine.model, load_format)
            check_form(params, opened)
            form.check_tokenizer(opened.tokenizer)
            if max_num_seqs is None:
                max_num_seqs = min(len(prompts) * params.num_sequences, MOST_SEQS)
            llm = engine.load(opened, cache=cache, max_num_seqs=max_num_seqs)
        if request is not None:
            all_answered = stream_one(llm, prompts[0], request, params)
        else:
            writer = ResultWriter(as_json=json, as_ids=llm.tokenizer is None, params=params)
            all_answered = answer_all(llm, prompts, form, params, writer)
    if not all_answered:
        raise typer.Exit(PROMPT_FAILED)


def _check_that_it_is_shown(params: SamplingParams, json: bool) -> None:
    """ValueError where log-probabilities are asked for, and text is to be printed."""
    for option, value in (("--logprobs", params.logprobs), ("--prompt-logprobs", params.prompt_logprobs)):
        if value is not None and not json:
            raise ValueError(f"{option} goes with --json")


def _single_request(prompts: list[UserPrompt], form: PromptForm) -> Prompt | None:
    """The only prompt as the engine takes it, or None if there are several. A bad one ends here, before a load."""
    if len(prompts) > 1:
        return None
    try:
        return form.engine_prompt(prompts[0].text)
    except ValueError as error:
        print_error(f"{prompts[0].place}: {error}")
        raise typer.Exit(PROMPT_FAILED) from error


def stream_one(llm: "LLM", prompt: UserPrompt, request: Prompt, params: SamplingParams) -> bool:
    """Write the answer as it comes, then how fast it came; returns whether there was one."""
    for output in llm.stream([request], params):  # a list, so that a refusal is an output like any other
        print_text(output.outputs[0].delta)
        if output.error is not None:
            print_error(f"{prompt.place}: {output.error}")
            return False
    if llm.tokenizer is None:
        print(shown_text(output.outputs[0], as_ids=True), end="")
    print(flush=True)
    print_speed(output)
    return True


def answer_all(
    llm: "LLM", prompts: list[UserPrompt], form: PromptForm, params: SamplingParams, writer: ResultWriter
) -> bool:
    """Write every result in the order of the prompts, then the totals; returns whether all were answered."""
    start, requests, positions = time.perf_counter(), [], []
    with ProgressBar("Generating") as bar:
        results = OrderedResults(len(prompts), writer, bar)
        for position, prompt in enumerate(prompts):
            try:
                requests.append(form.engine_prompt(prompt.text))
            except ValueError as error:
                results.add(position, Result(prompt, output=None, refusal=str(error)))
            else:
                positions.append(position)

        def take(index: int, output: RequestOutput) -> None:
            results.add(positions[index], Result(prompts[positions[index]], output))

        llm.generate(requests, params, on_finish=take)
    print_totals(results.totals, time.perf_counter() - start)
    return results.totals.num_failed == 0
