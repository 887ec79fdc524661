"""Proofs that a cubic stays within a stated distance of a log-bound for all real x = −log p of an interval.

With σ = 1 for the upper bound and −1 for the lower one, `B(x) = σ log bound(e^{−x}) ≥ 0` and `C = σ · cubic`, a claim is

    C(x) − excess ≤ B(x) ≤ C(x) + shortfall        for all real x in [low, high]

B(x) is the largest z with `g(p, e^{σz}) ≤ δ` (theorem 2), is non-decreasing in x (theorem 3), and B(x) ≤ x for the upper side,
whose ratio is at most 1/p. The two inequalities are proved apart, on pieces of the interval, by the first of these that works:

- **simplex**: `C − excess ≤ 0`, or `C + shortfall ≥ x` on the upper side.
- **monotone**: `max C − excess ≤ B(left end)`, or `B(right end) ≤ min C + shortfall`: one sign of g − δ each. Also where the
  piece begins at x = 0, by theorem 7.
- **saturation**: the ratio 1/p is feasible at the right end of the piece (theorem 6), so it is on all of it, and what is left
  is `C − excess ≤ x`. For `p f(1/p) + (1 − p) f(0)` does not increase with p: with u = 1/p its derivative is
  `f(u) − u f'(u) − f(0)`, and the tangent at u lies below f at 0. The ratio 0 of a lower bound is feasible on all of a piece if
  it is at the left end (theorem 3).
- **series**: the sign of `g(e^{−x}, e^{σ(C ∓ …)}) − δ` for all x of the piece, from a Taylor model (`series`).

A piece that none of them decides is halved. Nothing is decided in floating point: floats are exact numbers here, and signs are
those of balls. Trusted: what `bandtheory.evidence.certificate` trusts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy
from flint import arb, arb_poly

from bandtheory.ball import exact, precision
from bandtheory.divergence import FDivergence
from bandtheory.evidence.bernstein import hull, is_nonnegative
from bandtheory.evidence.bracket import CertainToken, Problem, Token, ball_generator
from bandtheory.evidence.series import Undecided, series_generator, taylor_model

SIDES = {"upper": 1, "lower": -1}
ORDER = 12  # of the Taylor models
CLAIM_BITS = 512  # of the polynomials in x that a claim consists of: float32 knots and their midpoints are exact
SERIES_BITS = (128, 256, 512)  # besides those by which p is smaller than 1
PIECES = 128  # that one inequality may be cut into


@dataclass(frozen=True)
class IntervalClaim:
    """A cubic that is said to be near a log-bound on an interval.

    Attributes:
        side: "lower" or "upper".
        low, high: ends of the interval in x = −logp, nats, 0 ≤ low < high.
        coefficients: (c₀, c₁, c₂, c₃) of `c₀ + t (c₁ + t (c₂ + t c₃))`, `t = (2x − low − high)/(high − low)`, a log-ratio in
            nats. (−inf, 0, 0, 0) on the lower side is the ratio 0.
        excess: how far the cubic may be beyond the bound, seen from ratio 1, nats, ≥ 0.
        shortfall: how far it may stay short of it. inf claims nothing.
        gap: the shortfall is claimed at x = low only.

    Raises:
        ValueError: an attribute outside its range; names it.
    """

    side: str
    low: float
    high: float
    coefficients: tuple[float, float, float, float]
    excess: float
    shortfall: float
    gap: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.side, str) or self.side not in SIDES:
            raise ValueError(f"side = {self.side!r} is not accepted; accepted: 'upper', 'lower'")
        if not 0 <= self.low < self.high < math.inf:
            raise ValueError(f"low = {self.low!r}, high = {self.high!r}; accepted: finite numbers with 0 ≤ low < high (nats)")
        zero = self.side == "lower" and tuple(self.coefficients) == (-math.inf, 0, 0, 0)
        if len(self.coefficients) != 4 or not (zero or all(map(math.isfinite, self.coefficients))):
            accepted = "four finite numbers, or (-inf, 0, 0, 0) on the lower side"
            raise ValueError(f"coefficients = {self.coefficients!r}; accepted: {accepted}")
        for name in ("excess", "shortfall"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)!r} is not accepted; accepted: distances ≥ 0 (nats)")


def prove(divergence: FDivergence, delta: float, claim: IntervalClaim) -> str | None:
    """Prove a claim about the band of radius δ.

    Args:
        divergence: of the band.
        delta: radius, nats, ≥ 0.
        claim: of one side on one interval.

    Returns:
        The methods that were needed, joined by "+", such as "series" or "monotone+series". None: not proved, which does not
        mean that the claim is false; a shorter interval or a larger distance may be provable.

    Raises:
        ValueError: δ outside its range.
        BallError: a generator that has no ball function.
    """
    if not 0 <= delta < math.inf:
        raise ValueError(f"delta = {delta!r} is not accepted; accepted: finite radii ≥ 0 (nats)")
    row = _Row(divergence, float(delta), claim)
    with precision(CLAIM_BITS):
        methods = _merged(row.prove_excess(), row.prove_shortfall())
    return None if methods is None else "+".join(sorted(methods)) or "vacuous"


def _merged(*parts: set[str] | None) -> set[str] | None:
    """The methods of all parts; None if one part has no proof."""
    known = [part for part in parts if part is not None]
    return set[str]().union(*known) if len(known) == len(parts) else None


class _Refuted(Exception):
    """The claim is certainly false at some x."""


def _cover(attempt: Callable[[float, float], str | None], low: float, high: float) -> set[str] | None:
    """The methods that prove an inequality on pieces which together are [low, high]."""
    pieces, used, budget = [(low, high)], set(), PIECES
    while pieces:
        left, right = pieces.pop()
        try:
            method = attempt(left, right)
        except _Refuted:
            return None
        if method is not None:
            used.add(method)
            continue
        middle = left / 2 + right / 2 if right <= 4 * left else math.sqrt(max(left, right / 4096**2)) * math.sqrt(right)
        budget -= 1
        if not (left < middle < right and budget):
            return None
        pieces += [(middle, right), (left, middle)]
    return used


class _Row:
    """One side of a band on one interval; `C`, `x` on a piece of it are polynomials in s ∈ [−1, 1]."""

    def __init__(self, divergence: FDivergence, delta: float, claim: IntervalClaim) -> None:
        self.claim, self.delta = replace(claim, low=float(claim.low), high=float(claim.high)), delta
        self.sign = SIDES[claim.side]
        self.balls = ball_generator(divergence)
        self.series = series_generator(divergence)
        self.problems: dict[float, Problem | None] = {}

    def prove_excess(self) -> set[str] | None:
        """The methods that prove `C − excess ≤ B` on the whole interval."""
        claim = self.claim
        if math.isinf(claim.excess):
            return set()
        if math.isinf(claim.coefficients[0]):
            return {"saturation"} if self.reaches_end(claim.low) else None
        return _cover(self.excess, claim.low, claim.high)

    def prove_shortfall(self) -> set[str] | None:
        """The methods that prove `B ≤ C + shortfall` on what of the interval it is claimed for."""
        claim = self.claim
        if math.isinf(claim.shortfall) or math.isinf(claim.coefficients[0]):
            return set()
        if claim.gap:
            z = self.cubic(claim.low, claim.high)(arb(-1)) + exact(claim.shortfall)
            return {"monotone"} if self.is_beyond(claim.low, z.lower()) else None
        return _cover(self.shortfall, claim.low, claim.high)

    def excess(self, left: float, right: float) -> str | None:
        """The method that proves `C − excess ≤ B` on a piece."""
        z = self.cubic(left, right) - exact(self.claim.excess)
        least, most = hull(_terms(z))
        if most <= 0:
            return "simplex"
        if self.is_narrow(least, most) and self.is_feasible(left, most.upper()):
            return "monotone"
        x = _line(left, right)
        top = z(arb(1)) + exact(self.claim.excess) + exact(self.claim.shortfall)
        possible = self.sign > 0 and top >= exact(right)  # else B(right) cannot be as large as `right`, if the claim holds
        if possible and self.reaches_end(right) and is_nonnegative(_terms(x - z)):
            return "saturation"
        return self.by_series(x, z, feasible=True, refutable=bool(least > 0))

    def shortfall(self, left: float, right: float) -> str | None:
        """The method that proves `B ≤ C + shortfall` on a piece."""
        z = self.cubic(left, right) + exact(self.claim.shortfall)
        x = _line(left, right)
        if self.sign > 0 and is_nonnegative(_terms(z - x)):
            return "simplex"
        least, most = hull(_terms(z))
        if self.is_narrow(least, most) and self.is_beyond(right, least.lower()):
            return "monotone"
        if not least > 0 or self.delta == 0:  # g = 0 around ratio 1 does not make it the bound
            return None
        return self.by_series(x, z, feasible=False, refutable=True)

    def is_narrow(self, least: arb, most: arb) -> bool:
        """Whether C varies so little that the ends of a piece may decide."""
        return bool(most - least <= exact(self.claim.excess) + exact(self.claim.shortfall))

    def by_series(self, x: arb_poly, z: arb_poly, feasible: bool, refutable: bool) -> str | None:
        """Prove that `g − δ` has one sign at `e^{σz}` for all x of a piece, or find that it has not."""
        y = z if self.sign > 0 else -z
        smallness = int(1.5 * self.claim.high)
        for bits in SERIES_BITS:
            with precision(bits + smallness):
                try:
                    terms, last = taylor_model(self.series, self.balls.radius(self.delta), x, y, ORDER)
                except Undecided:
                    return None
                holds = is_nonnegative([-term if feasible else term for term in (*terms, last)])
                if holds:
                    return "series"
                if holds is False and refutable:
                    raise _Refuted
                if sum((term.rad() for term in terms), arb(0)) < last.abs_upper():
                    return None  # more bits would not help
        return None

    def is_feasible(self, x: float, z: arb) -> bool:
        """Whether `z ≤ B(x)`, for an exact z."""
        return bool(z <= 0) or self._decide(x, z) is True

    def is_beyond(self, x: float, z: arb) -> bool:
        """Whether `z ≥ B(x)`, for an exact z."""
        return bool(self.sign > 0 and z >= exact(x)) or bool(z >= 0 and self._no_room(x)) or self._decide(x, z) is False

    def _decide(self, x: float, z: arb) -> bool | None:
        """The sign of `g − δ` at z, where it is the answer to `z ≤ B(x)`."""
        problem = self.problem(x)
        if problem is None or not 0 < z <= problem.end:
            return None
        return (problem.saturated() or None) if z == problem.end else problem.look(z).feasible

    def reaches_end(self, x: float) -> bool:
        """Whether the ratio 1/p, or 0 on the lower side, is certainly feasible at x."""
        problem = self.problem(x)
        return problem is not None and problem.saturated()

    def _no_room(self, x: float) -> bool:
        """Whether B(x) = 0 by theorem 7: p = 1, and the ratio cannot rise, nor fall where f'(∞) = ∞."""
        return x == 0 and bool(self.sign > 0 or self.balls.recession == sympy.oo)

    def problem(self, x: float) -> Problem | None:
        """The bound of one token; None where there is none to find, or a limit that it needs is not proved."""
        if x not in self.problems:
            if x > 0:
                self.problems[x] = Token(self.balls, -x, self.delta, self.sign)
            else:
                unknown = self._no_room(x) or self.balls.recession.has(sympy.Float)
                self.problems[x] = None if unknown else CertainToken(self.balls, self.delta)
        return self.problems[x]

    def cubic(self, left: float, right: float) -> arb_poly:
        """C on a piece."""
        claim = self.claim
        c = arb_poly([exact(self.sign * float(number)) for number in claim.coefficients])
        if (left, right) == (claim.low, claim.high):
            return c
        low, high = exact(claim.low), exact(claim.high)
        return c((2 * _line(left, right) - low - high) * (1 / (high - low)))


def _line(left: float, right: float) -> arb_poly:
    """x as a polynomial in s, from left to right."""
    a, b = exact(left), exact(right)
    return arb_poly([(a + b) / 2, (b - a) / 2])


def _terms(polynomial: arb_poly) -> list[arb]:
    return list(polynomial.coeffs()) or [arb(0)]
