"""Taylor models hold the values that they model, and the sign of a polynomial is the sign it has."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
import sympy
from flint import arb, arb_poly, ctx
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.ball import exact, precision
from bandtheory.catalogue import examples
from bandtheory.divergence import divergence
from bandtheory.evidence.bernstein import hull, is_nonnegative
from bandtheory.evidence.bracket import ball_generator
from bandtheory.evidence.series import Undecided, series_generator, taylor_model
from bandtheory.expressions import radius_symbol, symbol

ORDER = 12
COEFFICIENTS = st.lists(st.fractions(-4, 4, max_denominator=64), min_size=1, max_size=8)


def polynomial(*coefficients: Fraction | int) -> arb_poly:
    return arb_poly([exact(Fraction(c)) for c in coefficients])


def excess(spec: str, delta: Fraction, x: Fraction, y: Fraction) -> mpmath.mpf:
    """g(e^{−x}, e^y) − δ in 80 digits."""
    f = divergence(spec)
    code = sympy.lambdify(symbol(), f.generator, "mpmath")
    with mpmath.workdps(80):
        x, y, delta = (mpmath.mpf(a.numerator) / a.denominator for a in (x, y, delta))
        p, rest = mpmath.exp(-x), -mpmath.expm1(-x)
        radius = mpmath.mpf(sympy.lambdify(radius_symbol(), f.f_radius, "mpmath")(delta))
        return p * code(mpmath.exp(y)) + rest * code(-mpmath.expm1(y - x) / rest) - radius


@pytest.mark.parametrize("spec", examples())
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((Fraction(9, 8), Fraction(1, 32)), (Fraction(1, 2), Fraction(1, 64), Fraction(1, 1000))),
        ((Fraction(20), Fraction(1, 16)), (Fraction(7), Fraction(1, 20), 0, Fraction(1, 500))),
        ((Fraction(1, 1000), Fraction(1, 16000)), (Fraction(-3, 4), Fraction(-1, 300))),
    ],
)
def test_a_taylor_model_holds_the_values(spec: str, x: tuple[Fraction, ...], y: tuple[Fraction, ...]) -> None:
    with precision(160):
        radius = ball_generator(divergence(spec)).radius(0.25)
        terms, last = taylor_model(series_generator(divergence(spec)), radius, polynomial(*x), polynomial(*y), ORDER)
        assert len(terms) == ORDER
        for s in (Fraction(k, 7) for k in range(-7, 8)):
            at = [sum(c * s**k for k, c in enumerate(curve)) for curve in (x, y)]
            value = arb_poly([*terms, last])(exact(s))
            with mpmath.workdps(80):
                reference = arb(mpmath.nstr(excess(spec, Fraction(1, 4), *at), 70))
            assert value.overlaps(reference * (1 + arb(0, exact(2.0**-140))))
            assert value.rad() < exact(2.0**-20) * max(abs(value.mid()), exact(1))


def test_the_radius_of_the_remainder_falls_with_the_width() -> None:
    radii = []
    for width in (Fraction(1, 4), Fraction(1, 8)):
        with precision(160):
            f = divergence("kl")
            x, y = polynomial(2, width), polynomial(Fraction(1, 2), width / 4)
            _, last = taylor_model(series_generator(f), arb(1), x, y, ORDER)
            radii.append(last.abs_upper())
    assert radii[1] < radii[0] / 2 ** (ORDER - 1)


@pytest.mark.parametrize(
    ("spec", "y"),
    [
        ("tv", (0, Fraction(1, 8))),  # |r − 1| changes its branch
        ("hockey_stick:1.2", (Fraction(2, 11), Fraction(1, 64))),  # r passes 1.2
        ("kl", (Fraction(9, 8), Fraction(1, 4))),  # p r passes 1
        ("pearson_chi2", (Fraction(3, 2), 0)),  # p r > 1, where (u − 1)² would go on
    ],
)
def test_there_is_no_model_across_a_kink_or_outside_the_simplex(spec: str, y: tuple[Fraction, ...]) -> None:
    with precision(160), pytest.raises(Undecided):
        x = polynomial(Fraction(9, 8), Fraction(1, 8))
        taylor_model(series_generator(divergence(spec)), arb(1), x, polynomial(*y), ORDER)


def test_the_length_of_series_is_restored() -> None:
    before = ctx.cap
    with precision(160), pytest.raises(Undecided):
        taylor_model(series_generator(divergence("tv")), arb(1), polynomial(1), polynomial(0), before + 7)
    assert ctx.cap == before


@given(COEFFICIENTS, st.fractions(-1, 1))
def test_a_sign_is_that_of_every_value(coefficients: list[Fraction], t: Fraction) -> None:
    value = sum(c * t**k for k, c in enumerate(coefficients))
    with precision(128):
        balls = [exact(c) for c in coefficients]
        holds = is_nonnegative(balls)
        low, high = hull(balls)
        assert low <= exact(value) + exact(2.0**-100)
        assert exact(value) - exact(2.0**-100) <= high
    assert holds is not True or value >= 0


@given(COEFFICIENTS, st.fractions(Fraction(1, 100), 1))
def test_every_sign_that_is_clear_is_found(coefficients: list[Fraction], margin: Fraction) -> None:
    values = [sum(c * Fraction(j, 200) ** k for k, c in enumerate(coefficients)) for j in range(-200, 201)]
    steepness = sum(k * abs(c) for k, c in enumerate(coefficients))
    lift = margin + steepness / 400 - min(values)  # then the polynomial is ≥ margin
    balls = [exact(c) for c in (coefficients[0] + lift, *coefficients[1:])]
    assert is_nonnegative(balls) is True
    assert is_nonnegative([-b for b in balls]) is False


def test_signs_of_balls() -> None:
    assert is_nonnegative([arb(0), arb(0), arb(0)]) is True
    assert is_nonnegative([arb(1), arb(0, 0.99)]) is True
    assert is_nonnegative([arb(1), arb(0, 1.01)]) is None  # some of its polynomials are negative at 1 and some are not
    assert is_nonnegative([arb(1), arb.nan()]) is None
    assert is_nonnegative([exact(Fraction(1, 1000)), arb(0), arb(1)]) is True
    assert is_nonnegative([exact(Fraction(-1, 10**6)), arb(0), arb(1)]) is False
