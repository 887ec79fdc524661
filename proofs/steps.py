"""The kinds of steps that symbolic proofs are made of. Each is carried out by the machine, and each can fail.

- `identity`: the difference of both sides reduces to 0 by rational normal form; a value where it does not refutes it.
- `combination`: `claim = Σ multiplier · hypothesis`, an identity, with multipliers that are products of quantities declared
  non-negative. This is a certificate: it shows which tangent inequalities are used, and how often.
- `implication`: a statement of real arithmetic, left to z3.
- `limit`: of a formula, by sympy. `passage`: of a polynomial in quantities whose limits are known.

Sums over the other tokens, whose number m is any positive integer, are taken apart by linearity (`linear`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from proofs.decision import decide
from proofs.notation import GENERATOR, curvature, f, slope
from proofs.statement import Outcome, Status

_NOISE = sympy.Rational(1, 10**20)  # of values in 30 digits

Check = Callable[[float], Outcome]


@dataclass(frozen=True)
class Step:
    """One step: what it shows, and the machine's check of it, which takes the seconds that are left."""

    what: str
    check: Check


def in_steps(*steps: Step) -> Check:
    """A proof by steps: proved if each one is, else what the first failing one came to."""

    def prove(seconds: float) -> Outcome:
        end = time.monotonic() + seconds
        for step in steps:
            left = end - time.monotonic()
            if left <= 0:
                return Outcome(Status.OPEN, f"{step.what}: no time left")
            outcome = step.check(left)
            if outcome.status != Status.PROVED:
                return Outcome(outcome.status, f"{step.what}: {outcome.detail}")
        return Outcome(Status.PROVED, "; ".join(step.what for step in steps))

    return prove


@dataclass(frozen=True)
class Tangent:
    """`f(at) − f(seen_from) − slope(seen_from)(at − seen_from) ≥ 0`, the gap between `f` and a tangent: convexity."""

    at: Any
    seen_from: Any

    @property
    def gap(self) -> sympy.Expr:
        return f(self.at) - f(self.seen_from) - slope(self.seen_from) * (self.at - self.seen_from)


@dataclass(frozen=True)
class Term:
    """A product of quantities ≥ 0, one of which may be the gap of a tangent; summed over an index if one is given."""

    factors: tuple[Any, ...]
    tangent: Tangent | None = None
    over: tuple[Any, Any, Any] | None = None

    def expression(self) -> sympy.Expr:
        product = sympy.Mul(*self.factors) * (1 if self.tangent is None else self.tangent.gap)
        return product if self.over is None else sympy.Sum(product, self.over)


def tangents(*points: Any) -> list[Any]:
    """All tangent inequalities between some points, as hypotheses for `implication`."""
    return [Tangent(y, x).gap >= 0 for x in points for y in points if x != y]


def linear(expression: sympy.Expr) -> sympy.Expr:
    """With every sum taken apart: `Σ (a x_i + b y_i) = a Σ x_i + b Σ y_i`, where a and b are free of the index."""

    def apart(total: sympy.Sum) -> sympy.Expr:
        ((index, low, high),) = total.limits
        parts = [term.as_independent(index, as_Add=False) for term in sympy.Add.make_args(sympy.expand(total.function))]
        return sympy.Add(*(constant * sympy.Sum(rest, (index, low, high)) for constant, rest in parts))

    return sympy.expand(expression.replace(lambda node: isinstance(node, sympy.Sum), apart))


def residue(expression: sympy.Expr, where: Mapping[Any, Any] | None = None) -> sympy.Expr:
    """What is left of an expression that should vanish, in rational normal form; `where` holds equalities to put in.

    Values of the undetermined function with equal arguments are one unknown each.
    """
    expression = _put_in(linear(expression), where or {})
    calls: dict[Any, sympy.Dummy] = {}

    def unknown(call: Any) -> sympy.Dummy:
        return calls.setdefault((call.func, sympy.cancel(call.args[0])), sympy.Dummy())

    opaque = expression.replace(lambda node: isinstance(node, GENERATOR), unknown)
    numerator = sympy.expand(sympy.fraction(sympy.together(opaque))[0])
    return sympy.Integer(0) if numerator == 0 else sympy.simplify(opaque)


def _put_in(expression: sympy.Expr, where: Mapping[Any, Any]) -> sympy.Expr:
    return expression.subs(list(where.items())) if where else expression


def identity(what: str, left: Any, right: Any = 0, where: Mapping[Any, Any] | None = None) -> Step:
    """`left = right` as functions of all letters, and for every `f`."""

    def check(seconds: float) -> Outcome:
        difference = sympy.sympify(left) - sympy.sympify(right)
        if residue(difference, where) == 0:
            return Outcome(Status.PROVED, "reduces to 0")
        return _differs(_put_in(difference, where or {}))

    return Step(what, check)


# Values at which a claim that does not reduce is tried, in the domain 0 < p < 1 and 0 < r p < 1, and a convex f to try it with
_SAMPLE = {"p": "2/7", "p'": "3/7", "r": "9/8", "c": "25/26", "t": "3/8", "x": "1/9"}
_OTHERS = ("5/9", "11/13", "3/17", "7/19", "13/23", "19/29", "5/31", "23/37", "9/41", "3/43") * 2
_EXAMPLE = {f: lambda a: a * sympy.log(a) - a + 1, slope: sympy.log, curvature: lambda a: 1 / a}


def _sample(letters: Iterable[Any]) -> dict[Any, sympy.Rational]:
    others = iter(_OTHERS)
    return {letter: sympy.Rational(_SAMPLE.get(letter.name) or next(others)) for letter in sorted(letters, key=str)}


