"""Taylor models on parts of the square hold every value, and the sign of a polynomial in two variables is the sign it has."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb, arb_series, ctx
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.ball import exact, precision
from bandtheory.evidence.bernstein import hull_on_square, is_nonnegative_on_square
from bandtheory.evidence.biseries import BiSeries
from bandtheory.evidence.series import NAMESPACE, Undecided
from bandtheory.evidence.square import (
    ORDER_S,
    ORDER_T,
    SQUARE,
    Piece,
    difference,
    halves,
    negated,
    polynomial,
    raised,
    restricted,
    second_variable,
    taylor_model_on,
)

FRACTIONS = st.fractions(-1, 1, max_denominator=1000)
PLACES = st.tuples(FRACTIONS, FRACTIONS)
MATRICES = st.integers(1, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.fractions(-4, 4, max_denominator=64), min_size=columns, max_size=columns), min_size=1, max_size=4
    )
)
PIECES = [
    SQUARE,
    Piece(-0.5, 0.25, 0.125, 1.0),
    Piece(-1.0, -1.0, -1.0, 1.0),
    Piece(1.0, 1.0, -0.75, -0.25),
    Piece(0.75, 1.0, -1.0, -0.9375),
]

Exact = list[list[Fraction]]


def balls(matrix: Exact) -> list[list[arb]]:
    return [[exact(a) for a in row] for row in matrix]


def at(matrix: Exact, t: Fraction, s: Fraction) -> Fraction:
    return sum((a * t**i * s**k for i, row in enumerate(matrix) for k, a in enumerate(row)), Fraction(0))


def ball_at(matrix: list[list[arb]], t: Fraction, s: Fraction) -> arb:
    terms = (a * exact(t**i * s**k) for i, row in enumerate(matrix) for k, a in enumerate(row))
    return sum(terms, arb(0))


def inside(piece: Piece, place: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """The place on a piece that a place on the square stands for."""
    ends = [Fraction(end) for end in piece]
    return tuple((low + high) / 2 + (high - low) / 2 * u for low, high, u in zip(ends[::2], ends[1::2], place, strict=True))  # type: ignore[return-value]


def number(value: mpmath.mpf) -> arb:
    return arb(mpmath.nstr(value, 70)) * (1 + arb(0, exact(2.0**-200)))


# --- Taylor models ----------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[[arb_series, BiSeries], BiSeries], Callable[[Any, Any], Any]]] = {
    "exp": (lambda t, s: (s * t + t).exp(), lambda t, s: mpmath.exp(s * t + t)),
    "log": (lambda t, s: (s * s / 16 + t / 8 + 2).log(), lambda t, s: mpmath.log(s * s / 16 + t / 8 + 2)),
    "quotient": (lambda t, s: (s + t) / (s * t + 3), lambda t, s: (s + t) / (s * t + 3)),
    "root": (lambda t, s: (s - t + 5).sqrt() * s, lambda t, s: mpmath.sqrt(s - t + 5) * s),
    "of t alone": (lambda t, s: s * arb(0) + t.exp(), lambda t, s: mpmath.exp(t)),
    "of s alone": (lambda t, s: (s * 2).exp(), lambda t, s: mpmath.exp(2 * s)),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", FUNCTIONS)
@given(place=PLACES)
def test_a_taylor_model_holds_every_value_of_the_piece(name: str, piece: Piece, place: tuple[Fraction, Fraction]) -> None:
    of_series, of_numbers = FUNCTIONS[name]
    with precision(256):
        model = taylor_model_on(of_series, piece)
        assert len(model) == (1 if piece.t0 == piece.t1 else ORDER_T + 1)
        assert {len(row) for row in model} == {ORDER_S + 1}
        found = ball_at(model, *place)
    with mpmath.workdps(90):
        true = of_numbers(*(mpmath.mpf(u.numerator) / u.denominator for u in inside(piece, place)))
    with precision(300):
        assert found.overlaps(number(true))
    assert found.rad() < 0.1


def test_a_taylor_model_of_a_small_piece_is_narrow() -> None:
    radii = []
    for width in (2.0**-4, 2.0**-5):
        with precision(256):
            model = taylor_model_on(FUNCTIONS["log"][0], Piece(0.5, 0.5 + width, 0.5, 0.5 + width))
            radii.append(ball_at(model, Fraction(1), Fraction(1)).rad())
    assert radii[1] < radii[0] / 2 ** (ORDER_S - 1)


def test_an_edge_is_constant_in_t() -> None:
    with precision(128):
        (row,) = taylor_model_on(lambda t, s: s + t * 7, Piece(1.0, 1.0, -1.0, 1.0))
        assert row[0].contains(arb(7))
        assert row[1].contains(arb(1))
        assert sum((a.abs_upper() for a in row[2:]), arb(0)) < exact(2.0**-100)


def test_there_is_no_model_across_a_kink() -> None:
    magnitude = NAMESPACE["_magnitude"]
    with precision(128):
        with pytest.raises(Undecided):
            taylor_model_on(lambda t, s: magnitude(s + t), SQUARE)
        assert taylor_model_on(lambda t, s: magnitude(s + t - 3), SQUARE)[0][0].contains(arb(3))


def test_the_length_of_series_is_restored() -> None:
    before = ctx.cap
    with precision(128), pytest.raises(ZeroDivisionError):
        taylor_model_on(lambda t, s: 1 / (s * 0), SQUARE)
    assert ctx.cap == before


# --- polynomials ------------------------------------------------------------------------------------------------------------


@given(MATRICES, MATRICES, PLACES, st.fractions(-3, 3, max_denominator=50))
def test_polynomials_are_negated_raised_and_subtracted(
    first: Exact, second: Exact, place: tuple[Fraction, Fraction], by: Fraction
) -> None:
    with precision(256):
        one, other = balls(first), balls(second)
        assert ball_at(list(map(list, negated(one))), *place).overlaps(exact(-at(first, *place)))
        assert ball_at(list(map(list, raised(one, exact(by)))), *place).overlaps(exact(at(first, *place) + by))
        assert ball_at(list(map(list, difference(one, other))), *place).overlaps(exact(at(first, *place) - at(second, *place)))


@given(MATRICES)
def test_a_polynomial_of_the_variables_is_itself(matrix: Exact) -> None:
    rows, columns = len(matrix), len(matrix[0])
    with precision(256):
        t = arb_series([0, 1], prec=rows)
        found = polynomial(balls(matrix), t, second_variable(arb(0), arb(1), columns, t))
        for i in range(rows):
            for k in range(columns):
                assert (found[k][i] if i < found[k].length() else arb(0)).overlaps(exact(matrix[i][k]))


@pytest.mark.parametrize("piece", PIECES)
@given(matrix=MATRICES, place=PLACES)
def test_a_polynomial_on_a_piece_has_the_values_that_it_has_there(
    piece: Piece, matrix: Exact, place: tuple[Fraction, Fraction]
) -> None:
    with precision(256):
        found = ball_at(restricted(balls(matrix), piece), *place)
        assert found.overlaps(exact(at(matrix, *inside(piece, place))))
        assert found.rad() < exact(2.0**-200)


def test_halves_are_the_piece() -> None:
    piece = Piece(-0.5, 0.25, 0.125, 1.0)
    assert halves(piece, across=True) == [Piece(-0.5, -0.125, 0.125, 1.0), Piece(-0.125, 0.25, 0.125, 1.0)]
    assert halves(piece, across=False) == [Piece(-0.5, 0.25, 0.125, 0.5625), Piece(-0.5, 0.25, 0.5625, 1.0)]


# --- signs ------------------------------------------------------------------------------------------------------------------


@given(MATRICES, PLACES)
def test_a_sign_is_that_of_every_value_and_the_hull_holds_it(matrix: Exact, place: tuple[Fraction, Fraction]) -> None:
    value = at(matrix, *place)
    with precision(128):
        low, high = hull_on_square(balls(matrix))
        assert low <= exact(value) + exact(2.0**-100)
        assert exact(value) - exact(2.0**-100) <= high
        verdict = is_nonnegative_on_square(balls(matrix))
    assert verdict is not True or value >= 0


@given(MATRICES)
def test_every_polynomial_that_is_called_negative_is_so_somewhere(matrix: Exact) -> None:
    if is_nonnegative_on_square(balls(matrix)) is False:
        places = [Fraction(j, 64) for j in range(-64, 65)]
        steepness = sum((max(i, k) * abs(a) for i, row in enumerate(matrix) for k, a in enumerate(row)), Fraction(0))
        assert min(at(matrix, t, s) for t in places[::4] for s in places[::4]) < steepness / 4


@given(MATRICES, st.fractions(Fraction(1, 20), 1, max_denominator=100))
def test_every_sign_that_is_clear_is_found(matrix: Exact, margin: Fraction) -> None:
    places = [Fraction(j, 8) for j in range(-8, 9)]
    steepness = sum(((i + k) * abs(a) for i, row in enumerate(matrix) for k, a in enumerate(row)), Fraction(0))
    lift = margin + steepness / 16 - min(at(matrix, t, s) for t in places for s in places)  # then it is ≥ margin
    lifted = balls([[matrix[0][0] + lift, *matrix[0][1:]], *matrix[1:]])
    assert is_nonnegative_on_square(lifted) is True
    assert is_nonnegative_on_square([[-a for a in row] for row in lifted]) is False


def test_known_signs() -> None:
    """t² − ts + s²/4 = (t − s/2)²."""
    square = [
        [Fraction(0), Fraction(0), Fraction(1, 4)],
        [Fraction(0), Fraction(-1), Fraction(0)],
        [Fraction(1)] + [Fraction(0)] * 2,
    ]

    def raised_by(by: Fraction) -> list[list[arb]]:
        return balls([[by, *square[0][1:]], *square[1:]])

    assert is_nonnegative_on_square(raised_by(Fraction(1, 50))) is True
    assert is_nonnegative_on_square(raised_by(Fraction(-1, 50))) is False  # negative on a line that meets no corner
    assert is_nonnegative_on_square(raised_by(Fraction(0))) is not False
    assert is_nonnegative_on_square([[arb(0)] * 3] * 2) is True
    assert is_nonnegative_on_square([[arb(-1)]]) is False
    saddle = [[arb(1), arb(0)], [arb(0), arb(1)]]  # 1 + ts, which is 0 at two corners
    assert is_nonnegative_on_square(saddle) is True
    assert is_nonnegative_on_square([[arb(0.99), arb(0)], [arb(0), arb(1)]]) is False


def test_signs_of_balls() -> None:
    assert is_nonnegative_on_square([[arb(1), arb(0)], [arb(0), arb(0, 0.99)]]) is True
    assert is_nonnegative_on_square([[arb(1), arb(0)], [arb(0), arb(0, 1.01)]]) is None
    assert is_nonnegative_on_square([[arb(1), arb(0, 0.5)], [arb(0, 0.25), arb(0, 0.2)]]) is True
    assert is_nonnegative_on_square([[arb(1), arb.nan()]]) is None
    assert is_nonnegative_on_square([[arb(1), arb.pos_inf()]]) is None


def test_the_hull_of_a_constant_is_exact() -> None:
    with precision(128):
        low, high = hull_on_square([[exact(Fraction(1, 3))]])
        assert low.overlaps(exact(Fraction(1, 3)))
        assert high.rad() < exact(2.0**-120)
        low, high = hull_on_square([[arb(0), arb(1)], [arb(2), arb(0)]])  # s + 2t
        assert low.contains(arb(-3)) and high.contains(arb(3))
