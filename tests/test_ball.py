"""Ball arithmetic for expressions: what comes out holds the exact value, for every number in the balls that went in."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
import sympy
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.ball import (
    BallError,
    ball_function,
    exact,
    float_above,
    float_below,
    hull,
    interval,
    limits,
    precision,
    slope,
)
from bandtheory.catalogue import examples
from bandtheory.divergence import FDivergence, divergence
from bandtheory.expressions import parse, symbol

U = symbol()
EXPRESSIONS = (
    "abs(u - 1)**1.5",
    "abs(u - 1)**3",
    "max(u - 1.2, 0)**1.7",
    "min(u, 1/u, 3)",
    "max(abs(u - 1) - 1/10, 0, (u - 2)**3)",
    "u**pi - pi*(u - 1) - 1",
    "(u - 1)**5",
    "(u - 2)**(-4)",
    "sqrt(1 + (u - 1)**2) - 1",
    "exp(u) - e*u",
    "u*log(2*u/(u + 1))/2",
    "2*max(u, 1) - 0.3*min(u, 2) - 1.7",
)


def value(text: str, at: arb) -> arb:
    ball: arb = ball_function(parse(text), U)(at)
    return ball


def reference(expression: sympy.Expr, u: Fraction) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.mpf(sympy.lambdify(U, expression, "mpmath")(mpmath.mpf(u.numerator) / u.denominator))


def holds(ball: arb, number: mpmath.mpf) -> bool:
    """Whether the ball contains a number of 60 digits, up to its last digits."""
    with mpmath.workdps(60), precision(200):
        near = arb(str(number))
        return bool(ball.overlaps(arb(near, abs(near) * exact(2.0**-180) + exact(2.0**-180))))


@pytest.mark.parametrize("text", [*EXPRESSIONS, *examples()])
def test_a_ball_of_one_number_encloses_the_value_tightly(text: str) -> None:
    expression = divergence(text).generator if text in examples() else parse(text)
    function = ball_function(expression, U)
    for u in (Fraction(1, 3), Fraction(7, 10), Fraction(99, 100), Fraction(17, 10), Fraction(40)):
        with precision(128):
            ball = function(exact(u))
            assert holds(ball, reference(expression, u))
            assert ball.rad() < exact(2.0**-100) * (1 + abs(ball.mid()))


@given(st.sampled_from(EXPRESSIONS), st.fractions(0, 4), st.fractions(0, 4), st.fractions(0, 1))
def test_a_wide_ball_encloses_the_values_at_all_its_points(text: str, a: Fraction, b: Fraction, share: Fraction) -> None:
    low, high = min(a, b) + Fraction(1, 1000), max(a, b) + Fraction(1, 1000)
    inner = low + (high - low) * share
    expression = parse(text)
    if inner == 2 and "u - 2" in text:
        return
    with precision(80):
        ball = value(text, interval(low, high))
        assert not ball.is_finite() or holds(ball, reference(expression, inner))


def test_a_ball_across_a_switch_gives_the_hull_of_the_branches() -> None:
    around = interval(Fraction(1, 2), Fraction(5, 4))
    with precision(80):
        low, high = hull(value("abs(u - 1)", around))
        assert low <= 0 <= 0.5 <= high
        assert low > -1e-6
        assert high < 0.5 + 1e-6
        low, high = hull(value("max(u, 1)", around))
        assert 1 - 1e-6 < low <= 1
        assert 1.25 <= high < 1.25 + 1e-6


@pytest.mark.parametrize(
    ("text", "left", "right"), [("abs(u - 1)/2", -0.5, 0.5), ("max(u - 1, 0)", 0, 1), ("min(2*u, 2)", 0, 2)]
)
def test_the_slope_at_a_kink_is_the_hull_of_the_slopes_on_both_sides(text: str, left: float, right: float) -> None:
    ball = ball_function(slope(parse(text), U), U)(exact(1))
    low, high = hull(ball)
    assert left - 1e-6 < low <= left
    assert right <= high < right + 1e-6


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_power_of_a_ball_with_midpoint_zero_is_finite(n: int) -> None:
    # flint's own power is not a number there
    assert not (arb(0, 1) ** n).is_finite()
    low, high = hull(value(f"(u - 1)**{n}", arb(1, 0.5)))
    assert low <= (-(0.5**n) if n % 2 else 0)
    assert 0.5**n <= high < 0.5**n * 1.001


def test_roots_of_what_cannot_be_negative_may_touch_zero() -> None:
    ball = value("abs(u - 1)**1.5", arb(1, 0.25))
    assert ball.is_finite()
    assert hull(ball)[0] <= 0 <= 0.125 <= hull(ball)[1] < 0.126


@pytest.mark.parametrize("text", ["log(u - 1)", "1/(u - 1)", "sqrt(u - 1)", "(u - 1)**0.3"])
def test_what_is_not_defined_on_all_of_a_ball_is_not_finite(text: str) -> None:
    ball = value(text, arb(1, 0.25))
    assert not ball.is_finite()
    assert not ball > 0
    assert not ball <= 0


def test_constants_are_made_at_the_precision_of_the_call() -> None:
    third = ball_function(parse("pi + u/3 + 0.1*e"), U)
    radii = []
    for bits in (53, 200, 1000):
        with precision(bits):
            radii.append(third(exact(1)).rad())
    assert radii[0] > radii[1] > radii[2] > 0
    with precision(1000):
        assert radii[2] < exact(2.0**-990)


def test_the_precision_is_restored_after_an_exception() -> None:
    before = ctx.prec
    with pytest.raises(KeyError), precision(77):
        assert ctx.prec == 77
        raise KeyError
    assert ctx.prec == before


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact_there_and_back(x: float) -> None:
    ball = exact(x)
    assert ball.is_exact()
    assert hull(ball) == (x, x)


def test_rounding_to_floats_goes_outwards() -> None:
    with precision(200):
        third = exact(Fraction(1, 3))
        below, above = float_below(third), float_above(third)
        assert Fraction(below) < Fraction(1, 3) < Fraction(above)
        assert math.nextafter(below, 1) == above
    assert hull(arb("1e400")) == (math.nextafter(math.inf, 0), math.inf)
    assert hull(-arb("1e-400")) == (-5e-324, 0.0)
    assert hull(arb.nan()) == (-math.inf, math.inf)


def test_limits_of_generators() -> None:
    with precision(100):
        assert [hull(x) for x in limits(divergence("tv"))] == [(0.5, 0.5)] * 2
        at_zero, recession = limits(divergence("kl"))
        assert at_zero == arb.pos_inf()
        assert recession == 0
        half_log_2 = limits(divergence("jensen_shannon"))[0]
        assert holds(half_log_2, reference(sympy.log(2) / 2, Fraction(1)))
        assert not half_log_2.is_exact()


def test_a_list_of_expressions_shares_its_arguments() -> None:
    x, y = sympy.symbols("x y", positive=True)
    with precision(100):
        total, product = ball_function([x + y, x * y], x, y)(exact(3), exact(Fraction(1, 4)))
    assert hull(total) == (3.25, 3.25)
    assert hull(product) == (0.75, 0.75)


def test_what_has_no_ball_function_is_named() -> None:
    x = sympy.Symbol("x", positive=True)
    with pytest.raises(BallError, match="unknown symbol x; accepted: u"):
        ball_function(x + U, U)
    with pytest.raises(BallError, match=r"gamma.*accepted"):
        ball_function(sympy.gamma(U), U)
    with pytest.raises(BallError, match="exponent must be a constant"):
        ball_function(sympy.Integer(2) ** U, U)
    with pytest.raises(BallError, match="kink"):
        slope(sympy.diff(FDivergence("", "abs(u - 1)").generator, U), U)
