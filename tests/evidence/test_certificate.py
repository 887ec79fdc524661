"""Certificates: verdicts about claims, enclosures and dual bounds, against references computed without ball arithmetic."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st

from bandtheory.ball import exact, precision
from bandtheory.catalogue import examples
from bandtheory.divergence import DivergenceError, FDivergence, divergence
from bandtheory.evidence.bracket import Bracket, Token, ball_generator
from bandtheory.evidence.certificate import Certificate, Certificates, certify
from bandtheory.evidence.decision import dual_reach
from bandtheory.expressions import radius_symbol, symbol

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "bounds.csv").read_text(encoding="utf-8").splitlines()))
FAMILIES = sorted({row["divergence"] for row in ROWS})
SIDES = ("lower", "upper")
TYPED = (
    "exp(u) - e*u",
    "max(abs(u - 1) - 1/3, 0)",
    "max(abs(u - 1)/2, (u - 1)**2)",
    "(u - 1)**4",
    "u**pi - pi*(u - 1) - 1",
    "sqrt(1 + (u - 1)**2) - 1",
    "max(1/u - 2, 0)",
    "hockey_stick:1",
    "alpha:-60",
    "vajda:60",
)
MAXIMUM = math.nextafter(math.inf, 0)


def true_log_bound(spec: str, logp: float, delta: float, side: str) -> mpmath.mpf:
    """Bisection of `g(p, e^{±z}) ≤ δ` for z, in 80 digits."""
    f = divergence(spec)
    code = sympy.lambdify(symbol(), f.generator, "mpmath")
    with mpmath.workdps(80):
        logp = mpmath.mpf(logp)
        radius = mpmath.mpf(sympy.lambdify(radius_symbol(), f.f_radius, "mpmath")(mpmath.mpf(delta)))
        at_zero = mpmath.inf if f.value_at_zero == sympy.oo else mpmath.mpf(str(sympy.N(f.value_at_zero, 80)))
        p, rest = mpmath.exp(logp), -mpmath.expm1(logp)

        def value(u: mpmath.mpf) -> mpmath.mpf:
            try:
                return mpmath.mpf(code(u)) if u > 0 else at_zero
            except OverflowError:
                return mpmath.inf

        def feasible(z: mpmath.mpf) -> bool:
            y = z if side == "upper" else -z
            return p * value(mpmath.exp(y)) + rest * value(-mpmath.expm1(y + logp) / rest) <= radius

        low, high = mpmath.mpf(0), -logp if side == "upper" else mpmath.mpf(10) ** 6
        if feasible(high):
            return high if side == "upper" else -mpmath.inf
        for _ in range(160):
            middle = mpmath.sqrt(low * high) if low else high / 2**40
            low, high = (middle, high) if feasible(middle) else (low, middle)
        return low if side == "upper" else -low


def array(rows: list[dict[str, str]], column: str) -> np.ndarray:
    return np.array([float(row[column]) for row in rows])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_of_the_reference_file_is_on_the_bound_and_moved_by_1e_11_is_not(family: str, side: str) -> None:
    rows = [row for row in ROWS if row["divergence"] == family]
    logp, delta, claims = array(rows, "logp"), array(rows, "delta"), array(rows, f"log_{side}")
    finite = np.isfinite(claims)

    def verdicts(scale: float) -> np.ndarray:
        return certify(logp, None, family, delta, side, log_ratio=claims * scale).verdict

    for scale in (1, 1 + 1e-13, 1 - 1e-13):
        assert np.all(verdicts(scale) == "on")
    assert np.all(verdicts(1 + 1e-11)[finite] == "outside")
    assert np.all(verdicts(1 - 1e-11)[finite] == "inside")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_enclosure_is_a_few_units_wide_and_holds_the_reference(family: str, side: str) -> None:
    rows = [row for row in ROWS if row["divergence"] == family]
    wild = np.full(len(rows), 0.3 if side == "upper" else -0.3)  # the enclosure must not depend on the claim
    result = certify(array(rows, "logp"), None, family, array(rows, "delta"), side, log_ratio=wild)
    below, above = result.log_enclosure
    reference = array(rows, f"log_{side}")  # its logp is a decimal, ours a float: they agree to 2e-16
    finite = np.isfinite(reference)
    assert np.array_equal(below[~finite], reference[~finite])
    assert np.array_equal(above[~finite], reference[~finite])
    size = np.abs(reference[finite])
    assert np.all(below[finite] - reference[finite] <= 4e-16 * size)
    assert np.all(reference[finite] - above[finite] <= 4e-16 * size)
    assert np.all(above[finite] - below[finite] <= 5e-16 * size)


@pytest.mark.parametrize("spec", [*examples(), *TYPED])
def test_enclosures_and_dual_bounds_hold_the_bound_that_bisection_of_the_definition_finds(spec: str) -> None:
    rng = np.random.default_rng(len(spec))
    for _ in range(3):
        logp, delta = -(10.0 ** rng.uniform(-6, 1.5)), 10.0 ** rng.uniform(-6, 1)
        for side in SIDES:
            truth = true_log_bound(spec, logp, delta, side)
            result = certify(logp, 1.0, spec, delta, side)
            assert result.log_enclosure[0] <= truth <= result.log_enclosure[1]
            if mpmath.isfinite(truth):
                assert result.log_enclosure[1] - result.log_enclosure[0] <= 5e-16 * abs(truth)
                assert abs(result.log_dual_bound - truth) <= 3e-16 * abs(truth)
            assert result.log_dual_bound >= truth if side == "upper" else result.log_dual_bound <= truth
            assert certify(logp, None, spec, delta, side, log_ratio=float(truth)).holds


@given(
    st.sampled_from([*examples(), *TYPED[:6]]),
    st.sampled_from(SIDES),
    st.floats(-300, 2.84).map(lambda x: -(10.0**x)),
    st.floats(-12, 2).map(lambda x: 10.0**x),
    st.floats(allow_nan=False),
)
@example("kl", "lower", -700.0, 1e-12, -5e301)
@example("kl", "upper", -1e-300, 1e2, 1e-300)
@example("renyi:3", "upper", -700.0, 100.0, 0.0)
@example("alpha:-60", "upper", -20.0, 1e2, math.inf)
def test_a_verdict_is_found_and_does_not_depend_on_what_was_claimed_before(
    spec: str, side: str, logp: float, delta: float, wild: float
) -> None:
    first = certify(logp, None, spec, delta, side, log_ratio=wild)
    assert first.verdict != "undecided"
    below, above = first.log_enclosure
    bound = below if side == "lower" or not math.isfinite(above) else above
    assert certify(logp, None, spec, delta, side, log_ratio=bound).holds
    if 1e-290 < abs(bound) < math.inf:
        assert certify(logp, None, spec, delta, side, log_ratio=bound * (1 - 1e-11)).verdict == "inside"
        assert certify(logp, None, spec, delta, side, log_ratio=bound * (1 + 1e-11)).verdict == "outside"
    assert certify(logp, first.enclosure[SIDES.index(side)], spec, delta, side).holds


@pytest.mark.parametrize("side", SIDES)
def test_ratios_are_decided_to_the_tolerance(side: str) -> None:
    # tv, p = e⁻¹: 1 ± δ/p, here 1 ± 0.05 e
    bound = float(1 + (1 if side == "upper" else -1) * 0.05 * mpmath.e)
    outwards = 1 if side == "upper" else -1
    for shift, verdict in ((0, "on"), (9e-13, "on"), (-9e-13, "on"), (1.1e-12, "outside"), (-1.1e-12, "inside")):
        result = certify(-1.0, bound * (1 + outwards * shift), "tv", 0.05, side)
        assert result.verdict == verdict
        assert result.holds == (verdict == "on")


def test_the_tolerance_is_respected_to_the_last_bits() -> None:
    # kl with δ = −log(1 − q)…: any bound will do; 1e-12 away it changes from one float to the next
    log_bound = certify(-2.0, 1.0).log_enclosure
    middle = (Fraction(log_bound[0]) + Fraction(log_bound[1])) / 2
    last = float(middle * (1 + Fraction(1e-12)))
    verdicts = [certify(-2.0, log_ratio=last + k * math.ulp(last)).verdict for k in range(-3, 4)]
    assert verdicts == sorted(verdicts)  # "on" … "on", "outside" … "outside"
    assert set(verdicts) == {"on", "outside"}


def test_the_dual_bound_is_theorem_1_with_the_multipliers_of_the_certificate() -> None:
    # kl: f*(s) = −1 − log(−s) for s < 0, so both sides of theorem 1 can be written down with λ and ν alone
    logp, delta = -1.5, 0.1

    def conjugate(s: mpmath.mpf) -> mpmath.mpf:
        assert s < 0
        return -1 - mpmath.log(-s)

    for side, sign in (("upper", 1), ("lower", -1)):
        result = certify(logp, 1.0, "kl", delta, side)
        with mpmath.workdps(40):
            p, multiplier, price = mpmath.exp(logp), mpmath.mpf(result.multiplier), mpmath.mpf(result.price)
            value = conjugate((sign - price) / multiplier) * p + conjugate(-price / multiplier) * (1 - p)
            bound = sign * (multiplier * delta + price + multiplier * value) / p
            assert abs(bound - result.dual_bound) <= 1e-15 * bound
            assert abs(bound - result.enclosure[0]) <= 1e-15 * bound


@pytest.mark.parametrize(("sign", "far"), [(1, 0.25), (1, 0.9), (-1, 0.6), (-1, 2.0)])
def test_the_dual_bound_holds_for_any_point_and_is_the_tangent_there(sign: int, far: float) -> None:
    # kl at r₀ = e^{±far}: r₀ + (δ − g)/(p (s₁ − s₂)) with s = −1/u, which no r of the band passes
    logp, delta = -1.5, 0.1
    problem = Token(ball_generator(divergence("kl")), logp, delta, sign)
    with precision(200):
        reach, multiplier, _ = dual_reach(problem, Bracket(exact(0.0), problem.end, exact(far)), logp, sign)
    with mpmath.workdps(50):
        p, r = mpmath.exp(logp), mpmath.exp(sign * mpmath.mpf(far))
        c = (1 - p * r) / (1 - p)
        slopes = 1 / c - 1 / r
        tangent = r + (mpmath.mpf(delta) + p * mpmath.log(r) + (1 - p) * mpmath.log(c)) / (p * slopes)
        expected = sign * mpmath.log(tangent)
        assert abs(float(reach) - expected) <= 1e-15 * expected
        assert abs(multiplier - sign / slopes) <= 1e-15 * multiplier
        assert expected > sign * true_log_bound("kl", logp, delta, "upper" if sign > 0 else "lower")


def test_the_multiplier_is_the_slope_of_the_bound_in_delta() -> None:
    # pearson: upper = 1 + sqrt(δ(1 − p)/p), so d(p·upper)/dδ = sqrt(p(1 − p)/δ)/2
    p = math.exp(-1.0)
    assert math.isclose(certify(-1.0, 1.0, "pearson_chi2", 0.25).multiplier, math.sqrt(p * (1 - p) / 0.25) / 2, rel_tol=1e-12)


def test_saturation_is_exact_and_has_the_trivial_dual_bound() -> None:
    # tv: upper = 1/p and lower = 0 for δ ≥ 1
    upper, lower = certify(-1.0, math.e, "tv", 1.5), certify(-1.0, 0.0, "tv", 1.5, "lower")
    assert upper.holds
    assert upper.log_enclosure == (1.0, 1.0)
    assert upper.dual_bound == upper.enclosure[1]
    assert (upper.multiplier, upper.price) == (0, 1)
    assert lower.holds
    assert lower.log_enclosure == (-math.inf, -math.inf)
    assert lower.enclosure == (0, 0)
    assert (lower.dual_bound, lower.multiplier, lower.price) == (0, 0, 0)
    assert certify(-1.0, 1e-300, "tv", 1.5, "lower").verdict == "inside"
    assert certify(-1.0, 5e-324, "tv", 1.5, "lower").holds  # the spacing of float64 around 0


def test_a_tie_at_saturation_of_an_upper_bound_is_no_borderline_case() -> None:
    # reverse_kl: p f(1/p) + (1 − p) f(0) = −log p, which is δ exactly; the bound is continuous there
    assert certify(-0.5, None, "reverse_kl", 0.5, log_ratio=0.5).holds


def test_a_lower_bound_is_zero_or_not_however_close_to_saturation() -> None:
    # tv: lower = 1 − δ/p; δ one unit in the last place on either side of p
    p = math.exp(-1.0)
    below, above = certify(-1.0, 0.0, "tv", p * (1 - 2**-52), "lower"), certify(-1.0, 0.0, "tv", p * (1 + 2**-52), "lower")
    assert below.verdict == "outside"
    assert 0 < below.enclosure[0] < below.enclosure[1] < 1e-15
    assert above.holds


@pytest.mark.parametrize(
    ("spec", "delta", "lower"),
    [
        ("kl", 0.05, -0.05),  # e^{−δ}
        ("tv", 0.25, math.log(0.75)),  # (1 − r)/2 + (1 − r)/2 = δ
        ("tv", 1.0, -math.inf),  # f(0) + f'(∞) = δ exactly
        ("tv", math.nextafter(1, 0), math.log(2) * -53),
        ("abs(u - 1)/3 + max(u - 1, 0)/3", 1.0, -math.inf),  # 1/3 + 2/3 = δ exactly, although neither is a binary number
        ("pearson_chi2", 0.05, 0.0),  # f'(∞) = ∞
    ],
)
def test_a_certain_token_has_the_limits_of_theorem_7(spec: str, delta: float, lower: float) -> None:
    assert certify(0.0, None, spec, delta, "lower", log_ratio=lower).holds
    assert certify(0.0, 1.0, spec, delta, "upper").enclosure == (1, 1)


@pytest.mark.parametrize("spec", ["kl", "pearson_chi2", "hockey_stick:1.2"])
def test_an_impossible_token_has_no_bounds(spec: str) -> None:
    assert certify(-math.inf, math.inf, spec, 0.05).holds
    assert certify(-math.inf, 0.0, spec, 0.05, "lower").holds
    assert certify(-math.inf, 1e308, spec, 0.05).verdict == "inside"


@pytest.mark.parametrize("spec", ["kl", "tv", "vajda:60", "hockey_stick:1", "renyi:3", "alpha:-0.5"])
@pytest.mark.parametrize("logp", [-math.inf, -700.0, -1.0, -1e-300, 0.0])
def test_a_band_of_radius_zero_is_the_point_1(spec: str, logp: float) -> None:
    for side in SIDES:
        result = certify(logp, None, spec, 0.0, side, log_ratio=0.0)
        assert result.holds
        assert result.enclosure[0] >= 1 - 2e-16
        assert result.enclosure[1] <= 1 + 3e-16
        assert certify(logp, 1.0, spec, 0.0, side).holds


def test_theorem_10_a_flat_generator_clips_at_its_kink() -> None:
    assert certify(-1.0, 1.2, "hockey_stick:1.2", 0.0).holds  # upper = γ for p ≤ 1/γ
    assert certify(-0.1, math.exp(0.1), "hockey_stick:1.2", 0.0).holds  # 1/p beyond
    p = math.exp(-1.0)
    assert certify(-1.0, (1 - 1.2 * (1 - p)) / p, "hockey_stick:1.2", 0.0, "lower").holds
    assert certify(-1.0, 1.2 + 1e-11, "hockey_stick:1.2", 0.0).verdict == "outside"
    assert certify(-1.0, 1.2 - 1e-11, "hockey_stick:1.2", 0.0).verdict == "inside"
    # flat on [2/3, 4/3]: both ends of the stretch can be the binding one
    assert certify(-3.0, 4 / 3, "max(abs(u - 1) - 1/3, 0)", 0.0).holds
    assert certify(-3.0, 2 / 3, "max(abs(u - 1) - 1/3, 0)", 0.0, "lower").holds
    # a divergence that is 0 bounds nothing
    assert certify(-1.0, math.e, "u - 1", 0.0).holds
    assert certify(-1.0, 0.0, "u - 1", 0.0, "lower").holds


def test_ratios_beyond_float64_are_claimed_as_inf_and_0() -> None:
    # kl: log lower = −δ/p (1 + …), about −5e302 for log p = −700; beyond −1e308 for log p = −720
    assert certify(-700.0, 0.0, "kl", 0.05, "lower").holds
    assert certify(-700.0, None, "kl", 0.05, "lower", log_ratio=-math.inf).verdict == "outside"
    assert certify(-720.0, None, "kl", 0.05, "lower", log_ratio=-math.inf).holds
    assert certify(-720.0, math.inf, "kl", 0.05).holds
    assert certify(-720.0, MAXIMUM, "kl", 0.05).verdict == "inside"
    assert certify(-700.0, math.inf, "kl", 0.05).verdict == "outside"


def test_renyi_takes_its_radius_in_nats_of_renyi() -> None:
    # α = 2: (e^δ − 1)/2 for f = (u − 1)²/2, so upper = 1 + sqrt((e^δ − 1)(1 − p)/p)
    p = mpmath.exp(-2)
    bound = 1 + mpmath.sqrt(mpmath.expm1(mpmath.mpf(0.05)) * (1 - p) / p)
    assert certify(-2.0, float(bound), "renyi:2", 0.05).holds
    assert certify(-2.0, float(bound), "alpha:2", 0.05).verdict == "inside"  # its radius is δ > (e^δ − 1)/2
    assert certify(-1.0, math.e, "renyi:3", 1e308).holds


def test_arrays_broadcast_and_every_field_has_their_shape() -> None:
    logp, delta = np.array([-2.0, -1.0, -0.5]), np.array([[0.05], [0.1]])
    claims = 1 + delta / np.exp(logp)
    claims[1, 2] += 1e-9
    result = certify(logp, claims, "tv", delta)
    assert isinstance(result, Certificates)
    assert result.shape == result.holds.shape == result.multiplier.shape == result.enclosure[0].shape == (2, 3)
    assert result.holds.tolist() == [[True] * 3, [True, True, False]]
    assert not np.all(result.holds)
    single = result[1, 2]
    assert isinstance(single, Certificate)
    assert (single.verdict, single.delta, single.logp) == ("outside", 0.1, -0.5)
    assert result[0].shape == (3,)
    assert result.dual_bound[0, 1] == certify(-1.0, claims[0, 1], "tv", 0.05).dual_bound
    assert "6 certificates: 5 on, 1 outside" in str(result)
    assert "log p = -0.5" in str(result)
    assert certify(np.array([]), 1.0).shape == (0,)


def test_a_certificate_prints_the_claim_the_verdict_and_what_is_certain() -> None:
    text = str(certify(-1.0, 1.5, "tv", 0.05))
    assert "tv, δ = 0.05, log p = -1.0: upper bound" in text
    assert "ratio 1.5: lies outside by more than 1e-12 relative" in text
    assert "[1.1359140914229522, 1.1359140914229524]" in text
    assert "ratio ≤ 1.1359140914229524 by λ = 1" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logp": 0.1, "ratio": 1.0}, r"logp = 0\.1 is not accepted; accepted: numbers ≤ 0"),
        ({"logp": [-1.0, math.nan], "ratio": 1.0}, r"logp = nan at index \(1,\)"),
        ({"logp": -1.0, "ratio": -0.5}, r"ratio = -0\.5 .* accepted: ratios ≥ 0"),
        ({"logp": -1.0, "ratio": [[1.0], [math.nan]]}, r"ratio = nan at index \(1, 0\)"),
        ({"logp": -1.0, "log_ratio": math.nan}, "log_ratio = nan"),
        ({"logp": -1.0, "ratio": 1.0, "delta": -1.0}, r"delta = -1\.0 .* finite radii ≥ 0"),
        ({"logp": -1.0, "ratio": 1.0, "delta": math.inf}, "delta = inf"),
        ({"logp": -1.0, "ratio": 1.0, "side": "above"}, "side = 'above' .* 'upper', 'lower'"),
        ({"logp": -1.0, "ratio": 1.0, "tolerance": 1.0}, r"tolerance = 1\.0"),
        ({"logp": -1.0}, "exactly one of ratio .* and log_ratio"),
        ({"logp": -1.0, "ratio": 1.0, "log_ratio": 0.0}, "exactly one"),
        ({"logp": "a", "ratio": 1.0}, "logp = 'a' is not numeric"),
        ({"logp": [-1.0, -2.0], "ratio": [1.0, 1.0, 1.0]}, r"logp \(2,\), the claim \(3,\), delta \(\)"),
    ],
)
def test_bad_input_is_named_with_what_is_accepted(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(**arguments)


def test_a_faulty_divergence_is_refused() -> None:
    with pytest.raises(DivergenceError, match="not convex"):
        certify(-1.0, 1.0, "-(u - 1)**2")


def test_a_generator_that_cannot_be_evaluated_leaves_the_claim_undecided() -> None:
    # f(u) for u near e^{10⁵} is beyond 4096 bits; below, everything is decided
    spec = "log(1 + exp(u - 1)) - log(2) - (u - 1)/2"
    result = certify(-1e5, None, spec, 0.05, log_ratio=99999.9)
    assert result.verdict == "undecided"
    assert result.log_enclosure[0] > 1000
    assert result.log_enclosure[1] == result.log_dual_bound == 1e5


def test_a_wrong_generator_gives_other_bounds() -> None:
    # a fault planted in the generator is seen: the claim of the true kl does not hold for it
    bound = certify(-1.0, 1.0).enclosure[1]
    faulty = FDivergence("faulty", "-1.00001*log(u)")
    assert certify(-1.0, bound).holds
    assert certify(-1.0, bound, faulty).verdict == "outside"


def test_verdicts_of_many_scales_are_consistent_per_family() -> None:
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in ROWS[:: len(FAMILIES) + 2]:
        groups[row["divergence"]].append(row)
    for family, rows in groups.items():
        ratios = np.exp(array(rows, "log_upper"))
        assert np.all(certify(array(rows, "logp"), ratios, family, array(rows, "delta")).holds)
        lower = np.exp(array(rows, "log_lower"))
        assert np.all(certify(array(rows, "logp"), lower, family, array(rows, "delta"), "lower").holds)
