"""What is written is what is read: arrays to the bit, the model's config, and where they come from."""

import hashlib
import json
import logging
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import checkpoints.native.orbax_parts
from checkpoints import open_checkpoint
from checkpoints.description import Description
from checkpoints.native.orbax_parts import _quiet, load_part, part_shapes, save_part
from jaxinfer.config import Quantization
from jaxinfer.llm import LLM
from jaxinfer.loading import open_model
from jaxinfer.weights import formats_of
from pallas_kernels.quantized_matmul import dequantize
from tests.checkpoints.native.models import (
    BFLOAT16,
    EVERYTHING,
    INT4,
    INT8,
    ROWS,
    assert_equal_weights,
    drawn,
    write_native,
)
from tests.checkpoints.writers import hf_tensors, known_weights, write_hf
from tests.engines import few_programs, greedy

FLOAT32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    return {quantization: write_native(folder / str(quantization), quantization) for quantization in (None, INT8, INT4)}


@pytest.mark.parametrize("quantization", [None, INT8, INT4])
def test_every_weight_comes_back_to_the_bit(folders, quantization):
    checkpoint = open_checkpoint(folders[quantization])
    assert checkpoint.layout == "native"
    assert checkpoint.method is None
    assert checkpoint.config == EVERYTHING
    assert (checkpoint.eos_token_ids, checkpoint.eos_spellings) == ((2, 7), ("<|end|>",))
    assert checkpoint.stored == formats_of(EVERYTHING, quantization, embeddings=True)
    assert_equal_weights(checkpoint.weights(BFLOAT16, checkpoint.stored), drawn(quantization))


def test_a_group_of_a_whole_row_and_float32_also_rounded(tmp_path):
    checkpoint = open_checkpoint(write_native(tmp_path / "it", ROWS, FLOAT32))
    assert set(checkpoint.stored.values()) == {ROWS}
    assert checkpoint.dtypes["layers.1.qkv"] == ("native",)
    assert checkpoint.dtypes["final_norm"] == ("float32",)
    assert_equal_weights(checkpoint.weights(np.float32, checkpoint.stored), drawn(ROWS, FLOAT32))
    rounded = (
        (name, jnp.asarray(np.asarray(weight).astype(BFLOAT16)) if isinstance(weight, jax.Array) else weight)
        for name, weight in drawn(ROWS, FLOAT32)
    )
    assert_equal_weights(checkpoint.weights(BFLOAT16, checkpoint.stored), rounded)
    with pytest.raises(ValueError, match="dtype is float16; weights can be loaded as float32 or bfloat16"):
        checkpoint.weights(np.float16)


