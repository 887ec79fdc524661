"""z3's nonlinear real arithmetic as a judge of implications written in sympy.

    hypotheses ⟹ claim   for all real values of the letters

is proved if z3 finds `hypotheses ∧ ¬claim` unsatisfiable, refuted by a solution of it, and open if z3 gives up. Values of the
undetermined convex function are letters like any other; what is known of them stands in the hypotheses.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import z3

from proofs.notation import GENERATOR
from proofs.statement import Outcome, Status

_DIGITS = 6  # of the numbers of a counter-example


class Translation:
    """sympy to z3; a letter, or a value such as `f(r)`, is one real unknown throughout."""

    def __init__(self) -> None:
        self.context = z3.Context()  # of its own: a leftover of one proof must not slow down the next
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
            return self.unknowns.setdefault(str(expression), z3.Real(str(expression), self.context))
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


def decide(hypotheses: Sequence[Any], claim: Any, seconds: float) -> Outcome:
    """Whether the hypotheses imply the claim; hypotheses that contradict each other prove nothing.

    Divisions in the hypotheses and the claim must be by something that the hypotheses keep from 0: z3 lets `1/0` be anything.
    """
    translate = Translation()
    given = [translate(hypothesis) for hypothesis in map(sympy.sympify, hypotheses)]
    denied = z3.Not(translate(sympy.sympify(claim)))
    answer, model = _solve(translate, [*given, denied], seconds)
    if answer == z3.sat:
        return Outcome(Status.REFUTED, f"counter-example: {_values(translate, model)}")
    if answer == z3.unknown:
        return Outcome(Status.OPEN, f"z3 gave up within {seconds:g} s")
    if _solve(translate, given, seconds)[0] == z3.unsat:
        return Outcome(Status.OPEN, "the hypotheses contradict each other")
    return Outcome(Status.PROVED, "z3")


def _solve(translate: Translation, formulas: list[Any], seconds: float) -> tuple[Any, Any]:
    solver = z3.Solver(ctx=translate.context)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.add(*formulas)
    answer = solver.check()
    return answer, solver.model() if answer == z3.sat else None


def _values(translate: Translation, model: Any) -> str:
    """The letters of a counter-example with their values, irrational ones to a few digits."""

    def number(unknown: Any) -> str:
        value = model.eval(unknown, model_completion=True)
        return value.as_decimal(_DIGITS) if z3.is_algebraic_value(value) else str(value)

    return ", ".join(f"{name} = {number(unknown)}" for name, unknown in sorted(translate.unknowns.items()))
