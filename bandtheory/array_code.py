"""sympy expressions as functions over arrays: numpy arrays or torch tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy

Array = Any  # numpy.ndarray or torch.Tensor; what is written over it is written once for both
_ARRAY_FUNCTIONS = (("Max", "maximum"), ("Min", "minimum"), ("Heaviside", "step"), ("Abs", "absolute"), ("sign", "signum"))


def lambdify(xp: Any, symbols: Sequence[sympy.Symbol], expression: Any) -> Callable[..., Any]:
    """sympy → a Python function over numpy arrays or torch tensors.

    Constants become doubles, and piecewise functions become `where`, since sympy prints them as Python conditionals.
    """
    import sympy

    def numeric(e: sympy.Expr) -> sympy.Expr:
        for kind, name in _ARRAY_FUNCTIONS:
            e = e.replace(getattr(sympy, kind), sympy.Function(name))
        constant = lambda node: node.is_number and not node.is_Integer and not node.is_Float  # noqa: E731
        return e.replace(constant, lambda node: sympy.N(node, 17))

    namespace = {name: getattr(xp, name) for name in ("exp", "log", "log1p", "expm1", "sqrt")}
    namespace |= {
        "absolute": xp.abs,
        "signum": xp.sign,
        "maximum": lambda *values: functools.reduce(lambda a, b: xp.where(a > b, a, b), values),
        "minimum": lambda *values: functools.reduce(lambda a, b: xp.where(a < b, a, b), values),
        "step": lambda value, _=0: xp.where(value > 0, 1.0, 0.0),
    }
    many = isinstance(expression, tuple)
    converted = tuple(map(numeric, expression)) if many else numeric(expression)
    return sympy.lambdify(symbols, converted, modules=[namespace], cse=True)  # type: ignore[no-any-return]
