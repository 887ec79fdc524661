"""Theorem 7 for each divergence of the catalogue: what `bandtheory.derive` says of the limits, against limits taken by sympy.

`derive` puts f(0) and f'(∞) into the formulas of theorem 7. Here sympy takes the limit of the divergence between the two
outcomes itself: at fixed r = 1 − v < 1, along c → ∞ with `p = (c − 1)/(c − r)`,

    h(r) = lim [(c − 1) f(r) + (1 − r) f(c)]/(c − r),

and at fixed mass q = p r, along r → ∞, `lim (q/r) f(r) + f(1 − q)`. For a divergence whose radius δ is a function of that of
`D_f` (Rényi), h is compared in terms of that function.

An equation must be `h = radius` side by side, so that no factor adds or removes a root. A solution ℓ(δ) must undo h:
`ℓ(δ(h(r))) = r` for every 0 < r < 1, where δ(h) is the radius that belongs to a value of h. As h runs continuously through all
of (0, h(0)) there, ℓ is the solution, and the only one, for every radius within reach. Beyond `h(0) = f(0) + f'(∞)` it must be
the end of the interval itself. Where h is infinite, `r = 1` and `q = 0` are asked for literally.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from bandtheory import expressions
from bandtheory.catalogue import examples
from bandtheory.derivation import Limits, derive
from bandtheory.divergence import FDivergence
from proofs.statement import Method, Outcome, Statement, Status
from proofs.steps import Step, identity, in_steps

SHIFT = 64  # beyond every kink of the catalogue, so that sympy sees the sign of c − kink
fall, far, mass, odds = sympy.symbols("v w q x", positive=True)
_WITHIN = odds / (1 + odds)  # runs through (0, 1), and sympy knows the signs of 1 − v and of v
ZERO, ONE = sympy.Integer(0), sympy.Integer(1)


def _at(divergence: FDivergence, point: sympy.Expr) -> sympy.Expr:
    return divergence.generator.subs(expressions.symbol(), point)


def limit_at_one(divergence: FDivergence) -> sympy.Expr:
    """`h(1 − v) = lim g(p, 1 − v)` for p → 1, in [−∞, ∞]."""
    ratio, common = 1 - fall, SHIFT + far
    g = ((common - 1) * sympy.Symbol("f_r") + fall * _at(divergence, common)) / (common - ratio)
    if _recession(divergence) == sympy.oo:
        return sympy.oo
    return sympy.limit(sympy.expand(g), far, sympy.oo).subs(sympy.Symbol("f_r"), _at(divergence, ratio))


def limit_at_zero(divergence: FDivergence) -> sympy.Expr:
    """`lim g(p, q/p)` for p → 0, in (−∞, ∞]."""
    if _recession(divergence) == sympy.oo:
        return sympy.oo
    return mass * _recession(divergence) + _at(divergence, 1 - mass)


def _recession(divergence: FDivergence) -> sympy.Expr:
    common = SHIFT + far
    return sympy.limit(sympy.expand(_at(divergence, common) / common), far, sympy.oo)


def _start(divergence: FDivergence) -> sympy.Expr:
    """`f(0)`."""
    if divergence.generator.has(sympy.Max, sympy.Min):  # sympy takes no limits of these, but they are continuous at 0
        return _at(divergence, ZERO)
    return sympy.limit(divergence.generator, expressions.symbol(), 0, "+")


def _own_radius(divergence: FDivergence, value: sympy.Expr) -> sympy.Expr:
    """The δ that stands for a given radius of `D_f`."""
    delta, level = expressions.radius_symbol(), sympy.Symbol("D", positive=True)
    if divergence.f_radius == delta:
        return value
    (solution,) = sympy.solve(divergence.f_radius - level, delta)
    return solution.subs(level, value)


def _refuted(what: str, why: str) -> Step:
    return Step(what, lambda seconds: Outcome(Status.REFUTED, why))


def _same(what: str, given: Any, expected: Any) -> Step:
    """Two values that may be infinite are equal."""
    given, expected = sympy.sympify(given), sympy.sympify(expected)
    if given == expected:
        return Step(what, lambda seconds: Outcome(Status.PROVED, f"{given}"))
    if given.is_infinite or expected.is_infinite:
        return _refuted(what, f"{given} instead of {expected}")
    return identity(what, given, expected)


def _equation(what: str, equation: Any, unknown: sympy.Symbol, level: sympy.Expr, radius: sympy.Expr) -> Iterator[Step]:
    """`level = radius` side by side, `level` in v with `unknown = 1 − v` for r and `unknown = q` for the mass."""
    end = ONE if unknown.name == "r" else ZERO
    if not isinstance(equation, sympy.Eq):
        yield _refuted(what, f"{equation} is no equation")
    elif level == sympy.oo:  # no r < 1 is within any radius
        if (equation.lhs, equation.rhs) == (unknown, end):
            yield Step(what, lambda seconds: Outcome(Status.PROVED, f"{equation}, as the limit of g is infinite"))
        else:
            yield _refuted(what, f"{equation} where the limit of g is infinite, so that {unknown} = {end}")
    else:
        yield identity(f"{what}: limit of g", equation.lhs.subs(unknown, mass if end == 0 else 1 - fall), level)
        yield identity(f"{what}: radius", equation.rhs, radius)


def _branches(what: str, solution: Any, end: sympy.Expr, reach: sympy.Expr) -> tuple[Any, Step | None]:
    """The branch of a solution that holds within reach, and what is wrong with the one beyond it, if anything."""
    delta = expressions.radius_symbol()
    piecewise = isinstance(solution, sympy.Piecewise)
    if not reach.is_finite:
        return solution, _refuted(what, f"{solution} has cases, but nothing saturates") if piecewise else None
    if not piecewise or len(solution.args) != 2:
        return solution, _refuted(what, f"{solution} is not one case beyond δ = {reach} and one up to it")
    (beyond, condition), (within, otherwise) = solution.args
    threshold = condition.rhs if isinstance(condition, sympy.Ge) and condition.lhs == delta else None
    if threshold is None or sympy.simplify(threshold - reach) != 0 or otherwise != sympy.true or beyond != end:
        return within, _refuted(what, f"{solution}: saturated at {end} from δ = {reach} on")
    return within, None


def _solution(what: str, solution: Any, ends: tuple[Any, Any], undone: Any, delta_of: Any, reach: Any) -> Iterator[Step]:
    """A solution undoes h; `ends` are its values at δ = 0 and beyond reach, `undone` is its value where δ = `delta_of`."""
    delta = expressions.radius_symbol()
    at_rest, beyond = ends
    within, fault = _branches(what, sympy.sympify(solution), beyond, reach)
    if fault is not None:
        yield fault
        return
    yield identity(f"{what} at δ = 0", within.subs(delta, 0), at_rest)
    yield identity(f"{what} undoes h", sympy.simplify(within.subs(delta, delta_of)), undone)


def _solutions(divergence: FDivergence, limits: Limits, h: sympy.Expr) -> Iterator[Step]:
    lowest, most = limits.lower_at_one, limits.mass_at_zero
    if h == sympy.oo:
        if (lowest, most) != (1, 0):
            yield _refuted("solutions", f"r = {lowest} and q = {most}, but an infinite limit of g leaves r = 1 and q = 0")
        return
    if lowest is None and most is None:
        return
    if lowest is None or most is None:
        yield _refuted("solutions", "one of two solutions that are complements is missing")
        return
    reach = sympy.sympify(_own_radius(divergence, _start(divergence) + _recession(divergence)))
    delta_of = sympy.simplify(_own_radius(divergence, h.subs(fall, _WITHIN)))
    yield from _solution("lower, p → 1", lowest, (ONE, ZERO), 1 - _WITHIN, delta_of, reach)
    yield from _solution("p·upper, p → 0", most, (ZERO, ONE), _WITHIN, delta_of, reach)


def _steps(divergence: FDivergence, limits: Limits) -> list[Step]:
    ratio = sympy.Symbol("r", positive=True)
    h, radius = limit_at_one(divergence), divergence.f_radius
    return [
        *_equation("equation for lower, p → 1", limits.lower_equation, ratio, h, radius),
        *_equation("equation for p·upper, p → 0", limits.mass_equation, mass, limit_at_zero(divergence), radius),
        *_solutions(divergence, limits, h),
        _same("f(0)", limits.value_at_zero, _start(divergence)),
        _same("f'(∞)", limits.recession_slope, _recession(divergence)),
    ]


def limits_of(name: str, limits: Limits | None = None) -> Statement:
    """The limits of one divergence; `limits` are the claimed ones."""

    def prove(seconds: float) -> Outcome:
        derivation = derive(name)
        return in_steps(*_steps(derivation.divergence, limits or derivation.limits))(seconds)

    latex_name = name.replace("_", r"\_")
    return Statement(
        name=f"theorem 7: derived limits of {name}",
        statement=f"{name}: the equations and solutions that derive gives for p → 0 and p → 1 are the limits of g(p, r)",
        latex=rf"For \texttt{{{latex_name}}}: the equations and solutions that are derived for $p\to0$ and $p\to1$ are the "
        rf"limits of $g(p,r)$.",
        method=Method.LIMIT,
        rests_on=(
            "sympy's limits",
            "h continuous on [0, 1], from f(0) + f'(∞) to 0",
            "theorem 7: the band for p → 1",
            "theorem 7: the band for p → 0",
        ),
        prove=prove,
    )


def statements() -> list[Statement]:
    """One for each divergence of the catalogue."""
    return [limits_of(name) for name in examples()]
