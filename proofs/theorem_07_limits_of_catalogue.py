"""Theorem 7 for each divergence of the catalogue: what `bandtheory.derive` says of the limits, against limits taken by sympy.

`derive` puts f(0) and f'(∞) into the formulas of theorem 7. Here sympy takes the limit of the divergence between the two
outcomes itself: at fixed r = 1 − v < 1, along c → ∞ with `p = (c − 1)/(c − r)`,

    h(r) = lim [(c − 1) f(r) + (1 − r) f(c)]/(c − r),

and at fixed mass q = p r, along r → ∞, `lim (q/r) f(r) + f(1 − q)`. For a divergence whose radius δ is a function of that of
`D_f` (Rényi), h is compared in terms of that function.
"""

from __future__ import annotations

from typing import Any

import sympy

from bandtheory import expressions
from bandtheory.catalogue import examples
from bandtheory.derivation import Limits, derive
from bandtheory.divergence import FDivergence
from proofs.statement import Method, Outcome, Statement, Status
from proofs.steps import Step, identity, in_steps

SHIFT = 64  # beyond every kink of the catalogue, so that sympy sees the sign of c − kink
fall, far, mass = sympy.symbols("v w q", positive=True)


class DisagreementError(AssertionError):
    """`derive` says infinite where sympy finds a finite limit, or the other way round."""


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


def _own_radius(divergence: FDivergence, value: sympy.Expr) -> sympy.Expr:
    """The δ that stands for a given radius of `D_f`."""
    delta, level = expressions.radius_symbol(), sympy.Symbol("D", positive=True)
    if divergence.f_radius == delta:
        return value
    (solution,) = sympy.solve(divergence.f_radius - level, delta)
    return solution.subs(level, value)


def _agrees(
    what: str, equation: Any, unknown: sympy.Symbol, point: sympy.Expr, divergence: FDivergence, level: sympy.Expr
) -> Step:
    """The equation of `derive` holds at `unknown = point` exactly for the radius that belongs to `level`."""
    delta = expressions.radius_symbol()
    difference = (equation.lhs - equation.rhs).subs(unknown, point)
    if level == sympy.oo:
        # no r < 1 may be within any radius: the equation is `unknown = its value at r = 1`, whatever δ
        fault = difference.has(delta) or sympy.simplify(difference.subs(fall, 0).subs(mass, 0)) != 0 or difference == 0
        outcome = Outcome(Status.REFUTED if fault else Status.PROVED, f"{equation} where the limit is infinite")
        return Step(what, lambda seconds: outcome)
    if not difference.has(delta):
        return Step(what, lambda seconds: Outcome(Status.REFUTED, f"{equation} does not depend on δ, but the limit is {level}"))
    return identity(what, difference.subs(delta, _own_radius(divergence, level)))


def _steps(divergence: FDivergence, limits: Limits) -> list[Step]:
    ratio = sympy.Symbol("r", positive=True)
    h = limit_at_one(divergence)
    steps = [
        _agrees("equation for lower, p → 1", limits.lower_equation, ratio, 1 - fall, divergence, h),
        _agrees("equation for p·upper, p → 0", limits.mass_equation, mass, mass, divergence, limit_at_zero(divergence)),
    ]
    if limits.lower_at_one is not None and h != sympy.oo:
        delta, level, reach = expressions.radius_symbol(), sympy.Symbol("D", positive=True), h.subs(fall, 1)
        if reach.is_finite:  # the solution holds while the radius falls short of h(0)
            level = reach - sympy.Symbol("s", positive=True)
        radius = {delta: _own_radius(divergence, level)}
        lowest, most = (_last_branch(x).subs(radius) for x in (limits.lower_at_one, limits.mass_at_zero))
        steps.append(identity("its solution", h.subs(fall, 1 - lowest), level))
        steps.append(identity("and its complement", 1 - lowest, most))
    return steps


def _last_branch(solution: Any) -> Any:
    """Of a piecewise solution the one that holds while δ is within reach."""
    return solution.args[-1][0] if isinstance(solution, sympy.Piecewise) else solution


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
        rests_on=("sympy's limits", "theorem 7: the band for p → 1", "theorem 7: the band for p → 0"),
        prove=prove,
    )


def statements() -> list[Statement]:
    """One for each divergence of the catalogue."""
    return [limits_of(name) for name in examples()]