@pytest.mark.parametrize("quantization", [INT4, pytest.param(INT8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_what_is_wanted_otherwise_comes_as_floats(folders, quantization, which):
    """In float32 from the numbers that are stored, whether floats are wanted or another format."""
    checkpoint = open_checkpoint(folders[quantization])
    others = ["layers.0.qkv"] if which == "one" else list(checkpoint.stored)
    as_stored = {name: stored for name, stored in checkpoint.stored.items() if name not in others}
    for formats in (as_stored, as_stored | dict.fromkeys(others, ROWS)):
        found = checkpoint.weights(np.float32, formats)
        for (name, weight), (_, original) in zip(found, drawn(quantization), strict=True):
            if name in as_stored:
                assert type(weight) is type(original)
            else:
                assert weight.dtype == np.float32
                floats = original if isinstance(original, jax.Array) else dequantize(original, jnp.dtype(np.float32))
                np.testing.assert_array_equal(weight, floats)


def test_the_manifest_tells_what_was_converted_and_lists_every_file(tmp_path):
    source = write_hf(tmp_path / "source", hf_tensors(known_weights()))
    weights = open_checkpoint(source)
    folder = write_native(
        tmp_path / "it",
        None,
        FLOAT32,
        weights=((name, jnp.asarray(array)) for name, array in weights.weights(np.float32)),
        description=weights,
        source=source,
        source_name="owner/name",
        formats={},
    )
    manifest = json.loads((folder / "jaxinfer.json").read_text())
    read = (source / "model.safetensors").read_bytes()
    assert manifest["source"] == {
        "name": "owner/name",
        "layout": "huggingface",
        "files": {"model.safetensors": {"num_bytes": len(read), "sha256": hashlib.sha256(read).hexdigest()}},
    }
    assert manifest["versions"]["jax"] == jax.__version__
    assert list(manifest["versions"]) == ["jaxinfer", "jax", "orbax-checkpoint", "numpy"]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del contents["jaxinfer.json"]
    assert manifest["files"] == {
        name: {"num_bytes": len(content), "crc32": zlib.crc32(content)} for name, content in contents.items()
    }
    parts = {"embedding", "layers.0", "layers.1", "final_norm", "lm_head"}
    assert {path.name for path in (folder / "weights").iterdir()} == parts


@pytest.mark.parametrize(
    "name", ["./some where/it/", *(pytest.param(n, marks=pytest.mark.slow) for n in ("it", "../it"))]
)
def test_a_native_checkpoint_at_a_relative_path_can_be_converted_again(tmp_path, monkeypatch, name):
    """Most paths that somebody types are relative."""
    (tmp_path / "here" / "some where").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    first = open_checkpoint(write_native(Path(name), method="gptq"))
    again = write_native(
        Path("again"),
        weights=first.weights(BFLOAT16, first.stored),
        description=first,
        source=first.path,
        method=first.method,
    )
    assert first.method == open_checkpoint(again).method == "gptq"
    assert_equal_weights(open_checkpoint(again).weights(BFLOAT16, first.stored), drawn(INT4))
    files = json.loads((again / "jaxinfer.json").read_text())["source"]["files"]
    assert {name.split("/")[0] for name in files} == {"weights"}
    assert len(files) == sum(path.is_file() for path in (first.path / "weights").rglob("*"))


def test_weights_are_read_part_by_part(folders, monkeypatch):
    """The first one when nothing of the others has been read; on jax's default device."""
    read = []
    load_part = checkpoints.native.orbax_parts.load_part
    monkeypatch.setattr(
        "checkpoints.native.restore.load_part", lambda folder, tree: read.append(folder.name) or load_part(folder, tree)
    )
    weights = open_checkpoint(folders[INT4]).weights(BFLOAT16, {})
    assert read == []
    for name, weight in weights:
        assert read[-1] == ".".join(name.split(".")[:2]) if name.startswith("layers") else name
        assert weight.devices() == {jax.devices()[0]}
    assert read == ["embedding", "layers.0", "layers.1", "final_norm", "lm_head"]


def test_orbax_says_nothing(tmp_path, caplog, capfd, recwarn):
    with caplog.at_level(logging.DEBUG):
        checkpoint = open_checkpoint(write_native(tmp_path / "it"))
        list(checkpoint.weights(BFLOAT16, checkpoint.stored))
    assert [record for record in caplog.records if record.name.startswith(("absl", "orbax"))] == []
    assert [str(warning.message) for warning in recwarn if "harding" in str(warning.message)] == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["it", "./it/", "some where/it", "../a%20#?~|/it"])
def test_a_part_at_a_relative_path(tmp_path, monkeypatch, name):
    """Orbax by itself finds no arrays there."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    tree = {"a": jnp.arange(8)}
    save_part(Path(name), tree)
    assert part_shapes(Path(name)) == {"a": jax.ShapeDtypeStruct((8,), jnp.int32)}
    found = load_part(Path(name), {"a": tree["a"].sharding})
    np.testing.assert_array_equal(found["a"], tree["a"])


def test_several_threads_read_at_once(folders):
    checkpoint = open_checkpoint(folders[INT4])
    with ThreadPoolExecutor(3) as threads:
        for weights in threads.map(lambda _: list(checkpoint.weights(BFLOAT16, checkpoint.stored)), range(3)):
            assert_equal_weights(iter(weights), drawn(INT4))


def test_the_log_is_on_again_after_the_last_of_several_that_overlap(caplog):
    logger = logging.getLogger("absl")
    with caplog.at_level(logging.INFO, "absl"):
        first, second = _quiet(), _quiet()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        logger.info("while one reads")
        second.__exit__(None, None, None)
        logger.info("after the last")
    assert caplog.messages == ["after the last"]


def test_a_checkpoint_is_opened_without_jax(folders):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['jax', 'jaxlib', 'flax', 'orbax']))\n"
        "from checkpoints import open_checkpoint; from pathlib import Path\n"
        f"print(len(open_checkpoint(Path({str(folders[INT4])!r})).stored))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(len(formats_of(EVERYTHING, INT4, embeddings=True))), done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights[1:], "a weight is 'layers.0.attention_norm'; the model has embedding there"),
        (lambda weights: weights[:-1], "the weights end before lm_head"),
        pytest.param(
            lambda weights: [*weights, ("more", weights[0][1])],
            "a weight is 'more'; the model has no more there",
            marks=pytest.mark.slow,
        ),
        (
            lambda weights: [("embedding", jnp.ones((48, 32), BFLOAT16)), *weights[1:]],
            r"embedding has .* in its format",
        ),
        (lambda weights: [("embedding", replace(weights[0][1], num_inputs=31)), *weights[1:]], "embedding has"),
    ],
)
def test_weights_that_are_not_the_models_leave_nothing(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write_native(tmp_path / "it", weights=change(list(drawn(INT4))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": np.dtype(np.float16), "weights": drawn(INT4, np.dtype(np.float16))}, "dtype is 'float16'"),
        pytest.param({"description": Description(EVERYTHING, (48,))}, "eos_token_ids is .48.", marks=pytest.mark.slow),
        pytest.param(
            {"formats": formats_of(EVERYTHING, INT4, embeddings=True) | {"other": INT4}},
            "formats has 'other'",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_could_not_be_read_is_not_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        write_native(tmp_path / "it", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("num_rows", "most"), [(4096, 8), (4099, 1)])
def test_a_matrix_is_kept_in_few_pieces(tmp_path, num_rows, most):
    """Also one of a prime number of rows, which would be cut into as many."""
    save_part(tmp_path / "part", {"a": jnp.zeros((num_rows, 4096), BFLOAT16)})
    [array] = jax.tree.leaves(ocp.PyTreeCheckpointer().metadata(tmp_path / "part").item_metadata.tree)
    sizes = zip(array.shape, array.storage.chunk_shape, strict=True)
    num_pieces = np.prod([-(-size // of_piece) for size, of_piece in sizes])
    assert 1 <= num_pieces <= most


def test_progress_counts_the_bytes_of_the_weights(tmp_path):
    told = []
    write_native(tmp_path / "it", progress=lambda done, total: told.append((done, total)))
    written = sum(array.nbytes for _, weight in drawn(INT4) for array in jax.tree.leaves(weight))
    assert [total for _, total in told] == [written] * 5
    assert told[-1][0] == written
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def _story(model, quantization, group_size=None):
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "max_model_len": 64}
    with few_programs():
        llm = LLM(model, quantization=quantization, group_size=group_size, **limits)
    [output] = llm.generate("Once upon a time", greedy(20))
    return output.outputs[0].token_ids


@pytest.mark.slow
@pytest.mark.parametrize(("name", "group_size"), [("none", None), ("int8", None), ("int4", 32)])
def test_a_converted_model_writes_what_its_source_does(shared_data: Path, tmp_path, name, group_size):
    path = shared_data / "stories260K-hf"
    source, checkpoint = open_model(path), open_checkpoint(path)
    quantization = Quantization.named(name, group_size)
    assert not isinstance(quantization, str)
    formats = formats_of(source.config, quantization)
    folder = write_native(
        tmp_path / "it",
        weights=source.weights(FLOAT32, formats),
        description=checkpoint,
        source=path,
        formats=formats,
        dtype=FLOAT32,
    )
    assert _story(folder, "stored") == _story(path, name, group_size)
