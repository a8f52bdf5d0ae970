"""``jaxinfer convert``: a model as a native checkpoint, quantized or as it is."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.cli.exits import INTERRUPTED, shown_warnings, usage_errors
from jaxinfer.cli.option_groups import option_of
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.text_files import read_file_or_stdin

if TYPE_CHECKING:
    from jaxinfer.conversion import Calibration

_option = option_of("Quantization")


def convert(
    source: Annotated[str, typer.Argument(help="A folder, a .gguf file, the name of a preset, or a Hugging Face id.")],
    destination: Annotated[str, typer.Argument(help="The folder to write, which is not there yet.")],
    quantize: Annotated[
        str | None,
        _option(
            "int8 or int4: the layers' matrices. Without it: what the source holds quantized stays so where a product "
            "reads it as it is, and all else is --dtype."
        ),
    ] = None,
    group_size: Annotated[
        int | None, _option("Inputs of a group of int4: 32, 64, 128, or 0 for the whole row. Without it: 64.")
    ] = None,
    method: Annotated[
        str | None, _option("rtn: rounded to nearest. gptq: for int4, calibrated on a text. Without it: rtn.")
    ] = None,
    calibration: Annotated[
        str | None, _option("A UTF-8 file with text of the kind that the model is for, for gptq; - reads stdin.")
    ] = None,
    calibration_tokens: Annotated[
        int | None, _option("Take so many tokens of --calibration. Without it: 16384.")
    ] = None,
    quantize_embeddings: Annotated[
        bool, _option("Quantize the embedding and the output head too.", "--quantize-embeddings")
    ] = False,
    dtype: Annotated[str, _option("bfloat16 or float32: of what is not quantized.")] = "bfloat16",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a native checkpoint that lies at DESTINATION.")
    ] = False,
) -> None:
    """Write a model as a native checkpoint, which loads without a conversion.

    The folder is there when all of it is: a conversion that is ended leaves nothing that loads. Exit code 2: the
    options or the model are wrong, or the folder cannot be written.
    """
    with shown_warnings(), usage_errors():
        from jaxinfer import conversion  # imports jax, which takes a second that --help need not

        text = _calibration(calibration, calibration_tokens)
        start = time.perf_counter()
        with ProgressBar("Converting") as bar, _ended_by_ctrl_c() as run:
            run(
                partial(
                    conversion.convert,
                    source,
                    destination,
                    quantize=quantize,
                    group_size=group_size,
                    quantize_embeddings=quantize_embeddings,
                    method=cast("conversion.Method | None", method),
                    calibration=text,
                    dtype=dtype,
                    overwrite=overwrite,
                    progress=bar.update,
                )
            )
        print(f"{destination}: {_bytes_of(Path(destination)) / 2**30:.2f} GiB in {time.perf_counter() - start:.0f} s")


@contextmanager
def _ended_by_ctrl_c() -> Iterator[Callable[[Callable[[], None]], None]]:
    """What runs a conversion, so that Ctrl-C ends it and nothing of it stays. Elsewhere it ends the program at once."""
    ctrl_c = CtrlC()
    try:
        with ctrl_c.installed():
            yield ctrl_c.interruptible
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _calibration(file: str | None, num_tokens: int | None) -> "Calibration | None":
    from jaxinfer.conversion import Calibration

    if file is None:
        if num_tokens is not None:
            raise ValueError("--calibration-tokens goes with --calibration")
        return None
    text = read_file_or_stdin("--calibration", "the calibration text", file)
    return Calibration(text=text) if num_tokens is None else Calibration(text=text, num_tokens=num_tokens)


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
