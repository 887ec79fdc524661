"""The stretch around 1 on which a generator is affine: all that a band of radius 0 can use.

Equality in Jensen's inequality, `p f(r) + (1 − p) f(c) = f(1)`, says that f is affine between c and r. With [A, B] the longest
interval around 1 on which f is affine (A = B = 1 for most), the band of radius 0 is

    max(A, (1 − (1 − p) B)/p) ≤ r ≤ min(B, (1 − (1 − p) A)/p)

B is enclosed by `f(u) > L(u)`, seen in ball arithmetic beyond it, and `f(u) = L(u)`, decided by sympy at one rational u before
it (L is the affine function; f ≥ L, so f = L on all of [1, u] by convexity). A likewise, on the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import sympy
from flint import arb

from bandtheory.ball import ball_function, exact, precision
from bandtheory.divergence import FDivergence
from bandtheory.expressions import symbol

BITS = 8192  # for f(1 ± 2⁻³⁰⁰⁰) of a generator that is quadratic around 1
STRICT = (3000, 1100)  # −log₂ of the distance from 1 at which f > L is looked for first
TIGHT = 72  # −log₂ of the relative width of an enclosure of A or B
FAR = 1030


class Stretch(NamedTuple):
    """`outer_left ≤ A ≤ left` and `right ≤ B ≤ outer_right`, exact numbers; 0 and +inf where f is affine up to there."""

    outer_left: arb
    left: arb
    right: arb
    outer_right: arb

    def reach(self, logp: float, sign: int) -> tuple[arb, arb]:
        """`low ≤ |log bound| ≤ high` of the band of radius 0."""
        with precision(BITS):
            p, rest = exact(logp).exp(), -exact(logp).expm1()
            if sign > 0:
                low = min(self.right.lower(), _shared(p, rest, self.left).lower())
                high = min(self.outer_right.upper(), _shared(p, rest, self.outer_left).upper())
                low, high = _log(max(low, arb(1))).lower(), _log(high).upper()
            else:
                low = max(self.left.upper(), _shared(p, rest, self.right).upper())
                high = max(self.outer_left.lower(), _shared(p, rest, self.outer_right).lower())
                low, high = -_log(min(low, arb(1))).upper(), -_log(high).lower()
            strict = 1 in (self.left, self.right)
            return (arb(0) if strict or not low > 0 else low), high


def _shared(p: arb, rest: arb, c: arb) -> arb:
    """The r whose complement ratio is c: `(1 − (1 − p) c)/p`; for p = 0 and p = 1 the limits."""
    if p.is_zero():
        return arb(1) if c == 1 else arb.pos_inf() if c < 1 else arb.neg_inf()
    if rest.is_zero():
        return arb(1) if c.is_finite() else arb.neg_inf()
    return (1 - rest * c) / p if c.is_finite() else arb.neg_inf()


def _log(r: arb) -> arb:
    if not r > 0:
        return arb.neg_inf()
    return r.log() if r.is_finite() else arb.pos_inf()


@lru_cache(maxsize=64)
def stretch(divergence: FDivergence) -> Stretch:
    """A and B of a divergence; cached."""
    u, one = symbol(), arb(1)
    slope = divergence.slope_at_one
    above = divergence.generator - slope * (u - 1)
    value = ball_function(above, u)
    with precision(BITS):
        left, outer_left = _enclose(lambda x: bool(value(x) > 0), -1)
        right, outer_right = _enclose(lambda x: bool(value(x) > 0), 1)
        if 1 in (left, right) and not divergence.generator.has(sympy.Abs, sympy.Max, sympy.Min):
            return Stretch(one, one, one, one)  # an analytic function that is not affine is so on no interval
        if right != 1:
            ends = divergence.recession_slope - slope if not right.is_finite() else _at(above, right)
            right = right if sympy.simplify(ends) == 0 else one
        if left != 1:
            ends = divergence.value_at_zero + slope if left == 0 else _at(above, left)
            left = left if sympy.simplify(ends) == 0 else one
        return Stretch(outer_left, left, right, outer_right)


def _enclose(bent: Callable[[arb], bool], direction: int) -> tuple[arb, arb]:
    """On one side of 1, the u farthest from 1 where f > L was not seen (1 if it is seen at once), the nearest where it was."""
    for bits in STRICT:
        near = 1 + direction * arb((1, -bits))
        if bent(near):
            return arb(1), near
    flat, far = near, arb((1, direction * FAR))
    if not bent(far):
        return (arb.pos_inf(), arb.pos_inf()) if direction > 0 else (arb(0), arb(0))
    while abs(far - flat) > min(far, abs(far - 1)) * arb((1, -TIGHT)):
        close = abs(far - 1) < 0.5
        middle = 1 + direction * (abs(flat - 1) * abs(far - 1)).sqrt() if close else (flat * far).sqrt()
        middle = middle.mid()
        flat, far = (flat, middle) if bent(middle) else (middle, far)
    return flat, far


def _at(expression: sympy.Expr, u: arb) -> sympy.Expr:
    """The exact value at an exact u."""
    place = u.fmpq()
    return expression.subs(symbol(), sympy.Rational(int(place.p), int(place.q)))
