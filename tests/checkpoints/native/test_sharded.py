"""A native checkpoint over the devices of a mesh: here four that the host pretends to have, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.checkpoints.native.models import INT4, INT8, write_native

CHECK = """
import sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import Mesh
from checkpoints.native.restore import restore
from tests.checkpoints.native.models import BFLOAT16, INT4, INT8, assert_equal_weights, drawn

devices = jax.devices()
assert len(devices) == 4
mesh = Mesh(np.array(devices).reshape(1, 4), ("data", "model"))
for name, quantization in (("int4", INT4), ("int8", INT8), ("floats", None)):
    folder = Path(sys.argv[1]) / name
    for axis, parts in ((None, 4), ("data", 1))[: 2 if name == "int4" else 1]:
        weights = dict(restore(folder, mesh=mesh, axis=axis))
        assert_equal_weights(iter(weights.items()), drawn(quantization))
        for weight in weights.values():
            is_matrix = len(weight.shape) == 2
            for array in jax.tree.leaves(weight):
                held = {shard.device: shard.data.shape for shard in array.addressable_shards}
                rows = array.shape[0] // (parts if is_matrix else 1)
                assert held == {device: (rows, *array.shape[1:]) for device in devices}, (held, array.shape)
mesh = Mesh(np.array(devices[:3]), ("model",))
for weight in dict(restore(folder, mesh=mesh, dtype=np.float32)).values():
    assert weight.dtype == np.float32
    is_cut = weight.ndim == 2 and weight.shape[0] % 3 == 0
    assert weight.sharding.is_fully_replicated != is_cut
try:
    restore(folder, mesh=mesh, axis="data")
except ValueError as error:
    assert "axis is 'data'; the mesh has ('model',)" in str(error)
else:
    raise AssertionError("a mesh without that axis")
from checkpoints import open_checkpoint
with jax.default_device(devices[2]):
    for _, weight in open_checkpoint(folder).weights(BFLOAT16):
        assert weight.devices() == {devices[2]}
print("checked")
"""


def test_every_device_holds_its_rows(tmp_path):
    for name, quantization in (("int4", INT4), ("int8", INT8), ("floats", None)):
        write_native(tmp_path / name, quantization)
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK, tmp_path],
        cwd=Path(__file__).parents[3],
        env=flags,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "checked\n", "")
