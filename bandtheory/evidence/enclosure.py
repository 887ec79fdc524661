"""What a solver's answer to the n-token problem is worth: a feasible policy on one side of the optimum, a dual bound beyond it.

    max σ Q_a / P_a   subject to   Q ≥ 0,  Σ Q_i = 1,  Σ P_i f(Q_i / P_i) ≤ δ,    σ = 1 (upper) or −1 (lower)

What is claimed is evaluated from the generator in ball arithmetic: a comparison counts only if it holds for the whole balls, so
rounding can cost a claim and never make one. Whatever the multipliers λ > 0 and ν are, weak duality gives

    σ Q_a/P_a ≤ λδ + ν + λ Σ_i P_i sup { s_i u − f(u) : 0 ≤ u ≤ 1/P_i },    s_i = (σ[i = a]/P_i − ν)/λ
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bandtheory import ball
from bandtheory.divergence import FDivergence
from bandtheory.expressions import radius_symbol, symbol

BITS = 128
SMALL_RATIO = 1e-6  # a gap is relative to the ratio, but below this to SMALL_RATIO: solvers cannot resolve less
NEGLIGIBLE = 1e-12  # a relative error that is not worth another evaluation
FLOOR = 2.0**-133  # about 1e-40: slopes are not looked at closer to 0 than this
HALVINGS = 100  # the smallest move that is considered, in powers of two
OFF_CENTRE = 0.4921875  # where brackets are cut: a kink, as at 1, is seldom hit
FIRST_BRACKETS = (2.0**-40, 2.0**-20, 2.0**-4)  # relative half-widths around the expected place of a supremum

Array = NDArray[np.float64]
Function = Callable[[arb], arb]


@lru_cache(maxsize=128)
def functions(divergence: FDivergence) -> tuple[Function, Function, arb]:
    """`f` and `f'` of the generator for balls u > 0, and `f(0)`; at a kink f' is the hull of the slopes on both sides."""
    u, generator = symbol(), divergence.generator
    with ball.precision(BITS):
        at_zero, _ = ball.limits(divergence)
        return ball.ball_function(generator, u), ball.ball_function(ball.slope(generator, u), u), at_zero


@lru_cache(maxsize=128)
def _f_radius(divergence: FDivergence) -> Function:
    return cast(Function, ball.ball_function(divergence.f_radius, radius_symbol()))


@lru_cache(maxsize=128)
def slope_at_one(divergence: FDivergence) -> float:
    """A number between the one-sided slopes of f at 1, to float64."""
    with ball.precision(BITS):
        _, slope, _ = functions(divergence)
        return float((slope(arb(1) - arb(2) ** -80) + slope(arb(1) + arb(2) ** -80)) / 2)


class Size(NamedTuple):
    """The mass that the action gains or loses, the divergence that this takes, and the action's ratio if that is small."""

    move: float
    divergence: float
    ratio: float


