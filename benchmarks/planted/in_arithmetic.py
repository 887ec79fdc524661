"""Faults of bounds in arithmetic: tolerances, formats, formulas that cancel, results that are no numbers. Declarations only."""

from __future__ import annotations

import numpy as np

from benchmarks.planted.fault import in_bounds
from benchmarks.planted.formulas import (
    bisection,
    formula,
    hockey_stick,
    le_cam_roots,
    neyman_roots,
    tv_textbook,
    vajda_move,
    within_simplex,
)
from benchmarks.planted.mutations import both, clamped_probability, off_by, radius, rounded_results, sides, through_probability

ABSOLUTE, PRECISION, NAN, SMALL = "absolute tolerance", "loss of precision", "not a number", "error just above the promise"

TOLERANCES = (
    in_bounds("1e-6 in q", ABSOLUTE, "kl", bisection(200, 1e-6), "bracket of 1e-6 in q = p r", "a published default"),
    in_bounds("1e-12 in q", ABSOLUTE, "kl", bisection(200, 1e-12), "bracket of 1e-12 in q = p r", "a tighter tolerance"),
    in_bounds(
        "1e-9 in the ratio",
        ABSOLUTE,
        "reverse_kl",
        both(lambda logp, d, right: np.log(np.round(np.exp(right) * 1e9) / 1e9)),
        "ratios in steps of 1e-9",
        "an absolute tolerance on r",
    ),
    in_bounds(
        "1e-12 in the log-ratio",
        ABSOLUTE,
        "symmetric_chi2",
        both(lambda logp, d, right: right + 1e-12 * np.sign(right)),
        "off by 1e-12: nothing for large log-ratios, everything for small ones",
        "an absolute tolerance on log r",
    ),
    in_bounds(
        "1e-14 in the radius",
        ABSOLUTE,
        "jensen_shannon",
        radius(lambda d: d + 1e-14),
        "a residual of 1e-14 accepted: 1 % of the smallest radius",
        "an absolute tolerance on g",
    ),
)

PRECISIONS = (
    in_bounds(
        "1/p below p = 1e-6",
        PRECISION,
        "kl",
        sides(upper=lambda logp, d, right: np.where(logp < np.log(1e-6), -logp, right)),
        "upper = 1/p below p = 1e-6",
        "a published implementation; hidden by its cap at 10",
    ),
    in_bounds("p clamped at 1e-8", PRECISION, "kl", clamped_probability(1e-8), "p in [1e-8, 1 − 1e-8]", "eps against log 0"),
    in_bounds(
        "p clamped at 1e-12", PRECISION, "jeffreys", clamped_probability(1e-12), "p in [1e-12, 1 − 1e-12]", "eps against log 0"
    ),
    in_bounds("p in float32", PRECISION, "squared_hellinger", through_probability, "p as a float32", "mixed precision"),
    in_bounds("float32 results", PRECISION, "alpha:-0.5", rounded_results(24), "ratios stored as float32", "memory"),
    in_bounds("bfloat16 results", PRECISION, "kl", rounded_results(8), "ratios stored as bfloat16", "autocast"),
    in_bounds("textbook form", PRECISION, "tv", formula(upper=tv_textbook), "log(1 + δ/p) for small δ/p", "log for log1p"),
    in_bounds(
        "1 − p as 1 − exp(log p)",
        PRECISION,
        "pearson_chi2",
        within_simplex(lambda p, d: np.sqrt(d * (1 - p) / p)),
        "no digits of 1 − p for p near 1, none of r − 1 for small δ",
        "the formula as it stands",
    ),
    in_bounds(
        "school formula",
        PRECISION,
        "neyman_chi2",
        formula(lambda p, d: neyman_roots(p, d, -1), lambda p, d: neyman_roots(p, d, 1)),
        "the numerator of the lower root cancels",
        "the formula as it stands",
    ),
    in_bounds(
        "school formula",
        PRECISION,
        "le_cam",
        formula(lambda p, d: le_cam_roots(p, d, -1), lambda p, d: le_cam_roots(p, d, 1)),
        "the numerator of the lower root cancels near saturation",
        "the formula as it stands",
    ),
    in_bounds(
        "powers overflow",
        PRECISION,
        "vajda:3",
        within_simplex(vajda_move(3)),
        "p³ (1 − p)^−2 for p near 1 and p³ near 0",
        "the formula as it stands",
    ),
    in_bounds(
        "textbook form",
        PRECISION,
        "hockey_stick:1.2",
        hockey_stick(1.2),
        "1 − δ − γ(1 − p) cancels",
        "the formula as it stands",
    ),
)

