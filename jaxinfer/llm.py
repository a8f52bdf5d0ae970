"""The Python API, in the shape that users of vLLM know: ``LLM(model).generate(prompts, params)``."""

import itertools
import reprlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from jaxinfer.calls import Call, check_list
from jaxinfer.config import CacheMode, Quantization
from jaxinfer.loading import LoadedModel, LoadFormat, build_engine, open_model
from jaxinfer.output_filter import OutputFilterFactory
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.prompt_rendering import PromptRenderer
from jaxinfer.prompts import Message, Prompt, Tools
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Counters
from jaxinfer.scoring import TextScore, resolve_windows, score_texts


class LLM:
    """A model, ready to generate: weights on the device and every program compiled. Not thread-safe.

    Args:
        model: a directory (Hugging Face's or Mistral's layout), a GGUF file, a preset's name, or a Hugging Face id; or
            what ``open_model`` found there, for a caller who looks at it first.
        load_format: ``auto`` reads the weights; ``random`` draws them for a preset, which then has no tokenizer. A
            model that is open already was given its own.
        dtype: ``float32``, ``bfloat16``, or ``auto``: float32 on a CPU and bfloat16 elsewhere.
        quantization: ``int8`` (one scale for each output channel) or ``int4`` (a scale and an offset for each group of
            inputs): of the layers' matrices, rounded to nearest as they are loaded, but for those that the checkpoint
            has in this very format. ``stored``: what is quantized in the checkpoint stays so where a product reads it
            as it is. None, or ``none``: all are floats. ``auto``: as ``stored``, but floats on a CPU where they take at
            most half of the memory, for there they are faster.
        group_size: inputs of an ``int4`` group: 32, 64, 128, or 0 for the whole row; None: 64.
        quantize_embeddings: whether ``int8`` and ``int4`` are for the embedding and the output head too.
        kernels: ``xla``, ``pallas``, or ``auto``: the GPU kernels (``pallas``) on a GPU that they support, and ``xla``
            elsewhere. On a CPU ``pallas`` is interpreted, which is slow.
        kv_dtype: of the KV cache: ``int8``, which takes half the bytes of bfloat16 and some for its scales, or
            ``auto``: as ``dtype``.
        max_model_len: the longest prompt and output together, in tokens; None: what the model and the memory allow.
        num_kv_pages: pages of the KV cache, as in ``EngineConfig``; None: what the memory allows.
        memory_fraction: the share, in (0, 1], that weights and cache together may take of what XLA takes of a GPU
            (three quarters is JAX's default), or of a CPU's memory; None: 0.9 on a GPU, and 1 GiB of cache on a CPU.
        max_num_seqs: requests that run at the same time.
        max_chunk_tokens: prompt tokens of one step.
        page_size: tokens of one KV page.
        prefix_cache: whether requests share the pages of equal prefixes.
        cache: ``paged``; ``contiguous`` is for comparison, see ``EngineConfig``.
        seed: makes the draws of requests without a seed repeatable.
        output_filter: called for each sequence, makes the ``OutputFilter`` that sees its text before anyone else; or
            None.
        progress: called with (programs compiled, programs in all) while the engine starts.

    Raises:
        ValueError: there is no such model, its files are not what they should be, or a limit is out of range.
        KernelSelfTestError: a GPU kernel computes wrong values on this device (a ``RuntimeError``).
    """

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        load_format: LoadFormat = "auto",
        dtype: str = "auto",
        quantization: str | None = "auto",
        group_size: int | None = None,
        quantize_embeddings: bool = False,
        kernels: str = "auto",
        kv_dtype: str = "auto",
        max_model_len: int | None = None,
        num_kv_pages: int | None = None,
        memory_fraction: float | None = None,
        max_num_seqs: int = 32,
        max_chunk_tokens: int = 256,
        page_size: int = 16,
        prefix_cache: bool = True,
        cache: CacheMode = "paged",
        seed: int = 0,
        output_filter: OutputFilterFactory | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if not isinstance(model, LoadedModel):
            model = open_model(model, load_format=load_format, seed=seed)
        elif load_format != "auto":
            raise ValueError(
                f"load_format is {reprlib.repr(load_format)}, and the model is open already; give it to open_model"
            )
        if output_filter is not None and not callable(output_filter):
            given = reprlib.repr(output_filter)
            raise ValueError(f"output_filter is {given}; it must be a function, or a class, that makes an OutputFilter")
        self.model_config, self.tokenizer = model.config, model.tokenizer
        self.renderer = PromptRenderer(model.tokenizer)
        self.engine, runner = build_engine(
            model,
            dtype=dtype,
            quantization=Quantization.named(quantization, group_size),
            quantize_embeddings=quantize_embeddings,
            kernels=kernels,
            kv_dtype=kv_dtype,
            max_model_len=max_model_len,
            num_kv_pages=num_kv_pages,
            memory_fraction=memory_fraction,
            max_num_seqs=max_num_seqs,
            max_chunk_tokens=max_chunk_tokens,
            page_size=page_size,
            prefix_cache=prefix_cache,
            cache=cache,
            seed=seed,
            output_filter=output_filter,
        )
        runner.warm_up(progress)
        self._request_ids = map(str, itertools.count())
        self._inboxes: dict[str, deque[RequestOutput]] = {}

    @property
    def max_model_len(self) -> int:
        """The longest prompt and output together, in tokens: as was asked for, or what model and memory allow."""
        return self.engine.max_model_len

    @property
    def counters(self) -> Counters:
        """Of all requests up to now: what shared prefixes saved, preemptions, tokens computed again."""
        return self.engine.scheduler.counters

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        on_finish: Callable[[int, RequestOutput], None] | None = None,
    ) -> list[RequestOutput]:
        """Generate for one prompt or many; returns one output for each prompt, in their order.

        A prompt of a list that cannot be served does not stop the others: its output has ``error`` set and the finish
        reason ``error``. A single prompt that cannot be served raises.

        Args:
            prompts: text, ``{"prompt_token_ids": [...]}`` or ``{"messages": [...]}``, or a list of these.
            sampling_params: for all, or one for each prompt; None: ``SamplingParams()``.
            on_finish: called with the index of a prompt and its output as its request ends.

        Raises:
            ValueError: a single prompt cannot be served; the numbers of prompts and of parameters differ.
        """
        results: dict[int, RequestOutput] = {}
        for index, output in self._run(Call.of(prompts, sampling_params), stream=False):
            results[index] = output
            if on_finish is not None:
                on_finish(index, output)
        return [results[index] for index in sorted(results)]

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[RequestOutput]:
        """As ``generate``, but yields an output for every step that brings a request tokens.

        Outputs of several prompts come mixed; ``request_id`` tells them apart and rises in the order of the prompts.
        ``outputs[0].delta`` is what is new. Closing the iterator ends the requests.
        """
        call = Call.of(prompts, sampling_params)  # here, so that a wrong call raises at once
        return (output for _, output in self._run(call, stream=True))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Tools | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        safe_prompt: bool = False,
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of several; short for ``generate`` with ``{"messages": [...]}``.

        Args:
            messages: a list of ``{"role": ..., "content": ...}``, or a list of such lists.
            sampling_params: as in ``generate``.
            tools: of every conversation, as in ``ChatPrompt``. In an answer that is held to a form
                (``structured_outputs``) no calls are looked for.
            chat_template_kwargs: likewise.
            safe_prompt: likewise.

        Raises:
            ValueError: as ``generate``; the model has no chat template, or the template refuses a single conversation.
        """
        check_list("messages", messages, "a list of messages, or a list of such lists")
        several = bool(messages) and not isinstance(messages[0], Mapping)
        conversations = cast(Sequence[Sequence[Message]], messages if several else [messages])
        prompts: list[Prompt] = [
            {
                "messages": conversation,
                "tools": tools,
                "chat_template_kwargs": chat_template_kwargs,
                "safe_prompt": safe_prompt,
            }
            for conversation in conversations
        ]
        return self.generate(prompts if several else prompts[0], sampling_params)

    def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        window: int | None = None,
        stride: int | None = None,
        on_window: Callable[[int, int], None] | None = None,
    ) -> list[TextScore]:
        """How likely the model finds each text: the log-probability of every token after those before it.

        A text is read in windows that begin every ``stride`` tokens, each a text of its own; a window scores those of
        its tokens that no window before it held, but not its very first. A text of a list that cannot be scored has its
        ``error`` set and does not stop the others; a single one raises.

        Args:
            prompts: text, which gets the BOS that ``generate`` would give it, or ``{"prompt_token_ids": [...]}``, or a
                list of these. A conversation is refused.
            window: tokens of a window, from 2 to ``max_model_len``, which None stands for.
            stride: tokens from the beginning of a window to that of the next, from 1 to ``window``, which None stands
                for. A smaller one gives each token more to go by, and takes ``window / stride`` times as long.
            on_window: called with (windows that are scored, windows in all) after each.

        Raises:
            ValueError: ``window`` or ``stride`` is out of range; a single text cannot be scored.
        """
        length, every = resolve_windows(window, stride, self.max_model_len)
        texts = Call.of(prompts, None)

        def run(parts: Sequence[Prompt], params: SamplingParams) -> Iterator[tuple[int, RequestOutput]]:
            return self._run(Call.of(parts, params), stream=False)

        scores = score_texts(texts.prompts, run, self.tokenizer, window=length, stride=every, on_window=on_window)
        if texts.single and scores[0].error is not None:
            raise ValueError(scores[0].error)
        return scores

    def _run(self, call: Call, *, stream: bool) -> Iterator[tuple[int, RequestOutput]]:
        """(index of the prompt, output) as they come."""
        # Several calls may be under way, each in the middle of its stream. Whichever steps the engine hands on what is
        # for the others.
        inbox: deque[RequestOutput] = deque()
        indices: dict[str, int] = {}
        try:
            for index, (prompt, params) in enumerate(zip(call.prompts, call.params, strict=True)):
                request_id = next(self._request_ids)
                # Before it is there, for it is ended below whatever happens from now on.
                self._inboxes[request_id], indices[request_id] = inbox, index
                try:
                    self._add(request_id, prompt, params, stream)
                except ValueError as error:
                    del self._inboxes[request_id], indices[request_id]
                    if call.single:
                        raise
                    yield index, _refusal(request_id, prompt, error)
            while indices:
                for output in self._next_outputs(inbox):
                    index = indices[output.request_id]
                    if output.finished:
                        del indices[output.request_id], self._inboxes[output.request_id]
                    yield index, output
        finally:  # the caller stopped early, or something failed: leave nothing running
            for request_id in indices:
                self.engine.abort(request_id)
                del self._inboxes[request_id]

    def _next_outputs(self, inbox: deque[RequestOutput]) -> Iterator[RequestOutput]:
        """What is in the inbox, after a step of the engine if nothing is.

        Raises:
            RuntimeError: nothing can come any more: an interrupt hit another call as it handed outputs on.
        """
        if not inbox:
            if not self.engine.has_unfinished:
                raise RuntimeError("the outputs of this call were lost when another one was interrupted")
            for output in self.engine.step():
                # A call that ended early has taken its inbox with it.
                self._inboxes.get(output.request_id, deque()).append(output)
        while inbox:
            yield inbox.popleft()

    def _add(self, request_id: str, prompt: Prompt, params: SamplingParams, stream: bool) -> None:
        # Parameters of another type the engine refuses.
        is_held = isinstance(params, SamplingParams) and params.structured_outputs is not None
        rendered = self.renderer.render(prompt, is_held=is_held)
        self.engine.add_request(request_id, params=params, stream=stream, **vars(rendered))


def _refusal(request_id: str, prompt: Prompt, error: ValueError) -> RequestOutput:
    return RequestOutput(
        request_id=request_id,
        prompt=prompt if isinstance(prompt, str) else None,
        prompt_token_ids=[],
        outputs=[CompletionOutput(index=0, text="", token_ids=[], finish_reason="error", delta="")],
        finished=True,
        metrics=None,
        usage=None,
        error=str(error),
    )
