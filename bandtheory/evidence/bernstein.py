"""The sign of a polynomial on [−1, 1], from its Bernstein coefficients.

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
    if not all(a.is_finite() for a in coefficients):
        return None
    with precision(BITS):
        pieces = [(_conversion(len(coefficients)) * _column(coefficients), HALVINGS)]
        halves = _halves(len(coefficients))
        while pieces:
            column, halvings = pieces.pop()
            values = column.entries()
            if all(b >= 0 for b in values):
                continue
            if values[0] < 0 or values[-1] < 0:
                return False
            if not (values[0] >= 0 and values[-1] >= 0 and halvings):
                return None
            pieces += [(half * column, halvings - 1) for half in halves]
    return True


def hull(coefficients: Sequence[arb]) -> tuple[arb, arb]:
    """Balls of a lower and an upper bound of `Σ a_k t^k` on [−1, 1], at the working precision; exact for a constant."""
    values = (_conversion(len(coefficients)) * _column(coefficients)).entries() if len(coefficients) > 1 else list(coefficients)
    low = high = values[0]
    for value in values[1:]:
        low, high = low.min(value), high.max(value)
    return low, high


def _column(entries: Sequence[arb]) -> arb_mat:
    return arb_mat(len(entries), 1, list(entries))


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
