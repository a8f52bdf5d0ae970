"""``python -m jaxinfer``: the command line where its script is not on the path."""

from jaxinfer.cli import app

app(prog_name="jaxinfer")