class Enclosure:
    """Feasible points and dual bounds of one n-token problem; P is a normalised policy, shape (n,), strictly positive.

    δ is the radius that is given for `divergence`; the divergence of the generator is held to `radius`, which is δ for all but
    monotone functions of an f-divergence such as Rényi's. P is divided by its exact sum.
    """

    def __init__(self, P: Array, action: int, delta: float, sign: int, divergence: FDivergence) -> None:
        self.P, self.action, self.sign, self.divergence = P, action, sign, divergence
        self.f, self.slope, self.at_zero = functions(divergence)
        with ball.precision(BITS):
            exact = _f_radius(divergence)(arb(delta))
            self.radius, self.greatest_radius = ball.float_below(exact), exact.upper()
            self.masses = self._normalised(P)
            self.p = self.masses[action]
            self.others = 1 - self.p

    @staticmethod
    def _normalised(masses: Array) -> list[arb]:
        exact = [arb(mass) for mass in masses.tolist()]
        total = sum(exact, arb(0))
        return [mass / total for mass in exact]

    def _value(self, ratio: arb) -> arb:
        return self.f(ratio) if ratio > 0 else self.at_zero

    def divergence_at(self, policy: Array) -> arb:
        """Σ P f(Q/P) after normalising Q, straight from the generator."""
        with ball.precision(BITS):
            total = arb(0)
            for p, q in zip(self.masses, self._normalised(policy), strict=True):
                total += p * self._value(q / p)
            return total

    def size(self, radius: float) -> Size:
        """Orders of magnitude at the optimum: they scale the variables of a program and bound nothing.

        The first feasible one of a halving sequence of moves, shared by all other tokens in proportion: two groups of tokens
        with equal ratios. Where more than half of the action's mass can go, what is left is halved likewise.
        """
        whole = self.others if self.sign > 0 else self.p

        def spent(move: arb) -> float:
            own, others = 1 + self.sign * move / self.p, 1 - self.sign * move / self.others
            return float(self.p * self._value(own) + self.others * self._value(others))

        with ball.precision(BITS):
            saturated = spent(whole)
            if saturated <= radius:
                return Size(float(whole), max(saturated, 1e-6 * min(radius, 1.0)), 1.0)
            halvings = 1 + _first(lambda k: spent(whole / 2 ** (k + 1)) <= radius)
            left = 0
            if self.sign < 0 and halvings == 1:
                left = _first(lambda k: spent(whole * (1 - arb(2) ** -(k + 1))) > radius)
            return Size(float(whole) * 2.0**-halvings, radius, 2.0**-left)

    def to_the_edge(self, masses: Array, multiplier: float = 0.0) -> tuple[Array, float]:
        """The last feasible policy `P + t (Q − P)`, t ≥ 0, up to `NEGLIGIBLE` in the ratio if `multiplier` is about right.

        With its divergence, rounded.
        """
        with ball.precision(BITS):
            policy, divergence = self._from_near_the_edge(masses, multiplier) or self._along_the_ray(masses)
            return policy, float(divergence)

    def _from_near_the_edge(self, masses: Array, multiplier: float) -> tuple[Array, arb] | None:
        """The same for a Q whose divergence is within 0.1 % of δ, by secants in t around 1; None if it is not."""
        target = masses / math.fsum(masses)
        direction = target - self.P
        scale = max(float(target[self.action] / self.P[self.action]), SMALL_RATIO)
        enough = max(1e-14 * self.radius, NEGLIGIBLE * scale / multiplier if multiplier > 0 else 0.0)
        policy, divergence = target, self.divergence_at(target)
        excess = float(divergence - self.radius)
        if not abs(excess) <= 1e-3 * self.radius:
            return None
        # The divergence grows like t (total variation) to t² (small moves); what it is here shows at the second point.
        step, growth = 0.0, 1.5 * self.radius
        for _ in range(6):
            if -enough <= excess < 0 or excess == 0:
                break
            move = -(excess + enough / 2) / growth
            trial = target + (step + move) * direction
            if not move or trial.min() < 0:
                return None
            divergence = self.divergence_at(trial)
            value = float(divergence - self.radius)
            growth = (value - excess) / move if value != excess else growth
            policy, excess, step = trial, value, step + move
        return (policy, divergence) if divergence <= self.radius and -excess <= 1e3 * enough else None

    def _along_the_ray(self, masses: Array) -> tuple[Array, arb]:
        """The same from any Q: the divergence is convex in t, and a bracketed false position finds where it exceeds δ.

        The ray is walked in `y`, `t = t_end (1 − e^{−y})`, where t_end takes the first token to 0: ratios near 0 stay exact.
        """
        ratios = [q / p for p, q in zip(self.masses, self._normalised(masses), strict=True)]
        least = min(float(ratio) for ratio in ratios)
        reach = 1 - min(ratio for ratio in ratios if float(ratio) == least)
        nowhere = self.P, arb(0)
        if not reach > 0:
            return nowhere

        def policy(y: float) -> Array:
            t = -arb(-y).expm1() / reach
            return np.array([max(float(p * (1 + t * (ratio - 1))), 0.0) for p, ratio in zip(self.masses, ratios, strict=True)])

        low, high = 0.0, 80.0
        last = policy(high)
        divergence = self.divergence_at(last)
        if divergence <= self.radius:
            return last, divergence
        best, below, above, side = nowhere, -self.radius, float(divergence - self.radius), 0
        while high - low > 2e-16 * high and high > 1e-60:
            weight = below / (below - above) if below < 0 and below < above < math.inf else 0.5
            middle = low + (high - low) * min(max(weight, 0.001), 0.999)
            if not low < middle < high:
                break
            trial = policy(middle)
            divergence = self.divergence_at(trial)
            value = float(divergence - self.radius)
            if divergence <= self.radius:  # Illinois: an end that stays twice counts half
                if -value < 1e-14 * self.radius:
                    return trial, divergence
                best, low, below, above, side = (trial, divergence), middle, value, above / 2 if side < 0 else above, -1
            else:
                high, above, below, side = middle, value, below / 2 if side > 0 else below, 1
        return best

    def dual_bound(self, policy: Array, multiplier: float, price: float) -> tuple[float, float]:
        """A weak-duality bound of the ratio, with its λ: the first that is negligibly far from `policy`, or the tightest.

        First λ = 0: the ratio lies in [0, 1/p] anyway. Then what the optimality conditions at `policy` suggest, since a
        solver's λ with nine correct digits may put s_i outside the domain of f*; last the solver's `multiplier` λ, with ν
        from the conditions or with its own `price` ν. A pair needs no justification to be valid.
        """
        with ball.precision(BITS):
            q = self._normalised(policy)[self.action]
            places = q / self.p, (1 - q) / self.others
            best = (0.0, 1 / float(self.p) if self.sign > 0 else 0.0)
            ratio = float(places[0])
            scale = max(ratio, SMALL_RATIO)
            for trial in self._multipliers(*places, multiplier, price):
                if abs(best[1] - ratio) <= NEGLIGIBLE * scale:
                    break
                bound = self.sign * self.weak_duality(*trial, places, scale)
                best = min(best, (float(trial[0]), float(bound)), key=lambda pair: self.sign * pair[1])
            return best

    def _multipliers(self, own: arb, others: arb, multiplier: float, price: float) -> list[tuple[arb, arb]]:
        """Pairs (λ, ν) with λ > 0: of the optimality conditions at the two ratios, of both sources, of the solver."""
        pairs = []
        given = math.isfinite(multiplier) and multiplier > 0
        if own > 0 and others > 0:
            slope = self.slope(others).mid()
            steepness = (self.sign * (self.slope(own) - slope)).mid()
            # A little more than the conditions say: then s_i stays within the domain of f*. λ = ∞ at δ = 0.
            exact = (1 + arb(2) ** -83) / (self.p * (steepness if steepness > 1e-12 else arb(1e-12)))
            pairs.append((exact.mid(), (-exact * slope).mid()))
            if given:
                pairs.append((arb(multiplier), (-multiplier * slope).mid()))
        if given and math.isfinite(price):
            pairs.append((arb(multiplier), arb(price)))
        return pairs

    def weak_duality(self, multiplier: arb, price: arb, places: tuple[arb, arb], scale: float) -> arb:
        """The right-hand side of the module's formula, rounded up; all tokens but the action share s, and a common end for u.

        The suprema are sought around `places`, to an error of about `NEGLIGIBLE` times `scale` in the sum.
        """
        error = NEGLIGIBLE * scale / 8 / multiplier
        own = self._supremum((self.sign / self.p - price) / multiplier, 1 / self.p, places[0], error / self.p)
        last = 1 / self.masses[int(self.P.argmin())]
        others = self._supremum(-price / multiplier, last, places[1], error)
        return (multiplier * (self.greatest_radius + self.p * own + self.others * others) + price).upper()

    def _supremum(self, s: arb, end: arb, near: arb, error: arb) -> arb:
        """An upper bound of `s u − f(u)` on [0, end] by tangents at the ends of a bracket, tight to about `error`."""

        def tangent(u: arb, reach: arb) -> arb:
            """A bound of `s x − f(x)` where |x − u| ≤ reach: f lies above its tangent at u."""
            return s * u - self.f(u) + abs(s - self.slope(u)) * reach

        low, high = self._bracket(s, end, near)
        if not self.slope(low) <= s:
            return tangent(low, low if self.slope(low) > s else end)
        if not self.slope(high) >= s:
            return tangent(high, arb(0) if self.slope(high) < s else end)
        bound = arb.pos_inf()
        for _ in range(2 * BITS):
            reach = high - low
            bound = _least(bound, tangent(low, reach), tangent(high, reach))
            if bound - (s * low - self.f(low)) <= error or bound - (s * high - self.f(high)) <= error:
                break
            middle = ((low * high).sqrt() if high > 2 * low else low + (high - low) * OFF_CENTRE).mid()
            slope = self.slope(middle)
            if slope <= s:
                low = middle
            elif slope >= s:
                high = middle
            else:
                return _least(bound, tangent(middle, reach))
        return bound

    def _bracket(self, s: arb, end: arb, near: arb) -> tuple[arb, arb]:
        """Two numbers between which f' passes s: close around `near` if it does so there, else `FLOOR` and `end`."""
        if near > 2 * FLOOR and near < end:
            for width in FIRST_BRACKETS:
                low, high = (near * (1 - width)).mid(), (near * (1 + width)).mid()
                if high < end and self.slope(low) <= s and self.slope(high) >= s:
                    return low, high
        return arb(FLOOR), end.mid()


def _first(holds: Callable[[int], bool]) -> int:
    """The least k < `HALVINGS` for which a property holds that then holds for all larger ones; `HALVINGS` if none."""
    low, high = 0, HALVINGS
    while low < high:
        half = (low + high) // 2
        low, high = (low, half) if holds(half) else (half + 1, high)
    return low


def _least(*bounds: arb) -> arb:
    """The upper bound that is least, with all its digits."""
    least = bounds[0].upper()
    for bound in bounds[1:]:
        least = bound.upper() if bound.upper() < least else least
    return least
