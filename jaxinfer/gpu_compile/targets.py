"""The GPUs that programs are compiled for, as XLA and JAX want to hear of them.

A GPU that is not there is a handful of numbers: XLA takes them as a ``GpuTargetConfigProto`` in text form, JAX as a
device kind and a number of cores, ptxas as an architecture. This is the one place that knows them, and it imports
neither JAX nor anything else, so that memory can be planned for a GPU where JAX has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, kw_only=True)
class GpuTarget:
    """One kind of GPU.

    The numbers are those that XLA keeps of the GPU itself where it does (A100, H100, H200). Of the A10 XLA knows only
    its larger sister, the A6000: the rest is from NVIDIA's data sheets, as all of the L4 and the L40S is.

    Attributes:
        name: what a user writes, "A10"; the key in ``TARGETS``.
        device_kind: what ``jax.devices()[0].device_kind`` is on a machine that has one.
        compute_capability: (major, minor).
        core_count: streaming multiprocessors.
        fpus_per_core: float32 units of one multiprocessor.
        clock_rate_ghz: boost clock in GHz.
        memory_bytes: the memory that XLA sees, in bytes.
        memory_bandwidth: of that memory, in bytes per second.
        l2_cache_bytes: size of the L2 cache in bytes.
        threads_per_core: threads that one multiprocessor holds at a time.
        shared_memory_per_core: bytes of one multiprocessor.
        shared_memory_per_block: bytes that one thread block may ask for (the opt-in limit, not the default 48 KiB).
    """

    name: str
    device_kind: str
    compute_capability: tuple[int, int]
    core_count: int
    fpus_per_core: int
    clock_rate_ghz: float
    memory_bytes: int
    memory_bandwidth: int
    l2_cache_bytes: int
    threads_per_core: int
    shared_memory_per_core: int
    shared_memory_per_block: int

    @property
    def architecture(self) -> str:
        """What ptxas calls it, "sm_86"; from Hopper on with the features that only this generation has, "sm_90a"."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def config_text(self) -> str:
        """The ``GpuTargetConfigProto`` of this GPU in text form.

        The driver is CUDA 12.9's, like the runtime: of an unknown one XLA believes that it cannot record calls of
        others (jax_triton's kernels, libraries) in a CUDA graph.
        """
        major, minor = self.compute_capability
        return f"""
            platform_name: "CUDA"
            device_description_str: "{self.device_kind}"
            dnn_version_info {{ major: 9 minor: 8 }}
            runtime_version {{ major: 12 minor: 9 }}
            gpu_device_info {{
                cuda_compute_capability {{ major: {major} minor: {minor} }}
                driver_version: "12.9.0"
                core_count: {self.core_count}
                fpus_per_core: {self.fpus_per_core}
                clock_rate_ghz: {self.clock_rate_ghz}
                device_memory_size: {self.memory_bytes}
                memory_bandwidth: {self.memory_bandwidth}
                l2_cache_size: {self.l2_cache_bytes}
                threads_per_warp: 32
                threads_per_block_limit: 1024
                threads_per_core_limit: {self.threads_per_core}
                block_dim_limit_x: 2147483647
                block_dim_limit_y: 65535
                block_dim_limit_z: 65535
                shared_memory_per_block: {48 * _KIB}
                shared_memory_per_block_optin: {self.shared_memory_per_block}
                shared_memory_per_core: {self.shared_memory_per_core}
                registers_per_block_limit: 65536
                registers_per_core_limit: 65536
            }}
        """


_A10 = GpuTarget(
    name="A10",
    device_kind="NVIDIA A10",
    compute_capability=(8, 6),
    core_count=72,
    fpus_per_core=128,
    clock_rate_ghz=1.695,
    memory_bytes=24 * 10**9,
    memory_bandwidth=600 * 10**9,
    l2_cache_bytes=6 * _MIB,
    threads_per_core=1536,
    shared_memory_per_core=100 * _KIB,
    shared_memory_per_block=99 * _KIB,
)
_L4 = GpuTarget(
    name="L4",
    device_kind="NVIDIA L4",
    compute_capability=(8, 9),
    core_count=58,
    fpus_per_core=128,
    clock_rate_ghz=2.04,
    memory_bytes=24 * 10**9,
    memory_bandwidth=300 * 10**9,
    l2_cache_bytes=48 * _MIB,
    threads_per_core=1536,
    shared_memory_per_core=100 * _KIB,
    shared_memory_per_block=99 * _KIB,
)
_L40S = GpuTarget(
    name="L40S",
    device_kind="NVIDIA L40S",
    compute_capability=(8, 9),
    core_count=142,
    fpus_per_core=128,
    clock_rate_ghz=2.52,
    memory_bytes=48 * 10**9,
    memory_bandwidth=864 * 10**9,
    l2_cache_bytes=96 * _MIB,
    threads_per_core=1536,
    shared_memory_per_core=100 * _KIB,
    shared_memory_per_block=99 * _KIB,
)
_A100_40 = GpuTarget(
    name="A100-40",
    device_kind="NVIDIA A100-SXM4-40GB",
    compute_capability=(8, 0),
    core_count=108,
    fpus_per_core=64,
    clock_rate_ghz=1.41,
    memory_bytes=42331013120,
    memory_bandwidth=1555_200_000_000,
    l2_cache_bytes=40 * _MIB,
    threads_per_core=2048,
    shared_memory_per_core=164 * _KIB,
    shared_memory_per_block=163 * _KIB,
)
_A100_80 = GpuTarget(
    name="A100-80",
    device_kind="NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    core_count=108,
    fpus_per_core=64,
    clock_rate_ghz=1.41,
    memory_bytes=85100068864,
    memory_bandwidth=2039_040_000_000,
    l2_cache_bytes=40 * _MIB,
    threads_per_core=2048,
    shared_memory_per_core=164 * _KIB,
    shared_memory_per_block=163 * _KIB,
)
_H100 = GpuTarget(
    name="H100",
    device_kind="NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    core_count=132,
    fpus_per_core=128,
    clock_rate_ghz=1.98,
    memory_bytes=84942979072,
    memory_bandwidth=3352_320_000_000,
    l2_cache_bytes=50 * _MIB,
    threads_per_core=2048,
    shared_memory_per_core=228 * _KIB,
    shared_memory_per_block=227 * _KIB,
)
_H200 = GpuTarget(
    name="H200",
    device_kind="NVIDIA H200",
    compute_capability=(9, 0),
    core_count=132,
    fpus_per_core=128,
    clock_rate_ghz=1.98,
    memory_bytes=151397597184,
    memory_bandwidth=4800 * 10**9,
    l2_cache_bytes=50 * _MIB,
    threads_per_core=2048,
    shared_memory_per_core=228 * _KIB,
    shared_memory_per_block=227 * _KIB,
)

TARGETS: Mapping[str, GpuTarget] = MappingProxyType(
    {target.name: target for target in (_A10, _L4, _L40S, _A100_40, _A100_80, _H100, _H200)}
)
