"""From a sympy generator to disciplined convex form, so that cvxpy gets `f(R)` from the generator and from nothing else.

A generator is convex, but cvxpy accepts it only in a form whose convexity follows from its composition rules. Several equal
forms are tried in turn: as written, expanded, factored, and regrouped term by term (quotients into partial fractions,
logarithms into relative entropies). The first that cvxpy recognises is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import cvxpy as cp
import numpy as np
import sympy

from bandtheory.divergence import FDivergence
from bandtheory.expressions import symbol

_cp: Any = cp  # cvxpy's annotations do not list its atoms
_SHORT = (
    4  # largest numerator of an exponent, in halves or whole, that is built from second-order cones: others are power cones
)

Conic = Callable[[cp.Expression], cp.Expression]


class ConvexUnavailable(ValueError):
    """The generator has no disciplined convex form here; the message names the term and what to supply instead."""


class RelativeEntropy(sympy.Function):  # type: ignore[misc]
    """`x log(x/y)`, kept whole so that the translation can see it."""


@lru_cache(maxsize=128)
def conic_form(divergence: FDivergence) -> Conic:
    """A function from a cvxpy expression of ratios to the convex cvxpy expression `f` of it, elementwise.

    Raises:
        ConvexUnavailable: no form of the generator follows the rules of disciplined convex programming.
    """
    generator = divergence.generator
    probe = cp.Variable(2)
    for form in (generator, generator.expand(), sympy.factor(generator), regroup(generator)):
        if _is_convex(translate(form, probe)):
            return partial(_translated, form)
    raise ConvexUnavailable(
        f"divergence {divergence.name!r}: {_culprit(regroup(generator))} in f(u) = {generator} has no disciplined convex form. "
        "Accepted: sums of convex powers, |·|ᵏ, max, exp, -log, affine·log(affine), log of a sum of exp, and polynomials over "
        "products of affine factors, of affine arguments. Supply conic=, a function from a cvxpy expression of the ratios, "
        "shape (n,), to a convex one of f of each; without it the Fenchel certificate (bandtheory.certify) stands in."
    )


def _translated(form: sympy.Expr, ratios: cp.Expression) -> cp.Expression:
    result = translate(form, ratios)
    if result is None:
        raise ConvexUnavailable(f"f(u) = {form} cannot be built in cvxpy")
    return result


def translate(expression: sympy.Expr, ratios: cp.Expression) -> cp.Expression | None:
    """The cvxpy expression of the same structure at `u = ratios`, convex or not; None for a node it cannot build."""
    if expression.is_number:
        return cp.Constant(float(expression))
    if expression == symbol():
        return ratios
    if isinstance(expression, sympy.Mul):
        return _product(expression, ratios)
    if isinstance(expression, sympy.log) and expression.args[0].is_Add:
        exponents = _exponents(expression.args[0])
        if exponents:
            return _joined(exponents, ratios, lambda *parts: _cp.log_sum_exp(_cp.vstack(_spread(parts, ratios)), axis=0))
    if isinstance(expression, RelativeEntropy):
        return _joined(expression.args, ratios, _cp.rel_entr)
    if isinstance(expression, sympy.Pow):
        exponent = expression.args[1]
        if not exponent.is_number:
            return None
        norm = _norm(expression.args[0], ratios) if exponent == sympy.Rational(1, 2) else None
        return _joined(expression.args[:1], ratios, lambda base: _power(base, exponent)) if norm is None else norm
    atoms: dict[type, Callable[..., Any]] = {
        sympy.Add: lambda *terms: sum(terms[1:], terms[0]),
        sympy.log: _cp.log,
        sympy.exp: _cp.exp,
        sympy.Abs: _cp.abs,
        sympy.Max: _cp.maximum,
        sympy.Min: _cp.minimum,
    }
    atom = atoms.get(expression.func)
    return _joined(expression.args, ratios, atom) if atom else None


def _exponents(total: sympy.Add) -> tuple[sympy.Expr, ...]:
    """The `a_i(u)` of a sum `Σ exp(a_i)`, numbers and positive factors of exp included; empty for any other sum."""
    exponents = []
    for term in total.args:
        factor, rest = term.as_independent(symbol())
        if not factor.is_positive or not (rest == 1 or isinstance(rest, sympy.exp)):
            return ()
        exponents.append(sympy.log(factor) + (rest.args[0] if rest != 1 else 0))
    return tuple(exponents) if total.has(sympy.exp) else ()


def _spread(parts: tuple[cp.Expression, ...], ratios: cp.Expression) -> list[cp.Expression]:
    return [part + np.zeros(ratios.shape) for part in parts]


def _joined(arguments: tuple[sympy.Expr, ...], ratios: cp.Expression, atom: Callable[..., Any]) -> cp.Expression | None:
    parts = [translate(argument, ratios) for argument in arguments]
    return None if any(part is None for part in parts) else atom(*parts)


def _norm(square: sympy.Expr, ratios: cp.Expression) -> cp.Expression | None:
    """`sqrt(a (u − h)² + k)` with a, k > 0 as a Euclidean norm; None for any other radicand."""
    u = symbol()
    if not square.is_polynomial(u) or sympy.degree(square, u) != 2:
        return None
    a, b, c = (square.expand().coeff(u, k) for k in (2, 1, 0))
    rest = c - b**2 / (4 * a)
    if not (a.is_positive and rest.is_positive):
        return None
    moving = float(sympy.sqrt(a)) * (ratios + float(b / (2 * a)))
    norm: cp.Expression = _cp.norm(_cp.vstack([moving, float(sympy.sqrt(rest)) * np.ones(ratios.shape)]), 2, axis=0)
    return norm


def _power(base: cp.Expression, exponent: sympy.Expr) -> cp.Expression:
    short = bool(exponent.is_Rational and exponent.q <= 2 and abs(exponent.p) <= _SHORT)
    power: cp.Expression = _cp.power(base, float(exponent), max_denom=1024 if short else 10**6, approx=short)
    return power


def _product(expression: sympy.Mul, ratios: cp.Expression) -> cp.Expression | None:
    """A constant times one factor, or times `x·log(x)`."""
    factor, rest = expression.as_independent(symbol())
    if not isinstance(rest, sympy.Mul):
        inner = translate(rest, ratios)
        return None if inner is None else cp.Constant(float(factor)) * inner
    powers = [part.as_base_exp() for part in rest.args]
    bases = {base.args[0] if isinstance(base, sympy.Abs) else base for base, _ in powers}
    # sympy writes |x|³ as x²|x|
    if len(bases) == 1 and all(exponent.is_even for base, exponent in powers if not isinstance(base, sympy.Abs)):
        inner, degree = translate(bases.pop(), ratios), sum(exponent for _, exponent in powers)
        return None if inner is None else cp.Constant(float(factor)) * _power(_cp.abs(inner), degree)
    logs = [part for part in rest.args if isinstance(part, sympy.log)]
    if len(logs) != 1:
        return None
    scale = sympy.cancel(rest / logs[0] / logs[0].args[0])
    inner = translate(logs[0].args[0], ratios)
    return -float(factor * scale) * _cp.entr(inner) if scale.is_number and inner is not None else None


def _is_convex(expression: cp.Expression | None) -> bool:
    return expression is not None and bool(expression.is_convex())


def _culprit(form: sympy.Expr) -> str:
    """The first addend that is not convex by itself, for the error message."""
    probe = cp.Variable(2)
    for term in sympy.Add.make_args(form):
        if not _is_convex(translate(term, probe)):
            return f"the term {term}"
    return "the sum"


def regroup(generator: sympy.Expr) -> sympy.Expr:
    """An equal form: rational part in partial fractions, logarithms of linear factors gathered into entropies."""
    u = symbol()
    expanded = sympy.expand(sympy.expand_log(generator.expand(), force=True))
    rational, logs, other = [], [], []
    for term in sympy.Add.make_args(expanded):
        if term.is_rational_function(u):
            rational.append(term)
        elif any(isinstance(part, sympy.log) for part in sympy.Mul.make_args(term)):
            logs.append(term)
        else:
            other.append(term)
    fractions = sympy.apart(sympy.together(sympy.Add(*rational)), u)
    return sympy.Add(fractions, *_entropies(logs), *other, evaluate=False)


def _entropies(terms: list[sympy.Expr]) -> Iterator[sympy.Expr]:
    """Rewrite `Σ A_j(u) log(L_j(u))` with linear A and L so that each piece is convex, where that is possible.

    `A₁ u log L` with `A₁ < 0` and `L = au + b` borrows from the `u log u` term: `|A₁|·u·log(u/L)` is a relative entropy.
    """
    u = symbol()
    coefficients: dict[sympy.Expr, sympy.Expr] = {u: sympy.Integer(0)}
    for term in terms:
        log = next(part for part in sympy.Mul.make_args(term) if isinstance(part, sympy.log))
        coefficients[log.args[0]] = coefficients.get(log.args[0], 0) + term / log
    for inner, outer in coefficients.items():
        linear = inner.is_polynomial(u) and sympy.degree(inner, u) == 1 and outer.is_polynomial(u)
        if inner == u or not linear or sympy.degree(outer, u) > 1:
            continue
        a, slope, constant = inner.coeff(u, 1), outer.expand().coeff(u, 1), outer.expand().coeff(u, 0)
        if slope < 0:
            yield -slope * RelativeEntropy(u, inner)
            coefficients[u] += slope * u
            coefficients[inner] = constant
        elif slope > 0:
            yield slope / a * inner * sympy.log(inner)
            coefficients[inner] = constant - slope / a * inner.coeff(u, 0)
    for inner, outer in coefficients.items():
        yield from (part * sympy.log(inner) for part in sympy.Add.make_args(sympy.expand(outer)))