def _value(expression: Any, sample: Mapping[Any, Any]) -> sympy.Expr | None:
    """An expression in numbers, with `f(u) = u log u − u + 1` for the undetermined function; None where it has none."""
    expression = sympy.sympify(expression)
    if expression.has(sympy.Sum, sympy.Indexed):
        return None
    for kind, formula in _EXAMPLE.items():
        expression = expression.replace(kind, formula)
    value = sympy.N(expression.subs(sample), 30)
    return value if value.is_number and value.is_real and value.is_finite else None


def _differs(difference: sympy.Expr) -> Outcome:
    """Refuted by values at which two sides differ, else open."""
    sample = _sample(difference.free_symbols)
    value = _value(difference, sample)
    if value is not None and abs(value) > _NOISE:
        return Outcome(Status.REFUTED, f"the two sides differ by {sympy.N(value, 6)} at {_place(sample)}")
    return Outcome(Status.OPEN, "the two sides do not reduce to the same form")


def _fails(claim: sympy.Expr, allowed: Sequence[Any]) -> Outcome:
    """Refuted by values at which a claim is negative although all that is known to be ≥ 0 is, else open."""
    sample = _sample(set().union(claim.free_symbols, *(quantity.free_symbols for quantity in allowed)))
    value, known = _value(claim, sample), [_value(quantity, sample) for quantity in allowed]
    if value is not None and value < -_NOISE and all(number is not None and number >= 0 for number in known):
        return Outcome(Status.REFUTED, f"negative for f(u) = u log u − u + 1, {sympy.N(value, 6)}, at {_place(sample)}")
    return Outcome(Status.OPEN, "the certificate does not add up to the claim")


def _place(sample: Mapping[Any, Any]) -> str:
    return ", ".join(f"{letter} = {number}" for letter, number in sample.items()) or "every point"


def combination(
    what: str,
    claim: sympy.Expr,
    terms: Sequence[Term],
    nonnegative: Iterable[Any],
    where: Mapping[Any, Any] | None = None,
) -> Step:
    """`claim ≥ 0`, as `claim − Σ terms` reduces to 0 and every factor of a term is a product of `nonnegative` quantities."""
    allowed = [sympy.sympify(quantity) for quantity in nonnegative]

    def check(seconds: float) -> Outcome:
        for term in terms:
            for factor in term.factors:
                if not _product_of(sympy.sympify(factor), allowed):
                    return Outcome(Status.OPEN, f"the multiplier {factor} is not known to be at least 0")
        if residue(claim - sympy.Add(*(term.expression() for term in terms)), where) == 0:
            return Outcome(Status.PROVED, "non-negative combination")
        return _fails(_put_in(claim, where or {}), [_put_in(quantity, where or {}) for quantity in allowed])

    return Step(what, check)


def _product_of(factor: sympy.Expr, allowed: Sequence[sympy.Expr]) -> bool:
    """Whether a quantity is a positive number times powers of allowed quantities and even powers of anything."""
    if factor in allowed or any(
        sympy.cancel(factor / quantity).is_positive for quantity in allowed if not quantity.has(sympy.Sum)
    ):
        return True
    sign = 1
    for part in sympy.Mul.make_args(sympy.factor(factor)):
        base, exponent = part.as_base_exp()
        if part.is_Rational:
            sign *= -1 if part < 0 else 1
            continue
        if not exponent.is_Integer:
            return False
        if exponent % 2:
            ratios = [ratio for ratio in (sympy.cancel(base / quantity) for quantity in allowed) if ratio.is_Rational]
            if not ratios:
                return False
            sign *= 1 if ratios[0] > 0 else -1
    return sign > 0


def implication(what: str, hypotheses: Sequence[Any], claim: Any) -> Step:
    """`hypotheses ⟹ claim` for all reals, by z3."""
    return Step(what, lambda seconds: decide(hypotheses, claim, seconds))


def limit(what: str, expression: sympy.Expr, variable: sympy.Symbol, point: Any, value: Any, side: str = "+") -> Step:
    """`lim expression = value`, by sympy; with the assumptions that its symbols carry."""

    def check(seconds: float) -> Outcome:
        found, expected = sympy.limit(expression, variable, point, side), sympy.sympify(value)
        if found == expected:
            return Outcome(Status.PROVED, f"limit {expected}")
        if found.has(sympy.Limit, sympy.AccumBounds, sympy.nan):
            return Outcome(Status.OPEN, f"sympy finds no limit of {expression}")
        if found.is_finite and expected.is_finite:
            rest = sympy.simplify(found - expected)
            return Outcome(Status.PROVED, f"limit {expected}") if rest == 0 else _differs(rest)
        return Outcome(Status.REFUTED if found.is_infinite != expected.is_infinite else Status.OPEN, f"the limit is {found}")

    return Step(what, check)


def passage(what: str, expression: sympy.Expr, limits: Mapping[Any, Any], value: Any) -> Step:
    """`lim expression = value`, for a polynomial in quantities whose limits are given: polynomials are continuous."""

    def check(seconds: float) -> Outcome:
        if not sympy.sympify(expression).is_polynomial(*limits):
            return Outcome(Status.OPEN, f"{expression} is not a polynomial in {', '.join(map(str, limits))}")
        reached = expression.subs(list(limits.items()))
        if residue(reached - sympy.sympify(value)) == 0:
            return Outcome(Status.PROVED, "continuity of polynomials")
        return _differs(reached - sympy.sympify(value))

    return Step(what, check)
