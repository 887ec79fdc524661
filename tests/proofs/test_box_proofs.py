"""Statements over whole boxes and theorem 11's inequalities are proved, and false ones are not."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest
import sympy

from proofs.band_brackets import BRACKETS, prove_above, prove_below, prove_bracket, prove_monotone, prove_threshold
from proofs.boxes import Axis, expression_enclosure, positive_over
from proofs.inequalities import (
    algebraic,
    below_total_variation,
    bounded_logarithm,
    by_calculus,
    calculus,
    hellinger_above_tv,
    p,
    pinsker,
    pointwise,
    q,
    statements,
    tilted,
    u,
)
from proofs.statement import Status

SECONDS = 20.0
ONE = sympy.Integer(1)
STATEMENTS = statements()
X = sympy.Symbol("x", real=True)
UNIT = Axis("x", Fraction(0), Fraction(1))


def over_unit_interval(expression, **options):
    return positive_over((UNIT,), expression_enclosure(expression, (X,)), SECONDS, **options)


@pytest.mark.parametrize("statement", [s for s in STATEMENTS if s.name.startswith("theorem 11")], ids=lambda s: s.name)
def test_the_inequalities_of_theorem_11_are_proved(statement):
    result = statement.run(SECONDS)
    assert result.status == Status.PROVED, result.detail


@pytest.mark.parametrize("kind", ["strictly convex", "against PPO's clip"])
def test_what_holds_for_each_divergence_without_closed_form_is_proved(kind):
    chosen = [statement for statement in STATEMENTS if statement.name.endswith(kind)]
    assert len(chosen) == len(BRACKETS)
    assert {statement.run(SECONDS).status for statement in chosen} == {Status.PROVED}


def test_the_exploration_margin_and_the_monotone_constraint_are_proved_over_the_box():
    chosen = [s for s in STATEMENTS if s.name in ("alpha:3 exploration margin", "jeffreys monotone constraint")]
    for result in (statement.run(SECONDS) for statement in chosen):
        assert result.status == Status.PROVED, result.detail
        assert "p ∈ [1e-06, 1 − 1e-06]" in result.detail
    assert len(chosen) == 2


FALSE_INEQUALITIES = {
    "Pinsker with a factor 2 too much": partial(pinsker, sympy.Integer(4)),
    "H² ≤ LC/2, turned round": partial(pointwise, "squared_hellinger", "le_cam", ONE, ONE / 2),
    "LC ≤ H², a factor 2": partial(pointwise, "le_cam", "squared_hellinger", ONE, ONE),
    "TV ≤ H²/2, turned round": partial(pointwise, "tv", "squared_hellinger", ONE, ONE / 2),
    "TV² ≤ H²(1 − H²/3)": partial(hellinger_above_tv, ONE / 3),
    "KL ≤ H², turned round": partial(by_calculus, "kl", "squared_hellinger", ONE),
    "KL ≤ χ², the wrong way round of Q and P": partial(by_calculus, "kl", "pearson_chi2", ONE),
    "JS ≤ ½ log 2 · TV": partial(below_total_variation, tilted("jensen_shannon"), sympy.log(2) / 4),
    "KL(Q‖P) ≤ log(1 + χ²/2)": partial(bounded_logarithm, 1 + (p - q) ** 2 / (2 * p * (1 - p))),
    "KL(Q‖P) ≤ log(1 + χ²(P‖Q))": partial(bounded_logarithm, 1 + (p - q) ** 2 / (q * (1 - q))),
    "a concave function is below TV": partial(below_total_variation, u - u**2, ONE),
    "a negative multiplier": lambda seconds: calculus(
        sympy.log(u) - u + 1, u, ONE, (sympy.Gt(u, 0, evaluate=False),), seconds, -ONE
    ),
    "(p − q)² ≤ ½ pq": lambda seconds: algebraic(p * q / 2 - (p - q) ** 2, (sympy.Gt(p, 0, evaluate=False),), seconds),
}


@pytest.mark.parametrize("claim", FALSE_INEQUALITIES)
def test_a_false_inequality_is_not_proved(claim):
    assert FALSE_INEQUALITIES[claim](5.0).status != Status.PROVED


FALSE_BOXES = {
    "κ too large": partial(prove_below, "kl", Fraction(75, 100)),
    "K too small": partial(prove_above, "kl", Fraction(9, 10)),
    "both exchanged": partial(prove_bracket, "reverse_kl", Fraction(1), Fraction(8, 10)),
    "p₀ too large": partial(prove_threshold, "kl", Fraction(6, 5), Fraction(1, 20), Fraction(68, 100), Fraction(69, 100)),
    "p₀ too small": partial(prove_threshold, "kl", Fraction(6, 5), Fraction(1, 20), Fraction(66, 100), Fraction(67, 100)),
    "the threshold of twice the radius": partial(
        prove_threshold, "kl", Fraction(6, 5), Fraction(1, 10), Fraction("0.670731"), Fraction("0.670732")
    ),
}


@pytest.mark.parametrize("claim", FALSE_BOXES)
def test_a_false_statement_over_a_box_is_refuted_by_a_point(claim):
    outcome = FALSE_BOXES[claim](SECONDS)
    assert outcome.status == Status.REFUTED
    assert outcome.detail.startswith("fails at p = ")


def test_a_flat_generator_is_not_strictly_monotone():
    assert prove_monotone("hockey_stick:2", 2.0).status == Status.REFUTED


def test_a_dip_far_narrower_than_any_grid_is_found_or_left_open():
    narrow = (X - sympy.Rational(1, 3)) ** 2 - sympy.Rational(1, 10**14)
    assert over_unit_interval(narrow, max_pieces=500).status != Status.PROVED


def test_a_minimum_just_above_zero_is_proved():
    assert over_unit_interval((X - sympy.Rational(1, 3)) ** 2 + sympy.Rational(1, 10**6)).status == Status.PROVED


def test_a_zero_on_the_box_is_never_proved_strictly_positive():
    assert over_unit_interval((X - sympy.Rational(1, 3)) ** 2, max_pieces=500).status == Status.OPEN


def test_a_function_that_is_not_defined_on_all_of_the_box_stays_open():
    assert over_unit_interval(1 - X + sympy.log(X), max_pieces=300).status != Status.PROVED
    assert over_unit_interval(2 - X - sympy.sqrt(X - sympy.Rational(1, 7)), max_pieces=300).status != Status.PROVED


def test_an_impossible_budget_leaves_a_true_statement_open():
    assert prove_below("kl", Fraction(65, 100), 0.0).status == Status.OPEN
    outcome = over_unit_interval((X - sympy.Rational(1, 3)) ** 2 + sympy.Rational(1, 10**9), max_pieces=3)
    assert outcome.status == Status.OPEN
    assert outcome.detail.startswith("out of pieces")


def test_the_pieces_of_a_box_leave_no_gap():
    seen = []

    def enclosure(piece):
        from flint import arb

        (low, high), (left, right) = piece
        seen.append(piece)
        return arb(1) if high - low < Fraction(1, 3) and right / left < 30 else arb(0, 1)

    axes = (Axis("p", Fraction(1, 10**6), 1 - Fraction(1, 10**6), "logit"), Axis("δ", Fraction(1, 1000), Fraction(1), "log"))
    outcome = positive_over(axes, lambda piece: enclosure(piece), SECONDS)
    assert outcome.status == Status.PROVED
    final = [piece for piece in seen if piece[0][1] - piece[0][0] < Fraction(1, 3) and piece[1][1] / piece[1][0] < 30]
    area = sum((high - low) * (right - left) for (low, high), (left, right) in set(map(tuple, final)) if low < high)
    assert area == (1 - Fraction(2, 10**6)) * (1 - Fraction(1, 1000))


@pytest.mark.parametrize(("low", "high", "scale"), [(1, 1, "linear"), (2, 1, "log"), (0, 1, "square")])
def test_an_axis_refuses_what_is_not_a_range(low, high, scale):
    with pytest.raises(ValueError, match="axis x"):
        Axis("x", Fraction(low), Fraction(high), scale)
