"""Whole forward programs as they were compiled: few launches, one command buffer, nothing large copied."""

import pytest

from jaxinfer.config import Quantization
from jaxinfer.gpu_compile import KernelKind
from scripts.gpu_static.forward import Step, steps
from scripts.gpu_static.tables import step_table
from tests.gpu_compile.reports import assert_on_the_page, assert_row_on_the_page, everywhere, on_targets, report

MOST_KERNELS_A_LAYER = {(0, 16): 5, (0, 8): 5, (0, 4): 5, (512, 16): 11, (512, 8): 13, (512, 4): 15}
"""By chunk tokens and bits of a weight. The products of so many tokens are XLA's; INT4 becomes bfloat16 before each."""

MOST_KERNELS_OF_INT8_PAGES = {"A10": 2, "A100-80": 3, "H100": 2}
"""Of a chunk and a layer, beside those: the scales of its heads and the scatter of them, and where XLA would rather
not rotate twice the heads themselves.
"""

MOST_KERNELS_BESIDE = 8
MOST_COPIED_BYTES = 64 * 1024
MOST_TEMPORARY_BYTES = {
    **dict.fromkeys([(0, 16), (0, 8), (0, 4)], 4 * 2**20),
    (512, 16): 48 * 2**20,
    (512, 8): 72 * 2**20,
    (512, 4): 264 * 2**20,
}
"""Likewise; the logits are not counted, which are a result. A chunk's is that of its activations, and with INT4 also
the largest matrix in bfloat16.
"""


def embedded(model, num_chunk_tokens=0):
    """A program whose embedding and head are INT4 too."""
    return Step(
        model=model,
        kernels="pallas",
        quantization=Quantization(bits=4, group_size=64),
        quantize_embeddings=True,
        num_chunk_tokens=num_chunk_tokens,
        num_layers=2,
    )


EMBEDDED = {embedded("smollm2-135m"): 2**20, embedded("mistral-7b-v0.1"): 2**20, embedded("smollm2-135m", 512): 2**24}
"""With the most temporary bytes, of which the table in bfloat16 alone would be 54 and 250 MiB; SmolLM2's is the head
too."""

STEPS = tuple(step for step in steps() if step.kernels == "pallas")
PORTABLE = Step(model="mistral-7b-v0.1", kernels="xla")

# Those with a chunk first: they are few, and so meet every target.
ON_TARGETS = on_targets(sorted(STEPS, key=lambda step: -step.num_chunk_tokens))
of_every_step = pytest.mark.parametrize(("step", "target"), ON_TARGETS)


def kind(step):
    return step.num_chunk_tokens, 16 if step.quantization is None else step.quantization.bits


@of_every_step
def test_a_step_is_one_command_buffer(step, target):
    found = report(step, target)
    assert (found.num_command_buffers, found.num_outside_command_buffers) == (1, 0)


@of_every_step
def test_a_step_launches_few_kernels(step, target):
    found = report(step, target)
    ours = [kernel for kernel in found.kernels if kernel.kind is KernelKind.PALLAS]
    assert {kernel.name.split("__")[0] for kernel in ours} <= {"attend", "merge", "multiply"}
    assert len(found.kernels_named("attend")) == step.num_layers * (2 if step.num_chunk_tokens else 1)
    assert len(found.kernels_named("merge")) in (0, step.num_layers if step.num_chunk_tokens else 0)
    most = MOST_KERNELS_A_LAYER[kind(step)]
    if step.int8_cache and step.num_chunk_tokens:
        most += MOST_KERNELS_OF_INT8_PAGES[target]
    assert len(found.kernels) <= step.num_layers * most + MOST_KERNELS_BESIDE


@pytest.mark.parametrize(("step", "target"), [each for each in ON_TARGETS if not each.values[0].num_chunk_tokens])
def test_a_decoding_layer_is_four_products_and_an_attention(step, target):
    found = report(step, target)
    assert len(found.kernels_named("multiply")) == 4 * step.num_layers + 1
    assert len(found.kernels_named("attend")) == step.num_layers
    assert len(found.kernels) - 5 * step.num_layers <= MOST_KERNELS_BESIDE


@of_every_step
def test_a_step_copies_no_weight_and_no_cache(step, target):
    found = report(step, target)
    assert sum(copy.num_bytes for copy in found.copies) <= MOST_COPIED_BYTES < step.layer_weight_bytes
    assert found.alias_bytes >= step.cache_bytes
    assert found.temporary_bytes <= MOST_TEMPORARY_BYTES[kind(step)]


@of_every_step
def test_no_kernel_of_a_step_spills(step, target):
    assert [kernel.name for kernel in report(step, target).kernels if kernel.spill_bytes] == []


@pytest.mark.parametrize(("step", "target"), on_targets([*EMBEDDED]))
def test_of_a_quantized_embedding_only_the_rows_of_the_tokens_become_floats(step, target):
    """In one kernel, or for a chunk in three; and the head is one of ours."""
    found = report(step, target)
    most = step.num_layers * MOST_KERNELS_A_LAYER[kind(step)] + MOST_KERNELS_BESIDE
    assert (found.num_command_buffers, found.num_outside_command_buffers) == (1, 0)
    assert len(found.kernels) <= most + (2 if step.num_chunk_tokens else 0)
    assert len(found.kernels_named("multiply")) == (1 if step.num_chunk_tokens else 4 * step.num_layers + 1)
    assert sum(copy.num_bytes for copy in found.copies) <= MOST_COPIED_BYTES < step.layer_weight_bytes
    assert found.temporary_bytes <= EMBEDDED[step]


def test_the_portable_implementation_is_seen_to_break_these_limits():
    found = report(PORTABLE, "A10")
    assert found.num_command_buffers > 1
    assert found.num_outside_command_buffers > 0
    assert len(found.kernels) > 32 * MOST_KERNELS_A_LAYER[0, 16] + MOST_KERNELS_BESIDE


@pytest.mark.parametrize(("step", "target"), [*ON_TARGETS, pytest.param(PORTABLE, "A10", id="portable")])
def test_a_row_of_the_page_is_up_to_date(step, target):
    assert_row_on_the_page(step_table, step, target)


# Compiles every program for every target.
@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert_on_the_page("forward", step_table((each, everywhere(each)) for each in steps()))
