"""Conversions: what a native checkpoint says is what the source says, in the format that was asked for."""

import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from checkpoints import open_checkpoint
from checkpoints.huggingface_writer import write_huggingface
from checkpoints.quantization import on_device
from checkpoints.random_weights import random_weights
from jaxinfer import conversion
from jaxinfer.config import Quantization
from jaxinfer.conversion import Calibration, convert
from jaxinfer.weights import formats_of
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight
from tests.checkpoints.writers import CONFIG
from tests.command_line import installed_command, jaxinfer, process
from tests.vocabularies import write_byte_level_json

TEXT = "It was a dark and stormy night; the rain fell in torrents. " * 4
INT4 = Quantization(bits=4, group_size=32)


@pytest.fixture
def source(tmp_path):
    config = replace(CONFIG, vocab_size=512)
    weights = ((name, np.asarray(array)) for name, array in random_weights(config, np.float32, seed=0))
    write_huggingface(tmp_path / "source", config, weights)
    write_byte_level_json(tmp_path / "source")
    return tmp_path / "source"


def weights_of(folder, formats=None):
    checkpoint = open_checkpoint(folder)
    return dict(checkpoint.weights(np.float32, checkpoint.stored if formats is None else formats))


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("options", "quantization"),
    [({"quantize": "int8"}, Quantization(bits=8)), ({"quantize": "int4", "group_size": 32, "method": "rtn"}, INT4)],
)
@pytest.mark.parametrize("embeddings", [False, True])
def test_matrices_are_those_that_a_load_would_round(tmp_path, source, options, quantization, embeddings):
    convert(source, tmp_path / "made", dtype="float32", quantize_embeddings=embeddings, **options)
    floats, found = weights_of(source), weights_of(tmp_path / "made")
    formats = formats_of(open_checkpoint(source).config, quantization, embeddings=embeddings)
    assert open_checkpoint(tmp_path / "made").stored == formats
    assert list(found) == list(floats)
    for name, array in floats.items():
        assert_equal(found[name], on_device(name, array, formats.get(name)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_of_floats_stays_one(tmp_path, source, dtype):
    convert(source, tmp_path / "made", dtype=dtype)
    made = open_checkpoint(tmp_path / "made")
    assert made.stored == {}
    expected = dict(open_checkpoint(source).weights(np.dtype(dtype) if dtype == "float32" else "bfloat16"))
    for name, array in made.weights(np.float32):
        np.testing.assert_array_equal(np.asarray(array), expected[name].astype(np.float32))


def test_what_is_quantized_already_is_neither_dequantized_nor_rounded_again(tmp_path, source, monkeypatch):
    convert(source, tmp_path / "first", quantize="int4", group_size=32)
    monkeypatch.setattr(conversion, "on_device", lambda name, weight, quantization: _untouched(weight, quantization))
    convert(tmp_path / "first", tmp_path / "second")
    first, second = weights_of(tmp_path / "first"), weights_of(tmp_path / "second")
    for name, weight in first.items():
        assert_equal(second[name], weight)


def _untouched(weight, quantization):
    assert isinstance(weight, Int4Weight | Int8Weight) == (quantization is not None)
    return weight


def test_a_model_that_was_opened_by_a_relative_path_is_read_from_elsewhere_too(tmp_path, source, monkeypatch):
    convert(source, tmp_path / "made", quantize="int8")
    expected = {folder: weights_of(tmp_path / folder) for folder in ("source", "made")}
    monkeypatch.chdir(tmp_path)
    opened = {folder: open_checkpoint(Path(folder)) for folder in expected}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for folder, checkpoint in opened.items():
        for name, weight in checkpoint.weights(np.float32, checkpoint.stored):
            assert_equal(weight, expected[folder][name])


def test_a_checkpoint_says_how_its_numbers_were_made(tmp_path, source):
    """What is kept was made as the source says, whatever was asked for."""
    methods = []
    for quantize, group_size in ((None, None), ("int4", 32), ("int4", 32), (None, None), ("int8", None)):
        convert(source, tmp_path / f"made{len(methods)}", quantize=quantize, group_size=group_size)
        source = tmp_path / f"made{len(methods)}"
        methods.append(open_checkpoint(source).method)
    assert methods == [None, "rtn", "rtn", "rtn", "rtn"]


def test_numbers_that_were_made_in_two_ways_are_said_to_be(tmp_path, source):
    checkpoint = SimpleNamespace(method="gptq", stored={"layers.0.qkv": INT4})
    both = {"layers.0.qkv": INT4, "embedding": INT4}
    assert conversion._methods(checkpoint, both, None) == "gptq and rtn"
    assert conversion._methods(checkpoint, checkpoint.stored, None) == "gptq"
    assert conversion._methods(checkpoint, {"embedding": INT4}, "rtn") == "rtn"
    assert conversion._methods(checkpoint, {}, None) is None
    checkpoint.method = None
    assert conversion._methods(checkpoint, checkpoint.stored, None) is None


def test_another_format_is_rounded_from_what_the_source_means(tmp_path, source):
    convert(source, tmp_path / "int4", quantize="int4", group_size=32)
    convert(tmp_path / "int4", tmp_path / "int8", quantize="int8")
    meant = weights_of(tmp_path / "int4", {})
    for name, weight in weights_of(tmp_path / "int8").items():
        if isinstance(weight, Int8Weight):
            assert_equal(weight, on_device(name, meant[name], Quantization(bits=8)))


def test_the_calibration_is_that_of_the_text(tmp_path, source, monkeypatch):
    seen = []
    real = conversion.calibrated
    monkeypatch.setattr(conversion, "calibrated", lambda *given: seen.append(given) or real(*given))
    calibration = Calibration(text=TEXT, num_tokens=100)
    convert(source, tmp_path / "made", quantize="int4", group_size=32, method="gptq", calibration=calibration)
    [(config, _, formats, windows)] = seen
    assert config == open_checkpoint(source).config
    assert formats == open_checkpoint(tmp_path / "made").stored == formats_of(config, INT4)
    assert windows.shape[0] * windows.shape[1] <= 100
    convert(source, tmp_path / "rounded", quantize="int4", group_size=32)
    made, rounded = weights_of(tmp_path / "made"), weights_of(tmp_path / "rounded")
    assert any((made[name].values != rounded[name].values).any() for name in formats)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "int3"}, "quantize is 'int3'; it must be 'int8' or 'int4'"),
        ({"quantize": "stored"}, "quantize is 'stored'"),
        ({"group_size": 64}, "group_size is 64, and only quantization 'int4' has groups"),
        ({"quantize": "int4", "group_size": 48}, "group_size is 48"),
        ({"quantize_embeddings": True}, "quantize_embeddings goes with quantize"),
        ({"method": "awq", "quantize": "int4"}, "method is 'awq'; it must be 'rtn' or 'gptq'"),
        ({"method": "rtn"}, "method is 'rtn', and nothing is quantized"),
        ({"method": "gptq", "quantize": "int8"}, "'gptq', which goes with quantize 'int4' and nothing else"),
        ({"method": "gptq"}, "'gptq', which goes with quantize 'int4' and nothing else"),
        ({"method": "gptq", "quantize": "int4"}, "'gptq' needs a calibration text"),
        ({"quantize": "int4", "calibration": Calibration(text=TEXT)}, "no other method takes one"),
        ({"dtype": "float16"}, "dtype is 'float16'; it must be 'bfloat16' or 'float32'"),
        (
            {"quantize": "int4", "method": "gptq", "calibration": Calibration(text="a")},
            "the calibration text is too short: it has 1 tokens, and 2 are needed",
        ),
        (
            {"quantize": "int4", "method": "gptq", "calibration": Calibration(text=TEXT, num_tokens=1)},
            "calibration tokens is 1",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, source, options, message):
    with pytest.raises(ValueError, match=message):
        convert(source, tmp_path / "made", **options)
    assert [entry.name for entry in tmp_path.iterdir()] == ["source"]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_hands_on_what_it_is_told(tmp_path, monkeypatch):
    text, given = tmp_path / "text.txt", {}
    text.write_text(TEXT)

    def note(*places, progress, **options):
        given.update(options, places=places)

    monkeypatch.setattr(conversion, "convert", note)
    quantization = ["--quantize", "int4", "--group-size", "32", "--method", "gptq", "--quantize-embeddings"]
    read = ["--calibration", text, "--calibration-tokens", 64]
    done = jaxinfer("convert", "some/model", tmp_path, *quantization, *read, "--dtype", "float32", "--overwrite")
    assert (done.exit_code, done.stderr) == (0, "")
    assert given == {
        "places": ("some/model", str(tmp_path)),
        "quantize": "int4",
        "group_size": 32,
        "quantize_embeddings": True,
        "method": "gptq",
        "calibration": Calibration(text=TEXT, num_tokens=64),
        "dtype": "float32",
        "overwrite": True,
    }


