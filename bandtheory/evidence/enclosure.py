"""What a solver's answer to the n-token problem is worth: a feasible policy on one side of the optimum, a dual bound beyond it.

    max σ Q_a / P_a   subject to   Q ≥ 0,  Σ Q_i = 1,  Σ P_i f(Q_i / P_i) ≤ δ,    σ = 1 (upper) or −1 (lower)

Everything is evaluated from the generator in `DIGITS` digits. Whatever the multipliers λ > 0 and ν are, weak duality gives

    σ Q_a/P_a ≤ λδ + ν + λ Σ_i P_i sup { s_i u − f(u) : 0 ≤ u ≤ 1/P_i },    s_i = (σ[i = a]/P_i − ν)/λ
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import sympy
from numpy.typing import NDArray

from bandtheory.divergence import FDivergence
from bandtheory.expressions import symbol

DIGITS = 50
_TINY = mpmath.mpf(10) ** -(DIGITS // 2)

Array = NDArray[np.float64]


@lru_cache(maxsize=128)
def functions(divergence: FDivergence) -> tuple[Any, Any]:
    """`f` and `f'` of the generator for mpmath numbers u > 0; at a kink f' is one of the subgradients."""
    u = symbol()
    modules = [{"Heaviside": lambda x, *_: mpmath.mpf(1 if x > 0 else 0)}, "mpmath"]
    generator = divergence.generator
    return sympy.lambdify(u, generator, modules), sympy.lambdify(u, sympy.diff(generator, u), modules)


@lru_cache(maxsize=128)
def slope_at_one(divergence: FDivergence) -> float:
    """A number between the one-sided slopes of f at 1."""
    with mpmath.workdps(DIGITS):
        _, slope = functions(divergence)
        return float((slope(1 - _TINY) + slope(1 + _TINY)) / 2)


