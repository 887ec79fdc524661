"""Proofs over log-probability and radius: true claims are proved, false ones never."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bandtheory.divergence import divergence
from bandtheory.evidence.certificate import certify
from bandtheory.evidence.surface import Patch, SurfaceClaim, prove_surface
from bandtheory.expressions import radius_symbol, symbol

SIGN = {"upper": 1, "lower": -1}
NODES = np.array([-1.0, 1 - math.sqrt(2), math.sqrt(2) - 1, 1.0])
TO_POWERS = np.linalg.inv(np.vander(NODES, increasing=True))
TESTS = np.concatenate([NODES, np.linspace(-1, 1, 15)])
DIGITS = 30
TINY = 1e-12
ROOM = 1.25  # of errors over those seen on a grid
UNIT = (1.0,)

Floats = NDArray[np.float64]


@lru_cache
def definition(spec: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """f, and the radius of `D_f`, in mpmath."""
    f = divergence(spec)
    return sympy.lambdify(symbol(), f.generator, "mpmath"), sympy.lambdify(radius_symbol(), f.f_radius, "mpmath")


@lru_cache(maxsize=100_000)
def bound(spec: str, side: str, x: float, delta: float) -> float:
    """The distance of a log-bound from ratio 1: the largest y with `p f(r) + (1 − p) f(c) ≤ δ` at `r = e^{±y}`, by halving."""
    f, radius = definition(spec)
    with mpmath.workdps(DIGITS):
        p, rest, sign = mpmath.exp(-x), -mpmath.expm1(-x), SIGN[side]
        level = mpmath.mpf(radius(mpmath.mpf(delta)))
        low, high = mpmath.mpf(0), mpmath.mpf(x if sign > 0 else 200)
        for _ in range(55):
            y = (low + high) / 2
            r = mpmath.exp(sign * y)
            low, high = (y, high) if p * f(r) + rest * f((1 - p * r) / rest) <= level else (low, y)
        return float(low)


def place(patch: Patch, t: float, s: float) -> tuple[float, float]:
    """x and δ."""
    xi = (patch.low + patch.high) / 2 + t * (patch.high - patch.low) / 2
    scale = sum(a * s**k for k, a in enumerate(patch.scale))
    x = scale + patch.scale[0] * (xi - 1) if patch.shifted else scale * xi
    return x, math.exp(patch.log_delta[0] + s * patch.log_delta[1])


def bounds(spec: str, side: str, patch: Patch, ts: Floats, ss: Floats) -> Floats:
    return np.array([[bound(spec, side, *place(patch, float(t), float(s))) for s in ss] for t in ts])


def value(coefficients: Any, t: Any, s: Any) -> Any:
    return sum(a * t**i * s**k for i, row in enumerate(coefficients) for k, a in enumerate(row))


def stated(side: str, patch: Patch, c: Floats, excess: float, shortfall: float) -> SurfaceClaim:
    """A claim about distances from ratio 1."""
    rows = tuple(tuple(row) for row in (SIGN[side] * c + 0.0).tolist())
    return SurfaceClaim(side, patch, rows, excess, shortfall)


def errors(spec: str, side: str, patch: Patch, c: Floats) -> tuple[float, float]:
    """The largest distances beyond the bound, and short of it, on a grid."""
    true = bounds(spec, side, patch, TESTS, TESTS[::2])
    beyond = value(c, TESTS[:, None], TESTS[None, ::2]) - true
    return max(float(beyond.max()), 0.0), max(float(-beyond.min()), 0.0)


def cubic(spec: str, side: str, patch: Patch) -> Floats:
    """Through the bounds at 4 × 4 places."""
    found: Floats = TO_POWERS @ bounds(spec, side, patch, NODES, NODES) @ TO_POWERS.T
    return found


def moved(c: Floats, by: float) -> Floats:
    found = c.copy()
    found[0, 0] += by
    return found


def proved(spec: str, claim: SurfaceClaim) -> bool:
    return prove_surface(divergence(spec), claim)


def around(delta: float, half: float = 0.1) -> tuple[float, float]:
    return math.log(delta), half


ROWS = {
    "kl upper": ("kl", "upper", Patch(around(0.05), UNIT, 1.0, 1.5)),
    "kl lower": ("kl", "lower", Patch(around(0.05), UNIT, 1.0, 1.5)),
    "kl lower, scaled": ("kl", "lower", Patch(around(0.05), (2.0, -0.1, 0.01), 0.5, 0.75)),
    "jensen_shannon upper": ("jensen_shannon", "upper", Patch(around(0.05), UNIT, 2.0, 2.5)),
    "pearson_chi2 upper, far": ("pearson_chi2", "upper", Patch(around(0.05), UNIT, 20.0, 24.0)),
    "tv upper, shifted": ("tv", "upper", Patch(around(0.05), (0.052, 0.0055), 8.0, 16.0, shifted=True)),
    "tv lower, scaled": ("tv", "lower", Patch(around(0.05), (-math.log(0.05), -0.1), 0.5, 0.75)),
    "renyi:3 lower": ("renyi:3", "lower", Patch(around(0.05), UNIT, 0.25, 0.375)),
    "vajda:1.5 upper": ("vajda:1.5", "upper", Patch(around(0.05), UNIT, 3.0, 3.5)),
    "hockey_stick:1.2 upper": ("hockey_stick:1.2", "upper", Patch(around(0.05), UNIT, 1.0, 1.5)),
    "squared_hellinger lower": ("squared_hellinger", "lower", Patch(around(0.05), UNIT, 1.0, 1.5)),
    "typed": ("u**2 - 1", "lower", Patch(around(0.05), UNIT, 0.5, 0.75)),
}


@pytest.mark.parametrize("row", ROWS)
def test_claims_with_the_error_that_was_measured_are_proved_and_smaller_ones_are_not(row: str) -> None:
    spec, side, patch = ROWS[row]
    c = cubic(spec, side, patch)
    excess, shortfall = errors(spec, side, patch, c)
    assert min(excess, shortfall) > 1e3 * TINY
    claim = stated(side, patch, c, ROOM * excess + TINY, ROOM * shortfall + TINY)
    assert proved(spec, claim)
    assert not proved(spec, replace(claim, excess=0.9 * excess))
    assert not proved(spec, replace(claim, shortfall=0.9 * shortfall))
    for by in (1e-2, -1e-2):  # far more than the errors: a wrong radius, say
        assert not proved(spec, stated(side, patch, moved(c, by), claim.excess, claim.shortfall))
        assert proved(spec, stated(side, patch, moved(c, by), claim.excess + max(by, 0), claim.shortfall + max(-by, 0)))


@pytest.mark.parametrize("row", ["kl upper", "kl lower", "tv upper, shifted", "tv lower, scaled", "jensen_shannon upper"])
def test_without_excess_a_claim_must_be_inside(row: str) -> None:
    spec, side, patch = ROWS[row]
    c = cubic(spec, side, patch)
    excess, shortfall = errors(spec, side, patch, c)
    inside = stated(side, patch, moved(c, -ROOM * excess - TINY), 0.0, ROOM * (excess + shortfall) + 2 * TINY)
    assert proved(spec, inside)
    assert not proved(spec, replace(inside, coefficients=stated(side, patch, moved(c, -0.9 * excess), 0, 0).coefficients))


@pytest.mark.parametrize("row", ["kl upper", "kl lower", "pearson_chi2 upper, far", "tv lower, scaled"])
def test_a_claim_of_the_other_side_is_not_proved(row: str) -> None:
    spec, side, patch = ROWS[row]
    c = cubic(spec, side, patch)
    other = "lower" if side == "upper" else "upper"
    assert proved(spec, stated(side, patch, c, 1e-3, 1e-2))
    assert not proved(spec, stated(other, patch, c, 1e-3, 1e-2))


@pytest.mark.parametrize("row", ["kl lower, scaled", "tv upper, shifted", "tv lower, scaled"])
def test_the_coordinate_matters(row: str) -> None:
    """A claim about one coordinate is false in another, where ξ stands for another x."""
    spec, side, patch = ROWS[row]
    c = cubic(spec, side, patch)
    excess, shortfall = errors(spec, side, patch, c)
    claim = stated(side, patch, c, ROOM * excess + TINY, ROOM * shortfall + TINY)
    assert proved(spec, claim)
    for other in (
        replace(patch, scale=(patch.scale[0], 0.8 * patch.scale[1], *patch.scale[2:])),
        *([replace(patch, shifted=not patch.shifted)] if patch.low >= 1 else []),
        replace(patch, high=patch.high * 1.01),
        replace(patch, log_delta=(patch.log_delta[0], 1.1 * patch.log_delta[1])),
    ):
        assert not proved(spec, replace(claim, patch=other))


# --- rows that need the ends alone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spec", "side"), [("kl", "lower"), ("kl", "upper"), ("pearson_chi2", "upper"), ("tv", "lower")])
def test_flat_rows(spec: str, side: str) -> None:
    """C depends on s alone: the excess is that of the left end, the shortfall that of the right one."""
    patch = Patch(around(0.05), UNIT, 1.0, 1.0625)
    left, right = bounds(spec, side, patch, np.array([-1.0, 1.0]), NODES)
    c = np.zeros((4, 4))
    c[0] = TO_POWERS @ left
    shortfall = float((right - left).max())
    assert shortfall > 1e-4
    claim = stated(side, patch, c, 1e-6, 1.01 * shortfall + 1e-6)
    assert proved(spec, claim)
    assert not proved(spec, replace(claim, shortfall=0.9 * shortfall))
    assert not proved(spec, stated(side, patch, moved(c, 2e-6), 1e-6, math.inf))
    assert proved(spec, stated(side, patch, moved(c, -2e-6), 0.0, math.inf))
    assert not proved(spec, stated(side, patch, moved(c, -2e-6), 0.0, 0.99 * shortfall))


def test_rows_from_probability_one() -> None:
    """kl: the lower log-bound is −δ at p = 1 (theorem 7), and the upper one at most x everywhere."""
    patch = Patch(around(0.05), UNIT, 0.0, 2.0**-24)
    c = np.zeros((4, 4))
    c[0] = TO_POWERS @ np.exp(patch.log_delta[0] + NODES * patch.log_delta[1])
    claim = stated("lower", patch, c, 1e-6, 1e-5)
    assert proved("kl", claim)
    assert not proved("kl", stated("lower", patch, moved(c, 2e-6), 1e-6, 1e-5))
    assert not proved("kl", stated("lower", patch, moved(c, -2e-5), 1e-6, 1e-5))
    assert not proved("reverse_kl", claim)  # f'(∞) = ∞: it is 0 there
    upper = stated("upper", patch, 0 * c, 0.0, 2.0**-24)
    assert proved("kl", upper)
    assert not proved("kl", replace(upper, shortfall=2.0**-25))


def test_rows_of_ratio_zero() -> None:
    """tv: 1 − δ/p = 0 at x = −log δ, which is linear in s."""
    log_delta = around(0.05)
    zero = np.zeros((4, 4))
    zero[0, 0] = math.inf
    patch = Patch(log_delta, (-log_delta[0], -log_delta[1]), 1.00001, 30.0)
    claim = stated("lower", patch, zero, 0.0, math.inf)
    assert math.isinf(claim.coefficients[0][0])
    assert proved("tv", claim)
    assert not proved("tv", replace(claim, patch=replace(patch, low=0.99999)))
    assert not proved("tv", replace(claim, patch=replace(patch, scale=(patch.scale[0], 0.9 * patch.scale[1]))))
    assert not proved("tv", replace(claim, patch=replace(patch, low=0.0)))
    assert not proved("kl", claim)


def test_rows_of_ratio_zero_without_a_formula() -> None:
    """jensen_shannon: `p f(0) + (1 − p) f(1/(1 − p)) = δ` at the x found here."""
    f, _ = definition("jensen_shannon")
    with mpmath.workdps(DIGITS):

        def excess(x: mpmath.mpf) -> mpmath.mpf:
            p = mpmath.exp(-x)
            return p * mpmath.log(2) / 2 + (1 - p) * f(1 / (1 - p)) - mpmath.mpf(math.exp(math.log(0.05) - 2.0**-10))

        end = float(mpmath.findroot(excess, (1.0, 3.0), solver="anderson"))  # of the smallest δ, so of the largest x
    claim = SurfaceClaim(
        "lower", Patch(around(0.05, 2.0**-10), UNIT, end + 1e-6, 30.0), ((-math.inf, 0.0), (0.0, 0.0)), 0.0, math.inf
    )
    assert proved("jensen_shannon", claim)
    assert not proved("jensen_shannon", replace(claim, patch=replace(claim.patch, low=end - 1e-6)))


# --- where the upper bound leaves 1/p ---------------------------------------------------------------------------------------


def test_a_saturated_upper_bound_is_exactly_x() -> None:
    """squared_hellinger: 2 − 2√p ≤ δ for x ≤ −2 log(1 − δ/2), 0.0496… for 0.049 and 0.0464… for 0.0459"""
    patch = Patch((math.log(0.05), 0.02), UNIT, 0.03125, 0.046875)
    line = np.array([[0.0390625], [0.0078125]])
    claim = stated("upper", patch, line, 0.0, 0.0)
    assert proved("squared_hellinger", claim)
    assert not proved("squared_hellinger", replace(claim, patch=replace(patch, log_delta=(math.log(0.045), 0.02))))
    assert not proved("squared_hellinger", stated("upper", patch, moved(line, 1e-7), 0.0, 0.0))
    assert not proved("squared_hellinger", stated("upper", patch, moved(line, -1e-7), 0.0, 0.0))


@pytest.mark.parametrize(
    ("spec", "room"),
    [
        ("tv", 1.5),
        ("pearson_chi2", 1.5),
        ("u**2 - 1", 1.5),
        ("2*abs(u - 1) + 5*(u - 1)", 1.5),
        ("reverse_kl", 2.5),  # f'(0) = −∞: no series there
        ("squared_hellinger", 20.0),
    ],
)
def test_a_row_across_the_kink(spec: str, room: float) -> None:
    """On one side the bound is x and on the other smaller, at a place that moves with the radius."""
    delta = 0.2
    grid = np.linspace(0.01, 1.0, 199)
    last = max(x for x in grid.tolist() if bound(spec, "upper", x, delta) > x - 1e-12)
    patch = Patch(around(delta, 0.01), UNIT, 0.95 * last, 1.05 * last)
    c = cubic(spec, "upper", patch)
    dense = np.linspace(-1, 1, 41)
    beyond = value(c, dense[:, None], TESTS[None, ::2]) - bounds(spec, "upper", patch, dense, TESTS[::2])
    excess, shortfall = float(beyond.max()), float(-beyond.min())
    assert min(excess, shortfall) > 1e-6
    claim = stated("upper", patch, c, room * excess, room * shortfall)
    assert proved(spec, claim)
    assert not proved(spec, replace(claim, excess=0.9 * excess))
    assert not proved(spec, replace(claim, shortfall=0.9 * shortfall))


@pytest.mark.parametrize(
    ("spec", "log_delta", "ends", "line", "shortfall"),
    [
        (
            "u**2 - 1",
            (math.log(0.13428089562797912), 2.3e-4),
            (0.09946809809, 0.18038482982),
            (0.119012355, 0.019518874),
            0.0134316,
        ),
        (
            "reverse_kl",
            (math.log(0.12982938949946843), 4.9e-4),
            (0.06340872671, 0.38155990539),
            (0.121518667, 0.064859020),
            0.0806544,
        ),
        (
            "abs(u - 1)/2 + 5*(u - 1)",
            (math.log(0.2879458958733985), 2.2e-4),
            (0.32597101565, 0.43195136289),
            (0.337158087, 0.024244695),
            0.018495,
        ),
    ],
)
def test_a_generator_that_rises_below_one_proves_nothing_false(
    spec: str, log_delta: tuple[float, float], ends: tuple[float, float], line: tuple[float, float], shortfall: float
) -> None:
    """These were proved when f of a larger c was taken for smaller, which on (0, 1) holds of some generators only."""
    patch = Patch(log_delta, UNIT, *ends)
    c = np.array([[line[0]], [line[1]]])
    true = errors(spec, "upper", patch, c)[1]
    assert shortfall < true
    assert not proved(spec, stated("upper", patch, c, 1.0, shortfall))


# --- what is proved, against certificates -----------------------------------------------------------------------------------


@given(
    spec=st.sampled_from(
        ["kl", "reverse_kl", "tv", "pearson_chi2", "jensen_shannon", "hockey_stick:1.2", "renyi:0.5", "u**2 - 1"]
    ),
    side=st.sampled_from(sorted(SIGN)),
    delta=st.sampled_from([0.01, 0.05, 0.3]),
    half=st.sampled_from([0.001, 0.05]),
    low=st.floats(0.01, 4.0),
    width=st.floats(0.01, 0.5),
    slope=st.floats(-0.3, 0.3),
    shifted=st.booleans(),
    room=st.floats(0.3, 3.0),
    factor=st.floats(0.99, 1.01),
    places=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=3, max_size=5),
)
def test_no_certificate_contradicts_a_proof(
    spec: str,
    side: str,
    delta: float,
    half: float,
    low: float,
    width: float,
    slope: float,
    shifted: bool,
    room: float,
    factor: float,
    places: list[tuple[float, float]],
) -> None:
    patch = Patch((math.log(delta), half), (1.0, 0.1 * slope), low, low * (1 + width), shifted and low >= 1)
    nodes = bounds(spec, side, patch, NODES, NODES)
    if nodes.max() > 20:
        return
    c: Floats = factor * (TO_POWERS @ nodes @ TO_POWERS.T)
    beyond = value(c, NODES[:, None], NODES[None]) - nodes
    claim = stated(side, patch, c, room * max(float(beyond.max()), 1e-6), room * max(float(-beyond.min()), 1e-6))
    if not proved(spec, claim):
        return
    for t, s in [*places, (-1.0, -1.0), (1.0, 1.0)]:
        x, radius = place(patch, t, s)
        at = float(value(c, t, s))
        made = certify(-x, None, spec, radius, side, log_ratio=SIGN[side] * max(at, 0.0))
        nearest, farthest = sorted(abs(end) for end in made.log_enclosure)  # type: ignore[union-attr]
        assert at - claim.excess <= farthest + 1e-12
        assert nearest - 1e-12 <= at + claim.shortfall


@pytest.mark.parametrize("spec", ["kl", "tv"])
@pytest.mark.parametrize(("side", "value"), [("upper", -5.0), ("lower", 1.0)])
def test_a_claim_on_the_other_side_of_ratio_1_is_false(spec: str, side: str, value: float) -> None:
    claim = SurfaceClaim(side, Patch((math.log(0.02), 0.01), (1.0,), 1.0, 1.25), ((value, 0.0), (0.0, 0.0)), 0.0, 1e-3)
    assert not prove_surface(divergence(spec), claim)


def test_an_infinite_coefficient_is_the_ratio_0_of_a_lower_bound_only() -> None:
    with pytest.raises(ValueError, match="coefficients = "):
        SurfaceClaim("upper", Patch((math.log(0.02), 0.01), (1.0,), 4.2, 4.5), ((math.inf, 0.0), (0.0, 0.0)), 0.0, 1e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"side": "above"},
        {"coefficients": ((1.0, 0.0), (0.0,))},
        {"coefficients": ()},
        {"coefficients": ((math.nan,),)},
        {"excess": -1e-9},
        {"shortfall": math.nan},
    ],
)
def test_a_claim_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    good = {"side": "upper", "patch": ROWS["kl upper"][2], "coefficients": ((0.1,),), "excess": 0.0, "shortfall": 1.0}
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name} = "):
        SurfaceClaim(**good | wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"scale": (1.0, -1.0)}, "scale"),
        ({"scale": ()}, "scale"),
        ({"low": -1.0}, "low"),
        ({"high": 0.5}, "high"),
        ({"low": 0.5, "shifted": True}, "low"),
        ({"log_delta": (0.0, 0.0)}, "log_delta"),
    ],
)
def test_a_patch_that_is_none_is_refused(wrong: dict[str, Any], name: str) -> None:
    good = {"log_delta": (-3.0, 0.1), "scale": (1.0,), "low": 1.0, "high": 1.5}
    with pytest.raises(ValueError, match=f"{name} = "):
        Patch(**good | wrong)  # type: ignore[arg-type]
