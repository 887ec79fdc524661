"""Lookup of divergences and the refusal of what is none."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
import sympy

import bandtheory as bt
from bandtheory.catalogue import examples
from bandtheory.convexity import convexity_fault
from bandtheory.divergence import DivergenceError, FDivergence, unchecked_divergence


@pytest.mark.parametrize("name", examples())
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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vajda:0.5", "k = 0.5 is out of range; vajda takes 1 ≤ k ≤ 60"),
        ("hockey_stick:0.9", "γ = 0.9 is out of range; hockey_stick takes 1 ≤ γ ≤ 1000000"),
        ("renyi:1", "α = 1 is out of range; renyi takes 0 < α ≤ 60 except 1"),
        ("renyi:-1", "renyi takes 0 < α ≤ 60 except 1"),
        ("alpha:0", "alpha takes -60 ≤ α ≤ 60 except 0 and 1"),
        ("skew_jensen_shannon:1", "skew_jensen_shannon takes 0 < λ < 1"),
        ("vajda", "'vajda' is a family: write its parameter, 1 ≤ k ≤ 60, as in 'vajda:3'"),
        ("vajda:", "'' is not a number; vajda takes 1 ≤ k ≤ 60, as in 'vajda:3'"),
        ("vajda:nan", "'nan' is not a number"),
        ("alpha:1/0", "'1/0' is not a number"),
        ("alpha:1e999999999", "is not a number"),
        ("vajda:3:0.05", "'3:0.05' is not a number"),
        ("kl:3", "kl takes no parameter"),
        ("vajdas:3", "did you mean 'vajda'?"),
    ],
)
def test_a_parameter_that_is_not_accepted_names_the_range(spec: str, message: str) -> None:
    with pytest.raises(DivergenceError, match=re.escape(message)):
        bt.divergence(spec)


@pytest.mark.parametrize(
    ("spec", "name"),
    [("vajda:3.0", "vajda:3"), (" vajda : 1.50", "vajda:1.5"), ("alpha:1/3", "alpha:1/3"), ("alpha:2/4", "alpha:0.5"),
     ("alpha:-.5", "alpha:-0.5"), ("alpha:1e-3", "alpha:0.001"), ("hockey_stick:1E2", "hockey_stick:100")],
)  # fmt: skip
def test_a_parameter_is_exact_and_has_one_spelling(spec: str, name: str) -> None:
    assert bt.divergence(spec).name == name
    assert bt.divergence(bt.divergence(spec).spec) == bt.divergence(name)


def test_fifteen_families() -> None:
    assert len(bt.catalogue()) == 15
    assert {name.partition(":")[0] for name in examples()} == set(bt.catalogue())


def test_skew_at_one_half_is_jensen_shannon() -> None:
    difference = bt.divergence("skew_jensen_shannon:0.5").generator - bt.divergence("jensen_shannon").generator
    assert sympy.simplify(sympy.expand_log(difference, force=True)) == 0


@pytest.mark.parametrize(("family", "order", "limit"), [("alpha", "1e-9", "kl"), ("alpha", "0.999999999", "reverse_kl")])
def test_alpha_tends_to_the_two_kullback_leibler_divergences(family: str, order: str, limit: str) -> None:
    p = [0.01, 0.5, 0.99]
    near, at = (bt.log_bounds(p, divergence=name, delta=0.05) for name in (f"{family}:{order}", limit))
    assert near.lower == pytest.approx(at.lower, rel=1e-7)
    assert near.upper == pytest.approx(at.upper, rel=1e-7)


def test_spec_of_a_typed_family_writes_the_parameter_out() -> None:
    mine = FDivergence("mine", "abs(u - 1)**order", parameters=(("order", Fraction(5, 2)),))
    assert bt.divergence(mine.spec).generator == mine.generator


@pytest.mark.parametrize(
    ("generator", "place"),
    [
        ("(u-1)**2 - exp(-1e6*(u-3.71234)**2)", "3.71"),  # dents that lie between the points of any coarse grid
        ("(u-1)**2*(1 + exp(-1e6*(u-50.12345)**2))", "50.1"),
        ("-log(u) - exp(-1e10*(log(u)-1.1)**2)*1e-3", "3.00"),
        ("(u-1)**2 - 1000*max(0, 1e-6-(u-3.71234)**2)", "3.71"),  # two kinks between neighbouring points
        ("(u-1)**2 + min(0, (u-3.71234)**2-1e-10)", "3.71"),
        ("abs(u-1)**0.5", "1.0: its slope falls"),
        ("abs(u-1) - 1e-9*u**2 + 1e-9", "10000.0"),
    ],
)
def test_a_narrow_dent_is_refused_with_its_place(generator: str, place: str) -> None:
    with pytest.raises(DivergenceError, match=f"f is not convex near u = {re.escape(place)}"):
        bt.divergence(generator)


def test_f_at_one_is_zero_exactly_or_refused() -> None:
    with pytest.raises(DivergenceError, match=r"f\(1\) = 1.0e-50, expected 0"):
        bt.divergence("-log(u) + 1e-50")
