"""The products as problems of tuning."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxinfer.gpu_compile.targets import TARGETS
from pallas_kernels.device import Device
from pallas_kernels.quantized_matmul import Config
from pallas_kernels.quantized_matmul.configs import Problem, find_config
from pallas_kernels.tuned import round_up
from scripts.on_gpu import product_speed
from scripts.on_gpu.compiling import Compiled
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.product_correctness import LIMITS, LIMITS_OF_XLA
from scripts.on_gpu.product_reference import on_device, row_error
from scripts.on_gpu.products import Product, products_of
from scripts.on_gpu.settings import Settings

NO_TABLE = Path("no such folder")
"""Where a config is looked up that is to come from the rule of thumb."""

_LEAST_SHARED_BYTES = 99 * 1024


@dataclass(frozen=True, kw_only=True)
class ProductTuning:
    """One product, in one format, with one number of rows.

    Attributes:
        product: the matrix and what stands around it.
        weight_format: as in ``matrices.ALL_FORMATS``.
        num_rows: T, a power of two, since the table has no others.
    """

    product: Product
    weight_format: str
    num_rows: int

    def __str__(self) -> str:
        return f"{self.product.model} {self.product.name}, {self.weight_format}, {self.num_rows} rows"

    @property
    def problem(self) -> Problem:
        """As ``matmul`` looks it up."""
        return self.product.problem(self.weight_format, round_up(self.num_rows), product_speed.DTYPE)

    @property
    def donated(self) -> tuple[int, ...]:
        """None: a product writes a new array."""
        return ()

    def candidates(self, device: Device) -> list[Config]:
        """The rule of thumb, XLA's own where there are many rows, and tiles of all sizes that shared memory holds."""
        weight = self.problem.weight
        configs = [
            Config(block_rows=rows, block_outputs=outputs, block_inputs=inputs, num_warps=warps, num_stages=stages)
            for rows, outputs, inputs, warps, stages in combinations(
                _tile_rows(self.num_rows), (32, 64, 128), (128,) if weight == "int4" else (64, 128), (4, 8), (3, 5)
            )
        ]
        room = _shared_bytes(device)
        matrix_bytes = self.problem.matrix_rows_per_output * self.problem.bytes_per_weight
        fused = [config for config in configs if _bytes_of_tiles(config, matrix_bytes) <= room]
        library = [Config(block_rows=64, method="library")] if self.num_rows >= 16 else []
        return [find_config(self.problem, device, NO_TABLE), *library, *fused]

    def limit(self, config: Config) -> float:
        """Of a row."""
        return (LIMITS_OF_XLA if config.method == "library" else LIMITS)[product_speed.DTYPE.name]

    def shapes(self, settings: Settings) -> tuple[Any, ...]:
        """As ``product_speed.Operands.arguments``."""
        return self._operands(settings).arguments

    def program(self, config: Config) -> Callable[..., Any]:
        """As ``product_speed.program``."""
        return product_speed.program(self.product, "pallas", config)

    def bench(self, settings: Settings) -> "ProductBench":
        """Random arrays."""
        shapes = self._operands(settings)
        weights = product_speed.draw_weights(self.product, self.weight_format, len(shapes.weights))
        operands = shapes.filled(weights)

        @jax.jit
        def define(arrays: dict[str, Any], weight: Any) -> jax.Array:
            return on_device(weight=weight, **arrays, **self.product.options)

        expected = sum(
            (define(arrays, weight) for arrays, weight in zip(operands.arrays, weights, strict=True)),
            start=jnp.zeros(operands.first.shape, jnp.float32),
        )
        return ProductBench(operands, expected)

    def _operands(self, settings: Settings) -> product_speed.Operands:
        peaks = peaks_of_this_device(settings)
        return product_speed.Operands.shapes(self.product, self.weight_format, self.num_rows, peaks, settings)


@dataclass(frozen=True)
class ProductBench:
    """Arrays of one product, and the sum of its launches by the definition."""

    operands: product_speed.Operands
    expected: jax.Array

    def error(self, program: Compiled) -> float:
        """Of a row of the sum."""
        return float(row_error(program(*self.operands.arguments), self.expected))

    def seconds(self, program: Compiled, settings: Settings) -> float:
        """Of one launch."""
        return product_speed.seconds_of_launch(program, self.operands, settings)


def product_cases(models: Sequence[str], formats: Sequence[str], num_rows: Sequence[int]) -> Iterator[ProductTuning]:
    """Every problem once, those of few rows first: a decode step is made of them."""
    seen = set[Problem]()
    for rows, weight_format, model in combinations(num_rows, formats, models):
        for product in products_of(model):
            case = ProductTuning(product=product, weight_format=weight_format, num_rows=rows)
            if case.problem not in seen:
                seen.add(case.problem)
                yield case


def _tile_rows(num_rows: int) -> list[int]:
    """Those with which the rows are one tile or two; of many rows, the largest."""
    return [size for size in (16, 32, 64, 128) if size // 2 < num_rows <= 2 * size] or [16 if num_rows < 16 else 128]


def _shared_bytes(device: Device) -> int:
    """Shared memory of a block."""
    known = (target.shared_memory_per_block for target in TARGETS.values() if target.device_kind == device.kind)
    return next(known, _LEAST_SHARED_BYTES)


def _bytes_of_tiles(config: Config, matrix_bytes: float) -> float:
    """Of the tiles that are under way at a time, with so many bytes of the matrix for one output and one input."""
    matrix, rows = matrix_bytes * config.block_outputs, 2 * config.block_rows
    return config.num_stages * config.block_inputs * (matrix + rows)
