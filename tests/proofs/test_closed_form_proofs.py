"""The closed forms of the theory page are proved for all p and δ, and false ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy

from proofs.adjoined_roots import Clock, Field, Undecided
from proofs.closed_form_proof import RADIUS, UNIT, ClosedForm, Substitution, all_proved, delta, not_p, p, u, x
from proofs.closed_forms import (
    E,
    claims,
    gamma,
    hockey_stick,
    le_cam,
    neyman_chi2,
    pearson_chi2,
    same_function,
    squared_hellinger,
    statements,
    tv,
    vajda,
)
from proofs.real_arithmetic import Implication, decide
from proofs.statement import Status
from proofs.vajda_family import Claim, vajda_family_statement
from proofs.vajda_family import delta as family_delta
from proofs.vajda_family import k as family_k
from proofs.vajda_family import m as family_m
from proofs.vajda_family import p as family_p

SECONDS = 20.0
ONE = sympy.Integer(1)
BY_NAME = {statement.name: statement for statement in statements()}
ONE_OF_EACH_KIND = (
    "tv closed form",  # piecewise linear
    "squared_hellinger closed form",  # roots of roots
    "hockey_stick:γ closed form",  # a parameter, and a generator that is flat at 1
    "vajda:3/2 closed form",  # after a change of variables
    "vajda:k closed form",  # symbolic exponents
    "renyi radius",
    "tv derived closed form",
    "renyi:0.5 derived closed form",  # a radius that is not δ
    "hockey_stick:1.2 derived closed form",
)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_true_closed_form_is_proved(name):
    result = BY_NAME[name].run(SECONDS)
    assert result.status == Status.PROVED, result.detail


def test_every_family_with_a_closed_form_has_a_claim_and_a_derived_form():
    families = {"tv", "pearson_chi2", "neyman_chi2", "squared_hellinger", "le_cam", "vajda", "alpha", "renyi", "hockey_stick"}
    for kind in (" closed form", " derived closed form"):
        assert families <= {name.removesuffix(kind).partition(":")[0] for name in BY_NAME if name.endswith(kind)}


def _clamped(distance: sympy.Expr) -> dict[str, sympy.Expr]:
    return {"upper": sympy.Min(1 + distance, 1 / p), "lower": sympy.Max(1 - distance, 0)}


def _swapped(claim: ClosedForm) -> ClosedForm:
    return replace(claim, upper=claim.lower, lower=claim.upper, complements=None)


def _wrong_constant_of_le_cam() -> ClosedForm:
    root = sympy.sqrt(delta * (delta + 4 * p * not_p))
    upper = sympy.Piecewise((1 / p, delta >= 2 * not_p / (1 + p)), ((2 * p + delta * not_p + root) / (p * (2 + delta)), True))
    return replace(le_cam(), upper=upper)


def _hellinger_at_twice_the_radius() -> ClosedForm:
    claim = squared_hellinger()
    return replace(claim, upper=claim.upper.subs(delta, 2 * delta), lower=claim.lower.subs(delta, 2 * delta), complements=None)


FALSE_FORMS = {
    "a factor 2": replace(tv(), **_clamped(delta / (2 * p))),
    "missing saturation above": replace(tv(), upper=1 + delta / p),
    "missing saturation below": replace(tv(), lower=1 - delta / p),
    "missing saturation of a quadratic form": replace(le_cam(), upper=le_cam().upper.args[1][0]),
    "saturated too early": replace(le_cam(), upper=sympy.Piecewise((1 / p, delta >= not_p), (le_cam().upper.args[1][0], True))),
    "swapped bounds": _swapped(tv()),
    "swapped roots": _swapped(neyman_chi2()),
    "p and 1 − p exchanged": replace(pearson_chi2(), **_clamped(sympy.sqrt(delta * p / not_p))),
    "the divergence of half the size": replace(pearson_chi2(), generator=(u - 1) ** 2 / 2),
    "a sign": replace(neyman_chi2(), upper=neyman_chi2().upper - 2 / (1 + delta)),
    "a wrong constant under the root": _wrong_constant_of_le_cam(),
    "δ doubled": _hellinger_at_twice_the_radius(),
    "γ(1 − p) forgotten": replace(hockey_stick(), lower=sympy.Max((1 - delta) / p, 0)),
    "δ for δ/p": replace(hockey_stick(), upper=sympy.Min(gamma + delta, 1 / p)),
    "flat around 1 forgotten at δ = 0": replace(
        hockey_stick(), upper=sympy.Piecewise((1, sympy.Le(delta, 0)), (hockey_stick().upper, True))
    ),
    "a wrong exponent": replace(
        vajda(sympy.Integer(3)), **_clamped(sympy.sqrt(delta / (p + p**3 / not_p**2)))
    ),
    "the radius of another Rényi divergence": replace(claims()["renyi:2"][0], radius=E - 1),
    "a parameter out of its range": replace(hockey_stick(), domain=(*RADIUS, sympy.Ge(gamma, sympy.Rational(1, 2)))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FALSE_FORMS)
def test_a_false_closed_form_is_not_proved(fault):
    outcome = all_proved(FALSE_FORMS[fault].obligations(), 8.0)
    assert outcome.status == Status.REFUTED, outcome.detail


_K = family_p + family_p**family_k * family_m ** (1 - family_k)
_MOVE = (family_delta / _K) ** (1 / family_k)
FALSE_FAMILIES = {
    "exponent with the wrong sign": Claim(
        upper=sympy.Min(
            1 + (family_delta / (family_p + family_p**family_k * family_m ** (family_k - 1))) ** (1 / family_k), 1 / family_p
        )
    ),
    "k for 1/k": Claim(lower=sympy.Max(1 - (family_delta / _K) ** family_k, 0)),
    "not clamped": Claim(upper=1 + _MOVE),
    "wrong side": Claim(upper=sympy.Min(1 - _MOVE, 1 / family_p)),
    "p and 1 − p exchanged": Claim(upper=sympy.Min(1 + _MOVE.subs({family_p: family_m, family_m: family_p}), 1 / family_p)),
}


@pytest.mark.parametrize("fault", FALSE_FAMILIES)
def test_a_false_form_of_the_vajda_family_is_refuted(fault):
    assert vajda_family_statement(FALSE_FAMILIES[fault]).run(SECONDS).status == Status.REFUTED


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        (tv().upper, sympy.Max(1 - 2 * delta / p, 0)),
        (sympy.Piecewise((1 / p, delta >= not_p), (1 + delta, True)), tv().lower),
        (1 + delta / p, tv().lower),
    ],
)
def test_a_derived_form_that_differs_from_the_claim_is_refuted(upper, lower):
    assert all_proved(same_function(tv(), upper, lower), SECONDS).status == Status.REFUTED


def test_no_time_leaves_a_true_form_open():
    assert BY_NAME["squared_hellinger closed form"].run(1e-4).status == Status.OPEN


def test_a_statement_that_z3_cannot_decide_in_time_is_open():
    a, b, c = sympy.symbols("a b c", real=True)
    hard = Implication(
        "hard", (), sympy.Gt(a**20 + b**22 * c**2 - 9 * a**4 * b**9 * c**3 + a * b * c + 10**6, -(10**9), evaluate=False)
    )
    assert decide(hard, 0.05).status != Status.PROVED


def test_contradictory_hypotheses_prove_nothing():
    outcome = decide(Implication("vacuous", (*UNIT, sympy.Gt(p, 2, evaluate=False)), sympy.Eq(p, 7, evaluate=False)), SECONDS)
    assert outcome.status == Status.OPEN
    assert "contradict" in outcome.detail


def test_a_denominator_or_radicand_of_unknown_sign_is_not_taken_for_granted():
    real = sympy.Symbol("a", real=True)
    context = Field(Clock(SECONDS))
    with pytest.raises(Undecided):
        context.rational(1 / real)
    with pytest.raises(Undecided):
        context.rational(sympy.sqrt(real))
    context.assume(sympy.Gt(real, 0, evaluate=False))
    assert context.reduced(context.rational(sympy.sqrt(real)) ** 2) == real


def test_a_counter_example_is_named():
    outcome = decide(Implication("√p ≤ p", UNIT, sympy.Le(sympy.sqrt(p), p, evaluate=False)), SECONDS)
    assert outcome.status == Status.REFUTED
    assert "p = " in outcome.detail


def test_a_change_of_variables_that_leaves_points_out_is_refuted():
    half = Substitution(((p, x / 2),), ((x, 2 * p),), (sympy.Gt(x, 0, evaluate=False), sympy.Lt(x, 1)))
    assert all_proved(half.reaches(UNIT), SECONDS).status == Status.REFUTED
    wrong = Substitution(((p, x),), ((x, p**2),), (sympy.Gt(x, 0, evaluate=False), sympy.Lt(x, 1)))
    assert all_proved(wrong.reaches(UNIT), SECONDS).status == Status.REFUTED
