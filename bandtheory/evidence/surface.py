"""Proofs that a polynomial in two variables stays within a stated distance of a log-bound, for all log-probabilities and radii.

A patch is a square of t, s ∈ [−1, 1]:  `log δ = m + h s`,  `ξ = ξ₀ + ξ₁ t`,  and, with a polynomial X, `x = −log p = X(s) ξ` or
`X(s) + X(0) (ξ − 1)`. With σ = 1 for the upper bound and −1 for the lower one, `B = σ log bound ≥ 0` and `C = σ Σ c_ik tⁱ sᵏ`,
a claim is

    C − excess ≤ B ≤ C + shortfall        for all real t and s of the patch

As in `evidence.interval`, signs of `g − δ` at `log r = σ (C ∓ …)` decide it, from Taylor models on parts of the square. Where C
does not depend on t, B at the ends of the patch is enough (theorem 3), and where the band ends at ratio 1/p or 0, so is whether
it does at one end (theorem 6). Trusted: what `bandtheory.evidence.certificate` trusts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import sympy
from flint import arb, arb_series

from bandtheory.ball import ball_function, exact, interval, limits, precision
from bandtheory.divergence import FDivergence
from bandtheory.evidence.bernstein import hull_on_square, is_nonnegative_on_square
from bandtheory.evidence.biseries import BiSeries, constant_term, expm1, narrowed
from bandtheory.evidence.interval import SIDES
from bandtheory.evidence.series import NAMESPACE, Undecided, series_generator
from bandtheory.evidence.square import (
    SQUARE,
    Function,
    Local,
    Matrix,
    Piece,
    ball_on,
    difference,
    halves,
    negated,
    polynomial,
    raised,
    restricted,
    taylor_model_on,
)
from bandtheory.expressions import radius_symbol

BITS = (128, 320)  # besides those by which p is smaller than 1
WIDEST = 2.0  # nats of x in a piece, at first
PIECES = 60  # into which a patch may be cut, besides those and three times as many


class Evaluation(NamedTuple):
    """`p f(r)`, 1 − p and c."""

    of_ratio: BiSeries
    rest: BiSeries
    complement: BiSeries


@dataclass(frozen=True)
class Patch:
    """Where a claim is made.

    Attributes:
        log_delta: m and h, of the logarithm of the radius in nats.
        scale: coefficients of X(s).
        low, high: ends of ξ.
        shifted: whether `x = X(s) + X(0) (ξ − 1)`, else `x = X(s) ξ`.
    """

    log_delta: tuple[float, float]
    scale: tuple[float, ...]
    low: float
    high: float
    shifted: bool = False

    def __post_init__(self) -> None:
        least = 2 * self.scale[0] - sum(map(abs, self.scale)) if self.scale else 0.0
        if not (math.isfinite(sum(map(abs, self.scale))) and least > 0):
            raise ValueError(f"scale = {self.scale!r} is not accepted; accepted: finite, the first above the sum of the others")
        first = 1.0 if self.shifted else 0.0
        if not first <= self.low < self.high < math.inf:
            accepted = f"finite numbers with {first:g} ≤ low < high"
            raise ValueError(f"low = {self.low!r}, high = {self.high!r}; accepted: {accepted}")
        if not (math.isfinite(self.log_delta[0]) and 0 < self.log_delta[1] < math.inf):
            raise ValueError(f"log_delta = {self.log_delta!r} is not accepted; accepted: a finite middle, and a half width > 0")


@dataclass(frozen=True)
class SurfaceClaim:
    """A polynomial that is said to be near a log-bound on a patch.

    Attributes:
        side: "lower" or "upper".
        patch: where.
        coefficients: c_ik, a log-ratio in nats; c_00 = −inf on the lower side, all others 0, is the ratio 0.
        excess: how far it may be beyond the bound, seen from ratio 1, nats.
        shortfall: how far it may stay short of it; inf claims nothing.
    """

    side: str
    patch: Patch
    coefficients: tuple[tuple[float, ...], ...]
    excess: float
    shortfall: float

    def __post_init__(self) -> None:
        if not isinstance(self.side, str) or self.side not in SIDES:
            raise ValueError(f"side = {self.side!r} is not accepted; accepted: 'upper', 'lower'")
        numbers = [a for row in self.coefficients for a in row]
        zero = self.side == "lower" and numbers[:1] == [-math.inf] and not any(numbers[1:])
        if not (numbers and len({*map(len, self.coefficients)}) == 1 and (zero or all(map(math.isfinite, numbers)))):
            accepted = "rows of equal length of finite numbers, or -inf and zeros on the lower side"
            raise ValueError(f"coefficients = {self.coefficients!r}; accepted: {accepted}")
        for name in ("excess", "shortfall"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} = {getattr(self, name)!r} is not accepted; accepted: distances ≥ 0 (nats)")


def prove_surface(divergence: FDivergence, claim: SurfaceClaim) -> bool:
    """Whether a claim is proved; False does not mean that it is wrong."""
    with precision(512):
        surface = _Surface(divergence, claim)
        return surface.excess() and surface.shortfall()


@lru_cache(maxsize=64)
def _radius(divergence: FDivergence) -> Callable[[BiSeries], BiSeries]:
    function: Callable[[BiSeries], BiSeries] = ball_function(divergence.f_radius, radius_symbol(), namespace=NAMESPACE)
    return function


class _Surface:
    """One claim."""

    def __init__(self, divergence: FDivergence, claim: SurfaceClaim) -> None:
        self.divergence, self.claim, self.sign = divergence, claim, SIDES[claim.side]
        self.generator = series_generator(divergence)
        self.zero = math.isinf(claim.coefficients[0][0])
        self.c: list[list[arb]] = []
        if not self.zero:
            self.c = [[exact(self.sign * float(a)) for a in row] for row in claim.coefficients]
        patch = claim.patch
        low, high = exact(patch.low), exact(patch.high)
        self.scale = [exact(float(a)) for a in patch.scale]
        self.xi = (low + high) / 2, (high - low) / 2
        if patch.shifted:
            first, *rest = self.scale
            self.x = [[first * self.xi[0], *rest], [first * self.xi[1]]]
        else:
            self.x = [[a * part for a in self.scale] for part in self.xi]
        self.bits = int(1.5 * patch.high * sum(map(abs, patch.scale)))

    # --- the two inequalities ------------------------------------------------------------------------------------------------

    def excess(self) -> bool:
        """`C − excess ≤ B`."""
        if self.zero:
            return self.decided(SQUARE._replace(t1=-1.0), lambda _: self.zero_is_infeasible, -1)
        z = raised(self.c, -exact(self.claim.excess))
        if self.nonnegative(negated(z)):
            return True
        edge = SQUARE._replace(t1=-1.0) if self.is_flat() else SQUARE
        if edge.t0 == edge.t1 and self.claim.patch.low == 0:
            return self.at_certainty(z, feasible=True)
        if self.sign > 0 and self.nonnegative(difference(self.x, z)):
            right = SQUARE._replace(t0=1.0)
            if self.decided(right, lambda _: self.certainty_is_infeasible, -1):
                return True
        return self.decided(edge, self.beyond(z), -1)

    def shortfall(self) -> bool:
        """`B ≤ C + shortfall`."""
        if self.zero or math.isinf(self.claim.shortfall):
            return True
        z = raised(self.c, exact(self.claim.shortfall))
        if not self.nonnegative(z):
            return False  # beyond ratio 1, where `g ≥ δ` says nothing of this side
        if self.sign > 0 and self.nonnegative(difference(z, self.x)):
            return True
        edge = SQUARE._replace(t0=1.0) if self.is_flat() else SQUARE
        near_certainty = self.beyond_or_certain(z) if self.sign > 0 else None
        return self.decided(edge, self.beyond(z), 1, near_certainty)

    def is_flat(self) -> bool:
        """Whether C does not depend on t."""
        return all(not any(row) for row in self.claim.coefficients[1:])

    def nonnegative(self, matrix: Matrix) -> bool:
        """Whether a polynomial is certainly ≥ 0 on the square."""
        return is_nonnegative_on_square(matrix) is True

    def decided(self, piece: Piece, function: Local, sign: int, instead: Local | None = None) -> bool:
        """Whether `sign · function ≥ 0` on a piece, from Taylor models on parts of it; `instead` is tried where it is not."""
        pieces = self.narrow(piece)
        budget = PIECES + 3 * len(pieces)
        while pieces:
            part = pieces.pop()
            verdict, across = self.sign_on(part, function, sign)
            if verdict is None and instead is not None:
                verdict = self.sign_on(part, instead, sign)[0] or None
            if verdict is False:
                return False
            if verdict is None:
                budget -= 1
                if not budget:
                    return False
                pieces += halves(part, across)
        return True

    def narrow(self, piece: Piece) -> list[Piece]:
        """The parts of a piece in which p varies little."""
        patch = self.claim.patch
        width = (patch.high - patch.low) * patch.scale[0] * (piece.t1 - piece.t0) / 2
        parts = 2 ** max(math.ceil(math.log2(width / WIDEST)), 0) if width else 1
        ends = [piece.t0 + (piece.t1 - piece.t0) * k / parts for k in range(parts + 1)]
        return [piece._replace(t0=low, t1=high) for low, high in itertools.pairwise(ends)]

    def varies_across(self, piece: Piece) -> bool:
        """Whether `log p r` varies more along t than along s."""
        first, *rest = restricted(difference(self.c, self.x) if self.c else self.x, piece)
        zero = arb(0)
        return bool(sum((abs(a.mid()) for row in rest for a in row), zero) >= sum((abs(a.mid()) for a in first[1:]), zero))

    def sign_on(self, piece: Piece, function: Local, sign: int) -> tuple[bool | None, bool]:
        """Whether `sign · function ≥ 0` there, and whether to cut across t if it is undecided."""
        across = self.varies_across(piece)
        for bits in BITS:
            with precision(bits + self.bits):
                try:
                    model = taylor_model_on(function(piece), piece)
                except (Undecided, ZeroDivisionError, ValueError):
                    return self.sign_of_ball(piece, function, sign), across
                verdict = is_nonnegative_on_square([[sign * a for a in row] for row in model])
                if verdict is not None:
                    return verdict, across
                last_t = model[-1][0].rad() if piece.t0 < piece.t1 else arb(0)
                last_s = sum((row[-1].rad() for row in model[: max(len(model) - 1, 1)]), arb(0))
                across = bool(last_t > last_s)
                if all(a.rad() < last_t + last_s for row in model for a in row[:-1] if a is not model[-1][0]):
                    break  # more bits do not help
        return None, across

    def sign_of_ball(self, piece: Piece, function: Local, sign: int) -> bool | None:
        """The same where no series exists, as across a kink of the generator: True, or undecided."""
        try:
            return True if sign * ball_on(function(piece), piece) >= 0 else None
        except (Undecided, ZeroDivisionError, ValueError):
            return None

    # --- functions whose sign decides ----------------------------------------------------------------------------------------

    def beyond(self, z: Matrix) -> Local:
        """`g − δ` at `log r = σ z`."""

        def local(piece: Piece) -> Function:
            evaluated = self.evaluation(z, piece)

            def function(t: arb_series, s: BiSeries) -> BiSeries:
                of_ratio, rest, c = evaluated(t, s)
                if not constant_term(c) > 0:
                    raise Undecided
                return of_ratio + self.remainder(rest, self.generator.of(c), s)

            return function

        return local

    def beyond_or_certain(self, z: Matrix) -> Local:
        """At most `g − δ` at `r = e^z`, where that is below 1/p, or 0 where it nowhere is.

        With the largest c of the piece, b: as f(1) = 0 and f is convex, its slope up to b is at most that of the chord from b
        to 1, so `f(c) ≥ f(b) + a (c − b)`, `a = −f(b)/(1 − b)`.
        """

        def local(piece: Piece) -> Function:
            evaluated = self.evaluation(z, piece)
            largest = ball_on(lambda t, s: evaluated(t, s).complement, piece).upper()
            if largest < 0:
                return lambda t, s: s * arb(0)  # above 1/p everywhere
            if not 0 < largest < 1:
                raise Undecided
            value: arb = self.generator.of(largest)
            slope = -value / (1 - largest)

            def function(t: arb_series, s: BiSeries) -> BiSeries:
                of_ratio, rest, c = evaluated(t, s)
                return of_ratio + self.remainder(rest, (c - largest) * slope + value, s)

            return function

        return local

    def evaluation(self, z: Matrix, piece: Piece) -> Callable[[arb_series, BiSeries], Evaluation]:
        """What `g` is made of, at `log r = σ z`."""
        left = difference(z, self.x)  # of polynomials, as nearly nothing is left of it near saturation
        z_range, left_range = (interval(*hull_on_square(restricted(a, piece))) for a in (z, left))

        def evaluated(t: arb_series, s: BiSeries) -> Evaluation:
            x, y = self.distance(t, s), narrowed(polynomial(z, t, s), z_range)
            total = narrowed(polynomial(left, t, s), left_range) if self.sign > 0 else -(y + x)
            y = y if self.sign > 0 else -y
            p, rest = self.probability(x)
            c = narrowed(-expm1(total) / rest, 1 - constant_term(p) * constant_term(y).expm1() / constant_term(rest))
            c = narrowed(c, _complement_ratio(constant_term(total), constant_term(rest)))
            if constant_term(y) > 1:
                return Evaluation(total.exp() * self.generator.per_ratio(y), rest, c)
            return Evaluation(p * self.generator.of_log(y), rest, c)

        return evaluated

    def certainty_is_infeasible(self, t: arb_series, s: BiSeries) -> BiSeries:
        """`p f(1/p) + (1 − p) f(0) − δ`."""
        x = self.distance(t, s)
        p, rest = self.probability(x)
        found: BiSeries = p * self.generator.of_log(x) + self.remainder(rest, self.at_zero(), s)
        return found

    def zero_is_infeasible(self, t: arb_series, s: BiSeries) -> BiSeries:
        """`p f(0) + (1 − p) f(1/(1 − p)) − δ`."""
        p, rest = self.probability(self.distance(t, s))
        return p * self.at_zero() + self.remainder(rest, self.generator.of(1 / rest), s)

    def at_certainty(self, z: Matrix, feasible: bool) -> bool:
        """`z ≤ B` at p = 1 (theorem 7), where `f(r) + (1 − r) f'(∞) = δ`; z depends on s alone."""
        slope = limits(self.divergence)[1]
        if self.sign > 0 or not slope.is_finite() or self.divergence.recession_slope.has(sympy.Float):
            return False

        def function(t: arb_series, s: BiSeries) -> BiSeries:
            y = -polynomial(z, t, s)
            found: BiSeries = self.generator.of_log(y) - expm1(y) * limits(self.divergence)[1] - self.radius(s)
            return found

        return self.decided(SQUARE._replace(t1=-1.0), lambda _: function, -1 if feasible else 1)

    def remainder(self, rest: BiSeries, of_complement: Any, s: BiSeries) -> BiSeries:
        """`(1 − p) f(c) − δ`."""
        found: BiSeries = rest * of_complement - self.radius(s)
        return found

    def distance(self, t: arb_series, s: BiSeries) -> BiSeries:
        """x, as a product where it is one: tighter over a ball than the sum."""
        if self.claim.patch.shifted:
            return polynomial([self.scale], t, s) + self.scale[0] * (t * self.xi[1] + (self.xi[0] - 1))
        return polynomial([self.scale], t, s) * (t * self.xi[1] + self.xi[0])

    def probability(self, x: BiSeries) -> tuple[BiSeries, BiSeries]:
        """p and 1 − p."""
        rest = -expm1(-x)
        if not constant_term(rest) > 0:
            raise Undecided
        return (-x).exp(), rest

    def at_zero(self) -> arb:
        """f(0), if it is finite and known."""
        value = limits(self.divergence)[0]
        if not value.is_finite() or self.divergence.value_at_zero.has(sympy.Float):
            raise Undecided
        return value

    def radius(self, s: BiSeries) -> BiSeries:
        """The radius of `D_f`."""
        middle, half = map(exact, self.claim.patch.log_delta)
        found = _radius(self.divergence)((s * half + middle).exp())
        return found if isinstance(found, BiSeries) else s * arb(0) + found


def _complement_ratio(total: arb, rest: arb) -> arb:
    """c from `log p r` and 1 − p, by the ends of both balls: as it may be near 0, tighter than the quotient of balls."""
    low, high = -total.upper().expm1(), -total.lower().expm1()
    return interval(low / (rest.upper() if low > 0 else rest.lower()), high / (rest.lower() if high > 0 else rest.upper()))
