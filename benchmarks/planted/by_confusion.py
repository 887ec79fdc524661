"""Faults of bounds by confusion: of p and 1 − p, of radii, divergences, ranges, calls. Declarations only."""

from __future__ import annotations

import numpy as np

from benchmarks.planted.fault import in_bounds
from benchmarks.planted.formulas import first_order, formula, hockey_stick, vajda_move, within_simplex
from benchmarks.planted.mutations import (
    LagsBehind,
    RemembersTokens,
    exchanged,
    instead,
    last_block_stale,
    long_arrays,
    one_for_all,
    only_where,
    overwrites_its_input,
    radius,
    sides,
    sorted_by_token,
    table,
)

EXCHANGED, RADIUS, OTHER = "p and 1 - p exchanged", "radius rescaled", "another divergence"
PART, STATE = "closed form valid in part of the range", "arrays and state"

EXCHANGES = (
    in_bounds("1 − p for p", EXCHANGED, "kl", exchanged, "the band of the other tokens", "P and 1 − P in the wrong order"),
    in_bounds("1 − p for p", EXCHANGED, "renyi:3", exchanged, "the band of the other tokens", "P and 1 − P in the wrong order"),
    in_bounds(
        "1 − p for p in the odds",
        EXCHANGED,
        "pearson_chi2",
        within_simplex(lambda p, d: np.sqrt(d * p / (1 - p))),
        "sqrt(δ p/(1 − p))",
        "odds upside down",
    ),
    in_bounds(
        "δ/(1 − p)", EXCHANGED, "tv", within_simplex(lambda p, d: d / (1 - p)), "δ/(1 − p) instead of δ/p", "the wrong token"
    ),
    in_bounds(
        "the rarer outcome",
        EXCHANGED,
        "skew_jensen_shannon:0.7",
        only_where(lambda logp, d: logp > np.log(0.5), exchanged),
        "1 − p for p > ½",
        "the rarer outcome taken for the token",
    ),
)

RADII = (
    in_bounds("δ doubled", RADIUS, "kl", radius(lambda d: 2 * d), "radius 2δ", "KL against 2 KL"),
    in_bounds("|q − p| for ½|q − p|", RADIUS, "tv", radius(lambda d: d / 2), "radius δ/2", "L1 against total variation"),
    in_bounds("½ Σ(√q − √p)²", RADIUS, "squared_hellinger", radius(lambda d: 2 * d), "radius 2δ", "another normalisation"),
    in_bounds("without the ½", RADIUS, "jensen_shannon", radius(lambda d: d / 2), "radius δ/2", "another normalisation"),
    in_bounds(
        "distance for divergence", RADIUS, "jensen_shannon", radius(lambda d: d * d), "radius δ²", "the square root forgotten"
    ),
    in_bounds("bits for nats", RADIUS, "reverse_kl", radius(lambda d: d * float(np.log(2))), "radius δ log 2", "log2"),
    in_bounds("half of the sum", RADIUS, "jeffreys", radius(lambda d: 2 * d), "radius 2δ", "the mean of both KL taken"),
    in_bounds("half of the sum", RADIUS, "symmetric_chi2", radius(lambda d: 2 * d), "radius 2δ", "the mean of both χ² taken"),
    in_bounds("half of Le Cam", RADIUS, "le_cam", radius(lambda d: 2 * d), "radius 2δ", "another normalisation"),
    in_bounds(
        "without 1/(α(α − 1))", RADIUS, "alpha:3", radius(lambda d: d / 6), "radius δ/(α(α − 1))", "another normalisation"
    ),
    in_bounds("without its map", RADIUS, "renyi:3", instead("alpha:3"), "Rényi's radius used for D_α", "α and Rényi confused"),
    in_bounds(
        "without its map", RADIUS, "renyi:0.5", instead("alpha:0.5"), "Rényi's radius used for D_α", "α and Rényi confused"
    ),
    in_bounds(
        "the map of α > 1 for α < 1",
        RADIUS,
        "renyi:0.5",
        instead("alpha:0.5", lambda d: float(np.expm1(0.5 * d)) / 0.25),
        "(e^{|α − 1|δ} − 1)/|α(α − 1)|",
        "an absolute value too many",
    ),
    in_bounds(
        "the map to first order",
        RADIUS,
        "renyi:3",
        instead("alpha:3", lambda d: d / 3),
        "radius δ/α",
        "small radii assumed",
    ),
)

