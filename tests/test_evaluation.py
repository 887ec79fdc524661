"""The compiled generators against high precision, and their constants."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from bandtheory.divergence import divergence
from bandtheory.evaluation import evaluator

FAMILIES = [
    *("kl", "reverse_kl", "tv", "pearson_chi2", "squared_hellinger"),
    *("(u-1)**2/u", "(u-1)**2/(u+1)", "(u-1)*log(u)", "(u-1)**2*(u+1)/u", "(u*log(2*u/(u+1)) + log(2/(u+1)))/2"),
    *("abs(u-1)**3", "abs(u-1)**1.5", "(u**3-1-3*(u-1))/6", "(u**(-0.5)-1+0.5*(u-1))/0.75"),
    *("(u**0.01 - 1 - 0.01*(u-1))/(-0.0099)", "0.3*u*log(u/(0.7+0.3*u)) - 0.7*log(0.7+0.3*u)"),
    *("max(u-1.2,0)", "abs(u-1)+abs(u-2)-1"),
]


@pytest.mark.parametrize("name", FAMILIES)
def test_measured_accuracy(name: str) -> None:
    assert evaluator(divergence(name)).accuracy < 1e-13


@pytest.mark.parametrize("x", [-1e-200, -1e-9, -0.3, -2.0, -100.0, -5000.0])
def test_both_halves_of_kl(x: float) -> None:
    compiled = evaluator(divergence("kl"))
    arguments = np.array([x]), np.exp([x]), np.expm1([x])
    with mpmath.workdps(500):
        u = mpmath.exp(mpmath.mpf(x))
        below = float(mpmath.log(u - 1 - mpmath.log(u)))  # f(u) + (u − 1)
        above = float(mpmath.log(1 - u + u * mpmath.log(u)))  # u (f(1/u) + 1/u − 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # the branch that is not taken
        assert compiled.below.code(np)(*arguments)[0][0] == pytest.approx(below, rel=1e-14)
        assert compiled.above.code(np)(*arguments)[0][0] == pytest.approx(above, rel=1e-14)


def test_derivative_matches_differences() -> None:
    x = np.linspace(-6, -0.01, 40)
    for name in FAMILIES[:16]:
        for half in (evaluator(divergence(name)).below, evaluator(divergence(name)).above):
            code = half.code(np)
            value, slope = code(x, np.exp(x), np.expm1(x))
            shifted = x * (1 + 1e-6)
            ahead, _ = code(shifted, np.exp(shifted), np.expm1(shifted))
            np.testing.assert_allclose((ahead - value) / (shifted - x), slope, rtol=2e-4, err_msg=name)


@pytest.mark.parametrize(
    ("name", "at_zero", "recession", "curvature"),
    [
        ("kl", math.inf, 1.0, 1.0),
        ("pearson_chi2", 1.0, math.inf, 2.0),
        ("squared_hellinger", 1.0, 1.0, 0.5),
        ("tv", 0.5, 0.5, math.inf),
    ],
)
def test_constants_of_the_tilted_generator(name: str, at_zero: float, recession: float, curvature: float) -> None:
    compiled = evaluator(divergence(name))
    assert (compiled.value_at_zero, compiled.recession_slope) == (at_zero, recession)
    assert compiled.curvature == pytest.approx(curvature, rel=1e-12)


def test_power_growth_is_split_off() -> None:
    assert evaluator(divergence("(u-1)**2*(u+1)/u")).below.growth == 1
    assert evaluator(divergence("abs(u-1)**1.5")).above.growth == 0.5
    assert evaluator(divergence("kl")).below.growth == 0


def test_a_flat_generator_is_recognised() -> None:
    assert evaluator(divergence("max(u-1.2,0)")).flat
    assert not evaluator(divergence("tv")).flat
