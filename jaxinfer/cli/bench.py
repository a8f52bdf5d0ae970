"""``jaxinfer bench``: measurements, one command for each kind."""

import typer

from jaxinfer.cli.bench_serve import serve

bench = typer.Typer(name="bench", no_args_is_help=True)
bench.command()(serve)


@bench.callback()
def main() -> None:
    """Measure how fast a server answers."""
