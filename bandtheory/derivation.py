"""What sympy derives from a generator: constraint, limits, saturation, closed forms, and their LaTeX.

Nothing here is typed in per divergence; closed forms come from `closed_form_search`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bandtheory import expressions
from bandtheory.closed_form_search import PowerForm, QuadraticForm, closed_form, symbols
from bandtheory.divergence import FDivergence, as_divergence, settle_kinks
from bandtheory.presentation import cancelled_logarithms, latex, latex_text, shortest, tidy, unicode_lines

if TYPE_CHECKING:
    import sympy

_DIGITS = 50


@dataclass(frozen=True)
class Saturation:
    """Theorem 6: `upper = 1/p` where `upper` holds, `lower = 0` where `lower` holds; relations in p and δ."""

    upper: Any
    lower: Any


@dataclass(frozen=True)
class Limits:
    """Theorem 7, as equations and, where sympy solves them, their solution (else None).

    `mass_at_zero`: `q = lim p·upper` for p → 0, from `q f'(∞) + f(1 − q) = δ`.
    `lower_at_one`: `lim lower` for p → 1, from `f(r) + (1 − r) f'(∞) = δ`.
    """

    value_at_zero: Any
    recession_slope: Any
    mass_equation: Any
    mass_at_zero: Any
    lower_equation: Any
    lower_at_one: Any


@dataclass(frozen=True)
class Derivation:
    """Everything that follows symbolically from one generator.

    Attributes:
        divergence: what it was derived from.
        constraint: `p f(r) + (1 − p) f((1 − r p)/(1 − p)) = δ`, with Rényi's radius in the place of δ where there is one.
        upper, lower: closed forms of the two bounds, piecewise with their saturation, or None where none was found.
        saturation, limits: theorems 6 and 7.
        form: the closed form as the numerical layers use it, or None.
    """

    divergence: FDivergence
    constraint: sympy.Eq
    upper: sympy.Expr | None
    lower: sympy.Expr | None
    saturation: Saturation
    limits: Limits
    form: PowerForm | QuadraticForm | None

    def statements(self) -> list[tuple[str, Any]]:
        """Label and sympy object of each statement, in reading order."""
        import sympy

        u, f, limits = expressions.symbol(), self.divergence.generator, self.limits
        p, _, r, _ = symbols()
        q, c = sympy.Symbol("q"), sympy.Symbol("c", positive=True)
        rows: list[tuple[str, Any]] = [
            ("generator", sympy.Eq(sympy.Function("f")(u), f, evaluate=False)),
            ("f(0)", limits.value_at_zero),
            ("f′(∞)", limits.recession_slope),
            ("constraint", sympy.Eq(p * f.subs(u, r) + (1 - p) * f.subs(u, c), self.divergence.f_radius, evaluate=False)),
            ("with", sympy.Eq(c, (1 - r * p) / (1 - p), evaluate=False)),
            ("upper = 1/p iff", _or_never(self.saturation.upper)),
            ("lower = 0 iff", _or_never(self.saturation.lower)),
            ("p → 0, q = p·upper", limits.mass_equation if limits.mass_at_zero is None else sympy.Eq(q, limits.mass_at_zero)),
            ("p → 1, r = lower", limits.lower_equation if limits.lower_at_one is None else sympy.Eq(r, limits.lower_at_one)),
        ]
        if self.upper is not None:
            rows += [("upper", self.upper), ("lower", self.lower)]
        return rows

    def latex(self) -> str:
        """The statements as a LaTeX `align*` environment."""
        lines = [rf"{latex_text(label)} &\colon\quad {latex(value)}" for label, value in self.statements()]
        body = " \\\\\n".join(lines)
        return f"\\begin{{align*}}\n{body}\n\\end{{align*}}\n"

    def __str__(self) -> str:
        blocks = [f"{self.divergence.name}: {self.divergence.title}"]
        for label, value in self.statements():
            blocks.append("\n".join([f"{label}:", *("    " + line for line in unicode_lines(value))]))
        if self.form is None:
            blocks.append("no elementary closed form found: the bounds are roots of the constraint")
        return "\n\n".join(blocks)


def _or_never(condition: Any) -> Any:
    """A condition for a reader, to whom `False` says little."""
    import sympy

    return sympy.Symbol("never") if condition == sympy.false else condition


@functools.lru_cache(maxsize=128)
def _derive(divergence: FDivergence) -> Derivation:
    import sympy

    u = expressions.symbol()
    p, _, r, delta = symbols()
    f, radius = divergence.generator, divergence.f_radius
    constraint = sympy.Eq(p * f.subs(u, r) + (1 - p) * f.subs(u, (1 - r * p) / (1 - p)), radius, evaluate=False)
    form = closed_form(divergence)
    saturation = _saturation(divergence, form)
    upper = lower = None
    if form is not None:
        below, above = (bound.subs(delta, radius) for bound in _bounds(form))
        lower = sympy.Piecewise((sympy.Integer(0), saturation.lower), (tidy(below), True))
        upper = sympy.Piecewise((1 / p, saturation.upper), (tidy(above), True))
    return Derivation(divergence, constraint, upper, lower, saturation, _limits(divergence), form)


def _bounds(form: PowerForm | QuadraticForm) -> tuple[sympy.Expr, sympy.Expr]:
    """Lower and upper bound away from saturation; the lower one is the complement ratio of the mirror image."""
    import sympy

    p, m, _, delta = symbols()
    mirror = {p: m, m: p}
    if isinstance(form, QuadraticForm):
        return form.complement.subs(mirror, simultaneous=True), (1 - m * form.complement) / p
    odds = (p / m) ** form.exponent  # r − 1 = (1 − c) (1 − p)/p, with the factor taken under the root
    above = (delta + form.offset) / sympy.expand(form.scale * odds)
    below = ((delta + form.offset) / form.scale).subs(mirror, simultaneous=True)
    return 1 - below ** (1 / form.exponent), 1 + above ** (1 / form.exponent)


def derive(divergence: str | FDivergence) -> Derivation:
    """Derive constraint, saturation, limits and closed forms of a divergence.

    Raises:
        DivergenceError, ExpressionError: as `bandtheory.divergence`.
    """
    return _derive(as_divergence(divergence))


def _saturation(divergence: FDivergence, form: PowerForm | QuadraticForm | None) -> Saturation:
    import sympy

    u = expressions.symbol()
    p, m, _, _ = symbols()
    radius = divergence.f_radius
    f, zero = divergence.generator, divergence.value_at_zero
    if zero == sympy.oo:
        return Saturation(sympy.false, sympy.false)
    if isinstance(form, PowerForm):
        level = form.scale - form.offset  # where it is negative the level is 0, and no radius is below either
    else:
        level = p * settle_kinks(f, above=True).subs(u, 1 / p) + m * zero
    upper = tidy(level)
    lower = shortest(upper.subs(p, 1 - p), tidy(level.subs({p: m, m: p}, simultaneous=True)))  # the mirror, theorem 5
    return Saturation(sympy.Le(upper, radius, evaluate=False), sympy.Le(lower, radius, evaluate=False))


def _limits(divergence: FDivergence) -> Limits:
    import sympy

    u = expressions.symbol()
    _, _, r, delta = symbols()
    q, radius = sympy.Symbol("q", positive=True), divergence.f_radius
    f, zero, slope = divergence.generator, divergence.value_at_zero, divergence.recession_slope
    if slope == sympy.oo:
        none = sympy.Integer(0)
        return Limits(zero, slope, sympy.Eq(q, none, evaluate=False), none, sympy.Eq(r, 1), sympy.Integer(1))
    below = settle_kinks(f)
    mass = sympy.Eq(q * slope + cancelled_logarithms(below.subs(u, 1 - q)), radius, evaluate=False)
    lower = sympy.Eq(below.subs(u, r) + (1 - r) * slope, radius, evaluate=False)
    at_one = _solution_in_unit_interval(below + (1 - u) * slope - delta, u)
    if at_one is None:
        return Limits(zero, slope, mass, None, lower, None)
    at_one = tidy(at_one.subs(delta, radius))
    # the two limits are complements: as p → 0 the other tokens have c = 1 − q, and it solves the same equation
    mass_at_zero = tidy(1 - at_one)
    if zero != sympy.oo:
        all_in_reach = sympy.Ge(radius, zero + slope)
        at_one = sympy.Piecewise((sympy.Integer(0), all_in_reach), (at_one, True))
        mass_at_zero = sympy.Piecewise((sympy.Integer(1), all_in_reach), (mass_at_zero, True))
    return Limits(zero, slope, mass, mass_at_zero, lower, at_one)


def _solution_in_unit_interval(expression: sympy.Expr, unknown: sympy.Symbol) -> sympy.Expr | None:
    """The solution in (0, 1) for small δ of `expression = 0`, accepted after a numerical check; None if sympy finds none."""
    import sympy

    delta = symbols()[3]
    try:
        candidates = sympy.solve(expression, unknown) if _soluble(expression, unknown) else []
    except NotImplementedError:
        return None
    points = [sympy.Rational(1, 100), sympy.Rational(1, 20)]
    for candidate in candidates:
        values = [sympy.N(candidate.subs(delta, point), _DIGITS) for point in points]
        if not all(value.is_real and 0 < value < 1 for value in values):
            continue
        residuals = [sympy.N(expression.subs(unknown, v).subs(delta, d), 30) for v, d in zip(values, points, strict=True)]
        if all(abs(residual) < 1e-25 for residual in residuals):
            return sympy.simplify(candidate)
    return None


def _soluble(expression: sympy.Expr, unknown: sympy.Symbol) -> bool:
    """Whether sympy answers soon: few operations and, since it clears roots by raising to powers, small exponents.

    An unknown that stands both inside of logarithms and outside has no elementary solution, which takes sympy seconds to find.
    """
    import sympy

    if expression.has(sympy.log) and expression.replace(sympy.log, lambda _: sympy.Integer(1)).has(unknown):
        return False
    exponents = [power.exp for power in expression.atoms(sympy.Pow) if power.exp.is_Rational]
    return expression.count_ops() <= 30 and all(max(abs(e.p), e.q) <= 6 for e in exponents)
