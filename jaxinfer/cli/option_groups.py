"""Options that several commands have in common, written once: a dataclass whose fields are options.

typer reads a command's options from its parameters. ``with_option_groups`` gives it a signature in which each parameter
whose type is such a dataclass is replaced by the dataclass's fields, and puts them together again when it is called.
The defaults are the fields' own, or those of the parameter's default where it has one.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer


def option_of(panel: str) -> Callable[..., Any]:
    """Makes options that the help lists under this heading, each of its help and, for a bool, its names."""

    def option(help: str, *names: str) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=panel)

    return option


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it; its parameters are given by name."""
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += _options(parameter)
        else:
            parameters.append(parameter)

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    by_name = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    expanded.__signature__ = Signature(by_name)  # type: ignore[attr-defined]  # what `inspect` and typer look for
    return expanded


def _options(group: Parameter) -> list[Parameter]:
    options = [*signature(group.annotation).parameters.values()]
    if group.default is Parameter.empty:
        return options
    return [option.replace(default=getattr(group.default, option.name)) for option in options]
