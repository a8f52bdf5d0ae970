"""The INT4 products of real models as the Triton kernel computes them; ``python -m`` writes their table of the page.

On its own, since it needs jax_triton and so the environment with the oldest jax, which the other tables do not have.
"""

from collections.abc import Iterator
from functools import partial

from jaxinfer.gpu_compile import KernelReport
from pallas_kernels.quantized_matmul.jax_triton_gpu.launch import DEFAULT
from scripts.gpu_static.loops import instructions_per_weight
from scripts.gpu_static.matmul import Product
from scripts.gpu_static.tables import PAGE, Reports, compile_everywhere, each_target, with_table
from scripts.markdown import markdown_table

WEIGHTS_PER_ROUND = DEFAULT.block_outputs * DEFAULT.block_inputs * DEFAULT.num_warps
"""Of one program: in a round of the loop each warp takes a piece of the inputs of all its outputs."""


def products() -> Iterator[Product]:
    """All products, in the order of the table."""
    product, mistral = partial(Product, weight="int4", implementation="triton"), "mistral-7b-v0.1"
    for model in (mistral, "smollm2-135m"):
        for name in ("qkv", "out", "gate and up", "down"):
            yield product(model=model, name=name)
    for num_rows in (1, 64):
        yield product(model=mistral, name="gate and up", num_rows=num_rows)
        yield product(model=mistral, name="down", num_rows=num_rows)
    for group_size in (32, 128, 0):
        yield product(model=mistral, name="down", group_size=group_size)


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
                f"{product.size} | {product.num_rows} | {product.group_size or 'row'}",
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
