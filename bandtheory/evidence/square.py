"""Taylor models in two variables: polynomials with ball coefficients that hold every value of a function on a rectangle.

By Taylor's theorem in both variables, a function h of t and s is

    h(t, s) = Σ_{i<n, j<m} h_ij(0, 0) tⁱ sʲ + Σ_{i<n} h_im(0, τ_i) tⁱ s^m + h_n0(ξ, s) tⁿ

with τ_i and ξ somewhere in the rectangle: three power series, around its middle, around the ball of all s, and around the balls
of all t and s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flint import arb, arb_mat, arb_series

from bandtheory.ball import exact, interval
from bandtheory.evidence.biseries import BiSeries, constant_term
from bandtheory.evidence.series import Undecided, series_length

ORDER_T, ORDER_S = 10, 8

Matrix = Sequence[Sequence[arb]]  # of coefficients: [i][k] of tⁱ sᵏ


class Piece(NamedTuple):
    """A part of the square; t₀ = t₁ is an edge of it."""

    t0: float
    t1: float
    s0: float
    s1: float


SQUARE = Piece(-1.0, 1.0, -1.0, 1.0)

Function = Callable[[arb_series, BiSeries], BiSeries]
Local = Callable[[Piece], Function]  # a function on a piece, with what is known of it there


def taylor_model_on(function: Function, piece: Piece) -> list[list[arb]]:
    """Coefficients of a polynomial on [−1, 1]² with ball coefficients that holds every value of a function on a piece."""
    t_middle, t_half = (exact(piece.t0) + exact(piece.t1)) / 2, (exact(piece.t1) - exact(piece.t0)) / 2
    s_middle, s_half = (exact(piece.s0) + exact(piece.s1)) / 2, (exact(piece.s1) - exact(piece.s0)) / 2
    all_t, all_s = interval(exact(piece.t0), exact(piece.t1)), interval(exact(piece.s0), exact(piece.s1))
    n = ORDER_T if piece.t0 < piece.t1 else 1
    with series_length(n):
        t = arb_series([t_middle, t_half][:n], prec=n)
        near = function(t, second_variable(s_middle, s_half, ORDER_S, t))
        far = function(t, second_variable(all_s, s_half, ORDER_S + 1, t))
    rows = [[_term(near[j], i) for j in range(ORDER_S)] + [_term(far[ORDER_S], i)] for i in range(n)]
    if n == 1:
        return rows
    with series_length(n + 1):
        t = arb_series([all_t, t_half], prec=n + 1)
        last = function(t, second_variable(all_s, s_half, 1, t))[0]
    return [*rows, [_term(last, n)] + [arb(0)] * ORDER_S]


def ball_on(function: Function, piece: Piece) -> arb:
    """A ball that holds every value of a function on a piece, which may have kinks there."""
    with series_length(1):
        t = arb_series([interval(exact(piece.t0), exact(piece.t1))], prec=1)
        return constant_term(function(t, second_variable(interval(exact(piece.s0), exact(piece.s1)), arb(0), 1, t)))


def second_variable(value: arb, slope: arb, length: int, t: arb_series) -> BiSeries:
    """s itself, with coefficients that are series like t."""
    zero = t * 0
    return BiSeries(([zero + value, zero + slope] + [zero] * max(length - 2, 0))[:length])


def _term(series: arb_series, i: int) -> arb:
    if i >= series.prec:
        raise Undecided  # lost by a division
    return series[i]


def polynomial(matrix: Matrix, t: arb_series, s: BiSeries) -> BiSeries:
    """`Σ a_ik tⁱ sᵏ`."""
    found: BiSeries | None = None
    for row in reversed(matrix):
        part = s * arb(0)
        for a in reversed(row):
            part = part * s + a
        found = part if found is None else found * t + part
    assert found is not None
    return found


def negated(matrix: Matrix) -> Matrix:
    return [[-a for a in row] for row in matrix]


def raised(matrix: Matrix, by: arb) -> Matrix:
    return [[matrix[0][0] + by, *matrix[0][1:]], *matrix[1:]]


def difference(first: Matrix, second: Matrix) -> Matrix:
    rows, columns = max(len(first), len(second)), max(len(first[0]), len(second[0]))

    def entry(matrix: Matrix, i: int, k: int) -> arb:
        return matrix[i][k] if i < len(matrix) and k < len(matrix[i]) else arb(0)

    return [[entry(first, i, k) - entry(second, i, k) for k in range(columns)] for i in range(rows)]


def restricted(matrix: Matrix, piece: Piece) -> list[list[arb]]:
    """The polynomial on a piece, as one on the square."""
    rows, columns = len(matrix), len(matrix[0])
    values = arb_mat(rows, columns, [a for row in matrix for a in row])
    across, along = (_substitution(*ends, size) for ends, size in ((piece[:2], rows), (piece[2:], columns)))
    return (across.transpose() * values * along).tolist()


def _substitution(low: float, high: float, size: int) -> arb_mat:
    """Row i: coefficients in τ of `tⁱ`, `t = (low + high)/2 + τ (high − low)/2`."""
    middle, half = (exact(low) + exact(high)) / 2, (exact(high) - exact(low)) / 2
    return arb_mat([[math.comb(i, j) * middle ** max(i - j, 0) * half**j for j in range(size)] for i in range(size)])


def halves(piece: Piece, across: bool) -> list[Piece]:
    """Both halves of the interval of t, or of that of s."""
    t0, t1, s0, s1 = piece
    if across:
        return [Piece(t0, (t0 + t1) / 2, s0, s1), Piece((t0 + t1) / 2, t1, s0, s1)]
    return [Piece(t0, t1, s0, (s0 + s1) / 2), Piece(t0, t1, (s0 + s1) / 2, s1)]
