"""Real engines for tests: small models and small limits, so that few programs are compiled, and ways to run them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.typing import DTypeLike

from checkpoints import open_checkpoint
from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.engine import Engine
from jaxinfer.model import Decoder
from jaxinfer.outputs import RequestOutput
from jaxinfer.programs import Draw
from jaxinfer.runner import ForwardStep, ModelRunner
from jaxinfer.sampling_params import SamplingParams
from pallas_kernels.paged_attention import Implementation
from tests.reference import FIXTURES

TINY_MISTRAL = FIXTURES / "tiny_mistral"


def decoder(path: Path, dtype: DTypeLike = np.float32, kernels: Implementation = "xla") -> Decoder:
    """The model at ``path``, its weights in ``dtype``."""
    checkpoint = open_checkpoint(path)
    weights = {name: jnp.asarray(array) for name, array in checkpoint.weights(np.dtype(dtype))}
    return Decoder(checkpoint.config, weights, kernels=kernels)


def random_decoder(config: ModelConfig, weights: Mapping[str, np.ndarray]) -> Decoder:
    """A model of the given arrays."""
    return Decoder(config, {name: jnp.asarray(array) for name, array in weights.items()}, kernels="xla")


def engine(
    model: Decoder,
    *,
    eos_token_ids: Sequence[int] = (),
    kv_dtype: DTypeLike = jnp.float32,
    few_programs: bool = False,
    **limits: int,
) -> Engine:
    """An engine without a tokenizer, every program compiled, or those that ``keep_few_programs`` keeps, of whose draws
    there is none with top-k or top-p."""
    small = {"max_model_len": 128, "num_kv_pages": 64, "page_size": 8, "windows": model.config.group_windows}
    config = EngineConfig(**(small | limits))
    runner = ModelRunner(model, config, kv_dtype=jnp.dtype(kv_dtype))
    if few_programs:
        keep_few_programs(runner)
        with _no_cuts(runner):
            runner.warm_up()
    else:
        runner.warm_up()
    return Engine(runner, config, tokenizer=None, eos_token_ids=eos_token_ids)


def keep_few_programs(runner: ModelRunner) -> None:
    """Leave only the programs of the most rows, without a chunk and with the longest: interpreted kernels compile
    slowly."""
    _keep(runner, (runner.programs.chunks[0], runner.programs.chunks[-1]))


def keep_one_program(runner: ModelRunner) -> None:
    """Leave only the program of the most rows and the longest chunk, which then runs for decode rows alone too."""
    _keep(runner, runner.programs.chunks[-1:])


@contextmanager
def few_programs(keep: Callable[[ModelRunner], None] = keep_few_programs) -> Iterator[None]:
    """Each engine that warms up meanwhile keeps few programs, for tests that cannot get hold of it before, and no draw
    with top-k or top-p."""
    warm_up = ModelRunner.warm_up

    def warm_up_few(runner: ModelRunner, progress: Callable[[int, int], None] | None = None) -> None:
        keep(runner)
        with _no_cuts(runner):
            warm_up(runner, progress)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRunner, "warm_up", warm_up_few)
        yield


def one_program() -> AbstractContextManager[None]:
    """``few_programs`` with only one, which runs for all steps."""
    return few_programs(keep_one_program)


@contextmanager
def _no_cuts(runner: ModelRunner) -> Iterator[None]:
    """Warmed up in here, a runner is without the draw with top-k and top-p, which takes two seconds to compile; a test
    that asks for one meets a KeyError."""
    programs = runner.programs
    compile_sample = programs._compile_sample

    def compile_uncut(draw: Draw, b: int) -> None:
        if draw is Draw.TRUNCATED:
            programs.sample[draw, b] = programs.sample[Draw.PLAIN, b]  # to run on padding
        else:
            compile_sample(draw, b)

    programs._compile_sample = compile_uncut  # type: ignore[method-assign]
    yield
    for b in programs.rows:
        del programs.sample[Draw.TRUNCATED, b]


def _keep(runner: ModelRunner, chunks: tuple[int, ...]) -> None:
    programs = runner.programs
    programs.rows, programs.chunks = programs.rows[-1:], chunks
    shapes = [(b, c) for b in programs.rows for c in programs.chunks]
    programs.layouts = {shape: programs.layouts[shape] for shape in shapes}


def count_mixed_steps(engine: Engine) -> list[bool]:
    """A list that gets an entry for every step from now on: whether it reads prompts beside decoding requests."""
    mixed, runner = [], engine._runner
    forward = runner.forward

    def recording(batch: Batch) -> ForwardStep:
        mixed.append(batch.num_decode_rows > 0 and batch.num_chunk_tokens > 0)
        return forward(batch)

    runner.forward = recording  # type: ignore[method-assign]
    return mixed


def finish(engine: Engine) -> dict[str, RequestOutput]:
    """Step until nothing is left; the outputs of the requests that ended, by id."""
    outputs = {}
    while engine.has_unfinished:
        outputs |= {output.request_id: output for output in engine.step() if output.finished}
    return outputs


def run_alone(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> RequestOutput:
    """One request with the engine to itself."""
    engine.add_request("alone", prompt, params)
    return finish(engine)["alone"]


def record_greedy(recorded: Engine, prompt: Sequence[int], num_tokens: int) -> tuple[list[int], np.ndarray]:
    """Greedy ids of a lone request, and the logits [num_tokens, V] that each was drawn from."""
    programs = recorded._runner.programs
    compiled, logits = programs.forward, []

    def recording(program: jax.stages.Compiled):
        def call(*arguments):
            result = program(*arguments)
            logits.append(np.asarray(result[0])[0])
            return result

        return call

    programs.forward = {shape: recording(program) for shape, program in compiled.items()}
    try:
        token_ids = run_alone(recorded, prompt, greedy(num_tokens)).outputs[0].token_ids
    finally:
        programs.forward = compiled
    return token_ids, np.stack(logits[-num_tokens:])


def greedy(max_tokens: int, **others: object) -> SamplingParams:
    """Parameters of a greedy request."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, **others)  # type: ignore[arg-type]
