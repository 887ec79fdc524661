"""The letters of the theory page as sympy objects, and the undetermined convex function `f`.

    c = (1 − r p)/(1 − p),    g(p, r) = p f(r) + (1 − p) f(c)

`f` has no formula. `slope(x)` is one subgradient of it at `x`: the derivative where there is one, and any slope in between at a
kink. All that a proof may use of convexity are the tangent inequalities

    f(y) ≥ f(x) + slope(x) (y − x).

They are the whole of it: numbers f(x₁), …, slope(x₁), … that fulfil them between all pairs belong to a convex function, the
largest of the tangents. So a solution of them that contradicts a claim is a counter-example to it.
"""

from __future__ import annotations

from typing import Any

import sympy


class curvature(sympy.Function):
    """`f''`."""

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _with_primes(self, printer, "''", exp)


class slope(sympy.Function):
    """A subgradient of `f`; where `f` is differentiable, `f'`."""

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return curvature(self.args[0])

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _with_primes(self, printer, "'", exp)


class f(sympy.Function):
    """The undetermined generator; `f(1) = 0` is put in by `normalised`, where a proof says so."""

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return slope(self.args[0])

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _with_primes(self, printer, "", exp)


def _with_primes(call: sympy.Function, printer: Any, primes: str, exp: str | None) -> str:
    text = rf"f{primes}\left({printer.doprint(call.args[0])}\right)"
    return text if exp is None else rf"{{{text}}}^{{{exp}}}"


GENERATOR = (f, slope, curvature)

# what many statements rest on
CONVEX = "f convex on (0, ∞), kinks allowed: f' is any subgradient"
ATTAINED = "the bounds are attained: f is completed by its limits"
Z3 = "z3 (nonlinear real arithmetic)"

p, r, u, t, x = sympy.symbols("p r u t x", real=True)
delta = sympy.Symbol("delta", real=True)
c = sympy.Symbol("c", real=True)  # the common factor of the other tokens, as a letter of its own


def complement(p: sympy.Expr, r: sympy.Expr) -> sympy.Expr:
    """`c = (1 − r p)/(1 − p)`: the factor by which all other tokens are scaled."""
    return (1 - r * p) / (1 - p)


def divergence(p: sympy.Expr, r: sympy.Expr) -> sympy.Expr:
    """`g(p, r) = p f(r) + (1 − p) f(c)`."""
    return p * f(r) + (1 - p) * f(complement(p, r))


def normalised(expression: sympy.Expr) -> sympy.Expr:
    """With `f(1) = 0`."""
    return expression.subs(f(sympy.Integer(1)), 0)


def proper(p: sympy.Expr) -> sympy.Basic:
    """`0 < p < 1`."""
    return sympy.And(p > 0, p < 1)
