"""The search for a closed form, by sympy.

Two shapes are tried, both in terms of the complement ratio `c = (1 − r p)/(1 − p)` of the upper bound (the lower bound is its
mirror, theorem 5):

    power       g = v^k K(p) − L(p) with v = 1 − c, hence v = ((δ + L)/K)^{1/k}
    quadratic   the constraint, cleared of denominators and square roots, has a factor quadratic in κ, where c = κ or c = κ²

The first one covers generators with kinks (hockey stick): the pieces far from 1 are tried, since those are active at the bound
once r has left the flat or bent part. A form is accepted only if it satisfies the constraint to 30 digits at every point of a
grid of (p, δ).
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bandtheory import expressions
from bandtheory.divergence import MAX_TERMS, FDivergence, expanded_size, resolve_kinks, settle_kinks, tame
from bandtheory.high_precision import digits

if TYPE_CHECKING:
    import sympy

_DIGITS = 120  # r = (1 − (1 − p) c)/p loses 30 of them at p = 1e-30
_CHECKED_P = ("1e-30", "1e-12", "1e-6", "1e-4", "0.02", "0.3", "0.5", "0.77", "0.999")
_CHECKED_DELTA = ("1e-5", "1e-3", "0.02", "0.3", "1.5", "40")
_CHECKED_AT_LEAST = 8  # points of that grid where the bound does not saturate
MAX_DEGREE = 8  # of a constraint that is searched for a quadratic factor


@functools.lru_cache(maxsize=1)
def symbols() -> tuple[sympy.Symbol, sympy.Symbol, sympy.Symbol, sympy.Symbol]:
    """`p` (old probability), `m` (its complement 1 − p), `r` (ratio), `δ` (radius in nats)."""
    import sympy

    p, m, r = sympy.symbols("p m r", positive=True)
    return p, m, r, expressions.radius_symbol()


Monomials = tuple[tuple[float, float, float], ...]  # (coefficient, i, j) of each term coefficient · p^i · m^j of a sum


@dataclass(frozen=True)
class PowerForm:
    """`1 − c = ((δ + L)/K)^{1/k}` with K (`scale`) and L (`offset`, may be 0) sums of positive monomials in p and m."""

    exponent: sympy.Rational
    scale: sympy.Expr
    offset: sympy.Expr

    @property
    def complement(self) -> sympy.Expr:
        """c in p, m and δ."""
        return 1 - ((symbols()[3] + self.offset) / self.scale) ** (1 / self.exponent)


@dataclass(frozen=True)
class QuadraticForm:
    """`c = κ^power` with `a κ² + b κ + k = 0`; `sign` is that of the root in `κ = (−b + sign·√(b² − 4ak))/(2a)`.

    `shifted` are the coefficients of the same equation in `s = 1 − κ`. All are polynomials in p, m and δ, homogenised by
    `p + m = 1` to Bernstein form, which keeps sums of positive terms free of cancellation.
    """

    power: int
    sign: int
    coefficients: tuple[sympy.Expr, sympy.Expr, sympy.Expr]
    shifted: tuple[sympy.Expr, sympy.Expr, sympy.Expr]
    discriminant: sympy.Expr
    complement: sympy.Expr


@functools.lru_cache(maxsize=128)
def closed_form(divergence: FDivergence) -> PowerForm | QuadraticForm | None:
    """The closed form of the complement ratio of the upper bound, in the radius δ of `D_f`, or None if neither shape fits."""
    import sympy

    tilted = divergence.tilted
    below, above = settle_kinks(tilted), settle_kinks(tilted, above=True)
    if tilted.has(sympy.log, sympy.exp) or expanded_size(above) > MAX_TERMS:
        return None
    found = _power_form(below, above)
    if found or (below + above).has(sympy.Max, sympy.Min, sympy.Abs) or not tame(below + above):
        return found
    return _quadratic_form(below, above)


def _power_form(below: sympy.Expr, above: sympy.Expr) -> PowerForm | None:
    import sympy

    u = expressions.symbol()
    p, m, _, _ = symbols()
    v = sympy.Symbol("v", positive=True)
    far_below, far_above = resolve_kinks(below, 2.0**-1000), resolve_kinks(above, 2.0**1000)
    offset = -_tidy_sum(p * far_above.subs(u, 1) + m * far_below.subs(u, 1))
    g = p * far_above.subs(u, 1 + v * m / p) + m * far_below.subs(u, 1 - v) + offset
    exponent = _homogeneity(sympy.lambdify((v, p, m), g, "mpmath"))
    if exponent is None:
        return None
    # at v = 1, where c = 0, g is the saturation level of theorem 6; being proportional to v^k, it is K there
    constant = _tidy_sum(p * far_above.subs(u, 1 + m / p) + m * far_below.subs(u, 0) + offset)
    if not (_is_posynomial(constant) and _is_posynomial(offset)):
        return None
    form = PowerForm(exponent, constant, offset)
    return form if _satisfies_constraint(form.complement, below, above) else None


def _tidy_sum(expression: sympy.Expr) -> sympy.Expr:
    """Expanded, and shortened by `p + m = 1` where that leaves fewer terms, all positive."""
    import sympy

    p, m, _, _ = symbols()
    expanded = sympy.expand(expression)
    if not tame(expanded):
        return expanded
    shorter = sympy.expand(sympy.factor(expanded).subs(p + m, 1))
    terms = [len(sympy.Add.make_args(e)) for e in (shorter, expanded)]
    return shorter if terms[0] < terms[1] and _is_posynomial(shorter) else expanded


def monomials(expression: sympy.Expr) -> Monomials:
    """The terms of a sum in p and m; none for 0."""
    import sympy

    return tuple(_monomial(term) for term in sympy.Add.make_args(expression)) if expression != 0 else ()


def _monomial(term: sympy.Expr) -> tuple[float, float, float]:
    """`coefficient · p^i · m^j` as `(coefficient, i, j)`; the coefficient is NaN if the term is none."""
    p, m, _, _ = symbols()
    powers = term.as_powers_dict()
    coefficient = term / (p ** powers[p] * m ** powers[m])
    return float(coefficient) if coefficient.is_number else math.nan, float(powers[p]), float(powers[m])


def _is_posynomial(expression: sympy.Expr) -> bool:
    """Whether the sum has positive terms only (or none), so that its logarithm is free of cancellation."""
    return all(monomial[0] > 0 for monomial in monomials(expression))


def _homogeneity(g: Any) -> sympy.Rational | None:
    """k if `g(v, p, 1 − p) ∝ v^k` at a few points, to 30 digits: a cheap test before any algebra."""
    import mpmath
    import sympy

    with digits(_DIGITS):
        exponents = []
        for P in (mpmath.mpf("0.2"), mpmath.mpf("0.7")):
            values = [g(v, P, 1 - P) for v in (mpmath.mpf("0.05"), mpmath.mpf("0.1"), mpmath.mpf("0.8"))]
            if not all(isinstance(value, mpmath.mpf) and value > 0 for value in values):
                return None
            exponents += [mpmath.log(values[1] / values[0], 2), mpmath.log(values[2] / values[1], 8)]
        if not all(isinstance(e, mpmath.mpf) and abs(e - exponents[0]) < mpmath.mpf(10) ** -30 for e in exponents):
            return None
        exponent = sympy.nsimplify(mpmath.nstr(exponents[0], 30), rational=True).limit_denominator(10_000)
    return exponent if exponent > 0 else None


def _quadratic_form(below: sympy.Expr, above: sympy.Expr) -> QuadraticForm | None:
    import sympy

    u = expressions.symbol()
    p, _, _, delta = symbols()
    rho, kappa = sympy.symbols("rho kappa", positive=True)
    for power in (1, 2):
        g = p * above.subs(u, rho**power) + (1 - p) * below.subs(u, kappa**power) - delta
        numerator = sympy.numer(sympy.together(g))
        if not numerator.is_polynomial(rho, kappa) or sympy.Poly(numerator, rho, kappa).total_degree() > MAX_DEGREE:
            continue
        eliminated = sympy.resultant(numerator, p * rho**power + (1 - p) * kappa**power - 1, rho)
        factors = [factor for factor, _ in sympy.factor_list(eliminated, kappa)[1] if sympy.degree(factor, kappa) == 2]
        for factor, sign in itertools.product(factors, (-1, 1)):
            form = _as_quadratic(sympy.Poly(factor, kappa), power, sign)
            if form is not None and _satisfies_constraint(form.complement, below, above):
                return form
    return None


def _as_quadratic(polynomial: sympy.Poly, power: int, sign: int) -> QuadraticForm | None:
    import sympy

    delta = symbols()[3]
    half = {symbols()[0]: sympy.Rational(1, 2), delta: sympy.Rational(1, 100)}
    a, b, k = polynomial.all_coeffs()
    if a.subs(half) < 0:
        a, b, k = -a, -b, -k
    discriminant = bernstein(b**2 - 4 * a * k)
    a, b, k = map(bernstein, (a, b, k))
    shifted = (a, bernstein(-2 * a - b), bernstein(a + b + k))
    kappa = (-b + sign * sympy.sqrt(discriminant)) / (2 * a)
    return QuadraticForm(power, sign, (a, b, k), shifted, discriminant, kappa**power)


def bernstein(polynomial: sympy.Expr) -> sympy.Expr:
    """A polynomial in p (and m = 1 − p) as `Σ d_i p^i m^{n−i}` with the lowest n, its coefficients polynomials in δ."""
    import sympy

    p, m, _, _ = symbols()
    poly = sympy.Poly(sympy.expand(polynomial.subs(m, 1 - p)), p)
    n = max(poly.degree(), 0)
    power = poly.all_coeffs()[::-1]
    terms = []
    for i in range(n + 1):
        d = sum(sympy.binomial(n - j, i - j) * power[j] for j in range(i + 1))
        terms.append(sympy.factor(d) * p**i * m ** (n - i))
    return sympy.Add(*terms)


def _satisfies_constraint(complement: sympy.Expr, below: sympy.Expr, above: sympy.Expr) -> bool:
    """Whether `0 ≤ c ≤ 1` and `g = δ` to 30 digits wherever on the grid it does not saturate, often enough."""
    import mpmath
    import sympy

    u = expressions.symbol()
    p, m, _, delta = symbols()
    evaluate = sympy.lambdify((p, m, delta), complement, "mpmath")
    f_below, f_above = (sympy.lambdify(u, e, "mpmath") for e in (below, above))
    checked = 0
    with digits(_DIGITS):
        limit = sympy.limit(resolve_kinks(below, 2.0**-1000), u, 0, "+")
        at_zero = mpmath.inf if limit == sympy.oo else mpmath.mpf(sympy.N(limit, _DIGITS))
        for P, D in itertools.product(_CHECKED_P, _CHECKED_DELTA):
            P, D = mpmath.mpf(P), mpmath.mpf(D)
            if P * f_above(1 / P) + (1 - P) * at_zero <= D:
                continue
            c = evaluate(P, 1 - P, D)
            if not (isinstance(c, mpmath.mpf) and 0 <= c <= 1):
                return False
            r = (1 - (1 - P) * c) / P
            if abs(P * f_above(r) + (1 - P) * f_below(c) - D) > D * mpmath.mpf(10) ** -30:
                return False
            checked += 1
    return checked >= _CHECKED_AT_LEAST