OTHERS = (
    in_bounds("direction reversed", OTHER, "kl", instead("reverse_kl"), "KL(Q‖P)", "two conventions"),
    in_bounds("direction reversed", OTHER, "neyman_chi2", instead("pearson_chi2"), "Pearson χ²", "two conventions"),
    in_bounds("direction reversed", OTHER, "alpha:-0.5", instead("alpha:1.5"), "1 − α for α", "two conventions"),
    in_bounds(
        "direction reversed",
        OTHER,
        "skew_jensen_shannon:0.1",
        instead("skew_jensen_shannon:0.9"),
        "1 − λ for λ",
        "two conventions",
    ),
    in_bounds("Amari's α", OTHER, "alpha:3", instead("alpha:2"), "(1 + α)/2 for α", "two conventions"),
    in_bounds("k + 1", OTHER, "vajda:1.5", instead("vajda:2.5"), "the exponent of the derivative", "an index off by one"),
    in_bounds(
        "k = 2 whatever k is", OTHER, "vajda:3", instead("pearson_chi2"), "the parameter ignored", "an argument not passed on"
    ),
    in_bounds(
        "λ = ½ whatever λ is",
        OTHER,
        "skew_jensen_shannon:0.7",
        instead("jensen_shannon"),
        "the parameter ignored",
        "an argument not passed on",
    ),
    in_bounds("1/α for α", OTHER, "renyi:3", instead("renyi:1/3"), "the parameter inverted", "the order of the norm"),
    in_bounds("γ ignored", OTHER, "hockey_stick:2", instead("tv"), "total variation", "γ = 1 assumed"),
    in_bounds(
        "lower bound ignores γ",
        OTHER,
        "hockey_stick:2",
        hockey_stick(2, lower_gamma=1),
        "1 − δ/p below",
        "γ taken for a matter of the upper side",
    ),
    in_bounds(
        "1/γ below",
        OTHER,
        "hockey_stick:1.2",
        hockey_stick(1.2, lower_gamma=1 / 1.2),
        "1/γ for γ in the lower bound",
        "a clip that is symmetric in log-ratios",
    ),
    in_bounds(
        "the other tokens forgotten",
        OTHER,
        "kl",
        formula(lambda p, d: np.exp(-d / p), lambda p, d: np.minimum(np.exp(d / p), 1 / p)),
        "−p log r = δ without the term of the other tokens",
        "an estimate by the sampled token",
    ),
    in_bounds(
        "a fixed clip",
        OTHER,
        "tv",
        formula(lambda p, d: np.full_like(p, 0.8), lambda p, d: np.full_like(p, 1.2)),
        "[0.8, 1.2] for every p",
        "the rule that a band replaces",
    ),
    in_bounds(
        "capped at 10",
        OTHER,
        "kl",
        sides(upper=lambda logp, d, right: np.minimum(right, np.log(10))),
        "upper ≤ 10",
        "a cap nobody asked for",
    ),
)

PARTS = (
    in_bounds(
        "first order in the radius",
        PART,
        "kl",
        first_order(1),
        "right for δ → 0 only",
        "every divergence is χ² to second order",
    ),
    in_bounds(
        "first order in the radius",
        PART,
        "jensen_shannon",
        first_order(0.25),
        "right for δ → 0 only",
        "every divergence is χ² to second order",
    ),
    in_bounds(
        "(1 − p) forgotten",
        PART,
        "pearson_chi2",
        within_simplex(lambda p, d: np.sqrt(d / p)),
        "right for p → 0 only",
        "(1 − p) ≈ 1",
    ),
    in_bounds(
        "second term forgotten", PART, "vajda:3", within_simplex(vajda_move(3, second=0)), "right for p → 0 only", "pᵏ ≪ p"
    ),
    in_bounds(
        "first term forgotten",
        PART,
        "vajda:1.5",
        within_simplex(vajda_move(1.5, first=0)),
        "right for p → 1 only",
        "the other tokens dominate",
    ),
    in_bounds(
        "p ≤ ½ assumed",
        PART,
        "tv",
        within_simplex(lambda p, d: d / np.minimum(p, 1 - p)),
        "right for p ≤ ½ only",
        "min(p, 1 − p) as the size of a token",
    ),
    in_bounds(
        "δ ≤ 1 assumed",
        PART,
        "squared_hellinger",
        radius(lambda d: min(d, 1.0)),
        "the band of radius 1 for δ > 1",
        "the largest value in another normalisation",
    ),
    in_bounds(
        "δ ≤ p assumed",
        PART,
        "hockey_stick:2",
        formula(upper=lambda p, d: np.where(d < p, np.minimum(2 + d / p, 1 / p), 2.0)),
        "γ where δ ≥ p",
        "a condition of the derivation kept in the code",
    ),
    in_bounds(
        "limit of small p for all p",
        PART,
        "neyman_chi2",
        formula(upper=lambda p, d: 1 + d / p / (1 + d)),
        "right for p → 0 only",
        "the limit of theorem 7 as a formula",
    ),
)


STATES = (
    in_bounds(
        "first radius kept",
        STATE,
        "kl",
        RemembersTokens,
        "a token's bounds at the first radius it was asked for",
        "a cache with too short a key",
    ),
    in_bounds("radius one call late", STATE, "tv", LagsBehind, "the radius of the call before", "an option read too early"),
    in_bounds(
        "input overwritten", STATE, "kl", overwrites_its_input, "log p replaced in the caller's array", "a workspace saved"
    ),
    in_bounds(
        "table for long arrays",
        STATE,
        "reverse_kl",
        long_arrays(table),
        "1e-4 off in arrays from 4,096 tokens on",
        "first guesses handed out as results",
    ),
    in_bounds(
        "sorted and not put back",
        STATE,
        "pearson_chi2",
        long_arrays(sorted_by_token),
        "the right numbers for other tokens",
        "sorted for speed",
    ),
    in_bounds(
        "last block stale",
        STATE,
        "le_cam",
        long_arrays(last_block_stale),
        "the tokens after the last whole block of 16,384",
        "a loop over whole blocks",
    ),
    in_bounds(
        "sorted and not put back",
        STATE,
        "alpha:-0.5",
        long_arrays(sorted_by_token, 2),
        "the right numbers for other tokens",
        "sorted for speed",
    ),
    in_bounds(
        "mean of the array",
        STATE,
        "hockey_stick:1.2",
        long_arrays(one_for_all, 2),
        "one bound for all tokens of an array",
        "a scalar broadcast",
    ),
)

CONFUSION_FAULTS = (*EXCHANGES, *RADII, *OTHERS, *PARTS, *STATES)
