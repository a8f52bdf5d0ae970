"""``jaxinfer generate``: prompts in, answers out.

One prompt streams its text as it comes; several, or ``--json``, give one result each, in the order of the prompts.
"""

import time
from typing import TYPE_CHECKING

import typer

from jaxinfer.cli import options
from jaxinfer.cli.exits import PROMPT_FAILED, print_error, print_text, shown_warnings, usage_errors
from jaxinfer.cli.load import load, open_model
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import PromptForm, UserPrompt, gather_prompts, parse_template_kwargs
from jaxinfer.cli.results import OrderedResults, Result, ResultWriter, print_speed, print_totals, shown_text
from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams

if TYPE_CHECKING:
    from jaxinfer.llm import LLM

_MOST_SEQS = 32
"""Prompts that run together unless the user says otherwise: more programs to compile, and more memory, beyond."""


def generate(
    prompt: options.Prompt = None,
    prompts_file: options.PromptsFile = None,
    chat: options.Chat = False,
    system: options.System = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    token_ids: options.TokenIds = False,
    max_tokens: options.MaxTokens = 128,
    min_tokens: options.MinTokens = 0,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    ignore_eos: options.IgnoreEos = False,
    stop_token_id: options.StopTokenId = None,
    model: options.Model = "smollm2-135m",
    dtype: options.Dtype = "auto",
    quantization: options.Quantization = None,
    group_size: options.GroupSize = None,
    kernels: options.Kernels = "auto",
    kv_dtype: options.KvDtype = "auto",
    max_model_len: options.MaxModelLen = None,
    num_kv_pages: options.NumKvPages = None,
    memory_fraction: options.MemoryFraction = None,
    page_size: options.PageSize = 16,
    no_prefix_cache: options.NoPrefixCache = False,
    cache: options.Cache = "paged",
    max_num_seqs: options.MaxNumSeqs = None,
    load_format: options.LoadFormat = "auto",
    json: options.Json = False,
) -> None:
    """Generate text for one prompt or many.

    One prompt streams its text. Several print each text under its prompt, in their order. Exit code 1: a prompt
    failed; 2: the options are wrong; 3: stdout cannot be written; 4: a GPU kernel fails its test.
    """
    with shown_warnings():
        with usage_errors():
            prompts = gather_prompts(prompt, prompts_file)
            form = PromptForm(
                chat=chat,
                system=system,
                template_kwargs=parse_template_kwargs(chat_template_kwargs),
                token_ids=token_ids,
            )
            params = SamplingParams(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                ignore_eos=ignore_eos,
                stop_token_ids=stop_token_id or (),
            )
            request = _single_request(prompts, form) if not json else None
            opened = open_model(model, load_format)
            form.check_tokenizer(opened.tokenizer)
            llm = load(
                opened,
                dtype=dtype,
                quantization=quantization,
                group_size=group_size,
                kernels=kernels,
                kv_dtype=kv_dtype,
                max_model_len=max_model_len,
                num_kv_pages=num_kv_pages,
                memory_fraction=memory_fraction,
                page_size=page_size,
                prefix_cache=not no_prefix_cache,
                cache=cache,
                max_num_seqs=min(len(prompts), _MOST_SEQS) if max_num_seqs is None else max_num_seqs,
            )
        if request is not None:
            all_answered = stream_one(llm, prompts[0], request, params)
        else:
            writer = ResultWriter(as_json=json, as_ids=llm.tokenizer is None)
            all_answered = answer_all(llm, prompts, form, params, writer)
    if not all_answered:
        raise typer.Exit(PROMPT_FAILED)


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
        print(shown_text(output, as_ids=True), end="")
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
