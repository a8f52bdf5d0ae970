"""The jinja environment of one rendering: what a template does in it counts against a budget.

An environment can intercept calls and operators. What it cannot (loops, literals, comparisons, ``~``) is compiled here
into calls of its own methods. Nothing is evaluated while compiling, where no budget runs.
"""

from collections.abc import Iterable
from typing import Any

from jinja2 import Environment, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.meta import TrackingCodeGenerator
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jaxinfer.chat_template.allowed import (
    allowed_filters,
    allowed_globals,
    bounded_method,
    check_percent,
    is_allowed_method,
)
from jaxinfer.chat_template.budget import Budget, check_bits, repeated_weight

_COUNTED = "counted items"  # with a space, no template can spell it


class _BoundedCode(CodeGenerator):
    """Python code that hands what it builds to the environment."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        for loop in node.find_all(nodes.For):
            counted = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
            loop.iter = counted.set_environment(self.environment)
        super().visit_Template(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.budget.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.budget.built(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx != "load":  # names that something is assigned to
            super().visit_Tuple(node, frame)
            return
        self.write("environment.budget.built(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.budget.built(")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("environment.budget.in_time(")
        super().visit_Compare(node, frame)
        self.write(")")

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:
        self.write("environment.budget.in_time(")
        super().visit_Test(node, frame)
        self.write(")")

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:
        self.fail("'autoescape' is for HTML, which no model was trained on", node.lineno)


class _OuterNames(TrackingCodeGenerator):
    """Notes the names that a template takes from outside. As in the code itself, no constant is evaluated."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.optimizer = None


class Sandbox(ImmutableSandboxedEnvironment):
    """For one rendering.

    Attributes:
        budget: what the rendering has left.
    """

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _GenerationTag],
            optimized=False,
            finalize=self._as_text,
        )
        self.budget = Budget()
        self.filters = allowed_filters(self, self.budget) | {_COUNTED: self.budget.rounds}
        self.globals = allowed_globals()

    def outer_names(self, template: nodes.Template) -> frozenset[str]:
        """The variables that ``template`` reads without having set them in every case; no globals."""
        names = _OuterNames(self)
        names.visit(template)
        return frozenset(names.undeclared_identifiers)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return not callable(value) or is_allowed_method(obj, attr)

    def wrap_str_format(self, value: Any) -> None:
        """Not jinja's own wrapper of a text's ``format``, which takes any width: ``bounded_method`` has another."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.budget.step()
        __self.budget.weigh([args, kwargs])  # a macro gets them as a tuple and a dict
        result = super().call(__context, bounded_method(__obj, __self.budget), *args, **kwargs)
        return __self.budget.built(result)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "*":
                self._check_product(left, right)
            case "**" if isinstance(left, int) and isinstance(right, int):
                check_bits(left.bit_length() * right)
            case "%" if isinstance(left, str):
                check_percent(left)
        return self.budget.built(super().call_binop(context, operator, left, right))

    def concat(self, pieces: Iterable[str]) -> str:
        self.budget.step()
        return self.budget.joined(pieces)

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            check_bits(left.bit_length() + right.bit_length())
        for many, times in ((left, right), (right, left)):
            if isinstance(times, int):
                self.budget.check_weight(repeated_weight(many, times))

    # With the context as argument, a constant is not written out while compiling.
    @pass_context
    def _as_text(self, _context: Context, value: Any) -> str:
        return self.concat([str(value)])


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it only gives them."""

    tags: set[str] = {"generation"}  # noqa: RUF012 -- jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
