"""``jaxinfer compare-quality``: what a model in fewer bits has lost against a reference, as a table."""

import json as json_format
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from jaxinfer.cli import options
from jaxinfer.cli.engine_options import EngineOptions
from jaxinfer.cli.exits import DEVICE_FAILED, ended_by, shown_warnings, usage_errors
from jaxinfer.cli.json_values import as_json_number
from jaxinfer.cli.load import open_model
from jaxinfer.cli.option_groups import option_of, with_option_groups
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.scored_text import ScoredText
from jaxinfer.cli.table import text_table
from jaxinfer.cli.text_files import read_file_or_stdin

if TYPE_CHECKING:
    from jaxinfer.loading import LoadedModel
    from jaxinfer.model_pair import ModelPair
    from jaxinfer.quality import Comparison, ModelQuality

_reference, _text, _output = map(option_of, ("Reference", "Text", "Output"))

_COLUMNS = ("", "weights", "bits per weight", "perplexity", "change", "mean KL", "same top token")

_AS_STORED = EngineOptions(quantization="stored")
"""The model's own bytes and products are what is measured, on a CPU too."""


@with_option_groups
def compare_quality(
    *,
    against: Annotated[str, _reference("The model that --model is held against, named as that is.")],
    against_quantization: Annotated[
        str,
        _reference(
            "As --quantization. By itself it is held as floats, which computes the same and is fast on a CPU; "
            "stored takes less memory where its files have fewer bits."
        ),
    ] = "none",
    against_dtype: Annotated[str | None, _reference("As --dtype. Without it: that of --model.")] = None,
    text: Annotated[str, _text("A UTF-8 file, read as one text; - reads stdin.")],
    tokens: Annotated[int | None, _text("Take so many tokens of the text. Without it: all.")] = None,
    window: Annotated[
        int | None,
        _text("Tokens that are read together. Without it: 2048, or --max-model-len or a model's length if less."),
    ] = None,
    engine: EngineOptions = _AS_STORED,
    max_num_seqs: options.MaxNumSeqs = None,
    json: Annotated[bool, _output("Print one JSON object.", "--json")] = False,
) -> None:
    """Compare a model with a reference on a text: perplexity, divergence, agreement, and bytes of the weights.

    Both are on the device at once, and the options of the engine are for both but for --dtype, --quantization,
    --quantize-embeddings and --kv-dtype, which are of --model. By itself the model is held as it is stored, so that its
    bytes are those of its formats, and the reference as floats; the memory must hold both. The text is read in windows,
    each a text of its own whose first token does not count. KL is the divergence KL(reference || model) of the
    distributions of the next token, in nats. Exit code 2: the options or the text are wrong, or the models do not go
    together; 3: stdout cannot be written; 4: a GPU kernel fails its test.
    """
    with shown_warnings():
        with usage_errors():
            content = read_file_or_stdin("--text", "the text", text)
            opened, reference = open_model(engine.model), open_model(against)
            token_ids = _common_ids(content, tokens, opened, reference)
            pair = _load(
                opened,
                reference,
                window=window,
                against_quantization=against_quantization,
                against_dtype=against_dtype,
                max_num_seqs=max_num_seqs,
                **engine.settings,
            )
        start = time.perf_counter()
        found = _compare(pair, token_ids)
        seconds = time.perf_counter() - start
        print(_as_json(found, seconds) if json else _as_table(found), flush=True)
        print(_as_line(found, seconds), file=sys.stderr)


def _common_ids(content: str, num_tokens: int | None, opened: "LoadedModel", reference: "LoadedModel") -> list[int]:
    """The ids of the text, which both tokenizers give it.

    Raises:
        ValueError: they give others, or as ``ScoredText.of``.
    """
    mine, theirs = (
        ScoredText.of(content, num_tokens, each.tokenizer, each.config.vocab_size).token_ids
        for each in (opened, reference)
    )
    if mine != theirs:
        pairs = enumerate(zip(mine, theirs, strict=False))
        place = next((i for i, (a, b) in pairs if a != b), min(len(mine), len(theirs)))
        raise ValueError(
            f"the tokenizers of --model and --against give the text different ids, from token {place} on; "
            "only models with one tokenizer can be compared"
        )
    return mine


def _load(opened: "LoadedModel", reference: "LoadedModel", **settings: Any) -> "ModelPair":
    from jaxinfer.kernel_self_test import KernelSelfTestError  # these import jax, which --help need not
    from jaxinfer.model_pair import ModelPair

    with ended_by(KernelSelfTestError, DEVICE_FAILED):
        return ModelPair.load(opened, reference, **settings)


def _compare(pair: "ModelPair", token_ids: list[int]) -> "Comparison":
    from jaxinfer.quality import compare_pair

    with ProgressBar("Comparing") as bar:
        return compare_pair(pair, token_ids, bar.update)


def _as_json(found: "Comparison", seconds: float) -> str:
    """One line. A number that is not finite becomes null, for JSON has none."""
    values = asdict(found) | {"perplexity_change": found.perplexity_change, "seconds": seconds}
    return json_format.dumps(_with_nulls(values))


def _with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_nulls(item) for name, item in value.items()}
    return as_json_number(value) if isinstance(value, float) else value


def _as_table(found: "Comparison") -> str:
    change = f"{found.perplexity_change:+.2%}"
    rows = [
        _COLUMNS,
        ("reference", *_of_one(found.reference), "", "", ""),
        ("model", *_of_one(found.model), change, f"{found.mean_kl:.6f}", f"{found.top1_agreement:.2%}"),
    ]
    return text_table(rows)


def _of_one(quality: "ModelQuality") -> tuple[str, str, str]:
    size = quality.weight_bytes
    shown = f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
    return shown, f"{quality.bits_per_weight:.2f}", f"{quality.perplexity:.4f}"


def _as_line(found: "Comparison", seconds: float) -> str:
    """What was read, for a reader."""
    return (
        f"{found.num_scored:,} of {found.num_tokens:,} tokens scored, {found.num_windows:,} windows of "
        f"{found.window:,} tokens; {seconds:.1f} s"
    )
