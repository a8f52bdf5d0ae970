"""Part ``speed.products``: the products of a 7B model, each format, from one row to a chunk, beside XLA's own.

Each launch adds the result of the one before it: so they follow each other, as in a model, and none can be left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.quantized_matmul import Config, Implementation, Weight, matmul
from scripts.on_gpu.compiling import Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.matrices import FORMATS, draw, num_bytes
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import Peaks, peaks_of_this_device
from scripts.on_gpu.products import Product, products_of
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.timing import num_launches, seconds_of

_TABLE = "Speed: products"
_ROWS = (1, 16, 64, 528)
_DTYPE = jnp.dtype(jnp.bfloat16)


@dataclass(frozen=True)
class Operands:
    """What the launches of one program read, a list of one element for each; the same for every implementation.

    Attributes:
        arrays: activations and norms.
        weights: the matrices.
        first: what the first launch adds, [T, M].
    """

    arrays: list[dict[str, Any]]
    weights: list[Weight]
    first: jax.Array

    @property
    def bytes_of_launch(self) -> int:
        """What one launch reads and writes at least."""
        return num_bytes((self.arrays[0], self.weights[0])) + 2 * num_bytes(self.first)


def draw_weights(product: Product, weight_format: str, peaks: Peaks, settings: Settings) -> list[Weight]:
    """As many matrices as a program needs so that none is in the L2 cache when it is read."""
    shape = (weight_format, product.num_outputs, product.num_inputs)
    first = draw(jax.random.key(0), *shape)
    count = num_launches(num_bytes(first), peaks.cache_bytes, settings)
    return [first, *(draw(jax.random.key(seed), *shape) for seed in range(1, count))]


def draw_operands(product: Product, weights: list[Weight], num_rows: int) -> Operands:
    """Activations and norms for each of the matrices."""
    plain = replace(product, residual=False)
    draw_arrays = jax.jit(
        lambda key: {k: v for k, v in plain.operands(key, num_rows, _DTYPE).items() if k not in plain.options}
    )
    arrays = [draw_arrays(key) for key in jax.random.split(jax.random.key(1), len(weights))]
    return Operands(arrays, weights, jnp.zeros((num_rows, product.width), _DTYPE))


def program(
    product: Product, operands: Operands, implementation: Implementation, config: Config | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The launches one after another, and their arguments."""

    @jax.jit  # as a function of its own, it is traced and lowered once, not once for each launch
    def launch(arrays: dict[str, Any], weight: Weight, before: jax.Array) -> jax.Array:
        options = product.options | {"implementation": implementation, "config": config}
        return matmul(weight=weight, residual=before, **arrays, **options)

    def run(arrays: list[dict[str, Any]], weights: list[Weight], result: jax.Array) -> jax.Array:
        for each, weight in zip(arrays, weights, strict=True):
            result = launch(each, weight, result)
        return result

    return run, (operands.arrays, operands.weights, operands.first)


def seconds_of_launch(compiled: Compiled, operands: Operands, settings: Settings) -> float:
    """Of one of the launches of a compiled ``program``."""
    arguments = (operands.arrays, operands.weights, operands.first)
    return seconds_of(lambda: compiled(*arguments), settings) / len(operands.weights)


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each product, format and number of rows. A format of a product is compiled as a whole, then timed."""
    peaks = peaks_of_this_device(settings)
    products = products_of("stories260k")[:1] if settings.tiny else products_of("mistral-7b-v0.1")
    formats = FORMATS[1:2] if settings.tiny else FORMATS
    for product in products:
        for weight_format in formats:
            if settings.seconds_left <= 0:
                return
            yield from _rows(product, weight_format, peaks, settings)


def _rows(product: Product, weight_format: str, peaks: Peaks, settings: Settings) -> Iterator[Row]:
    weights = draw_weights(product, weight_format, peaks, settings)
    operands = {t: draw_operands(product, weights, t) for t in ((2,) if settings.tiny else _ROWS)}
    implementations: tuple[Implementation, ...] = ("pallas", "xla")
    programs = {
        (num_rows, implementation): program(product, operands[num_rows], implementation)
        for num_rows in operands
        for implementation in implementations
    }
    compiled = dict(compile_each(programs, settings))  # all of them first: a compiler would disturb the timing
    for num_rows, given in operands.items():
        seconds, faults = dict[str, float](), list[str]()
        for implementation in implementations:
            found = compiled[num_rows, implementation]
            try:
                if isinstance(found, Exception):
                    raise found
                seconds[implementation] = seconds_of_launch(found, given, settings)
            except OutOfTimeError:
                return
            except Exception as error:  # of this program: the memory may be too small for it, say
                faults.append(f"{implementation}: {reason(error)}")
        values = {"product": product.name, "weights": weight_format, "rows": num_rows}
        values |= _numbers(product, given, seconds, peaks) | {"fault": "; ".join(faults) or None}
        yield Row(_TABLE, values, is_fault=bool(faults))


def _numbers(product: Product, operands: Operands, seconds: dict[str, float], peaks: Peaks) -> dict[str, Any]:
    own, other = seconds.get("pallas"), seconds.get("xla")
    flops = 2 * len(operands.first) * product.num_outputs * product.num_inputs
    return {
        "us": own and 1e6 * own,
        "MB": operands.bytes_of_launch / 1e6,
        "GB/s": own and operands.bytes_of_launch / own / 1e9,
        "% of bandwidth": own and peaks.share_of_bandwidth(operands.bytes_of_launch, own),
        "% of bf16 peak": own and peaks.share_of_flops(flops, own),
        "us of XLA": other and 1e6 * other,
        "XLA / ours": other / own if own and other else None,
    }
