"""Faults of bounds in what they compute: another root, side, saturation or limit. Declarations only.

Mutations and formulas stand in `mutations` and `formulas`; faults of arithmetic in `in_arithmetic`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.planted.fault import Floats, in_bounds
from benchmarks.planted.formulas import bisection, formula, hellinger_angle, le_cam_roots, newton, neyman_roots
from benchmarks.planted.mutations import limit_from, log_rest, reciprocal, sides, swapped, symmetric

ROOT, SIDES, SATURATION, LIMIT = "wrong root", "swapped sides", "missing saturation", "wrong limit"


def _almost_saturated(logp: Floats, delta: float) -> Floats:
    """Whether δ reaches 1 − 1e-6 of the level `((1 − p)^−2 − 1)/6` at which `alpha:3` saturates below."""
    return np.asarray(delta >= (1 - 1e-6) * np.expm1(-2 * log_rest(logp)) / 6)


ROOTS = (
    in_bounds(
        "other root for the upper bound",
        ROOT,
        "neyman_chi2",
        formula(upper=lambda p, d: neyman_roots(p, d, -1)),
        "the lower root of the quadratic on both sides",
        "a sign copied",
    ),
    in_bounds(
        "other root for the lower bound",
        ROOT,
        "le_cam",
        formula(lower=lambda p, d: le_cam_roots(p, d, 1)),
        "the upper root of the quadratic on both sides",
        "a sign copied",
    ),
    in_bounds(
        "product of the roots taken for 1",
        ROOT,
        "neyman_chi2",
        reciprocal,
        "lower = 1/upper instead of 1/((1 + δ) upper)",
        "the quadratic divided by the wrong leading coefficient",
    ),
    in_bounds(
        "50 steps in probability space",
        ROOT,
        "kl",
        bisection(50),
        "absolute accuracy 2^−50 in q: few digits of r for small p, none of 1 − r for p near 1",
        "the loop of a published implementation",
    ),
    in_bounds(
        "100 steps in probability space",
        ROOT,
        "kl",
        bisection(100),
        "the end 1 of the bracket cannot be resolved in float64, nor small δ",
        "more steps against the above",
    ),
    in_bounds(
        "Newton stopped early", ROOT, "kl", newton(4), "not converged for large δ", "the number of steps chosen at δ = 0.05"
    ),
    in_bounds(
        "Newton of ten steps in the ratio",
        ROOT,
        "kl",
        newton(10),
        "not converged far out, and cancelling close to 1",
        "a fixed number of steps for a graph compiler",
    ),
    in_bounds(
        "one angle for both sides",
        ROOT,
        "squared_hellinger",
        formula(lower=lambda p, d: hellinger_angle(p, d, 1, wraps=False)),
        "cos²(θ − a) on both sides",
        "a sign copied",
    ),
)

SWAPPED = (
    in_bounds("sides swapped", SIDES, "tv", swapped, "upper returned first", "another order of the return value"),
    in_bounds("sides swapped", SIDES, "jeffreys", swapped, "upper returned first", "another order of the return value"),
    in_bounds("reciprocal", SIDES, "reverse_kl", reciprocal, "lower = 1/upper", "a clip that is symmetric in log-ratios"),
    in_bounds(
        "reciprocal", SIDES, "jeffreys", reciprocal, "lower = 1/upper", "a symmetric divergence taken for a symmetric band"
    ),
    in_bounds("mirrored about 1", SIDES, "jensen_shannon", symmetric, "upper = 2 − lower", "the band taken for symmetric"),
    in_bounds(
        "mirrored about 1", SIDES, "skew_jensen_shannon:0.7", symmetric, "upper = 2 − lower", "the band taken for symmetric"
    ),
)

SATURATIONS = (
    in_bounds(
        "no cap at 1/p",
        SATURATION,
        "tv",
        formula(upper=lambda p, d: 1 + d / p),
        "1 + δ/p beyond 1/p",
        "the formula as it stands",
    ),
    in_bounds(
        "no cap at 1/p",
        SATURATION,
        "pearson_chi2",
        formula(upper=lambda p, d: 1 + np.sqrt(d * (1 - p) / p)),
        "beyond 1/p for large δ",
        "the formula as it stands",
    ),
    in_bounds(
        "no cap at 1/p",
        SATURATION,
        "hockey_stick:1.2",
        formula(upper=lambda p, d: 1.2 + d / p),
        "γ + δ/p beyond 1/p",
        "the formula as it stands",
    ),
    in_bounds(
        "lower bound held above 0",
        SATURATION,
        "vajda:1.5",
        sides(lower=lambda logp, d, right: np.maximum(right, np.log(1e-8))),
        "1e-8 where the bound is 0",
        "an eps inside the logarithm",
    ),
    in_bounds(
        "angle runs past its end",
        SATURATION,
        "squared_hellinger",
        formula(lambda p, d: hellinger_angle(p, d, -1, wraps=True), lambda p, d: hellinger_angle(p, d, 1, wraps=True)),
        "after saturation the bounds turn back",
        "no clamp of the angle",
    ),
    in_bounds(
        "level without f(0)",
        SATURATION,
        "le_cam",
        sides(
            upper=lambda logp, d, right: np.where(
                d >= np.exp(logp) * (np.exp(-logp) - 1) ** 2 / (1 + np.exp(-logp)), -logp, right
            )
        ),
        "saturated from p f(1/p) on, without (1 − p) f(0)",
        "0·f(0/0) = 0 applied where it does not hold",
    ),
    in_bounds(
        "never saturates",
        SATURATION,
        "jensen_shannon",
        sides(
            lower=lambda logp, d, right: np.where(np.isneginf(right), -745.0, right),
            upper=lambda logp, d, right: np.where(right >= -logp, -logp - 1e-6, right),
        ),
        "the largest double below the end instead of the end",
        "a root finder whose bracket is open",
    ),
    in_bounds(
        "saturates 1 % too early",
        SATURATION,
        "reverse_kl",
        sides(lower=lambda logp, d, right: np.where(d >= -0.99 * log_rest(logp), -np.inf, right)),
        "lower = 0 from 0.99 of the level on",
        "a comparison with a margin",
    ),
    in_bounds(
        "saturates 1e-6 too early",
        SATURATION,
        "alpha:3",
        sides(lower=lambda logp, d, right: np.where(_almost_saturated(logp, d), -np.inf, right)),
        "lower = 0 from 1 − 1e-6 of the level on",
        "a comparison in float32",
    ),
    in_bounds(
        "saturation of the other side",
        SATURATION,
        "renyi:3",
        sides(lower=lambda logp, d, right: np.where(np.isneginf(right), right * 0 - 1e3, right)),
        "e^−1000 where the bound is 0",
        "a floor for log-ratios",
    ),
)


LIMITS = (
    in_bounds(
        "lower = 1 for p near 1",
        LIMIT,
        "kl",
        sides(lower=lambda logp, d, right: np.where(logp > -1e-8, 0.0, right)),
        "1 instead of e^−δ for p > 1 − 1e-8",
        "p rounded to 1, where nothing can change",
    ),
    in_bounds(
        "lower = 1 for p near 1",
        LIMIT,
        "tv",
        sides(lower=lambda logp, d, right: np.where(logp > -1e-15, 0.0, right)),
        "1 instead of 1 − δ for p > 1 − 1e-15",
        "1 − p = 0 in float64",
    ),
    in_bounds(
        "1 − δ for e^−δ",
        LIMIT,
        "kl",
        sides(lower=lambda logp, d, right: np.where(logp > -1e-6, np.log1p(-min(d, 1 - 1e-9)), right)),
        "the limit to first order in δ",
        "e^−δ ≈ 1 − δ",
    ),
    in_bounds(
        "mass δ for p → 0",
        LIMIT,
        "kl",
        sides(upper=lambda logp, d, right: np.where(logp < -30, np.minimum(np.log(min(d, 1)) - logp, -logp), right)),
        "p upper = δ instead of 1 − e^−δ below p = 1e-13",
        "the limit to first order in δ",
    ),
    in_bounds(
        "upper = 1 for p near 1",
        LIMIT,
        "neyman_chi2",
        sides(upper=lambda logp, d, right: np.where(logp > -1e-12, 0.0, right)),
        "1 instead of 1/p for p > 1 − 1e-12",
        "p rounded to 1",
    ),
    in_bounds(
        "all of the mass for p → 0",
        LIMIT,
        "pearson_chi2",
        sides(upper=lambda logp, d, right: np.where(logp < -600, -logp, right)),
        "1/p below p = 1e-260",
        "the limit of a divergence with f'(∞) < ∞",
    ),
    in_bounds(
        "limit used too early",
        LIMIT,
        "skew_jensen_shannon:0.1",
        limit_from(-1e-3),
        "the limit p → 1 for every p > 0.999",
        "a threshold chosen by eye",
    ),
    in_bounds(
        "limit used too early",
        LIMIT,
        "renyi:0.5",
        limit_from(-1e-3),
        "the limit p → 1 for every p > 0.999",
        "a threshold chosen by eye",
    ),
)

BOUND_FAULTS = (*ROOTS, *SWAPPED, *SATURATIONS, *LIMITS)