NO_NUMBERS = (
    in_bounds(
        "NaN for tiny p",
        NAN,
        "pearson_chi2",
        both(lambda logp, d, right: np.where(np.exp(2 * logp) == 0, np.nan, right)),
        "0/0 below p = 1e-162, where p² underflows",
        "p² in a denominator",
    ),
    in_bounds(
        "NaN for p next to 1",
        NAN,
        "alpha:-0.5",
        both(lambda logp, d, right: np.where(np.exp(logp) == 1, np.nan, right)),
        "0/0 where p rounds to 1",
        "1 − p in a denominator",
    ),
    in_bounds(
        "NaN where the bound is 0",
        NAN,
        "skew_jensen_shannon:0.7",
        sides(lower=lambda logp, d, right: np.where(np.isneginf(right), np.nan, right)),
        "no root to be found, so NaN",
        "the result of a solver that was not started",
    ),
    in_bounds(
        "infinity for overflow",
        NAN,
        "reverse_kl",
        sides(upper=lambda logp, d, right: np.where(logp < -690, np.inf, right)),
        "upper = ∞ below p = 1e-300",
        "1/p in float64",
    ),
    in_bounds(
        "refuses large radii",
        NAN,
        "hockey_stick:2",
        lambda right: lambda logp, d: right(logp, _checked(d)),
        "raises for δ > 50",
        "the largest divergence taken for the largest radius",
    ),
)


def _checked(delta: float) -> float:
    if delta > 50:
        raise ValueError(f"radius {delta} is above the largest divergence")
    return delta


SMALL_ERRORS = (
    in_bounds("relative error 1e-9", SMALL, "kl", off_by(1e-9), "both log-bounds 1e-9 too far out", "a solver's default"),
    in_bounds(
        "relative error −3e-10", SMALL, "vajda:3", off_by(-3e-10), "both log-bounds 3e-10 too far in", "a solver's default"
    ),
    in_bounds(
        "relative error 1e-9 for small radii",
        SMALL,
        "jeffreys",
        off_by(1e-9, lambda logp, d: np.asarray(d < 1e-8)),
        "for δ < 1e-8 only",
        "a generator that cancels near 1",
    ),
    in_bounds(
        "relative error 1e-9 for large radii",
        SMALL,
        "alpha:3",
        off_by(1e-9, lambda logp, d: np.asarray(d > 10)),
        "for δ > 10 only",
        "a solver stopped by its budget of steps",
    ),
    in_bounds(
        "relative error 1e-9 for small p",
        SMALL,
        "symmetric_chi2",
        off_by(1e-9, lambda logp, d: logp < np.log(1e-6)),
        "for p < 1e-6 only",
        "an asymptotic form used too early",
    ),
    in_bounds(
        "relative error 1e-9 near p = ½",
        SMALL,
        "jensen_shannon",
        off_by(1e-9, lambda logp, d: np.abs(np.exp(logp) - 0.5) < 0.01),
        "for p in [0.49, 0.51] only",
        "two branches that meet at ½, blended",
    ),
    in_bounds(
        "relative error 1e-3 near p = ½",
        SMALL,
        "kl",
        off_by(1e-3, lambda logp, d: np.abs(np.exp(logp) - 0.5) < 0.01),
        "for p in [0.49, 0.51] only",
        "two branches that meet at ½, blended",
    ),
    in_bounds(
        "log 2 to nine digits",
        SMALL,
        "jensen_shannon",
        radius(lambda d: max(d - 4.4e-10, 0.0)),
        "radius δ − 4.4e-10",
        "a constant typed from memory",
    ),
    in_bounds(
        "lower bound above saturation",
        SMALL,
        "tv",
        sides(lower=lambda logp, d, right: np.where((right < np.log(1e-3)) & np.isfinite(right), right * (1 + 1e-8), right)),
        "8 digits for lower bounds in (0, 1e-3)",
        "1 − δ/p cancels where δ is almost p",
    ),
    in_bounds(
        "eight digits in one decade of the radius",
        SMALL,
        "renyi:0.5",
        off_by(1e-8, lambda logp, d: np.asarray((d > 0.1) & (d < 1.0))),
        "for δ in [0.1, 1] only",
        "a polynomial fitted to a piece",
    ),
)

ARITHMETIC_FAULTS = (*TOLERANCES, *PRECISIONS, *NO_NUMBERS, *SMALL_ERRORS)