class Enclosure:
    """Feasible points and dual bounds of one n-token problem; P is a normalised policy, shape (n,), strictly positive."""

    def __init__(self, P: Array, action: int, delta: float, sign: int, divergence: FDivergence) -> None:
        self.P, self.action, self.delta, self.sign, self.divergence = P, action, delta, sign, divergence
        self.f, self.slope = functions(divergence)
        with mpmath.workdps(DIGITS):
            self.exact_P = self._normalised(P)
            self.p = self.exact_P[action]
            self.others = mpmath.fsum(q for i, q in enumerate(self.exact_P) if i != action)
            at_zero = divergence.value_at_zero
            self.at_zero = mpmath.inf if at_zero == sympy.oo else mpmath.mpf(str(sympy.N(at_zero, DIGITS)))

    @staticmethod
    def _normalised(masses: Array) -> list[mpmath.mpf]:
        total = mpmath.fsum(masses.tolist())
        return [mpmath.mpf(mass) / total for mass in masses.tolist()]

    def divergence_at(self, policy: Array) -> mpmath.mpf:
        """Σ P f(Q/P) after normalising Q, straight from the generator."""
        with mpmath.workdps(DIGITS):
            ratios = ((p, q / p) for p, q in zip(self.exact_P, self._normalised(policy), strict=True))
            return mpmath.fsum(p * (self.f(ratio) if ratio > 0 else self.at_zero) for p, ratio in ratios)

    def feasible_move(self, delta: float) -> tuple[float, float]:
        """Orders of magnitude of the mass that the action can gain or lose, and of the divergence that this takes.

        The first feasible one of a halving sequence of moves, shared by all other tokens in proportion. They scale the
        variables of a program and bound nothing.
        """
        p = float(self.P[self.action])
        room = 1 - p if self.sign > 0 else p

        def spent(halvings: int) -> float:
            move = self.sign * room * 2.0**-halvings
            trial = self.P * (1 - move / (1 - p))
            trial[self.action] = p + move
            return float(self.divergence_at(np.maximum(trial, 0)))

        low, high = 0, 100
        while low < high:
            half = (low + high) // 2
            low, high = (low, half) if spent(half) <= delta else (half + 1, high)
        return room * 2.0**-low, delta if low else max(spent(0), 1e-6 * delta)

    def to_the_edge(self, masses: Array) -> Array:
        """The last feasible policy `P + t (Q − P)`, t ≥ 0. Its divergence is convex in t: a bracketed false position finds it.

        The ray is walked in `y`, `t = t_end (1 − e^{−y})`, where t_end takes the first token to 0: ratios near 0 stay exact.
        """
        with mpmath.workdps(DIGITS):
            ratios = [q / p for p, q in zip(self.exact_P, self._normalised(masses), strict=True)]
            least = min(ratios)
            if least >= 1:
                return self.P

            def policy(y: mpmath.mpf) -> Array:
                t = -mpmath.expm1(-y) / (1 - least)
                return np.array([float(p * (1 + t * (r - 1))) for p, r in zip(self.exact_P, ratios, strict=True)])

            def excess(y: mpmath.mpf) -> mpmath.mpf:
                return self.divergence_at(policy(y)) - self.delta

            low, high = mpmath.mpf(0), mpmath.mpf(80)
            below, above, side = -mpmath.mpf(self.delta), excess(high), 0
            if above <= 0:
                return policy(high)
            while high - low > 1e-16 * high and high > 1e-60:
                weight = below / (below - above) if below < 0 and mpmath.isfinite(above) else mpmath.mpf(0.5)
                middle = low + (high - low) * min(max(weight, 0.001), 0.999)
                value = excess(middle)
                if 0 <= -value < 1e-14 * self.delta:
                    return policy(middle)
                if value <= 0:  # Illinois: an end that stays twice counts half
                    low, below, above, side = middle, value, above / 2 if side < 0 else above, -1
                else:
                    high, above, below, side = middle, value, below / 2 if side > 0 else below, 1
            return policy(low)

    def dual_bound(self, policy: Array, multiplier: float, price: float) -> tuple[float, float]:
        """The tightest of several weak-duality bounds of the ratio, with its λ.

        First the solver's `multiplier` λ and `price` ν; then what the optimality conditions at `policy` suggest in their place,
        since a λ with nine correct digits may put s_i outside the domain of f*. A pair needs no justification to be valid. Last
        λ = 0: the ratio lies in [0, 1/p] anyway.
        """
        with mpmath.workdps(DIGITS):
            p, q = self.p, self._normalised(policy)[self.action]
            r, c = q / p, (1 - q) / self.others
            pairs = [(mpmath.mpf(multiplier), mpmath.mpf(price))]
            if r > 0 and c > 0:
                slope, steepness = self.slope(c), self.sign * (self.slope(r) - self.slope(c))
                pairs.append((pairs[0][0], -pairs[0][0] * slope))
                exact = (1 + _TINY) / (p * max(steepness, mpmath.mpf(1e-12)))  # λ = ∞ at δ = 0
                pairs.append((exact, -exact * slope))
            best = (mpmath.mpf(0), 1 / p if self.sign > 0 else mpmath.mpf(0))
            for trial in pairs:
                if mpmath.isfinite(trial[0]) and trial[0] > 0 and mpmath.isfinite(trial[1]):
                    bound = self.sign * self._weak_duality(*trial)
                    best = min(best, (trial[0], bound), key=lambda pair: self.sign * pair[1])
            return float(best[0]), float(best[1])

    def _weak_duality(self, multiplier: mpmath.mpf, price: mpmath.mpf) -> mpmath.mpf:
        """The right-hand side of the module's formula; all tokens but the action share s, and a common end for u."""
        own = self._supremum((self.sign / self.p - price) / multiplier, 1 / self.p)
        others = self._supremum(-price / multiplier, 1 / min(self.exact_P))
        return multiplier * (self.delta + self.p * own + self.others * others) + price

    def _supremum(self, s: mpmath.mpf, end: mpmath.mpf) -> mpmath.mpf:
        """An upper bound of `s u − f(u)` on [0, end], tight to about 1e-30: tangents at the ends of a bracket."""
        low, high = mpmath.mpf(10) ** -40, end
        if s >= self.slope(high):
            return s * high - self.f(high)
        if s <= self.slope(low):
            return s * low - self.f(low) + (self.slope(low) - s) * low
        while high - low > low * mpmath.mpf(2) ** -52:
            middle = mpmath.sqrt(low * high) if high > 2 * low else (low + high) / 2
            low, high = (middle, high) if s >= self.slope(middle) else (low, middle)
        left = s * low - self.f(low) + max(s - self.slope(low), 0) * (high - low)
        right = s * high - self.f(high) + max(self.slope(high) - s, 0) * (high - low)
        return min(left, right)
