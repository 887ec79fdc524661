"""A claimed bound against the true one, in `z = |log r|`: the enclosure, the verdict, the dual bound.

- **Enclosure.** `bracket` holds the true bound between two numbers at which the sign of `g − δ` is certain (theorem 2).
  Saturation (theorem 6), p = 0 and p = 1 (theorem 7) and δ = 0 are decided as such.
- **Verdict.** The bracket lies within the interval of bounds for which the claim is right, or beyond it on one side; an end of
  that interval that falls into the bracket is itself asked for its sign.
- **Dual bound.** Theorem 1 at a point r₀ near the bound, with `s₁ = f'(r₀)`, `s₂ = f'(c₀)`, `λ = 1/(s₁ − s₂)`, `ν = −λ s₂`, and
  Fenchel–Young equality `f*(f'(x)) = x f'(x) − f(x)`. The terms of
  `λδ + ν + λ [p f*((1 − ν)/λ) + (1 − p) f*(−ν/λ)]` then collapse to

      max Q_a ≤ p r₀ + λ (δ − g(p, r₀)),      min Q_a ≥ p r₀ − λ (δ − g(p, r₀))   with λ = 1/(s₂ − s₁)

  which is evaluated in balls and holds for every r₀. At saturation, and where nothing better is certain, it is the trivial
  bound of λ = 0: `Q_a ≤ 1`, `Q_a ≥ 0`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import sympy
from flint import arb

from bandtheory.ball import exact, precision
from bandtheory.evidence.bracket import (
    MOST_BITS,
    SEARCH_BITS,
    TOP,
    BallGenerator,
    Bracket,
    CertainToken,
    Problem,
    Search,
    Token,
)
from bandtheory.evidence.flatness import stretch

SPACING = 5e-324  # of float64 around 0: a claim cannot be closer to a tiny bound than half of this
OVERFLOW = (2**54 - 1) * 2**970  # the least number that float64 rounds to inf: what a claim of inf stands for
DUAL_BITS = 256
STEP_AT_ZERO = arb((1, -80))  # from a band of radius 0 to the r₀ of its dual bound


class Claim(NamedTuple):
    """A number that is said to be the bound."""

    value: float
    is_log: bool
    tolerance: float

    def start(self, sign: int) -> arb:
        """`|log r|` if the claim is right."""
        value = exact(self.value)
        return sign * (value if self.is_log else value.log())

    def accepted(self, sign: int) -> tuple[arb, arb]:
        """Balls of the ends of the interval of `|log bound|` for which the claim is on the bound."""
        if self.is_log:
            return self._around(sign * self.value)
        low, high = (x.log() if x > 0 else arb.neg_inf() for x in self._around(self.value))
        return (low, high) if sign > 0 else (-high, -low)

    def _around(self, x: float) -> tuple[arb, arb]:
        """All b with |x − b| ≤ tolerance·b + SPACING, for bounds b ≥ 0."""
        tolerance, spacing = exact(self.tolerance), exact(SPACING)
        if math.isinf(x):
            return (exact(OVERFLOW) / (1 + tolerance), arb.pos_inf()) if x > 0 else (arb.neg_inf(), arb.neg_inf())
        return (exact(x) - spacing) / (1 + tolerance), (exact(x) + spacing) / (1 - tolerance)


def enclosed(generator: BallGenerator, logp: float, claim: Claim, delta: float, sign: int) -> tuple[Search | None, Bracket]:
    """The bracket of the true bound; None for the search where a limit is the bound itself."""
    nothing, everything = Bracket(arb(0), arb(0), None), Bracket(arb.pos_inf(), arb.pos_inf(), None)
    if logp == 0 and sign > 0:
        return None, nothing
    if delta == 0:
        low, high = stretch(generator.divergence).reach(logp, sign)
        search = None if math.isinf(logp) or logp == 0 else Search(Token(generator, logp, delta, sign))
        return search, Bracket(low, high, None)
    if math.isinf(logp):
        return None, everything
    if logp == 0 and generator.recession == sympy.oo:
        return None, nothing
    problem = CertainToken(generator, delta) if logp == 0 else Token(generator, logp, delta, sign)
    search = Search(problem)
    return search, search.run(claim.start(sign))


def verdict_of(search: Search | None, bracket: Bracket, claim: Claim, sign: int) -> tuple[str, Bracket]:
    """Compare the bracket with the accepted interval; where an end of that falls into the bracket, decide about the end."""
    bits = SEARCH_BITS
    while bits <= MOST_BITS:
        with precision(bits):
            low, high = claim.accepted(sign)
            if bracket.low >= low and bracket.high <= high:
                return "on", bracket
            if bracket.low > high:
                return "inside", bracket
            if bracket.high < low:
                return "outside", bracket
            if search is None or search.problem.delta == 0:
                break
            search.problem.bits = max(search.problem.bits, bits)
            for z in (low.lower(), low.upper(), high.lower(), high.upper()):
                if search.low < z < search.high:
                    search.look(z)
            bracket = search.bracket
        bits *= 2
    return "undecided", bracket


def dual_reach(problem: Problem | None, bracket: Bracket, logp: float, sign: int) -> tuple[arb, float, float]:
    """An upper bound of `|log bound|` by theorem 1, with λ and ν."""
    trivial = (exact(-logp), 0.0, 1.0) if sign > 0 else (arb.pos_inf(), 0.0, 0.0)
    if problem is None:
        # p = 1 where nothing can be moved: the other tokens have no mass, so Q_a ≥ 1 is the constraint ν = −1 itself
        return (arb(0), 0.0, -1.0) if sign < 0 and logp == 0 and bracket.high == 0 else trivial
    if bracket.low == problem.end or bracket.low >= TOP:
        return trivial
    at = bracket.outer if bracket.outer is not None else bracket.low
    if problem.delta == 0:
        at = (bracket.high + STEP_AT_ZERO).mid()
        if not at < problem.end:
            at = ((bracket.high + problem.end) / 2).mid() if problem.end.is_finite() else at
    if not 0 < at < problem.end:
        return trivial
    bits = max(problem.bits, DUAL_BITS)
    while bits <= MOST_BITS:
        with precision(bits):
            excess, steepness, slope_r, slope_c = problem.measure(at)
            reach = at + sign * (-sign * excess / steepness).log1p()
            if steepness > 0 and reach.is_finite() and reach.rad() <= abs(reach.mid()) * exact(2.0**-60):
                multiplier = sign / (slope_r - slope_c)
                price = -multiplier * slope_c
                return min(reach.upper(), trivial[0]), float(multiplier.mid()), float(price.mid())
        bits *= 2
    return trivial
