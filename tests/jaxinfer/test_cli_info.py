"""``jaxinfer info``: what it counts."""

import json
from dataclasses import replace
from math import prod

import jax.numpy as jnp
import pytest
from gguf.constants import GGMLQuantizationType

from checkpoints.quantization import abstract_weights, num_bytes
from checkpoints.safetensors_source import SafetensorsSource
from jaxinfer.config import Quantization
from jaxinfer.weights import formats_of, weight_shapes
from tests.checkpoints import writers
from tests.command_line import ROOT, jaxinfer

FIXTURES = ROOT / "tests" / "fixtures"


def count_in_header(file):
    """Numbers in a safetensors file: 8 bytes of length, then JSON with the shape of every tensor."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def test_info_counts_what_the_file_holds_and_reads_no_tensor(monkeypatch):
    def read(*arguments):
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(SafetensorsSource, "read", read)
    folder = FIXTURES / "tiny_mistral"
    written = json.loads((folder / "config.json").read_text())
    result = jaxinfer("info", folder, "--dtype", "float32", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    count = count_in_header(folder / "model.safetensors")
    assert (found["layout"], found["num_parameters"], found["weight_bytes"]) == ("huggingface", count, 4 * count)
    assert found["kv_bytes_per_token"] == (
        written["num_hidden_layers"] * 2 * written["num_key_value_heads"] * written["head_dim"] * 4
    )
    assert found["config"]["windows"] == [written["sliding_window"]] * written["num_hidden_layers"]


@pytest.mark.parametrize(
    ("preset", "num_parameters", "kv_elements"),
    [
        ("mistral-7b-v0.1", 7_241_732_096, 32 * 2 * 8 * 128),  # the count that its model card gives
        ("smollm2-135m", 134_515_008, 30 * 2 * 3 * 64),
    ],
)
def test_info_of_a_preset_needs_no_weights(preset, num_parameters, kv_elements):
    found = json.loads(jaxinfer("info", preset, "--json").stdout)
    assert (found["layout"], found["path"], found["dtype"]) == ("preset", None, "bfloat16")
    assert (found["num_parameters"], found["weight_bytes"]) == (num_parameters, 2 * num_parameters)
    assert found["kv_bytes_per_token"] == 2 * kv_elements
    table = jaxinfer("info", preset).stdout
    assert f"{num_parameters:,}" in table
    assert f"{2 * kv_elements:,} bytes per token" in table


CONFIG = replace(writers.CONFIG, vocab_size=41, hidden_size=96, intermediate_size=160)
INT4 = Quantization(bits=4, group_size=32)


@pytest.fixture
def q4_1(tmp_path):
    """A GGUF in Q4_1, but for a head in Q8_0 and values of one layer in float16."""
    kinds = {"output.weight": GGMLQuantizationType.Q8_0, "blk.1.attn_v.weight": GGMLQuantizationType.F16}
    return writers.write_gguf(
        tmp_path / "m.gguf",
        writers.gguf_tensors(writers.known_weights(CONFIG), CONFIG),
        writers.gguf_metadata(CONFIG, "llama"),
        matrices=GGMLQuantizationType.Q4_1,
        others=kinds,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_info_of_a_quantized_file_counts_what_stays_quantized_and_names_the_rest(q4_1, dtype):
    found = json.loads(jaxinfer("info", q4_1, "--dtype", dtype, "--json").stdout)
    kept = dict.fromkeys(set(formats_of(CONFIG, INT4)) - {"layers.1.qkv"} | {"embedding"}, INT4)
    assert found["num_parameters"] == sum(map(prod, weight_shapes(CONFIG).values()))
    assert found["weight_bytes"] == num_bytes(abstract_weights(CONFIG, jnp.dtype(dtype), kept))
    assert {(*each["types"], each["count"], str(each["kept"])) for each in found["quantized"]} == {
        ("Q4_1", 8, str({"bits": 4, "group_size": 32})),
        ("Q4_1", 1, "None"),
        ("Q8_0", 1, "None"),
    }
    rows = [" ".join(line.split()) for line in jaxinfer("info", q4_1, "--dtype", dtype).stdout.splitlines()]
    assert "quantized 8 matrices stay int4 in groups of 32 (Q4_1), 2 are dequantized (Q4_1, Q8_0)" in rows
    [weights] = [row for row in rows if row.startswith("weights, as stored")]
    assert f" {found['weight_bytes']:,} bytes" in weights and weights.endswith(f", floats in {dtype}")


def test_info_refuses_a_dtype_that_it_does_not_know():
    result = jaxinfer("info", "smollm2-135m", "--dtype", "int4")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: dtype is 'int4'; it must be 'float32' or 'bfloat16'\n"
