"""Part ``speed.products``: the products of a 7B model, each format, from one row to a chunk, beside XLA's own.

Each launch adds the result of the one before it: so they follow each other, as in a model, and none can be left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.quantized_matmul import Config, Implementation, Weight, matmul
from scripts.on_gpu.compiling import Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.keys import random_key
from scripts.on_gpu.matrices import FORMATS, draw, num_bytes
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import Peaks, peaks_of_this_device
from scripts.on_gpu.products import Product, kernels_of, products_of
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.timing import num_launches, seconds_of

_TABLE = "Speed: products"
_ROWS = (1, 16, 64, 528)
_TINY_ROWS = (2,)
_ROWS_OF_XLA = (1, *_TINY_ROWS, 64)
"""With which XLA's own are timed too: it tries many GEMMs for each, and of many rows they are ours as well."""
DTYPE = jnp.dtype(jnp.bfloat16)


@dataclass(frozen=True)
class Operands:
    """What the launches of one program read: arrays, or their shapes. It is the same for every implementation.

    Attributes:
        arrays: for each launch its activations and its norm.
        weights: for each launch its matrix.
        first: what the first launch adds, [T, M].
    """

    arrays: list[dict[str, Any]]
    weights: list[Weight]
    first: Any

    @classmethod
    def shapes(
        cls, product: Product, weight_format: str, num_rows: int, peaks: Peaks, settings: Settings
    ) -> "Operands":
        """As many launches as are needed so that no matrix is in the L2 cache when it is read."""
        draw_one = partial(draw, random_key(0), weight_format, product.num_outputs, product.num_inputs)
        weight = jax.eval_shape(draw_one)
        plain = replace(product, residual=False)
        drawn = jax.eval_shape(lambda key: plain.operands(key, num_rows, DTYPE), random_key(0))
        arrays = {name: array for name, array in drawn.items() if name not in product.options}
        count = num_launches(num_bytes(weight), peaks.cache_bytes, settings)
        first = jax.ShapeDtypeStruct((num_rows, product.width), product.out_dtype or DTYPE)
        return cls([arrays] * count, [weight] * count, first)

    def filled(self, weights: list[Weight]) -> "Operands":
        """With these matrices and, as the same numbers for each launch but in arrays of their own, the rest."""
        rng = np.random.default_rng(0)  # of the host: a program for each shape would have to be compiled
        numbers = {name: rng.standard_normal(array.shape, np.float32) for name, array in self.arrays[0].items()}
        arrays = [{name: jax.device_put(x.astype(DTYPE)) for name, x in numbers.items()} for _ in weights]
        return Operands(arrays, weights, jax.device_put(np.zeros(self.first.shape, self.first.dtype)))

    @property
    def bytes_of_launch(self) -> int:
        """What one launch reads and writes at least."""
        return num_bytes((self.arrays[0], self.weights[0])) + 2 * num_bytes(self.first)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Of a ``program``."""
        return self.arrays, self.weights, self.first


def draw_weights(product: Product, weight_format: str, count: int) -> list[Weight]:
    """Different matrices."""
    shape = (weight_format, product.num_outputs, product.num_inputs)
    return [draw(random_key(seed), *shape) for seed in range(count)]


def program(
    product: Product, implementation: Implementation, config: Config | None = None
) -> Callable[[list[dict[str, Any]], list[Weight], jax.Array], jax.Array]:
    """The launches one after another, as a function of ``Operands.arguments``."""

    @jax.jit  # as a function of its own, it is traced and lowered once, not once for each launch
    def launch(arrays: dict[str, Any], weight: Weight, before: jax.Array) -> jax.Array:
        options = product.options | {"out_dtype": product.out_dtype, "implementation": implementation, "config": config}
        return matmul(weight=weight, residual=before, **arrays, **options)

    def run(arrays: list[dict[str, Any]], weights: list[Weight], result: jax.Array) -> jax.Array:
        for each, weight in zip(arrays, weights, strict=True):
            result = launch(each, weight, result)
        return result

    return run


def seconds_of_launch(compiled: Compiled | Exception, operands: Operands, settings: Settings) -> float:
    """Of one of the launches of a compiled ``program``.

    Raises:
        OutOfTimeError: the part's time is over.
        Exception: what kept it from being compiled.
    """
    if isinstance(compiled, Exception):
        raise compiled
    if settings.seconds_left <= 0:
        raise OutOfTimeError
    return seconds_of(lambda: compiled(*operands.arguments), settings) / len(operands.weights)


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each product, format and number of rows. A product is compiled as a whole, then timed."""
    peaks = peaks_of_this_device(settings)
    products = products_of("stories260k")[:1] if settings.tiny else _large_products()
    formats = FORMATS[1:2] if settings.tiny else FORMATS
    num_rows, num_done = (_TINY_ROWS if settings.tiny else _ROWS), 0
    try:
        for product in products:
            for row in _rows(product, formats, num_rows, peaks, settings):
                num_done += 1
                yield row
    except OutOfTimeError:
        yield Row.of_what_was_not_run(_TABLE, len(products) * len(formats) * len(num_rows) - num_done)


def _rows(
    product: Product, formats: Sequence[str], rows: Sequence[int], peaks: Peaks, settings: Settings
) -> Iterator[Row]:
    shapes = {
        (each, num_rows): Operands.shapes(product, each, num_rows, peaks, settings)
        for each in formats
        for num_rows in rows
    }
    programs = {
        (case, name): (program(product, name), operands.arguments)
        for case, operands in shapes.items()
        for name in _implementations(*case)
    }
    compiled = dict(compile_each(programs, settings))  # all of them first: compiling would disturb the timing
    for weight_format in formats:
        of_format = {num_rows: operands for (each, num_rows), operands in shapes.items() if each == weight_format}
        yield from _format_rows(product, weight_format, of_format, compiled, peaks, settings)


def _format_rows(
    product: Product,
    weight_format: str,
    shapes: dict[int, Operands],
    compiled: dict[Any, Compiled | Exception],
    peaks: Peaks,
    settings: Settings,
) -> Iterator[Row]:
    """Of one format, whose matrices are drawn here and are gone at the end: the next format needs the memory."""
    weights = draw_weights(product, weight_format, len(next(iter(shapes.values())).weights))
    for num_rows, operands in shapes.items():
        given, seconds, faults = operands.filled(weights), dict[str, float](), list[str]()
        for name in _implementations(weight_format, num_rows):
            try:
                seconds[name] = seconds_of_launch(compiled[(weight_format, num_rows), name], given, settings)
            except OutOfTimeError:
                raise
            except Exception as error:  # of this program: the memory may be too small for it, say
                faults.append(f"{name}: {reason(error)}")
        values = {"product": product.name, "weights": weight_format, "rows": num_rows}
        values |= _numbers(product, given, seconds, peaks) | {"fault": "; ".join(faults) or None}
        yield Row(_TABLE, values, is_fault=bool(faults))


def _implementations(weight_format: str, num_rows: int) -> tuple[Implementation, ...]:
    return kernels_of(weight_format) + (("xla",) if num_rows in _ROWS_OF_XLA else ())


def _large_products() -> list[Product]:
    """Those of a 7B model, but for the attention's output, which is like the one of queries, keys and values."""
    return [product for product in products_of("mistral-7b-v0.1") if product.name != "out"]


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
    } | ({"us of Triton": 1e6 * seconds["triton"]} if "triton" in seconds else {})
