"""What sympy derived, held against the definition: limits of the generator, saturation conditions, closed forms.

Random points are exact rationals, evaluated by mpmath on both sides: substituted into sympy, log(p) of p = 1 − 7e-9 would have
its numerator and denominator factored, which can take minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import sympy

from bandtheory.closed_form_search import symbols
from bandtheory.derivation import Derivation
from bandtheory.divergence import FDivergence
from bandtheory.evidence.definition import Definition, Number, definition, precisely
from bandtheory.evidence.wording import divergence_in_python, expected_and_got, screen

EXACT = mpmath.mpf(10) ** -30  # relative agreement asked of symbolic forms, evaluated with twice as many digits
CLOSED = mpmath.mpf(10) ** -20  # the same for closed forms, whose textbook shape cancels for small p


@dataclass(frozen=True)
class Finding:
    """Result of one symbolic check: how many points, the worst relative error, the first offence in words, a remark."""

    tried: int
    worst: float = 0.0
    offence: str | None = None
    note: str = ""


def points(count: int, seed: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Simple rational (p, δ): p on both sides of ½ down to 1e-9 from 0 and 1, δ from 1e-9 to 40."""
    rng = random.Random(seed)
    for _ in range(count):
        p = Fraction(rng.randint(1, 99), 2 * 10 ** rng.randint(2, 9))
        yield (p if rng.random() < 0.5 else 1 - p), Fraction(rng.randint(1, 40), 10 ** rng.randint(0, 9))


def _ratio(value: Fraction) -> Number:
    return mpmath.mpf(value.numerator) / value.denominator


@lru_cache(maxsize=64)
def _function(argument: sympy.Symbol, expression: sympy.Expr) -> Callable[[Number], Any]:
    return sympy.lambdify(argument, expression, "mpmath")  # type: ignore[no-any-return]


def _number(value: Any) -> Number:
    """A sympy constant, or an mpmath number, as an mpmath number."""
    if isinstance(value, mpmath.mpf):
        return value
    return mpmath.inf if value == sympy.oo else mpmath.mpf(str(sympy.N(value, 60)))


def _apart(expected: Number, got: Number) -> Number:
    """Relative distance, infinite if only one of the two is."""
    if expected == got:
        return mpmath.mpf(0)
    return abs(got - expected) / max(abs(expected), EXACT) if mpmath.isfinite(expected - got) else mpmath.inf


def failure(f: FDivergence, error: Exception) -> str:
    """A derivation that raises, in words."""
    setup, spec = divergence_in_python(f)
    code = ("import bandtheory as bt", *setup, f"print(bt.derive({spec}))")
    rows = [("divergence", f"f(u) = {f.generator}"), ("got", f"{type(error).__name__}: {error}")]
    return screen("theorem 1: the derivation raises an exception", rows, code)


def _words(derived: Derivation, claim: str, name: str, expected: Number, got: Number) -> str:
    setup, spec = divergence_in_python(derived.divergence)
    code = ("import bandtheory as bt", *setup, f"print(bt.derive({spec}))")
    rows = [("divergence", f"f(u) = {derived.divergence.generator}"), *expected_and_got(name, expected, got)]
    return screen(claim, rows, code)


@precisely
def limits(derived: Derivation, count: int, seed: int) -> Finding:
    """`f(0)` and `f'(∞)` against values of f far out, and the solved limits of theorem 7 against a bisection."""
    truth, symbolic, delta = definition(derived.divergence), derived.limits, symbols()[3]
    rows: list[tuple[str, Number, Any]] = [
        ("f(0)", truth.at_zero, symbolic.value_at_zero),
        ("f'(∞)", truth.recession, symbolic.recession_slope),
    ]
    for _, radius in points(count, seed):
        limit = truth.limit(_ratio(radius))
        for name, expected, solution in (
            ("lim lower for p → 1", mpmath.exp(limit), symbolic.lower_at_one),
            ("lim p upper for p → 0", -mpmath.expm1(limit), symbolic.mass_at_zero),
        ):
            if solution is not None:
                value = mpmath.mpmathify(_function(delta, solution)(_ratio(radius)))
                rows.append((f"{name}, δ = {radius}", expected, value))
    exact = [*rows[:2], *_equations(derived, truth)]
    rows = [*exact, *rows[2:]]
    worst = mpmath.mpf(0)
    for tried, (name, expected, solution) in enumerate(rows, 1):
        got = _number(solution)
        allowed = EXACT if tried <= len(exact) else mpmath.mpf(10) ** -12  # the bisection has 16 digits
        error = _apart(expected, got)
        if error > allowed:
            return Finding(tried, float(error), _words(derived, "theorem 7: the derived limit is wrong", name, expected, got))
        worst = max(worst, error)
    note = "" if symbolic.lower_at_one is not None else "theorem 7 left as an equation"
    return Finding(len(rows), float(worst), note=note)


def _equations(derived: Derivation, truth: Definition) -> list[tuple[str, Number, Any]]:
    """Both sides of the equations of theorem 7, which stand where sympy did not solve them: `f(c) + (1 − c) f'(∞) = F(δ)`.

    `c` is the lower bound for p → 1, and 1 − q for p → 0; where `f'(∞) = ∞` they read `r = 1` and `q = 0`.
    """
    rows: list[tuple[str, Number, Any]] = []
    share, radius = mpmath.mpf(1) / 3, mpmath.mpf(1) / 10
    ends = (("p → 1", "r", derived.limits.lower_equation, share), ("p → 0", "q", derived.limits.mass_equation, 1 - share))
    for end, letter, equation, at in ends:
        unknown = next((x for x in equation.free_symbols if x.name == letter), sympy.Symbol(letter))
        if mpmath.isfinite(truth.recession):
            noise = mpmath.mpf(10) ** -40  # where f is 0 throughout
            sides = mpmath.chop(truth.f(share) + (1 - share) * truth.recession, noise), truth.radius(radius)
        else:
            sides = at, mpmath.mpf(1 if letter == "r" else 0)
        name = f"side of the limit's equation for {end} at"
        rows += [
            (f"left {name} {letter} = {mpmath.nstr(at, 3)}", sides[0], _function(unknown, equation.lhs)(at)),
            (f"right {name} δ = 0.1", sides[1], _function(symbols()[3], equation.rhs)(radius)),
        ]
    return rows


