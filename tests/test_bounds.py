"""Bounds against 25-digit reference values, against an independent solver in 700 digits, and on bad input."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bandtheory as bt
from bandtheory.catalogue import examples
from bandtheory.divergence import DivergenceError
from bandtheory.expressions import ExpressionError

# the same families typed as a user would type them
TYPED = {
    "neyman_chi2": "(u-1)**2/u",
    "le_cam": "(u-1)**2/(u+1)",
    "jensen_shannon": "(u*log(2*u/(u+1)) + log(2/(u+1)))/2",
    "jeffreys": "(u-1)*log(u)",
    "vajda:1.5": "abs(u-1)**1.5",
    "vajda:3": "abs(u-1)**3",
    "alpha:-0.5": "(u**(-0.5) - 1 + 0.5*(u-1))/0.75",
    "alpha:0.5": "(u**0.5 - 1 - 0.5*(u-1))/(-0.25)",
    "alpha:3": "(u**3 - 1 - 3*(u-1))/6",
    "hockey_stick:1.2": "max(u - 1.2, 0)",
}


def _x_log_x(u: mpmath.mpf) -> mpmath.mpf:
    return u * mpmath.log(u) if u else mpmath.mpf(0)


def _alpha(a: str) -> Callable[[mpmath.mpf], mpmath.mpf]:
    return lambda u: (u ** mpmath.mpf(a) - 1 - mpmath.mpf(a) * (u - 1)) / (mpmath.mpf(a) * (mpmath.mpf(a) - 1))


def _skew(text: str) -> Callable[[mpmath.mpf], mpmath.mpf]:
    def f(u: mpmath.mpf) -> mpmath.mpf:
        weight = mpmath.mpf(text)
        mixture = 1 - weight + weight * u
        return weight * (_x_log_x(u) - u * mpmath.log(mixture)) - (1 - weight) * mpmath.log(mixture)

    return f


# the generators of docs/theory.md once more, for mpmath; a division by zero or log 0 at u = 0 stands for f(0) = ∞
MPMATH: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "kl": lambda u: -mpmath.log(u),
    "reverse_kl": _x_log_x,
    "tv": lambda u: abs(u - 1) / 2,
    "pearson_chi2": lambda u: (u - 1) ** 2,
    "neyman_chi2": lambda u: (u - 1) ** 2 / u,
    "squared_hellinger": lambda u: (mpmath.sqrt(u) - 1) ** 2,
    "le_cam": lambda u: (u - 1) ** 2 / (u + 1),
    "jensen_shannon": lambda u: (_x_log_x(u) - (u + 1) * mpmath.log((u + 1) / 2)) / 2,
    "jeffreys": lambda u: (u - 1) * mpmath.log(u),
    "symmetric_chi2": lambda u: (u - 1) ** 2 + (u - 1) ** 2 / u,
    **{f"vajda:{k}": lambda u, k=k: abs(u - 1) ** mpmath.mpf(k) for k in ("1", "1.001", "1.5", "3", "60")},
    **{f"alpha:{a}": _alpha(a) for a in ("-60", "-1", "-0.5", "0.000001", "0.37", "0.5", "0.999", "1.000001", "2", "3", "60")},
    **{f"hockey_stick:{g}": lambda u, g=g: max(u - mpmath.mpf(g), mpmath.mpf(0)) for g in ("1", "1.2", "2", "1000000")},
    **{f"skew_jensen_shannon:{w}": _skew(w) for w in ("0.0001", "0.1", "0.5", "0.7", "0.999")},
}
# Rényi's orders; D is not Σ p f(q/p), but judged by its own formula all the same
RENYI = {f"renyi:{a}": a for a in ("1e-9", "0.001", "0.1234", "0.5", "0.9", "1.001", "2", "2.71828", "3", "59.999")}


def _reference_rows() -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = {}
    with (Path(__file__).parent / "data" / "bounds.csv").open() as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["divergence"], []).append(row)
    return rows


ROWS = _reference_rows()


def test_every_family_is_covered() -> None:
    missing = set(examples()) - {*MPMATH, *RENYI}
    assert not missing, f"add the generators of {missing} to MPMATH (CONTRIBUTING.md, step 5)"


def test_every_handed_value_is_covered() -> None:
    assert len(ROWS) == 15
    assert all(len(rows) == 80 for rows in ROWS.values())


@pytest.mark.parametrize("name", ROWS)
def test_reference_rows(name: str) -> None:
    rows = ROWS[name]
    logp, delta = ([float(row[key]) for row in rows] for key in ("logp", "delta"))
    lower, upper = bt.log_bounds(logp=logp, divergence=name, delta=delta)
    np.testing.assert_allclose(lower, [float(row["log_lower"]) for row in rows], rtol=1e-12)
    np.testing.assert_allclose(upper, [float(row["log_upper"]) for row in rows], rtol=1e-12)


@pytest.mark.parametrize("name", TYPED)
def test_an_expression_has_the_bounds_of_its_name(name: str) -> None:
    logp = -np.geomspace(1e-300, 700, 200)
    for delta in (1e-9, 0.05, 2.0):
        typed, named = (bt.log_bounds(logp=logp, divergence=f, delta=delta) for f in (TYPED[name], name))
        np.testing.assert_allclose(typed.lower, named.lower, rtol=1e-12)
        np.testing.assert_allclose(typed.upper, named.upper, rtol=1e-12)


def _divergence(name: str, p: mpmath.mpf, not_p: mpmath.mpf, r: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """D of the two-outcome distributions (p r, (1 − p) c) and (p, 1 − p)."""
    if name in RENYI:
        a = mpmath.mpf(RENYI[name])
        return mpmath.log(p * r**a + not_p * c**a) / (a - 1)
    try:
        return p * MPMATH[name](r) + not_p * MPMATH[name](c)
    except (ZeroDivisionError, ValueError):  # 1/0 and log(0): f(0) = ∞
        return mpmath.inf


def bracket(name: str, logp: float, delta: float, log_ratio: float, side: str, rtol: float) -> None:
    """Assert that the constraint changes sign within rtol of the log-ratio, in 700 digits and from the definition alone."""
    with mpmath.workdps(700):
        p, not_p = mpmath.exp(mpmath.mpf(logp)), -mpmath.expm1(mpmath.mpf(logp))
        sign = 1 if side == "upper" else -1

        def feasible(x: mpmath.mpf) -> bool:
            r = mpmath.exp(x)
            c = (1 - r * p) / not_p
            return bool(c >= 0 and _divergence(name, p, not_p, r, c) <= mpmath.mpf(delta))

        if side == "lower" and log_ratio == -math.inf:
            assert feasible(-mpmath.inf)
            return
        claimed = mpmath.mpf(log_ratio)
        assert feasible(claimed - sign * abs(claimed) * rtol)
        assert not feasible(claimed + sign * abs(claimed) * rtol)


LOGP = st.one_of(st.floats(-300, -1e-3), st.floats(-690, 2.3).map(lambda t: -(10.0 ** (t / 2.303))).filter(lambda x: x >= -700))
DELTA = st.floats(-12, 2).map(lambda t: 10.0**t)


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("name", [*MPMATH, *RENYI])
@given(logp=LOGP, delta=DELTA)
@example(logp=-1e-300, delta=0.05)
@example(logp=-700.0, delta=0.05)
@example(logp=-700.0, delta=100.0)
@example(logp=-1e-300, delta=1e-12)
@example(logp=-1.4138753226338639e-260, delta=0.2589238427543229)  # z ≈ 600: a short step in log z was long in z
@example(logp=-1.3936694865953774e-44, delta=100.0)  # Rényi's radius is the largest one but for e⁻¹⁰⁰
@example(logp=math.log(0.05) + 1e-13, delta=0.05)  # just above saturation of tv's lower bound
@example(logp=math.log(0.05 / 1.05) + 1e-14, delta=0.05)  # and of pearson's
@example(logp=math.log1p(-math.exp(-0.05)) + 1e-15, delta=0.05)  # and of reverse_kl's
@example(logp=math.log(1 - (1 - 0.025) ** 2) + 1e-15, delta=0.05)  # and of hellinger's
def test_log_bounds_are_right_to_ten_digits(name: str, side: str, logp: float, delta: float) -> None:
    value = float(getattr(bt.log_bounds(logp=logp, divergence=name, delta=delta), side))
    bracket(name, logp, delta, value, side, 1e-10)


@pytest.mark.parametrize("name", examples())
def test_a_long_array_agrees_with_single_tokens(name: str) -> None:
    logp = -np.random.default_rng(1).exponential(3.0, size=50_000)
    lower, upper = bt.log_bounds(logp=logp, divergence=name, delta=0.05)
    for i in range(0, logp.size, 997):
        one = bt.log_bounds(logp=logp[i], divergence=name, delta=0.05)
        np.testing.assert_allclose([lower[i], upper[i]], [one.lower, one.upper], rtol=1e-11)


def test_probabilities_and_log_probabilities_agree() -> None:
    p = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(bt.bounds(p).upper, bt.bounds(logp=np.log(p)).upper, rtol=1e-14)


def test_a_probability_is_used_exactly() -> None:
    # at p = δ = 1/2 total variation just reaches 0; log(1/2) as a double is slightly off
    assert bt.log_bounds(0.5, divergence="tv", delta=0.5).lower == -math.inf


def test_total_variation_by_hand() -> None:
    lower, upper = bt.bounds([0.2, 0.5, 0.98], divergence="tv", delta=0.05)
    np.testing.assert_allclose(lower, [0.75, 0.9, 1 - 0.05 / 0.98], rtol=1e-14)
    np.testing.assert_allclose(upper, [1.25, 1.1, 1 / 0.98], rtol=1e-14)  # the last one saturates


def test_certain_token() -> None:
    # p = 1: upper is 1; lower solves f(r) + (1 − r) f'(∞) = δ, which for kl is exp(−δ) and for f'(∞) = ∞ is 1
    for name, lower in (("kl", math.exp(-0.05)), ("tv", 0.95), ("squared_hellinger", 0.975**2), ("pearson_chi2", 1.0)):
        band = bt.bounds(logp=0.0, divergence=name, delta=0.05)
        assert float(band.upper) == 1.0
        assert float(band.lower) == pytest.approx(lower, rel=1e-14)


def test_impossible_token() -> None:
    band = bt.log_bounds(logp=-math.inf, divergence="kl", delta=0.05, max_ratio=10)
    assert float(band.lower) == -math.inf
    assert float(band.upper) == math.log(10)


@pytest.mark.parametrize("logp", [-1e3, -1e5, -3e38])
def test_beyond_the_range_of_probabilities(logp: float) -> None:
    # q = p·upper tends to 1 − exp(−δ) for kl and to δ for tv; pearson has upper² p = δ to leading order
    for name, expected in (("kl", math.log1p(-math.exp(-0.05)) - logp), ("tv", math.log(0.05) - logp)):
        assert float(bt.log_bounds(logp=logp, divergence=name).upper) == pytest.approx(expected, rel=1e-14)
    assert float(bt.log_bounds(logp=logp, divergence="pearson_chi2").upper) == pytest.approx(
        (math.log(0.05) - logp) / 2, rel=1e-14
    )


def test_radius_zero_is_the_point_one() -> None:
    for name in examples():
        if not name.startswith("hockey_stick"):
            lower, upper = bt.log_bounds([0.1, 0.9, 1.0], divergence=name, delta=0)
            assert not lower.any()
            assert not upper.any()


@pytest.mark.parametrize("spec", ["hockey_stick:1.2", "max(u - 1.2, 0)", "max(u - 1.2, 0)*(1 + u)"])
def test_radius_zero_of_a_flat_generator_is_the_ratio_clip(spec: str) -> None:
    # theorem 10: the hockey stick with γ = 1.2 at radius 0 is PPO's upper clip 1.2 for p ≤ 1/1.2
    lower, upper = bt.bounds([1e-6, 0.1, 0.8, 0.9, 1.0], divergence=spec, delta=0)
    np.testing.assert_allclose(upper, [1.2, 1.2, 1.2, 1 / 0.9, 1.0], rtol=1e-12)
    # and since (1 − p) c ≤ 1.2 (1 − p), lower = max(1 − 0.2 (1 − p)/p, 0)
    np.testing.assert_allclose(lower, [0.0, 0.0, 0.95, 1 - 0.2 / 9, 1.0], rtol=1e-12)


def test_radius_may_be_an_array() -> None:
    upper = bt.bounds(0.5, divergence="tv", delta=[[0.1], [0.2]]).upper
    np.testing.assert_allclose(upper, [[1.2], [1.4]])


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"delta of shape \(3,\) does not broadcast with p of shape \(2,\)"):
        bt.bounds([0.1, 0.2], delta=[0.1, 0.2, 0.3])


def test_an_irrational_kink() -> None:
    # f = |u − √2| − (√2 − 1) is f̃ = (√2 − u)₊ − …: flat slope −1 up to √2, so at p = ½ only |r − √2| matters
    upper = bt.bounds(0.5, divergence="abs(u - sqrt(2)) - (sqrt(2) - 1)", delta=0.1).upper
    assert upper == pytest.approx(math.sqrt(2) + 0.1, rel=1e-12)


def test_growth_faster_than_any_power() -> None:
    # f = exp(u) − e·u, p = e^−1e5: the constraint is p·exp(r) = δ to leading order, so r = 1e5 + log δ
    upper = bt.log_bounds(logp=-1e5, divergence="exp(u) - e*u", delta=0.05).upper
    assert float(upper) == pytest.approx(math.log(1e5 + math.log(0.05)), rel=1e-10)


@pytest.mark.parametrize("k", [2, 4, 6, 8, 64])
def test_even_powers_by_hand(k: int) -> None:
    # |u − 1|^k: r = 1 ± (δ/(p + p^k (1 − p)^{1−k}))^{1/k}
    p = 0.3
    step = (0.05 / (p + p**k * (1 - p) ** (1 - k))) ** (1 / k)
    lower, upper = bt.bounds(p, divergence=f"(u-1)**{k}", delta=0.05)
    np.testing.assert_allclose([lower, upper], [1 - step, 1 + step], rtol=1e-12)


def test_an_overflow_is_not_a_root() -> None:
    # f = exp(log²u) − 1, p small: p·f(r) = δ to leading order, so log r = −√log(1 + δ/p)
    lower = bt.log_bounds(1e-5, divergence="exp(log(u)**2) - 1", delta=0.05).lower
    assert float(lower) == pytest.approx(-math.sqrt(math.log1p(0.05 / 1e-5)), rel=1e-5)


def test_many_identical_tokens_at_saturation() -> None:
    # 1 − δ/p for p = δ(1 + 1e-12) as doubles: their quotient, exactly
    p = 0.05 * (1 + 1e-12)
    exact = math.log(1 - Fraction(0.05) / Fraction(p))
    lower = bt.log_bounds(np.full(20_000, p), divergence="tv", delta=0.05).lower
    np.testing.assert_allclose(lower, exact, rtol=1e-12)


@pytest.mark.parametrize(("delta", "expected"), [(5e-324, 0.0), (1e-300, -1e-300), (1e300, -1e300), (1.7e308, -math.inf)])
def test_any_radius_is_accepted_at_certainty(delta: float, expected: float) -> None:
    # kl at p = 1: log lower = −δ, as far as doubles reach
    lower = bt.log_bounds(logp=0.0, divergence="kl", delta=delta).lower
    assert float(lower) == pytest.approx(expected, rel=1e-10, abs=1e-320)


@pytest.mark.parametrize(
    "expression",
    [
        "abs(u-1)**1.0000001",
        "(u+1)**16 - 2**16 - 16*2**15*(u-1)",
        "(1 - u**1e-10)*1e10",
        "u*log(u) + exp(-123.456*u) - exp(-123.456)",  # to sympy the power 15432 of exp(u/125)
        "(u-1)**2 + exp(-(u-1.2345)**2/10) - exp(-(1-1.2345)**2/10)",
    ],
)
def test_awkward_numbers_do_not_hang(expression: str) -> None:
    lower, upper = bt.bounds(0.5, divergence=expression, delta=0.05)
    assert lower < 1 < upper


@pytest.mark.parametrize("expression", ["1/(1-u)", "(u**2-1)/(u-1) - 2", "-log(u+1e-300) + log(1+1e-300)"])
def test_what_cannot_be_evaluated_is_refused_in_words(expression: str) -> None:
    with pytest.raises(DivergenceError, match=r"not an f-divergence|cannot be evaluated"):
        bt.bounds(0.5, divergence=expression)


def test_what_is_not_known_is_not_claimed() -> None:
    # exp(u) overflows and log p = −1e7 is beyond what is solved in high precision
    assert "estimated relative error inf" in bt.log_bounds(logp=-1e7, divergence="exp(u) - e*u").evidence


def test_evidence_is_stated() -> None:
    assert bt.bounds(0.5, divergence="tv").evidence.startswith("closed form; estimated relative error")
    assert bt.bounds(0.5, divergence="kl").evidence.startswith("root; estimated relative error")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 0.0}, r"p = 0.0 is not a probability in \(0, 1\]"),
        ({"p": [0.5, 1.5]}, r"p = 1.5 at index \(1,\)"),
        ({"p": math.nan}, "p = nan"),
        ({"logp": [[-1.0, 0.1]]}, r"logp = 0.1 at index \(0, 1\)"),
        ({"logp": math.nan}, "logp = nan"),
        ({}, "exactly one of p"),
        ({"p": 0.5, "logp": -1.0}, "exactly one of p"),
        ({"p": 0.5, "delta": -0.1}, "delta = -0.1 is not a finite radius"),
        ({"p": 0.5, "delta": math.inf}, "delta = inf"),
        ({"p": 0.5, "delta": math.nan}, "delta = nan"),
        ({"p": 0.5, "max_ratio": 0.5}, "max_ratio = 0.5"),
        ({"p": 0.5, "divergence": "pearson"}, "did you mean 'pearson_chi2'"),
    ],
)
def test_bad_input(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bt.bounds(**arguments)


def test_a_faulty_generator_is_refused() -> None:
    with pytest.raises(DivergenceError, match=r"not convex near u = 1\.42"):
        bt.bounds(0.5, divergence="(u-1)**2*(u-3)**2")
    with pytest.raises(DivergenceError, match=r"f\(1\) = 1.0, expected 0"):
        bt.bounds(0.5, divergence="u**2")
    with pytest.raises(ExpressionError):
        bt.bounds(0.5, divergence="u.real + 1")
