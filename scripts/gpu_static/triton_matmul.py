"""The INT4 products of real models as the Triton kernel computes them; ``python -m`` writes their table of the page.

On its own, since it needs jax_triton and so the environment with the oldest jax, which the other tables do not have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxinfer.gpu_compile import GpuTarget, KernelReport, ProgramReport, compile_for
from pallas_kernels.quantized_matmul import Int4Weight, matmul, padded
from pallas_kernels.quantized_matmul.jax_triton_gpu.launch import DEFAULT
from pallas_kernels.shapes import SHAPES
from scripts.gpu_static.loops import instructions_per_weight
from scripts.gpu_static.tables import PAGE, Reports, compile_everywhere, each_target, markdown_table, with_table

WEIGHTS_PER_ROUND = DEFAULT.block_outputs * DEFAULT.block_inputs * DEFAULT.num_warps
"""Of one program: in a round of the loop each warp takes a piece of the inputs of all its outputs."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a decoder layer.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        name: "qkv" (with the norm before it), "out" (with the residual), "gate and up" (norm and SwiGLU), "down"
            (residual).
        num_rows: T.
        group_size: inputs of a group, 0 for the whole row.
    """

    model: str
    name: str
    num_rows: int = 16
    group_size: int = 64

    @property
    def label(self) -> str:
        """What it is, in the table's first columns."""
        num_outputs, num_inputs = self.shape
        size = f"{self.model}: {self.name}, {num_outputs} x {num_inputs}"
        return " | ".join((size, str(self.num_rows), str(self.group_size or "row")))

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        model = SHAPES[self.model]
        attended = model.num_heads * model.head_dim
        return {
            "qkv": (attended + 2 * model.num_kv_heads * model.head_dim, model.hidden_size),
            "out": (model.hidden_size, attended),
            "gate and up": (2 * model.intermediate_size, model.hidden_size),
            "down": (model.hidden_size, model.intermediate_size),
        }[self.name]

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        num_outputs, num_inputs = self.shape
        around: dict[str, Any] = {"residual": _bfloat16(self.num_rows, num_outputs)}
        if self.name in ("qkv", "gate and up"):
            around = {"norm": _bfloat16(num_inputs)}

        def product(x: jax.Array, weight: Int4Weight, around: dict[str, jax.Array]) -> jax.Array:
            swiglu = self.name == "gate and up"
            return matmul(x, weight, **around, norm_eps=1e-5, swiglu=swiglu, implementation="triton")

        return compile_for(target, product, _bfloat16(self.num_rows, num_inputs), self._weight(), around).report

    def _weight(self) -> Int4Weight:
        num_outputs, num_inputs = self.shape
        columns = padded(num_inputs)
        groups = jax.ShapeDtypeStruct((num_outputs, columns // (self.group_size or columns)), jnp.float16)
        values = jax.ShapeDtypeStruct((num_outputs, columns // 2), jnp.uint8)
        return Int4Weight(values=values, scales=groups, offsets=groups, num_inputs=num_inputs)


def _bfloat16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def products() -> Iterator[Product]:
    """All products, in the order of the table."""
    for model in ("mistral-7b-v0.1", "smollm2-135m"):
        for name in ("qkv", "out", "gate and up", "down"):
            yield Product(model=model, name=name)
    for num_rows in (1, 64):
        yield Product(model="mistral-7b-v0.1", name="gate and up", num_rows=num_rows)
        yield Product(model="mistral-7b-v0.1", name="down", num_rows=num_rows)
    for group_size in (32, 128, 0):
        yield Product(model="mistral-7b-v0.1", name="down", group_size=group_size)


def weight_cost(kernel: KernelReport) -> float:
    """PTX instructions of the main loop for each weight."""
    assert kernel.code is not None
    return instructions_per_weight(kernel.code.ptx, num_threads=kernel.num_threads, weights_per_round=WEIGHTS_PER_ROUND)


def product_table(rows: list[tuple[Product, Reports]]) -> str:
    """The table of products."""
    return markdown_table(
        "product, N x K | rows | group | registers | shared KB | instructions a weight | blocks | kernels",
        [
            [
                product.label,
                each_target(reports, lambda report: report.kernels[0].code.registers),
                each_target(reports, lambda report: round(report.kernels[0].shared_bytes / 1024)),
                each_target(reports, lambda report: round(weight_cost(report.kernels[0]), 1)),
                each_target(reports, lambda report: report.kernels[0].grid[0] * report.kernels[0].grid[1]),
                each_target(reports, lambda report: len(report.kernels)),
            ]
            for product, reports in rows
        ],
    )


def main() -> None:
    """Compile every product for every target."""
    table = product_table([(each, compile_everywhere(each)) for each in products()])
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), "triton", table), encoding="utf-8")


if __name__ == "__main__":
    main()
