"""Part ``correctness.products``: every format of weights on real shapes, with many rows and few, again and again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.device import current_device
from pallas_kernels.quantized_matmul import Implementation, Weight, matmul
from pallas_kernels.quantized_matmul.configs import find_config
from scripts.on_gpu.compiling import UNTUNED, Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.keys import random_key
from scripts.on_gpu.matrices import ALL_FORMATS, FORMATS, draw
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.product_reference import on_device, on_host, row_error
from scripts.on_gpu.products import Product, kernels_of, products_of
from scripts.on_gpu.settings import Settings

_TABLE = "Correctness: products"
LIMITS = {"float32": 2e-5, "bfloat16": 2e-2}
"""By the type of the activations, relative to a row."""
LIMITS_OF_XLA = LIMITS | {"bfloat16": 4e-2}
"""XLA rounds an INT4 matrix to bfloat16, and the product before SiLU: two roundings of up to 0.4 % more, which gates
make larger. The worst row of INT4 with one group a row is off by 0.025.
"""

_MODELS = ("mistral-7b-v0.1", "smollm2-135m", "qwen2.5-0.5b", "stories260k")
_FEWER_MODELS = ("qwen2.5-0.5b",)
"""For the formats that are not timed."""
_ROWS = (1, 3, 8, 16, 33, 64, 128, 528)
_DEFINITION = "the definition, against NumPy"
_TINY_FORMATS = ("float32", "int4/64")
_REPEATS = 50
_LARGE = 2**25
"""Numbers of a matrix from which on it is read ``_REPEATS_OF_LARGE`` times."""
_REPEATS_OF_LARGE = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program that is compared with the definition.

    Attributes:
        product: the shape, and what stands around it.
        weight_format: of the matrix.
        num_rows: T.
        dtype: of the activations.
        kernel: the implementation that is compared.
    """

    product: Product
    weight_format: str
    num_rows: int
    dtype: str
    kernel: Implementation

    @property
    def is_xla(self) -> bool:
        """Whether XLA computes it: with many rows the kernel's place is taken by its GEMMs."""
        problem = self.product.problem(self.weight_format, self.num_rows, jnp.dtype(self.dtype))
        leaves_it = self.kernel == "pallas" and find_config(problem, current_device()).method == "library"
        return self.kernel == "xla" or leaves_it

    @property
    def kind(self) -> dict[str, Any]:
        """What it has in common with the other cases of a row."""
        limits = LIMITS_OF_XLA if self.is_xla else LIMITS
        return {
            "kernel": f"XLA in place of {self.kernel}" if self.is_xla and self.kernel != "xla" else self.kernel,
            "weights": self.weight_format,
            "activations": self.dtype,
            "limit": limits[self.dtype],
        }

    def measure(self, key: jax.Array) -> jax.Array:
        """The error for a random matrix and random inputs."""
        weight_key, operands_key = jax.random.split(key)
        drawn = draw(weight_key, self.weight_format, self.product.num_outputs, self.product.num_inputs)
        weight = jax.lax.optimization_barrier(drawn)  # as in Product.operands
        arguments = self.product.operands(operands_key, self.num_rows, jnp.dtype(self.dtype))
        result = matmul(weight=weight, **arguments, out_dtype=self.product.out_dtype, implementation=self.kernel)
        return row_error(result, on_device(weight=weight, **arguments))

    def __str__(self) -> str:
        return f"{self.product.model} {self.product.name}, {self.num_rows} rows"


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each kind of case, before them one for how far the definition on the device is from that on the host.

    All cases are compiled in one go: one kind after another would leave cores idle at the end of each.
    """
    peaks_of_this_device(settings)
    formats = _TINY_FORMATS if settings.tiny else ALL_FORMATS
    yield from _host_rows(formats, settings)
    cases = [
        case
        for weight_format in formats
        for kernel in kernels_of(weight_format)
        for case in sorted(_cases(weight_format, kernel, settings), key=lambda case: (case.dtype, case.is_xla))
    ]
    programs = {case: (case.measure, (random_key(0),)) for case in cases}
    compiled = compile_each(programs, settings, UNTUNED)
    for kind, of_kind in groupby(compiled, key=lambda found: found[0].kind):
        yield _row(kind, of_kind, settings)


def _cases(weight_format: str, kernel: Implementation, settings: Settings) -> Iterator[Case]:
    """Each product of each model, the numbers of rows taken in turn; then everything around the product at once."""
    dtype = "float32" if weight_format == "float32" or settings.tiny else "bfloat16"
    case = partial(Case, weight_format=weight_format, dtype=dtype, kernel=kernel)
    if settings.tiny:
        yield case(product=_busy(products_of("stories260k")[1]), num_rows=3)
        return
    models = _MODELS if weight_format in FORMATS else _FEWER_MODELS
    products = [product for model in models for product in products_of(model)]
    first = ALL_FORMATS.index(weight_format)  # so that a product does not have one number of rows in all formats
    for product, num_rows in zip(products, cycle(_ROWS[first:] + _ROWS[:first]), strict=False):
        yield case(product=product, num_rows=num_rows)
    busy = _busy(products_of("smollm2-135m")[2])
    for num_rows in (1, 16, 64, 528):
        yield case(product=busy, num_rows=num_rows)
    if weight_format in ("int8", "int4/64") and kernel == "pallas":
        yield case(product=busy, num_rows=16, dtype="float32")


def _busy(product: Product) -> Product:
    """The product with everything around it."""
    return replace(product, norm=True, bias=True, residual=True, swiglu=True)


def _row(kind: dict[str, Any], cases: Iterable[tuple[Case, Compiled | Exception]], settings: Settings) -> Row:
    """The cases of one kind; one that does not compile or run counts as infinitely wrong."""
    errors, faults, launches, num_not_run = dict[Case, float](), list[str](), 0, 0
    for case, program in cases:
        try:
            errors[case], count = _worst(case, program, settings)
            launches += count
        except OutOfTimeError:
            num_not_run += 1
        except Exception as error:  # of this case; the next one may be right
            errors[case] = np.inf
            faults.append(f"{case}: {reason(error)}")
    worst = max(errors, key=lambda case: errors[case], default=None)
    is_wrong = worst is not None and errors[worst] > kind["limit"]
    values = kind | {
        "cases": len(errors),
        "not run": num_not_run,
        "launches": launches,
        "largest error": None if worst is None else errors[worst],
        "ok": False if is_wrong else None if num_not_run else True,
        "worst case": None if worst is None else str(worst),
        "faults": "; ".join(faults[:3]) or None,
    }
    return Row(_TABLE, values, is_fault=is_wrong, num_not_run=num_not_run)


def _worst(case: Case, program: Compiled | Exception, settings: Settings) -> tuple[float, int]:
    """The largest error of many random inputs, and how many they were."""
    if isinstance(program, Exception):
        raise program
    if settings.seconds_left <= 0:
        raise OutOfTimeError
    size = case.product.num_outputs * case.product.num_inputs
    repeats = 2 if settings.tiny else _REPEATS_OF_LARGE if size >= _LARGE else _REPEATS
    errors = [program(random_key(seed)) for seed in range(repeats)]
    return max(map(float, errors)), repeats


def _host_rows(formats: Sequence[str], settings: Settings) -> Iterator[Row]:
    """The definition on the device against NumPy, so that the two do not rest on the same mistake."""
    product = _busy(products_of("stories260k" if settings.tiny else "smollm2-135m")[2])
    arguments = product.operands(random_key(4), 8, jnp.dtype("float32"))
    arrays = {name: value for name, value in arguments.items() if name not in product.options}
    define = partial(on_device, **product.options)
    weights = {each: draw(random_key(3), each, product.num_outputs, product.num_inputs) for each in formats}

    def defined(arrays: dict[str, Any], weight: Weight) -> jax.Array:
        return define(weight=weight, **arrays)

    programs = {each: (defined, (arrays, weight)) for each, weight in weights.items()}
    for weight_format, program in compile_each(programs, settings, UNTUNED):
        values = {"kernel": _DEFINITION, "weights": weight_format, "activations": "float32"}
        if isinstance(program, OutOfTimeError):
            yield Row(_TABLE, values | {"cases": 0, "not run": 1}, num_not_run=1)
            continue
        if isinstance(program, Exception):
            raise program
        expected = jnp.asarray(on_host(arguments, weights[weight_format]), jnp.float32)
        error = float(row_error(program(arrays, weights[weight_format]), expected))
        ok = error <= LIMITS["float32"]
        values |= {"limit": LIMITS["float32"], "cases": 1, "not run": 0, "largest error": error, "ok": ok}
        yield Row(_TABLE, values, is_fault=not ok)
