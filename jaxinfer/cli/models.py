"""``jaxinfer models``: the models known by name, and what each takes."""

import json as json_format
from dataclasses import asdict
from typing import Annotated

import typer

from jaxinfer.cli.info import ModelInfo, describe, windows_in_words

_HEADINGS = ("name", "parameters", "layers", "heads / kv", "head_dim", "window", "context", "GiB", "KV bytes/token")
_LEFT = ("name", "window")


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each model, as info does.")] = False,
) -> None:
    """List the models known by name: shapes that their authors published, bytes in bfloat16.

    A name has no weights: give it to info for details. Any model of these families runs, known by name or not.
    """
    from checkpoints import PRESETS  # imports the hub's client, which --help need not

    found = [describe(name, config, "bfloat16") for name, config in PRESETS.items()]
    print("\n".join(json_format.dumps(asdict(each)) for each in found) if json else _as_table(found))


def _as_table(found: list[ModelInfo]) -> str:
    rows = [_HEADINGS, *map(_cells, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [[_align(*cell) for cell in zip(_HEADINGS, row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def _align(heading: str, cell: str, width: int) -> str:
    return cell.ljust(width) if heading in _LEFT else cell.rjust(width)


def _cells(found: ModelInfo) -> tuple[str, ...]:
    config = found.config
    return (
        found.model,
        f"{found.num_parameters:,}",
        str(config.num_layers),
        f"{config.num_heads} / {config.num_kv_heads}",
        str(config.head_dim),
        windows_in_words(config),
        f"{config.max_position_embeddings:,}",
        f"{found.weight_bytes / 2**30:.2f}",
        f"{found.kv_bytes_per_token:,}",
    )
