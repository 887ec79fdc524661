"""Power series in two variables: coefficients are those of the exact derivatives, and balls hold them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb, arb_series
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.ball import exact, precision
from bandtheory.evidence.biseries import BiSeries, constant_term, expm1, narrowed
from bandtheory.evidence.series import series_length

LENGTH_T, LENGTH_S = 4, 5
# Σ a_ik tⁱ sᵏ, rows i
FIRST = [
    [Fraction(9, 8), Fraction(-1, 4), Fraction(1, 3)],
    [Fraction(1, 2), Fraction(2, 5), 0],
    [Fraction(-1, 7), 0, Fraction(1, 9)],
]
SECOND = [[Fraction(5, 4), Fraction(1, 6), 0], [Fraction(-1, 3), Fraction(1, 8), Fraction(1, 5)]]


def series(matrix: list[list[Any]]) -> BiSeries:
    """A polynomial as a truncated series."""
    columns = [[exact(row[k]) if k < len(row) else arb(0) for row in matrix] for k in range(LENGTH_S)]
    return BiSeries([arb_series(column, prec=LENGTH_T) for column in columns])


def value(matrix: list[list[Any]], t: mpmath.mpf, s: mpmath.mpf) -> mpmath.mpf:
    return sum(
        mpmath.mpf(Fraction(a).numerator) / Fraction(a).denominator * t**i * s**k
        for i, row in enumerate(matrix)
        for k, a in enumerate(row)
    )


def reference(function: Callable[[Any, Any], Any], i: int, k: int) -> arb:
    """The Taylor coefficient of tⁱ sᵏ at 0, to 50 digits."""
    with mpmath.workdps(60):
        derivative = mpmath.diff(lambda t, s: function(value(FIRST, t, s), value(SECOND, t, s)), (0, 0), (i, k))
        return arb(mpmath.nstr(derivative / (mpmath.factorial(i) * mpmath.factorial(k)), 55))


OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "sum": (lambda a, b: a + b, lambda a, b: a + b),
    "difference": (lambda a, b: a - b, lambda a, b: a - b),
    "negative": (lambda a, b: -a, lambda a, b: -a),
    "product": (lambda a, b: a * b, lambda a, b: a * b),
    "quotient": (lambda a, b: a / b, lambda a, b: a / b),
    "reciprocal": (lambda a, b: 3 / a, lambda a, b: 3 / a),
    "number minus": (lambda a, b: 2 - a, lambda a, b: 2 - a),
    "number plus and times": (lambda a, b: 2 + 3 * a, lambda a, b: 2 + 3 * a),
    "over a number": (lambda a, b: a / arb(8), lambda a, b: a / 8),
    "cube": (lambda a, b: a**3, lambda a, b: a**3),
    "power 0": (lambda a, b: a**0 + b, lambda a, b: 1 + b),
    "exp": (lambda a, b: a.exp(), lambda a, b: mpmath.exp(a)),
    "expm1": (lambda a, b: expm1(a), lambda a, b: mpmath.exp(a) - 1),
    "log": (lambda a, b: a.log(), lambda a, b: mpmath.log(a)),
    "sqrt": (lambda a, b: a.sqrt(), lambda a, b: mpmath.sqrt(a)),
    "real power": (lambda a, b: a ** (arb(5) / 2), lambda a, b: a ** mpmath.mpf(2.5)),
    "negative power": (lambda a, b: a ** (-arb(1) / 4), lambda a, b: a ** mpmath.mpf(-0.25)),
    "all of them": (
        lambda a, b: (a * b.log() - b).exp() / a.sqrt(),
        lambda a, b: mpmath.exp(a * mpmath.log(b) - b) / mpmath.sqrt(a),
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_coefficients_are_the_derivatives(operation: str) -> None:
    of_series, of_numbers = OPERATIONS[operation]
    with precision(160), series_length(LENGTH_T):
        found = of_series(series(FIRST), series(SECOND))
        assert len(found) == LENGTH_S
        for i in range(LENGTH_T):
            for k in range(LENGTH_S):
                ball, true = found[k][i], reference(of_numbers, i, k)
                assert ball.overlaps(true + arb(0, exact(2.0**-130)))
                assert ball.rad() < exact(2.0**-140)


@pytest.mark.parametrize("operation", OPERATIONS)
@given(place=st.tuples(st.fractions(-1, 1), st.fractions(-1, 1)))
def test_a_series_around_balls_holds_those_around_their_points(operation: str, place: tuple[Fraction, Fraction]) -> None:
    width = Fraction(1, 50)
    of_series, _ = OPERATIONS[operation]

    def moved(matrix: list[list[Any]], by: Any) -> BiSeries:
        found = series(matrix)
        return BiSeries([found[0] + by, *(found[k] + by * exact(Fraction(1, k)) for k in range(1, len(found)))])

    with precision(160), series_length(LENGTH_T):
        ball = arb(0, exact(width))
        wide = of_series(moved(FIRST, ball), moved(SECOND, ball))
        near = of_series(*(moved(matrix, exact(width * by)) for matrix, by in zip((FIRST, SECOND), place, strict=True)))
        for k in range(LENGTH_S):
            assert all(wide[k][i].contains(near[k][i].mid()) for i in range(LENGTH_T))


def test_exponentials_keep_their_digits_near_zero() -> None:
    with precision(64), series_length(LENGTH_T):
        small = series([[Fraction(1, 2**80), 1]])
        found = expm1(small)
        with precision(300):
            true = exact(Fraction(1, 2**80)).expm1()
        assert constant_term(found).contains(true)
        assert constant_term(found).rad() < constant_term(found) * exact(2.0**-50)
        assert constant_term(small.exp() - 1).rad() > exact(2.0**-80)


def test_a_second_enclosure_changes_the_constant_term_alone() -> None:
    with precision(64), series_length(LENGTH_T):
        wide = series(FIRST) + arb(0, 1)
        found = narrowed(wide, arb(1, 0.25))
        assert constant_term(found).contains(arb(1.2))
        assert not constant_term(found).contains(arb(1.3))
        assert repr(found[0].coeffs()[1:]) == repr(wide[0].coeffs()[1:])
        assert repr(found.parts[1:]) == repr(wide.parts[1:])
        with pytest.raises(ValueError, match="empty intersection"):
            narrowed(wide, arb(9, 0.25))


@pytest.mark.parametrize("length", [LENGTH_S - 1, LENGTH_S + 1])
def test_series_of_different_lengths_do_not_add(length: int) -> None:
    with precision(64), series_length(LENGTH_T), pytest.raises(ValueError, match="zip"):
        series(FIRST) + BiSeries([arb_series([1], prec=LENGTH_T)] * length)
