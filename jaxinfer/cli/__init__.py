"""The command line: ``jaxinfer`` and its commands, one file for each.

It only reads options, calls the Python API and prints. Nothing here imports jax before a command needs it, so that
``--help`` and a mistyped option answer at once.
"""

from importlib.metadata import version
from typing import Annotated

import typer

from jaxinfer.cli.bench import bench
from jaxinfer.cli.chat import chat
from jaxinfer.cli.compare_quality import compare_quality
from jaxinfer.cli.convert import convert
from jaxinfer.cli.generate import generate
from jaxinfer.cli.info import info
from jaxinfer.cli.models import models
from jaxinfer.cli.perplexity import perplexity
from jaxinfer.cli.serve import serve
from jaxinfer.cli.streams import guarded_streams

# Tracebacks are for faults of the program; rich would print the arrays in every frame of one.
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(generate)
app.command()(chat)
app.command()(serve)
app.command()(info)
app.command()(models)
app.command()(perplexity)
app.command()(convert)
app.command()(compare_quality)
app.add_typer(bench)


def run() -> None:
    """The whole program, from the arguments of the process to its exit code."""
    with guarded_streams():
        app(prog_name="jaxinfer")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"jaxinfer {version('jaxinfer')}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run open-weight language models of the Mistral family with JAX."""
