"""The products of real models that are compiled for every target: every format, and every place in a layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from pallas_kernels.device import Device
from pallas_kernels.quantized_matmul import Config, Implementation, Int4Weight, Int8Weight, matmul, padded
from pallas_kernels.quantized_matmul.configs import Problem, find_config
from pallas_kernels.shapes import SHAPES
from scripts.gpu_static.loops import instructions_per_weight

FORMATS = ("bfloat16", "int8", "int4")


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a decoder.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        name: "qkv" (with the norm before it), "out" (with the residual), "gate and up" (norm and SwiGLU), "down"
            (residual), "head" (norm, 32,000 outputs in float32).
        weight: the format of the matrix.
        num_rows: T.
        group_size: inputs of an INT4 group, 0 for the whole row.
        bias: whether the product has one.
        dtype: of x.
        config: tile sizes, or None for the rule of thumb.
        implementation: the kernel.
    """

    model: str
    name: str
    weight: str
    num_rows: int = 16
    group_size: int = 64
    bias: bool = False
    dtype: str = "bfloat16"
    config: Config | None = None
    implementation: Implementation = "pallas"

    @property
    def label(self) -> str:
        """What it is, in the table's first columns."""
        notes = ["x in float32"] * (self.dtype == "float32") + ["bias"] * self.bias + ["wide tile"] * bool(self.config)
        group = f", groups of {self.group_size}" if self.group_size else ", a group a row"
        weight = self.weight + (group if self.weight == "int4" else "")
        return " | ".join((self.size, weight, str(self.num_rows), ", ".join(notes) or "-"))

    @property
    def size(self) -> str:
        """Whose product it is and how large, in a few words."""
        num_outputs, num_inputs = self.shape
        return f"{self.model}: {self.name}, {num_outputs} x {num_inputs}"

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        model = SHAPES[self.model]
        return ({"head": (32000, model.hidden_size)} | model.matrices)[self.name.replace(" and ", "_")]

    @property
    def has_norm(self) -> bool:
        """Whether the norm is in front of it."""
        return self.name not in ("out", "down")

    @property
    def has_swiglu(self) -> bool:
        """Whether the first half of the rows of the matrix are gates."""
        return self.name == "gate and up"

    def config_for(self, target: GpuTarget) -> Config:
        """The tiles that the product is cut into."""
        device = Device(platform="gpu", kind=target.device_kind, num_cores=target.core_count, compute_capability=None)
        x = self._array(self.num_rows, self.shape[1])
        problem = Problem.of(x, self._weight(), swiglu=self.has_swiglu)
        return self.config or find_config(problem, device)

    def matrix_rows_for(self, target: GpuTarget) -> int:
        """Rows of the matrix of one tile."""
        return self.config_for(target).block_outputs * (2 if self.has_swiglu else 1)

    def tile_for(self, target: GpuTarget) -> str:
        """Rows of x, rows of the matrix and inputs of a round, and its stages: "16 x 64 x 128, 4"."""
        config = self.config_for(target)
        return f"{config.block_rows} x {self.matrix_rows_for(target)} x {config.block_inputs}, {config.num_stages}"

    def weight_cost(self, target: GpuTarget, report: ProgramReport) -> float | None:
        """PTX instructions of the main loop for each weight; None in float32, which has no products of tiles."""
        (kernel,) = report.kernels
        assert kernel.code is not None
        if self.dtype == "float32":
            return None
        weights = self.matrix_rows_for(target) * self.config_for(target).block_inputs
        cost = instructions_per_weight(kernel.code.ptx, num_threads=kernel.num_threads, weights_per_round=weights)
        return round(cost, 1)

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        num_outputs, num_inputs = self.shape
        around: dict[str, Any] = {}
        if self.has_norm:
            around["norm"] = self._array(num_inputs)
        else:
            around["residual"] = self._array(self.num_rows, num_outputs)
        if self.bias:
            around["bias"] = self._array(num_outputs)

        def product(x: jax.Array, weight: Any, around: dict[str, jax.Array]) -> jax.Array:
            return matmul(
                x,
                weight,
                **around,
                norm_eps=1e-5,
                swiglu=self.has_swiglu,
                out_dtype="float32" if self.name == "head" else None,
                implementation=self.implementation,
                config=self.config,
            )

        return compile_for(target, product, self._array(self.num_rows, num_inputs), self._weight(), around).report

    def _weight(self) -> Any:
        num_outputs, num_inputs = self.shape
        columns = padded(num_inputs)
        if self.weight == "int8":
            values = jax.ShapeDtypeStruct((num_outputs, columns), jnp.int8)
            scales = jax.ShapeDtypeStruct((num_outputs,), jnp.float32)
            return Int8Weight(values=values, scales=scales, num_inputs=num_inputs)
        if self.weight == "int4":
            values = jax.ShapeDtypeStruct((num_outputs, columns // 2), jnp.uint8)
            groups = jax.ShapeDtypeStruct((num_outputs, columns // (self.group_size or columns)), jnp.float16)
            return Int4Weight(values=values, scales=groups, offsets=groups, num_inputs=num_inputs)
        return jax.ShapeDtypeStruct((num_outputs, num_inputs), jnp.dtype(self.weight))

    def _array(self, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.dtype(self.dtype))


def products() -> Iterator[Product]:
    """All products, in the order of the table."""
    model = "mistral-7b-v0.1"
    for weight in FORMATS:
        for name in ("qkv", "out", "gate and up", "down"):
            yield Product(model=model, name=name, weight=weight)
    yield Product(model=model, name="head", weight="bfloat16")
    for weight in FORMATS:
        for num_rows in (1, 32, 64):
            for name in ("gate and up", "down"):
                yield Product(model=model, name=name, weight=weight, num_rows=num_rows)
    for group_size in (32, 128, 0):
        for num_rows in (16, 64):
            yield Product(model=model, name="gate and up", weight="int4", group_size=group_size, num_rows=num_rows)
    yield Product(model=model, name="gate and up", weight="int4", num_rows=256)
    for weight in FORMATS:
        yield Product(model="qwen2.5-0.5b", name="qkv", weight=weight, bias=True)
        yield Product(model="smollm2-135m", name="gate and up", weight=weight)
    for weight in ("float32", "int8", "int4"):
        yield Product(model="smollm2-135m", name="down", weight=weight, dtype="float32")
    yield Product(model="stories260k", name="down", weight="float32", dtype="float32")
    wide = Config(block_rows=128, block_outputs=128, block_inputs=64, num_warps=8, num_stages=3)
    for weight in ("bfloat16", "int8"):
        yield Product(model=model, name="down", weight=weight, num_rows=512, config=wide)