@precisely
def saturation(derived: Derivation, count: int, seed: int) -> Finding:
    """The derived conditions of theorem 6, and the constraint, against g at the ends of [0, 1/p], and their radius F(δ)."""
    truth, (p, _, r, delta) = definition(derived.divergence), symbols()
    if not isinstance(derived.constraint, sympy.Equality):
        return Finding(1, offence=failure(derived.divergence, TypeError(f"the constraint is {derived.constraint}")))
    constraint = sympy.lambdify((p, r), derived.constraint.lhs, "mpmath")
    conditions = [c for c in (derived.saturation.upper, derived.saturation.lower) if c not in (sympy.true, sympy.false)]
    radii = {side.rhs for side in (derived.constraint, *conditions)}
    worst, tried = mpmath.mpf(0), 0
    for prob, radius in points(count, seed):
        tried += 1
        logp, where = mpmath.log(_ratio(prob)), f"at p = {prob}, delta = {radius}"
        for claimed_radius in radii:
            expected, got = truth.radius(_ratio(radius)), mpmath.mpmathify(_function(delta, claimed_radius)(_ratio(radius)))
            if _apart(expected, got) > EXACT:
                claim = f"theorem 6: the derived radius of D_f is wrong {where}"
                return Finding(tried, float(_apart(expected, got)), _words(derived, claim, "F(δ)", expected, got))
        for name, condition, end in (
            ("upper = 1/p", derived.saturation.upper, -logp),
            ("lower = 0", derived.saturation.lower, -mpmath.inf),
        ):
            level, claimed = truth.g(logp, end), mpmath.inf
            if condition not in (sympy.true, sympy.false):
                claimed = mpmath.mpmathify(_function(p, condition.lhs)(_ratio(prob)))
                if isinstance(claimed, mpmath.mpf):  # for δ > 0 every level below 0 is the same condition as 0
                    claimed = max(claimed, mpmath.mpf(0))
            error = _apart(level, claimed)
            if error > EXACT or not (condition == sympy.false or isinstance(condition, sympy.Le)):
                claim = f"theorem 6: the derived condition for {name} is wrong {where}"
                return Finding(tried, float(error), _words(derived, claim, "level", level, claimed))
            worst = max(worst, error)
        for log_ratio in (-logp / 2, -mpmath.log(2)):
            expected, got = truth.g(logp, log_ratio), constraint(_ratio(prob), mpmath.exp(log_ratio))
            if _apart(expected, got) > EXACT:
                claim = f"theorem 1: the derived constraint is wrong {where}"
                return Finding(tried, float(_apart(expected, got)), _words(derived, claim, "g", expected, got))
    return Finding(tried, float(worst))


@precisely
def closed_forms(derived: Derivation, count: int, seed: int) -> Finding:
    """Both derived closed forms: in the simplex, saturated exactly where the definition is, g = δ, r on its side of 1."""
    if derived.upper is None or derived.lower is None:
        return Finding(0, note="none found: the bounds are roots of the constraint")
    truth, (p, _, _, delta) = definition(derived.divergence), symbols()
    forms = {
        name: sympy.lambdify((p, delta), form, "mpmath") for name, form in (("upper", derived.upper), ("lower", derived.lower))
    }
    worst, tried = mpmath.mpf(0), 0
    for prob, radius in points(count, seed):
        tried += 1
        for name, form in forms.items():
            error = _from_the_boundary(truth, name, _ratio(prob), _ratio(radius), form(_ratio(prob), _ratio(radius)))
            if error > CLOSED:
                got = form(_ratio(prob), _ratio(radius))
                expected = mpmath.exp(truth.bound(mpmath.log(_ratio(prob)), _ratio(radius), name))
                claim = f"theorem 1: the derived closed form of {name} is wrong at p = {prob}, delta = {radius}"
                return Finding(tried, float(error), _words(derived, claim, name, expected, got))
            worst = max(worst, error)
    return Finding(tried, float(worst))


def _from_the_boundary(truth: Definition, side: str, p: Number, delta: Number, ratio: Any) -> Number:
    """Relative error in log r of a claimed bound: g ≤ F(δ) just inside and g > F(δ) just outside, else infinite."""
    sign = 1 if side == "upper" else -1
    ratio = mpmath.mpmathify(ratio)
    if not isinstance(ratio, mpmath.mpf) or not ratio >= 0 or sign * (ratio - 1) <= 0:
        return mpmath.inf
    logp = mpmath.log(p)
    if ratio == 0:
        return mpmath.mpf(0) if truth.holds(logp, -mpmath.inf, delta * (1 + EXACT)) else mpmath.inf
    claimed = mpmath.log(ratio)
    inside, outside = (truth.excess(logp, claimed * (1 + step), delta) for step in (-CLOSED, CLOSED))
    if inside > 0 or outside <= 0:
        return mpmath.inf
    return abs(2 * -inside / (outside - inside) - 1) * CLOSED if mpmath.isfinite(outside) else mpmath.mpf(0)
