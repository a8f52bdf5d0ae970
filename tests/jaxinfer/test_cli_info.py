"""``jaxinfer info``: what it counts."""

import json
from math import prod

import pytest

from checkpoints.safetensors_source import SafetensorsSource
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


def test_info_refuses_a_dtype_that_it_does_not_know():
    result = jaxinfer("info", "smollm2-135m", "--dtype", "int4")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: dtype is 'int4'; it must be 'float32' or 'bfloat16'\n"
