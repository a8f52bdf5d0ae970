"""The filters, functions and methods that a template may use: those that models' templates do, and their like.

A list of what is allowed, since what is not safe has no end: jinja and Python have many ways to ask for gigabytes in
one call (a width to fill, a precision, an indent). Tests are not listed: all that jinja has only look at a value.

What can make more than it is given is written here once more, with a check before the making; parameters have the
names that they have in jinja and in transformers, since templates call by name.
"""

import json
import re
import reprlib
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from typing import Any

import jinja2
from jinja2.filters import make_attrgetter
from jinja2.runtime import LoopContext
from jinja2.sandbox import safe_range
from jinja2.utils import Cycler, Joiner, Namespace

from jaxinfer.chat_template.budget import Budget

# fmt: off
_FILTERS = [
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "items", "last",
    "length", "lower", "reverse", "safe", "string", "upper",
]
_ITERATING_FILTERS = [
    "groupby", "list", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "unique",
]
_TEXT_METHODS = {
    "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
    "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
}
_MAPPING_METHODS = {"copy", "get", "items", "keys", "values"}
_SEQUENCE_METHODS = {"copy", "count", "index"}
# fmt: on
_FREE_TYPES = (LoopContext, Cycler, Namespace)  # whose methods only look, or call what the template wrote

_MAX_INDENT = 16
_MAX_ROUNDED = 16  # digits after the point, or zeros before it
_MAX_SOUGHT = 256  # characters to strip, or to find from the end: for each Python looks at the whole text
_WORK_OF_TITLE = 8  # it goes from word to word in Python, which takes longer than all else that is done with a text
_PERCENT = re.compile(r"%[-+ #0]*\d{0,2}(?:\.\d{0,2})?[a-zA-Z%]")
_BRACES = re.compile(r"\d{0,4}|[a-zA-Z_]\w*")  # the name of a field
_DATE_PART = re.compile(r"%[-_0^#]?[a-zA-Z%]")
_MAX_DATE_LAYOUT = 256
_MAX_QUOTED = 64


def is_allowed_method(owner: Any, name: str) -> bool:
    """Whether a template may take the method ``name`` of ``owner``; of values of unknown types, none."""
    if isinstance(owner, _FREE_TYPES):
        return True
    for kind, names in ((str, _TEXT_METHODS), (Mapping, _MAPPING_METHODS), (Sequence, _SEQUENCE_METHODS)):
        if isinstance(owner, kind):
            return name in names
    return False


def allowed_globals() -> dict[str, Any]:
    """By name, what a template may call besides its own macros."""
    return {
        "range": safe_range,
        "dict": dict,
        "namespace": _Namespace,
        "cycler": Cycler,
        "joiner": Joiner,
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
    }


def allowed_filters(environment: jinja2.Environment, budget: Budget) -> dict[str, Callable[..., Any]]:
    """By name, each bounded by ``budget``."""
    filters = {name: environment.filters[name] for name in _FILTERS}
    filters |= {name: _counting(environment.filters[name], budget) for name in _ITERATING_FILTERS}
    filters |= {
        "format": _format,
        "indent": partial(_indent, environment.filters["indent"], budget),
        "join": partial(_join, environment, budget),
        "replace": lambda text, old, new, count=None: _replace(
            budget, str(text), str(old), str(new), -1 if count is None else count
        ),
        "title": partial(_title, environment.filters["title"], budget),
        "round": partial(_round, environment.filters["round"]),
        "sum": partial(_sum, environment, budget),
        "tojson": partial(_to_json, budget),
        "trim": lambda text, chars=None: _with_short_texts(str(text).strip, chars),
    }
    return {name: _building(function, budget) for name, function in filters.items()}


def bounded_method(method: Any, budget: Budget) -> Any:
    """``method`` itself, or of a text's methods that may multiply or take long one that checks first."""
    text = getattr(method, "__self__", None)
    if not isinstance(text, str):
        return method
    match method.__name__:
        case "format":
            return partial(_fill_braces, budget, str(text))
        case "replace":
            return partial(_replace, budget, text)
        case "join":
            return partial(_join_texts, budget, text)
        case "strip" | "lstrip" | "rstrip" | "rfind" | "rindex" | "rpartition" | "rsplit":
            return partial(_with_short_texts, method)
    return method


def check_percent(layout: str) -> None:
    """TemplateError unless every ``%`` of ``layout`` is plain: no width of three digits, or from an argument."""
    parts = _PERCENT.findall(layout)
    if sum(part.count("%") for part in parts) != layout.count("%"):
        raise jinja2.TemplateError("it formats by a '%' that is not allowed: only a width below 100 and a letter are")


class _Namespace(Namespace):
    """One that is not written out: through namespaces, values could hold one another in circles."""

    def __repr__(self) -> str:
        return "<namespace>"


