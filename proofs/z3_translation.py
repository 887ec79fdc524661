"""sympy to z3: terms, relations and formulas of real arithmetic over one context."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import sympy
import z3

from proofs.notation import GENERATOR


class Translation:
    """sympy to z3; a letter, or a value such as `f(r)`, is one real unknown throughout.

    Each proof has a context of its own: what one leaves behind must not slow down the next, nor may threads share one.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.unknowns: dict[str, Any] = {}

    def __call__(self, expression: Any) -> Any:
        """The z3 term or formula.

        Raises:
            TypeError: a function that is not real arithmetic.
        """
        if expression is sympy.true or expression is sympy.false:
            return z3.BoolVal(expression is sympy.true, self.context)
        if expression.is_Rational:
            return z3.RealVal(str(expression), self.context)
        if expression.is_Symbol or isinstance(expression, GENERATOR):
            name = str(expression)
            if isinstance(expression, sympy.Dummy):
                name += f".{expression.dummy_index}"
            return self.unknowns.setdefault(name, z3.Real(name, self.context))
        if isinstance(expression, sympy.Pow):
            return self._power(expression)
        arguments = [self(argument) for argument in expression.args]
        for kind, build in _FOLDED.items():
            if isinstance(expression, kind):
                return functools.reduce(build, arguments)
        for kind, build in _APPLIED.items():
            if isinstance(expression, kind):
                return build(*arguments)
        raise TypeError(f"{expression} is not real arithmetic: {type(expression).__name__}")

    def _power(self, expression: sympy.Pow) -> Any:
        base, exponent = expression.args
        if not exponent.is_Integer or exponent == 0:
            raise TypeError(f"{expression} is not real arithmetic: the exponent must be an integer")
        product = functools.reduce(operator.mul, [self(base)] * abs(int(exponent)))
        return product if exponent > 0 else 1 / product


def _largest(a: Any, b: Any) -> Any:
    return z3.If(a >= b, a, b)


def _smallest(a: Any, b: Any) -> Any:
    return z3.If(a <= b, a, b)


_FOLDED: dict[type, Callable[[Any, Any], Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Max: _largest,
    sympy.Min: _smallest,
    sympy.And: z3.And,
    sympy.Or: z3.Or,
}
_APPLIED: dict[type, Callable[..., Any]] = {
    sympy.Abs: lambda a: z3.If(a >= 0, a, -a),
    sympy.Not: z3.Not,
    sympy.Implies: z3.Implies,
    sympy.Equivalent: operator.eq,
    sympy.ITE: z3.If,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.Le: operator.le,
    sympy.Lt: operator.lt,
    sympy.Ge: operator.ge,
    sympy.Gt: operator.gt,
}
