"""Clip rules: their strings, their bounds by hand, and bad parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.catalogue import examples
from bandtheory.rules import AdaptiveClip, Band, NoClip, RatioClip, RelaxedBand, RuleError, parse


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("none", NoClip()),
        ("clip", RatioClip(0.2, 0.2)),
        ("clip:0.2,0.28", RatioClip(0.2, 0.28)),
        ("clip_higher", RatioClip(0.2, 0.28)),
        ("dcpo", AdaptiveClip(0.16, 0.2)),
        ("dcpo:0.1,0.3", AdaptiveClip(0.1, 0.3)),
        ("band:kl:0.05", Band("kl", 0.05, None)),
        ("band:kl:0.05:10", Band("kl", 0.05, 10.0)),
        ("band:(u-1)**2/u:0.1", Band("(u-1)**2/u", 0.1, None)),
        ("band:vajda:3:0.05", Band("vajda:3", 0.05, None)),
        ("band:alpha:-0.5:0.05:10", Band("alpha:-0.5", 0.05, 10.0)),
        ("band:renyi:1/3:0.05:10", Band("renyi:1/3", 0.05, 10.0)),
        ("relaxed:hockey_stick:1.20:0:10:0.2,0.3", RelaxedBand("hockey_stick:1.2", 0.0, 10.0, 0.2, 0.3)),
        ("relaxed:kl:0.05:10", RelaxedBand("kl", 0.05, 10.0)),
        ("relaxed", RelaxedBand("kl", 0.05, 10.0)),
        ("relaxed:kl:0.05:inf:0.9,3", RelaxedBand("kl", 0.05, None, 0.9, 3.0)),
        ("dcpo:0.16,0.2:5", AdaptiveClip(0.16, 0.2, 5.0)),
    ],
)
def test_parse(text: str, rule: object) -> None:
    assert parse(text) == rule
    assert parse(str(rule)) == rule


EPSILON = st.floats(0, 0.99)
RULES = st.one_of(
    st.builds(RatioClip, EPSILON, st.floats(0, 1e6)),
    st.builds(AdaptiveClip, EPSILON, st.floats(0, 1e6), st.floats(1, 1e6)),
    st.builds(Band, st.sampled_from(examples()), st.floats(0, 100), st.none() | st.floats(1, 1e6)),
    st.builds(
        RelaxedBand,
        st.sampled_from(examples()),
        st.floats(0, 100),
        st.none() | st.floats(1, 1e6),
        EPSILON,
        st.floats(0, 1e6),
    ),
)


@given(RULES)
def test_every_rule_is_its_string(rule: object) -> None:
    assert parse(str(rule)) == rule


def test_ratio_clip_does_not_depend_on_p() -> None:
    lower, upper = RatioClip(0.2, 0.28).log_bounds([-1e-9, -5.0])
    np.testing.assert_array_equal(lower, math.log1p(-0.2))
    np.testing.assert_array_equal(upper, math.log1p(0.28))


def test_no_clip_and_a_full_lower_clip_are_unbounded() -> None:
    assert list(NoClip().log_bounds([-1.0])) == [[-math.inf], [math.inf]]
    assert RatioClip(1.0, 0.2).log_bounds([-1.0]).lower == [-math.inf]


def test_adaptive_clip_by_hand() -> None:
    # p = 0.8, defaults: ½ + ½√(1 − 0.64/0.8) and ½ + ½√(1 + 0.8/0.8); p = 0.1: the root is cut at 0, the cap is far
    lower, upper = AdaptiveClip().log_bounds(np.log([0.8, 0.1]))
    np.testing.assert_allclose(np.exp(lower), [0.5 + 0.5 * math.sqrt(0.2), 0.5], rtol=1e-14)
    np.testing.assert_allclose(np.exp(upper), [0.5 + 0.5 * math.sqrt(2), 2.0], rtol=1e-14)


def test_adaptive_clip_keeps_its_digits_for_small_epsilon() -> None:
    # ½ + ½√(1 + 4ε/p) = 1 + ε/p − …
    upper = AdaptiveClip(1e-14, 1e-14).log_bounds([-0.18716]).upper
    np.testing.assert_allclose(upper, 1e-14 * math.exp(0.18716), rtol=1e-12)


def test_adaptive_clip_without_a_cap_grows_like_the_root_of_1_over_p() -> None:
    upper = AdaptiveClip(0.16, 0.2, math.inf).log_bounds([-1e5]).upper
    np.testing.assert_allclose(upper, (1e5 + math.log(0.2)) / 2, rtol=1e-12)


def test_adaptive_clip_is_capped_and_survives_the_extremes() -> None:
    lower, upper = AdaptiveClip(0.0, 0.2).log_bounds([-1e-300, -800.0, -1e5])
    assert np.all(lower == 0)
    np.testing.assert_allclose(upper[1:], math.log(10))


def test_relaxed_band_takes_the_wider_side() -> None:
    logp = np.log([0.001, 0.99])
    band, relaxed = Band("kl", 0.05, 10.0).log_bounds(logp), RelaxedBand("kl", 0.05, 10.0).log_bounds(logp)
    np.testing.assert_allclose(relaxed.lower, np.minimum(band.lower, math.log(0.8)), rtol=1e-15)
    np.testing.assert_allclose(relaxed.upper, np.maximum(band.upper, math.log(1.28)), rtol=1e-15)
    assert relaxed.upper[1] > band.upper[1]


def test_the_cap_bounds_the_relaxed_band_too() -> None:
    assert RelaxedBand("kl", 0.05, 1.1).log_bounds([-0.01]).upper == pytest.approx(math.log(1.1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clpi", "did you mean 'clip'"),
        ("banded:kl:0.05", "did you mean 'band'"),
        ("", "unknown rule"),
        ("none:1", "takes no parameter"),
        ("clip:0.2", "expected two numbers"),
        ("clip:a,b", "'a' is not a number"),
        ("clip:1.5,0.2", r"low = 1.5 is not a number in \[0, 1\]"),
        ("clip:0.2,-1", "high = -1.0"),
        ("clip:nan,0.2", "low = nan"),
        ("dcpo:-1,0.2", "low = -1.0"),
        ("band", "expected NAME:delta"),
        ("band:kl", "expected NAME:delta"),
        ("band:kl:x", "'x' is not a number"),
        ("band:kl:-1", "delta = -1.0"),
        ("band:kl:inf", "delta = inf"),
        ("band:kl:0.05:0.5", "max_ratio = 0.5"),
        ("band:vajda:3", "expected vajda:k:delta or vajda:k:delta:cap"),
        ("band:vajda:3:0.05:10:4", "expected vajda:k:delta"),
        ("band:vajda:0.5:0.05", "vajda takes 1 ≤ k"),
        ("band:klo:0.05", "did you mean 'kl'"),
        ("band:u**2:0.05", "not an f-divergence"),
        ("relaxed:kl:0.05:0", "max_ratio = 0"),
    ],
)
def test_bad_rules(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_rule_must_be_text() -> None:
    with pytest.raises(RuleError, match="must be a string"):
        parse(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [NoClip(), RatioClip(), AdaptiveClip(), Band(), RelaxedBand()])
def test_every_rule_refuses_what_is_no_log_probability(rule: object) -> None:
    with pytest.raises(ValueError, match=r"logp = 0.5 at index \(1,\)"):
        rule.log_bounds([-1.0, 0.5])  # type: ignore[attr-defined]