def _counting(function: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    """A filter each of whose items is a step."""
    place = 1 if hasattr(function, "jinja_pass_arg") else 0  # after the context, which jinja puts first

    @wraps(function)  # with the marks by which jinja knows what to put first
    def counting(*args: Any, **kwargs: Any) -> Any:
        items = args[place]
        # What is none or empty has no rounds, and most filters take it as it is.
        return function(*args[:place], budget.rounds(items) if items else items, *args[place + 1 :], **kwargs)

    return counting


def _building(function: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    """A filter whose result is weighed."""

    @wraps(function)
    def building(*args: Any, **kwargs: Any) -> Any:
        return budget.built(function(*args, **kwargs))

    return building


def _format(layout: Any, *args: Any, **kwargs: Any) -> str:
    check_percent(str(layout))
    return str(layout) % (kwargs or args)


def _fill_braces(budget: Budget, layout: str, /, *args: Any, **kwargs: Any) -> str:
    """A text's ``format`` without widths, and without attributes, by which a layout could reach what is not allowed."""
    for _, name, width, conversion in string.Formatter().parse(layout):
        if name is not None and (width or conversion or not _BRACES.fullmatch(name)):
            raise jinja2.TemplateError(
                f"it formats by {layout[:_MAX_QUOTED]!r}; only fields like '{{}}', '{{0}}' and '{{name}}' are allowed"
            )
    texts = [str(value) for value in args]
    named = {name: str(value) for name, value in kwargs.items()}
    longest = max(map(len, [*texts, *named.values()]), default=0)
    budget.check_weight(len(layout) + layout.count("{") * longest)  # at most: not every brace is a field
    return layout.format(*texts, **named)


def _indent(
    indent: Callable[..., str], budget: Budget, text: Any, width: int | str = 4, *flags: Any, **more: Any
) -> str:
    if not isinstance(width, str):
        _check_indent(width)
    margin = len(width) if isinstance(width, str) else width
    budget.check_weight(len(str(text)) + margin * (len(str(text).splitlines()) + 1))
    return indent(str(text), width, *flags, **more)


def _check_indent(width: Any) -> None:
    if not isinstance(width, int) or not 0 <= width <= _MAX_INDENT:
        raise jinja2.TemplateError(
            f"it indents by {reprlib.repr(width)}; allowed are whole numbers from 0 to {_MAX_INDENT}"
        )


def _join(
    environment: jinja2.Environment, budget: Budget, items: Iterable[Any], d: Any = "", attribute: Any = None
) -> str:
    if attribute is not None:
        items = map(make_attrgetter(environment, attribute), items)
    return _join_texts(budget, str(d), map(str, items))


def _join_texts(budget: Budget, between: str, texts: Iterable[str]) -> str:
    parts = list(budget.weighed(texts))
    budget.check_weight(len(between) * len(parts))
    return between.join(parts)


def _replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    times = text.count(old) if count < 0 else min(count, text.count(old))
    budget.check_weight(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


def _round(round_off: Callable[..., float], value: Any, precision: int = 0, method: Any = "common") -> float:
    if not isinstance(precision, int) or abs(precision) > _MAX_ROUNDED:
        raise jinja2.TemplateError(f"it rounds to {reprlib.repr(precision)} digits; allowed are up to {_MAX_ROUNDED}")
    return round_off(value, precision, method)


def _sum(
    environment: jinja2.Environment, budget: Budget, items: Iterable[Any], attribute: Any = None, start: Any = 0
) -> Any:
    """Of numbers: a sum of lists copies them anew for each item."""
    if not isinstance(start, int | float):
        raise jinja2.TemplateError(f"it sums from {reprlib.repr(start)}; only numbers are summed")
    if attribute is not None:
        items = map(make_attrgetter(environment, attribute), items)
    return sum(budget.rounds(items), start)


def _with_short_texts(method: Callable[..., Any], *args: Any) -> Any:
    if any(isinstance(value, str) and len(value) > _MAX_SOUGHT for value in args):
        raise jinja2.TemplateError(f"it strips, or seeks from the end, more than {_MAX_SOUGHT} characters")
    return method(*args)


def _title(title: Callable[[str], str], budget: Budget, text: Any) -> str:
    budget.check_weight(_WORK_OF_TITLE * len(str(text)))
    return title(str(text))


def _to_json(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no HTML escapes, which jinja's own filter makes, and no ASCII escapes."""
    if indent is not None:
        _check_indent(len(indent) if isinstance(indent, str) else indent)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return budget.joined(encoder.iterencode(value))


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    """Now, by a layout without widths: the C library fills them, however great."""
    parts = _DATE_PART.findall(format)
    if len(format) > _MAX_DATE_LAYOUT or sum(part.count("%") for part in parts) != format.count("%"):
        raise jinja2.TemplateError(f"it writes the date by {format[:_MAX_DATE_LAYOUT]!r}; parts are '%' and a letter")
    return datetime.now().strftime(format)