def test_a_destination_that_is_there_is_refused_and_replaced_only_when_asked(tmp_path, source):
    made = tmp_path / "made"
    assert jaxinfer("convert", source, made).exit_code == 0
    refused = jaxinfer("convert", source, made, "--quantize", "int8")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: ") and str(made) in refused.stderr
    assert open_checkpoint(made).stored == {}
    assert jaxinfer("convert", source, made, "--quantize", "int8", "--overwrite").exit_code == 0
    assert open_checkpoint(made).stored != {}
    assert jaxinfer("convert", source, source, "--overwrite").exit_code == 2
    assert open_checkpoint(source).layout == "huggingface"


def test_what_becomes_of_matrices_is_told_once_and_a_short_text_is_warned_of(tmp_path, source):
    """Once: a library that a conversion imports makes the root logger print. What is kept is not calibrated."""
    jaxinfer("convert", source, tmp_path / "first", "--quantize", "int4", "--group-size", 32)
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    rounding = ["--quantize", "int4", "--group-size", "32", "--method", "gptq", "--calibration"]
    done = jaxinfer("convert", tmp_path / "first", tmp_path / "second", *rounding, text)
    assert done.exit_code == 0
    warning, fates = done.stderr.splitlines()
    assert warning.startswith("warning: the calibration text has ") and " tokens and not 16384: " in warning
    assert fates == "weights: 8 matrices stay int4 in groups of 32 (native)"


@pytest.mark.slow
def test_ctrl_c_ends_a_conversion_and_leaves_nothing(tmp_path, source):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    options = ["--quantize", "int4", "--group-size", "32", "--method", "gptq", "--calibration"]
    arguments = ["jaxinfer", "convert", str(source), str(tmp_path / "made"), *options, str(text)]
    code = f"import sys; sys.argv = {arguments}; {installed_command()}"
    with process(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while not (tmp_path / ".made.partial" / "new").exists():
            assert running.poll() is None
            time.sleep(0.01)
        time.sleep(1)  # into the calibration
        running.send_signal(signal.SIGINT)
        output, told = running.communicate(timeout=60)
    assert output == ""
    assert told.startswith("warning: the calibration text has") and told.endswith("\n\ninterrupted\n")
    assert running.returncode == 130
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["source", "text.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "made"], "model is 'nowhere', which does not exist"),
        (["source", "made", "--calibration-tokens", "9"], "--calibration-tokens goes with --calibration"),
        (["source", "made", "--calibration", "no.txt"], "the calibration text no.txt cannot be read"),
        (["source", "no/such/made"], "no/such"),
    ],
)
def test_a_bad_command_is_one_line_and_exit_code_2(tmp_path, source, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = jaxinfer("convert", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
