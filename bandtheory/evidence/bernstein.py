"""The sign of a polynomial on [−1, 1], and of one in two variables on [−1, 1]², from Bernstein coefficients.

    Σ a_k t^k = Σ b_j B_j(t),   B_j(t) = C(n, j) ((1 + t)/2)^j ((1 − t)/2)^{n−j} ≥ 0,   Σ B_j = 1

So the polynomial lies between the least and the largest b_j, and b_0 and b_n are its values at −1 and 1. On each half of the
interval there are coefficients again, closer to the polynomial by a factor of 4 (de Casteljau). The a_k are balls: what is
decided holds for every polynomial in them, hence also where the last coefficient depends on t, as in a Taylor remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

from flint import arb, arb_mat

from bandtheory.ball import exact, precision

BITS = 64  # for the sign alone: cancellation is over when a polynomial comes here
MATRIX_BITS = 128
HALVINGS = 12


def is_nonnegative(coefficients: Sequence[arb]) -> bool | None:
    """Whether `Σ a_k t^k ≥ 0` on all of [−1, 1]; False if it is certainly negative at some t, None if undecided."""
    return is_nonnegative_on_square([[a] for a in coefficients])


def is_nonnegative_on_square(matrix: Sequence[Sequence[arb]]) -> bool | None:
    """The same of `Σ a_ik tⁱ sᵏ` on [−1, 1]²."""
    if not all(a.is_finite() for row in matrix for a in row):
        return None
    rows, columns = len(matrix), len(matrix[0])
    with precision(BITS):
        pieces = [(_bernstein(matrix), HALVINGS)]
        while pieces:
            block, halvings = pieces.pop()
            if all(b >= 0 for b in block.entries()):
                continue
            corners = [block[i, k] for i in {0, rows - 1} for k in {0, columns - 1}]
            if any(corner < 0 for corner in corners):
                return False
            if not (all(corner >= 0 for corner in corners) and halvings):
                return None
            if columns == 1 or (rows > 1 and halvings % 2 == 0):
                pieces += [(half * block, halvings - 1) for half in _halves(rows)]
            else:
                pieces += [(block * half.transpose(), halvings - 1) for half in _halves(columns)]
    return True


def hull(coefficients: Sequence[arb]) -> tuple[arb, arb]:
    """Balls of a lower and an upper bound of `Σ a_k t^k` on [−1, 1], at the working precision; exact for a constant."""
    return hull_on_square([[a] for a in coefficients])


def hull_on_square(matrix: Sequence[Sequence[arb]]) -> tuple[arb, arb]:
    """The same of `Σ a_ik tⁱ sᵏ` on [−1, 1]²."""
    values = _bernstein(matrix).entries() if len(matrix) * len(matrix[0]) > 1 else [matrix[0][0]]
    low = high = values[0]
    for value in values[1:]:
        low, high = low.min(value), high.max(value)
    return low, high


def _bernstein(matrix: Sequence[Sequence[arb]]) -> arb_mat:
    """Bernstein coefficients in both directions."""
    rows, columns = len(matrix), len(matrix[0])
    values = _conversion(rows) * arb_mat(rows, columns, [a for row in matrix for a in row])
    return values if columns == 1 else values * _conversion(columns).transpose()


@lru_cache(maxsize=64)
def _conversion(size: int) -> arb_mat:
    """From powers of t to Bernstein coefficients: `t = 2u − 1`, and `u^i = Σ_j C(j, i)/C(n, i) B_j`."""
    n = size - 1
    rows = [
        sum(
            (comb(k, i) * 2**i * (-1) ** (k - i) * Fraction(comb(j, i), comb(n, i)) for i in range(k + 1)),
            start=Fraction(0),
        )
        for j in range(size)
        for k in range(size)
    ]
    with precision(MATRIX_BITS):
        return arb_mat(size, size, [exact(entry) for entry in rows])


@lru_cache(maxsize=64)
def _halves(size: int) -> tuple[arb_mat, arb_mat]:
    """De Casteljau at the middle: `left_j = 2^{−j} Σ_i C(j, i) b_i`, and the same from the other end; entries are exact."""
    n = size - 1
    left = [arb((comb(j, i), -j)) for j in range(size) for i in range(size)]
    right = [arb((comb(n - j, n - i), j - n)) for j in range(size) for i in range(size)]
    return arb_mat(size, size, left), arb_mat(size, size, right)
