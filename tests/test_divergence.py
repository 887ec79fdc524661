"""Lookup of divergences and the refusal of what is none."""

from __future__ import annotations

import pytest
import sympy

import bandtheory as bt
from bandtheory.divergence import DivergenceError, FDivergence, convexity_fault, unchecked_divergence


@pytest.mark.parametrize("name", bt.catalogue())
def test_the_catalogue_is_convex_and_zero_at_one(name: str) -> None:
    assert convexity_fault(bt.divergence(name)) is None


def test_lookup_by_name_and_by_expression() -> None:
    assert bt.divergence("kl").name == "kl"
    typed = bt.divergence("u*log(u) - u + 1")
    assert typed.generator == bt.divergence("reverse_kl").tilted
    assert str(typed) == "u*log(u) - u + 1"


def test_a_divergence_object_is_accepted_everywhere() -> None:
    mine = FDivergence("mine", "(u - 1)**2/u", "Neyman").check()
    assert bt.bounds(0.5, divergence=mine, delta=0.1).upper == bt.bounds(0.5, divergence="(u-1)**2/u", delta=0.1).upper


@pytest.mark.parametrize(
    ("wrong", "near"), [("klo", "kl"), ("pearson", "pearson_chi2"), ("hellinger", "squared_hellinger"), ("KL", "kl")]
)
def test_unknown_names_suggest_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(DivergenceError, match=f"did you mean '{near}'"):
        bt.divergence(wrong)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("u", r"f\(1\) = 1"),
        ("log(u)", "not convex"),
        ("-(u-1)**2", "not convex"),
        ("(u-1)**2*(u-3)**2", r"not convex near u = 1\.42"),
        ("(u-1)**2 + 20*min(u-50, 0) + 980", "not convex near u = (49|50|51)"),
        ("(u-1)**2 - 2*max(log(u)-10, 0)*u", "not convex"),
    ],
)
def test_faulty_generators(expression: str, fault: str) -> None:
    with pytest.raises(DivergenceError, match=fault):
        bt.divergence(expression)
    assert unchecked_divergence(expression).generator.free_symbols <= {sympy.Symbol("u", positive=True)}


def test_a_kink_at_one_gets_a_subgradient() -> None:
    assert bt.divergence("max(u-1, 0)").slope_at_one == sympy.Rational(1, 2)
    assert bt.divergence("tv").slope_at_one == 0


def test_high_powers_do_not_hang() -> None:
    assert bt.divergence("(u+log(u)+sqrt(u)+u**(1/3)+1)**12-4**12").recession_slope == sympy.oo
