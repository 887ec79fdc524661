"""A divergence of your own, with everything that can belong to it: copy this file, put your generator in, and run

    bandtheory verify divergence_template.py:skewed          # the checks, as a report
    bandtheory verify divergence_template.py:skewed --effort deep      # the same on many more inputs; can be interrupted
    pytest divergence_template.py                            # the checks, as tests

Both commands execute this file. Steps 1 and 6 are all that is needed; 2 to 5 are there for what they say.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bandtheory as bt
from bandtheory.evidence.properties import band_properties

# 1. The generator f, convex on (0, ∞) with f(1) = 0, as text in u: D_f(Q‖P) = Σ P f(Q/P), P the old policy and Q the new one.
#    The grammar: numbers, pi, e, + - * / **, log, exp, sqrt, abs, max, min. f and f + c (u − 1) are the same divergence.
#    Here: the χ² divergence that weights the mixture of both policies, Σ (q − p)²/((1 − w) p + w q).
half = bt.FDivergence("half", "(u - 1)**2/(1/2 + u/2)", title="χ² with weight ½: Σ (q − p)²/((p + q)/2)")

# 2. Parameters: further names in the text, with exact values. One function makes the family.


def mixed_chi2(weight: str) -> bt.FDivergence:
    """Σ (q − p)²/((1 − w) p + w q) for 0 ≤ w ≤ 1: Pearson's χ² at w = 0, Neyman's at w = 1."""
    return bt.FDivergence(f"mixed_chi2_{weight}", "(u - 1)**2/(1 - w + w*u)", parameters=(("w", Fraction(weight)),))


skewed = mixed_chi2("0.25")

# 3. A monotone function of a divergence, as Rényi's: `radius` is the radius of D_f that your delta stands for, increasing
#    from 0. Here sqrt(D_f), which is a distance: D_f ≤ delta². Leave it out for an f-divergence.
distance = bt.FDivergence("distance", "(sqrt(u) - 1)**2", title="Hellinger distance, not squared", radius="delta**2")

# 4. The conic form, for the check against the n-token convex program. Most generators are translated to cvxpy by themselves;
#    `bandtheory verify` says so if one is not, as here. Then write f as a convex cvxpy expression of the ratios, and pass it:
#        bandtheory verify divergence_template.py:fourth_power --conic divergence_template.py:fourth_power_conic
#    Without it the convex program is not available, and more Fenchel certificates stand in for it.
fourth_power = bt.FDivergence("fourth_power", "(sqrt(u) - 1)**4")


def fourth_power_conic(ratios):
    """((√u − 1)²)²: u + 1 − 2 √u is convex, and the square of its positive part, which is all of it, is convex too."""
    import cvxpy as cp

    return cp.square(cp.pos(ratios + 1 - 2 * cp.sqrt(ratios)))


# 5. Your own implementation of the bounds, (logp, delta) ↦ (log_lower, log_upper), to be judged instead of the library's:
#        bandtheory verify neyman_chi2 --bounds divergence_template.py:neyman_bounds
#    logp is a float64 array of one dimension in nats, delta a number. Each log-bound must be right to 1e-10, relative.


def neyman_bounds(logp: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The roots of p (r − 1)² = δ r (1 − p r), as r − 1 and without cancellation; their product is 1/(1 + δ)."""
    p, rest = np.exp(logp), -np.expm1(logp)
    root = np.sqrt(delta * (delta + 4 * p * rest))
    tilt = delta * (rest - p)
    with np.errstate(divide="ignore"):
        move = np.where(tilt > 0, (root + tilt) / (2 * p * (1 + delta)), 2 * rest * delta / (root - tilt))
    return -np.log1p(delta) - np.log1p(move), np.log1p(move)


# 6. The tests. pytest shows each property under its name, as in test_band[mixed_chi2_0.25-upper_bound]; one that does not apply
#    is skipped with the reason. A failure prints one screen: which theorem, where, expected, got, and a line to reproduce it.


@pytest.mark.parametrize("holds", band_properties(skewed))
def test_band(holds):
    holds()


@pytest.mark.parametrize("holds", [*band_properties(distance), *band_properties(fourth_power, conic=fourth_power_conic)])
def test_further_bands(holds):
    holds()


@pytest.mark.parametrize("holds", band_properties("neyman_chi2", neyman_bounds))
def test_own_bounds(holds):
    holds()
