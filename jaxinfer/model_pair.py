"""Two models that read the same text side by side, to be compared token by token.

One scheduler makes the steps of both: their limits and the windows of their layers are equal, so the pages that a step
is given are right for either cache. Each window of the text is a request for the log-probabilities of its prompt, as in
``jaxinfer.scoring``. Nothing is drawn, so of each model one program is compiled, and one that compares their hidden
states, a tile of tokens at a time.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Float32, Int32

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig, ModelConfig, Quantization
from jaxinfer.divergence import Divergences, diverge
from jaxinfer.engine import Engine
from jaxinfer.loading import LoadedModel, Numbers, build_engine
from jaxinfer.pair_limits import resolve_pair_pages, resolve_pair_window
from jaxinfer.prompt_scores import TokensToScore
from jaxinfer.request import Request
from jaxinfer.runner import ModelRunner
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from jaxinfer.scoring import seqs_for_windows, windows

_PARAMS = SamplingParams(max_tokens=0, prompt_logprobs=0)


@dataclass(frozen=True, eq=False)
class Member:
    """A model of a pair: what was opened, and what runs it."""

    opened: LoadedModel
    runner: ModelRunner


@dataclass(frozen=True, eq=False)
class _Side:
    """A model of a pair before its weights are read: what was opened, and the arguments of ``Numbers.choose``."""

    opened: LoadedModel
    held: dict[str, Any]

    @property
    def numbers(self) -> Numbers:
        return Numbers.choose(self.opened, **self.held)

    def build(self, **settings: Any) -> tuple[Engine, ModelRunner]:
        return build_engine(self.opened, **self.held, **settings)


@dataclass(frozen=True, eq=False)
class ModelPair:
    """A reference and the model that is held against it, both with their weights on the device.

    Attributes:
        reference, model: with equal limits.
        scheduler: makes the steps of both.
        window: tokens that are read together.
    """

    reference: Member
    model: Member
    scheduler: Scheduler
    window: int

    @classmethod
    def load(
        cls,
        model: LoadedModel,
        against: LoadedModel,
        *,
        window: int | None = None,
        dtype: str = "auto",
        quantization: str | None = "stored",
        group_size: int | None = None,
        quantize_embeddings: bool = False,
        kv_dtype: str = "auto",
        against_dtype: str | None = None,
        against_quantization: str | None = None,
        **settings: Any,
    ) -> "ModelPair":
        """Put the weights of both on the device, and compile what reads a text with them.

        Args:
            model: what is to be judged.
            against: the reference.
            window: tokens of a window; None: the least of 2048, ``max_model_len`` and what each model takes.
            dtype, quantization, group_size, quantize_embeddings, kv_dtype: of the model, as in ``LLM``. By itself it is
                held as it is stored, so that its bytes and products are those of its format on any device.
            against_dtype: of the reference, whose cache has its own dtype; None: as the model's.
            against_quantization: likewise, as ``quantization``. By itself the reference is held as floats, as which it
                computes the same and faster on a CPU, in more memory.
            settings: of both: ``kernels``; ``max_model_len``, which bounds the window; ``max_num_seqs``, windows that
                are read at the same time (None: what fills a step); ``num_kv_pages``, of each cache;
                ``memory_fraction``, for both together; and the other limits of ``LLM``.

        Raises:
            ValueError: the models differ in the size of their vocabulary or in the windows of their layers, a value
                is out of range, or the memory does not hold both; no weights are read then.
            KernelSelfTestError: a GPU kernel computes wrong values on this device.
        """
        _check_alike(model.config, against.config)
        held = {
            "dtype": dtype,
            "quantization": Quantization.named(quantization, group_size),
            "quantize_embeddings": quantize_embeddings,
            "kv_dtype": kv_dtype,
        }
        reference_held = {
            "dtype": dtype if against_dtype is None else against_dtype,
            "quantization": Quantization.named(against_quantization, None),
        }
        return cls._build(_Side(model, held), _Side(against, reference_held), window, **settings)

    @classmethod
    def _build(
        cls,
        model: "_Side",
        against: "_Side",
        window: int | None,
        *,
        kernels: str = "auto",
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        num_kv_pages: int | None = None,
        memory_fraction: float | None = None,
        **limits: Any,
    ) -> "ModelPair":
        """Settle the limits of both before the weights of either are read; the settings are those of ``load``."""
        sides = (model, against)
        length = resolve_pair_window(window, max_model_len, [side.opened.config for side in sides])
        limits["max_model_len"] = length
        limits["max_num_seqs"] = seqs_for_windows(length) if max_num_seqs is None else max_num_seqs
        if num_kv_pages is None:
            asked = EngineConfig(num_kv_pages=1, windows=model.opened.config.group_windows, **limits)
            numbers = [(side.opened.config, side.numbers) for side in sides]
            num_kv_pages = resolve_pair_pages(asked, numbers, memory_fraction)
        engine, reference_runner = against.build(kernels=kernels, num_kv_pages=num_kv_pages, **limits)
        _, runner = model.build(kernels=kernels, num_kv_pages=num_kv_pages, **limits)
        for each in (reference_runner, runner):
            each.programs.compile_reading()
        members = Member(against.opened, reference_runner), Member(model.opened, runner)
        return cls(*members, engine.scheduler, length)

    def read(
        self, token_ids: Sequence[int], on_window: Callable[[int, int], None] | None = None
    ) -> tuple[Divergences, int]:
        """What both say of each token of a text but the first of every window, and the number of windows.

        Args:
            token_ids: the text, at least two ids of the models' vocabulary.
            on_window: called with (windows that are read, windows in all) after each.
        """
        begins: dict[Request, int] = {}
        is_scored = np.zeros(len(token_ids), bool)
        for part in windows(len(token_ids), self.window, self.window):
            prompt = [*token_ids[part.begin : part.end]]
            request = Request(str(part.begin), prompt, _PARAMS, frozenset(), max_new_tokens=0, seed=0)
            begins[request] = part.begin
            is_scored[part.first_scored : part.end] = True
        found, num_done = np.zeros((len(token_ids), 4), np.float32), 0
        with closing(self._batches(begins)) as batches:
            for batch in batches:
                wanted, numbers = self._step(batch)
                for i, span in wanted.spans.items():
                    first = begins[batch.rows[i].request] + batch.rows[i].start + 1
                    found[first : first + span.stop - span.start] = numbers[span]
                for _ in self.scheduler.commit(batch, [0] * len(batch.rows)):
                    num_done += 1
                    if on_window is not None:
                        on_window(num_done, len(begins))
        return Divergences.read(found[is_scored]), len(begins)

    def _batches(self, requests: Collection[Request]) -> Generator[Batch, None, None]:
        """The steps of these requests, each to be committed before the next; if one fails, nothing is left running."""
        try:
            for request in requests:
                self.scheduler.add(request)
            while self.scheduler.has_unfinished:
                batch = self.scheduler.schedule()
                assert batch is not None, "nothing is in flight, so something can run"
                yield batch
        finally:
            for request in requests:
                self.scheduler.end(request)

    def _step(self, batch: Batch) -> tuple[TokensToScore, Float32[np.ndarray, "N 4"]]:
        """Which tokens a step scores, and what ``diverge`` gives of them; waits for the device."""
        runners = self.reference.runner, self.model.runner
        hidden = [runner.forward(batch).hidden for runner in runners]
        programs = runners[0].programs
        [layout] = programs.layouts.values()
        wanted = TokensToScore.of(batch, layout)
        weights = [runner.programs.weights for runner in runners]
        tiles = [self._compare(*weights, *hidden, *jax.device_put(tile)) for tile in wanted.tiles(programs.tile)]
        return wanted, np.concatenate([np.zeros((0, 4), np.float32), *tiles])[: len(wanted.places)]

    @cached_property
    def _compare(self) -> Callable[..., Float[Array, "tile 4"]]:
        """From the hidden states of both after a step; the logits of a tile at a time, for they are large."""

        def compare(
            reference_weights: tuple[Array, ...],
            weights: tuple[Array, ...],
            reference_hidden: Float[Array, "T E"],
            hidden: Float[Array, "T F"],
            places: Int32[Array, "tile"],
            token_ids: Int32[Array, "tile"],
        ) -> Float[Array, "tile 4"]:
            reference = self.reference.runner.programs.model(reference_weights).logits(reference_hidden[places])
            logits = self.model.runner.programs.model(weights).logits(hidden[places])
            return diverge(reference, logits, token_ids)

        return jax.jit(compare)


def _check_alike(model: ModelConfig, against: ModelConfig) -> None:
    """Raises ValueError where two models cannot be compared step by step."""
    if model.vocab_size != against.vocab_size:
        raise ValueError(
            f"the model has {model.vocab_size} tokens and the reference {against.vocab_size}; "
            "only models of one vocabulary can be compared"
        )
    if model.group_windows != against.group_windows:
        raise ValueError(
            f"the layers of the model have the windows {model.group_windows} and those of the reference "
            f"{against.group_windows}; only models with the same ones can be compared"
        )
