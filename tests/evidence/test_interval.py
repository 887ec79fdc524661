"""Proofs over intervals: true claims about rows are proved, false ones never, whatever the method."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bandtheory.bounds import log_bounds
from bandtheory.catalogue import examples
from bandtheory.divergence import divergence
from bandtheory.evidence.certificate import certify
from bandtheory.evidence.interval import IntervalClaim, prove

SIGN = {"upper": 1, "lower": -1}
NODES = np.array([-1, 1 - math.sqrt(2), math.sqrt(2) - 1, 1])
PLACES = np.concatenate([NODES, np.linspace(-1, 1, 201)])
STARTS = (1e-6, 0.01, 0.25, 1.0, 3.0, 8.0, 20.0, 50.0, 103.875)
TYPED = (
    "max(abs(u - 1) - 1/3, 0)",
    "max(abs(u - 1)/2, (u - 1)**2)",
    "exp(u) - e*u",
    "u**pi - pi*(u - 1) - 1",
    "max(1/u - 2, 0)",
    "sqrt(1 + (u - 1)**2) - 1",
)
TINY = 2.0**-149


def bound(spec: str, delta: float, side: str, x: object) -> np.ndarray:
    return np.asarray(getattr(log_bounds(logp=-np.asarray(x, float), divergence=spec, delta=delta), side))


def fitted(
    spec: str, delta: float, side: str, low: float, high: float, scale: float = 1.05, room: float = 1e-9
) -> IntervalClaim | None:
    """The cubic through four bounds, with `scale` times its largest error, seen at 200 places, and `room`; None without one."""
    low, high = float(np.float32(low)), float(np.float32(high))
    x = np.clip((low + high) / 2 + (high - low) / 2 * PLACES, low, high)
    values = bound(spec, delta, side, x)
    if not np.isfinite(values).all() or np.abs(values).max() > 1e6:
        return None
    c = np.linalg.solve(np.vander(NODES, increasing=True), values[:4])
    c[1:] = c[1:].astype(np.float32)
    beyond = SIGN[side] * (c[0] + PLACES * (c[1] + PLACES * (c[2] + PLACES * c[3])) - values)
    errors = [float(max(end.max(), 0.0)) * scale + room for end in (beyond, -beyond)]
    return IntervalClaim(side, low, high, (float(c[0]), float(c[1]), float(c[2]), float(c[3])), *errors)


def row(spec: str, delta: float, side: str, low: float, **changes: float) -> IntervalClaim | None:
    """A row as wide as those of a table."""
    return fitted(spec, delta, side, low, low + min(low / 8, 0.1), **changes)


def constant(
    side: str, low: float, high: float, value: float, excess: float, shortfall: float, gap: bool = False
) -> IntervalClaim:
    return IntervalClaim(side, low, high, (value, 0.0, 0.0, 0.0), excess, shortfall, gap)


@pytest.mark.parametrize("spec", [*examples(), *TYPED])
@pytest.mark.parametrize("delta", [0.001, 0.05, 1.0])
def test_rows_of_all_divergences_are_proved(spec: str, delta: float) -> None:
    f = divergence(spec)
    proved = 0
    for low in STARTS:
        for side in SIGN:
            claim = row(spec, delta, side, low)
            if claim is None and np.isneginf(bound(spec, delta, side, [low, low + min(low / 8, 0.1)])).all():
                claim = constant(side, low, low + min(low / 8, 0.1), -math.inf, 0, 0)
            if claim is not None:
                assert prove(f, delta, claim), (low, claim)
                proved += 1
    assert proved >= len(STARTS)


@pytest.mark.parametrize(
    ("spec", "side", "low", "high"),
    [
        ("kl", "upper", 1, 1.5),
        ("kl", "lower", 1, 1.5),
        ("jensen_shannon", "upper", 2, 2.5),
        ("renyi:3", "lower", 0.25, 0.3),
        ("vajda:1.5", "upper", 3, 3.5),
        ("hockey_stick:1.2", "lower", 0.5, 0.7),
        ("tv", "upper", 0.03, 0.08),  # the ratio 1/p up to x = −log 0.95, a kink there
        ("renyi:0.5", "upper", 0.04, 0.06),
    ],
)
def test_claims_that_are_a_little_too_good_are_not_proved(spec: str, side: str, low: float, high: float) -> None:
    f = divergence(spec)
    claim = fitted(spec, 0.05, side, low, high)
    assert claim is not None
    assert claim.excess > 1e-8
    assert claim.shortfall > 1e-8
    assert prove(f, 0.05, claim)
    assert prove(f, 0.05, replace(claim, excess=0.9 * claim.excess)) is None
    assert prove(f, 0.05, replace(claim, shortfall=0.9 * claim.shortfall)) is None
    for shift in (-1e-5, 1e-5):
        moved = (claim.coefficients[0] + shift, *claim.coefficients[1:])
        close = fitted(spec, 0.05, side, low, low + (high - low) / 8)
        assert close is not None
        assert prove(f, 0.05, replace(close, coefficients=(close.coefficients[0] + shift, *close.coefficients[1:]))) is None
        wide = replace(claim, coefficients=moved, excess=claim.excess + 1.1e-5, shortfall=claim.shortfall + 1.1e-5)
        assert prove(f, 0.05, wide)


@given(
    spec=st.sampled_from([*examples(), *TYPED]),
    delta=st.sampled_from([0.001, 0.03, 1.0, 4.0]),
    side=st.sampled_from(sorted(SIGN)),
    low=st.one_of(st.floats(0, 110, width=32), st.floats(0, 2.0**-20, width=32)),
    width=st.floats(-30, 0),
    scale=st.floats(0.5, 2),
    shift=st.floats(-1e-6, 1e-6),
    places=st.lists(st.floats(0, 1), min_size=3, max_size=6),
)
@example("tv", 0.03, "upper", 0.030459202826023102, -20.0, 1.0, 0.0, [0.0, 0.5, 1.0])
@example("kl", 0.03, "lower", 0.0, -10.0, 0.5, 0.0, [0.0, 0.5, 1.0])
def test_no_certificate_contradicts_a_proof(
    spec: str, delta: float, side: str, low: float, width: float, scale: float, shift: float, places: list[float]
) -> None:
    high = low + 2.0**width * (low or 1.0)
    claim = fitted(spec, delta, side, low, high, scale) if np.float32(low) < np.float32(high) else None
    if claim is None:
        return
    claim = replace(claim, coefficients=(claim.coefficients[0] + shift, *claim.coefficients[1:]))
    if prove(divergence(spec), delta, claim) is None:
        return
    for place in [0.0, *places, 1.0]:
        x = min(max(claim.low + place * (claim.high - claim.low), claim.low), claim.high)
        least, most = accepted(claim, x)
        made = certify(-x, divergence=spec, delta=delta, side=side, log_ratio=SIGN[side] * float(max(least, Fraction(0))))
        ends = sorted(SIGN[side] * end for end in made.log_enclosure)  # type: ignore[union-attr]
        assert ends[1] >= least
        assert ends[0] <= most


def accepted(claim: IntervalClaim, x: float) -> tuple[Fraction, Fraction]:
    """The distances of the bound from ratio 1 that a claim allows at x, exactly."""
    low, high, at = Fraction(claim.low), Fraction(claim.high), Fraction(x)
    t = (2 * at - low - high) / (high - low)
    c = SIGN[claim.side] * sum(Fraction(number) * t**k for k, number in enumerate(claim.coefficients))
    return c - Fraction(claim.excess), c + Fraction(claim.shortfall)


def test_a_saturated_upper_bound_is_exactly_x() -> None:
    # squared_hellinger: (1/√p − 1)² p + 1 − p = 2 − 2√p ≤ 0.05 for x ≤ −2 log 0.975 = 0.0506…
    f = divergence("squared_hellinger")
    claim = IntervalClaim("upper", 0.03125, 0.046875, (0.0390625, 0.0078125, 0.0, 0.0), 0.0, 0.0)
    assert prove(f, 0.05, claim) == "saturation+simplex"
    assert prove(f, 0.04, claim) is None
    assert prove(f, 0.04, replace(claim, excess=math.inf)) == "simplex"
    above = replace(claim, coefficients=(0.0390626, 0.0078125, 0.0, 0.0))
    assert prove(f, 0.05, above) is None
    assert prove(f, 0.05, replace(above, excess=1.1e-7)) == "saturation+simplex"


def test_a_row_of_ratio_zero_is_proved_from_its_left_end() -> None:
    # tv: 1 − δ/p = 0 at x = −log 0.05 = 2.99573…
    f = divergence("tv")
    row = constant("lower", 2.99574, 104, -math.inf, 0, 0)
    assert prove(f, 0.05, row) == "saturation"
    assert prove(f, 0.05, replace(row, low=2.99573)) is None
    assert prove(divergence("kl"), 0.05, row) is None
    # f(0) + f'(∞) = 1 ≤ δ: the ratio 0 is feasible for all p
    assert prove(f, 1.0, replace(row, low=0.0)) == "saturation"
    assert prove(f, 0.99, replace(row, low=0.0)) is None


def test_the_shortfall_of_a_gap_is_claimed_at_its_left_end_only() -> None:
    f = divergence("tv")
    low = np.nextafter(np.float32(-math.log(0.05)), np.float32(0))
    high = np.nextafter(low, np.float32(4))
    while bound("tv", 0.05, "lower", high) > -math.inf:
        low, high = high, np.nextafter(high, np.float32(4))
    value = float(bound("tv", 0.05, "lower", low))
    row = constant("lower", float(low), float(high), value, 1e-9, 1e-9, gap=True)
    assert prove(f, 0.05, row)
    assert prove(f, 0.05, replace(row, gap=False)) is None
    assert prove(f, 0.05, replace(row, coefficients=(value + 1e-6, 0.0, 0.0, 0.0))) is None
    assert prove(f, 0.05, replace(row, coefficients=(value - 1e-6, 0.0, 0.0, 0.0))) is None
    # f'(∞) = ∞: the bound is 0 at p = 1, and has left 0 by 5e-4 at the next float32
    start = constant("lower", 0.0, TINY, 0.0, 0.0, 1e-9, gap=True)
    assert prove(divergence("reverse_kl"), 0.05, start)
    assert prove(divergence("reverse_kl"), 0.05, replace(start, gap=False)) is None
    assert prove(divergence("reverse_kl"), 0.05, replace(start, gap=False, shortfall=1e-3))


def test_rows_from_probability_one() -> None:
    # kl: the lower log-bound is −δ at p = 1
    f = divergence("kl")
    row = constant("lower", 0.0, 2.0**-24, -0.05, 1e-6, 1e-6)
    assert prove(f, 0.05, row) == "monotone"
    assert prove(f, 0.05, replace(row, coefficients=(-0.050002, 0.0, 0.0, 0.0))) is None
    assert prove(f, 0.05, replace(row, coefficients=(-0.049998, 0.0, 0.0, 0.0))) is None
    upper = constant("upper", 0.0, 2.0**-24, 0.0, 0.0, 2.0**-24)
    assert prove(f, 0.05, upper) == "simplex"
    assert prove(f, 0.05, replace(upper, shortfall=2.0**-25)) is None
    assert prove(f, 0.05, fitted("kl", 0.05, "lower", 0, 2.0**-10, room=1e-6) or row)  # x log x, a cubic, and many octaves


@pytest.mark.parametrize("spec", ["kl", "reverse_kl", "tv", "vajda:1.5", "renyi:3", "symmetric_chi2"])
def test_the_smallest_float32_are_like_all_others(spec: str) -> None:
    for side in SIGN:
        value = float(bound(spec, 0.05, side, 1.5 * TINY))
        claim = constant(side, TINY, 2 * TINY, value, 1e-4, 1e-4)
        assert prove(divergence(spec), 0.05, claim)
        if side == "lower":
            assert prove(divergence(spec), 0.05, replace(claim, coefficients=(value - 2e-4, 0, 0, 0))) is None
            assert prove(divergence(spec), 0.05, replace(claim, coefficients=(value + 2e-4, 0, 0, 0))) is None


def test_a_radius_of_zero_is_no_root() -> None:
    # max(u − 1.2, 0) is flat around 1: at δ = 0 the upper bound is 1.2, though g = δ at every ratio below
    f = divergence("hockey_stick:1.2")
    claim = constant("upper", 5.0, 5.1, 0.01, 0.0, 0.01)
    assert prove(f, 0.0, claim) is None
    assert prove(f, 0.0, replace(claim, shortfall=math.inf))
    assert prove(f, 0.0, replace(claim, coefficients=(0.2, 0, 0, 0), shortfall=math.inf)) is None  # log 1.2 = 0.182…


def test_what_claims_nothing_is_vacuous() -> None:
    assert prove(divergence("kl"), 0.05, constant("lower", 50, 104, -104.0, math.inf, math.inf)) == "vacuous"
    # −δ/p, far below −104: only that −104 is inside the band
    assert prove(divergence("kl"), 0.05, constant("lower", 50, 104, -104.0, 0.0, math.inf)) == "monotone"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"side": "both"}, "side = 'both'"),
        ({"low": 2.0}, "low = 2.0, high = 2.0"),
        ({"low": -1.0}, "low = -1.0"),
        ({"low": math.nan}, "low = nan"),
        ({"high": math.inf}, "high = inf"),
        ({"excess": -1e-9}, "excess = -1e-09"),
        ({"excess": math.nan}, "excess = nan"),
        ({"shortfall": -0.5}, "shortfall = -0.5"),
        ({"shortfall": math.nan}, "shortfall = nan"),
        ({"coefficients": (math.nan, 0, 0, 0)}, "coefficients"),
        ({"coefficients": (1, 0, math.inf, 0)}, "coefficients"),
        ({"coefficients": (-math.inf, 0, 0, 0)}, "coefficients"),
        ({"side": "lower", "coefficients": (-math.inf, 1, 0, 0)}, "coefficients"),
        ({"coefficients": (1, 0, 0)}, "coefficients"),
    ],
)
def test_bad_claims_are_refused(changes: dict[str, object], words: str) -> None:
    good = constant("upper", 1.0, 2.0, 0.5, 0.1, 0.1)
    with pytest.raises(ValueError, match=words):
        replace(good, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [-0.1, math.nan, math.inf])
def test_bad_radii_are_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=f"delta = {delta}"):
        prove(divergence("kl"), delta, constant("upper", 1.0, 2.0, 0.5, 0.1, 0.1))
