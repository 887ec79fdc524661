"""The steps that symbolic proofs are made of: each proves what is true, and does not prove what is not."""

from __future__ import annotations

import time

import pytest
import sympy

from proofs.decision import decide
from proofs.notation import complement, divergence, f, p, r, slope, u, x
from proofs.statement import Method, Outcome, Statement, Status
from proofs.steps import Step, Tangent, Term, combination, identity, implication, in_steps, limit, passage, tangents

SECONDS = 10.0
PROVED, REFUTED, OPEN = Status.PROVED, Status.REFUTED, Status.OPEN
positive = sympy.Symbol("w", positive=True)


def status(step: Step) -> Status:
    return step.check(SECONDS).status


def test_an_identity_holds_for_every_f() -> None:
    assert status(identity("", sympy.diff(divergence(p, r), r), p * (slope(r) - slope(complement(p, r))))) == PROVED
    assert status(identity("", sympy.diff(divergence(p, r), r), p * (slope(r) + slope(complement(p, r))))) == REFUTED


def test_values_of_f_at_different_points_are_different_unknowns() -> None:
    assert status(identity("", f((r**2 - 1) / (r - 1)), f(r + 1))) == PROVED
    assert status(identity("", f(r), f(r + 1))) == REFUTED


def test_a_combination_needs_multipliers_that_are_known_to_be_non_negative() -> None:
    gap = Tangent(u, x)
    assert status(combination("", p * gap.gap, [Term((p,), gap)], [p])) == PROVED
    assert status(combination("", p * gap.gap, [Term((p,), gap)], [])) == OPEN
    assert status(combination("", -p * gap.gap, [Term((-p,), gap)], [p])) == OPEN
    assert status(combination("", (1 - p) * gap.gap, [Term((1 - p,), gap)], [1 - p])) == PROVED
    assert status(combination("", (p - 1) * gap.gap, [Term((p - 1,), gap)], [1 - p])) == OPEN


def test_a_square_is_non_negative_and_a_cube_is_not() -> None:
    assert status(combination("", (p - r) ** 2, [Term(((p - r) ** 2,))], [])) == PROVED
    assert status(combination("", (p - r) ** 3, [Term(((p - r) ** 3,))], [])) == OPEN


def test_a_combination_that_does_not_add_up_is_refuted_where_the_claim_is_negative_for_some_f() -> None:
    gap = Tangent(u, x)
    assert status(combination("", -gap.gap, [Term((1,), gap)], [])) == REFUTED
    assert status(combination("", 2 * gap.gap, [Term((1,), gap)], [])) == OPEN  # true, but not by this certificate
    assert status(combination("", -gap.gap, [Term((1,), gap)], [-p])) == OPEN  # the hypothesis −p ≥ 0 fails where it is tried


def test_sums_over_any_number_of_tokens_are_linear() -> None:
    i, n = sympy.symbols("i n", integer=True, positive=True)
    a, b = sympy.IndexedBase("a"), sympy.IndexedBase("b")
    total = sympy.Sum(p * a[i] - r * b[i], (i, 1, n))
    assert status(identity("", total, p * sympy.Sum(a[i], (i, 1, n)) - r * sympy.Sum(b[i], (i, 1, n)))) == PROVED
    assert status(identity("", total, p * sympy.Sum(a[i], (i, 1, n)) + r * sympy.Sum(b[i], (i, 1, n)))) == OPEN


def test_an_implication_is_refuted_with_the_values_that_contradict_it() -> None:
    assert decide([p > 0, r > 0], p + r >= 2 * p * r, SECONDS).status == REFUTED
    outcome = decide([sympy.Eq(p, 3)], p < 3, SECONDS)
    assert (outcome.status, outcome.detail) == (REFUTED, "counter-example: p = 3")
    assert decide([p > 0, r > 0], p**2 + r**2 >= 2 * p * r, SECONDS).status == PROVED


def test_convexity_between_three_points_is_the_tangent_inequalities() -> None:
    middle = sympy.Symbol("m", real=True)
    between = [p < middle, middle < r, *tangents(p, middle, r)]
    chord = (r - p) * f(middle) <= (r - middle) * f(p) + (middle - p) * f(r)
    assert status(implication("", between, chord)) == PROVED
    assert status(implication("", between, f(middle) <= (f(p) + f(r)) / 2)) == REFUTED


def test_hypotheses_that_contradict_each_other_prove_nothing() -> None:
    outcome = decide([p > 1, p < 0], sympy.Eq(p, 7), SECONDS)
    assert (outcome.status, outcome.detail) == (OPEN, "the hypotheses contradict each other")


def test_what_z3_does_not_decide_in_time_is_open() -> None:
    letters = sympy.symbols("a:8", real=True)
    power_means = sum(a**8 for a in letters) * 8**7 >= sum(letters) ** 8  # true, and far beyond a few milliseconds
    outcome = decide([a >= 0 for a in letters], power_means, 0.02)
    assert outcome.status == OPEN


def test_only_real_arithmetic_is_given_to_z3() -> None:
    with pytest.raises(TypeError, match="not real arithmetic: log"):
        decide([], sympy.log(u) <= u - 1, SECONDS)


def test_a_limit_is_compared_with_its_claim() -> None:
    assert status(limit("", sympy.log(1 + positive) / positive, positive, 0, 1)) == PROVED
    assert status(limit("", sympy.log(1 + positive) / positive, positive, 0, 2)) == REFUTED
    assert status(limit("", 1 / positive, positive, 0, sympy.oo)) == PROVED
    assert status(limit("", 1 / positive, positive, 0, 0)) == REFUTED


def test_only_polynomials_are_passed_to_the_limit_by_continuity() -> None:
    assert status(passage("", p * u + r, {p: 1, u: x}, x + r)) == PROVED
    assert status(passage("", p * u + r, {p: 1, u: x}, x - r)) == REFUTED
    assert status(passage("", u / p, {p: 0}, 0)) == OPEN


def test_a_proof_stops_at_its_first_step_that_fails() -> None:
    outcome = in_steps(identity("true", p, p), identity("false", p, r), identity("not reached", p, p))(SECONDS)
    assert outcome.status == REFUTED
    assert outcome.detail.startswith("false: the two sides differ by ")


def _statement(prove: object) -> Statement:
    return Statement("name", "words", "words", Method.SYMBOLIC, ("nothing",), prove)  # type: ignore[arg-type]


def test_a_proof_without_an_end_is_open() -> None:
    def endless(seconds: float) -> Outcome:
        while True:
            try:
                time.sleep(10)
            except Exception:  # what a library that tries one method after another would do
                continue

    result = _statement(endless).run(0.1)
    assert (result.status, result.detail) == (OPEN, "not decided within 0.1 s")


def test_a_proof_that_breaks_down_is_open() -> None:
    def broken(seconds: float) -> Outcome:
        raise ZeroDivisionError("1/0")

    result = _statement(broken).run(1)
    assert (result.status, result.detail) == (OPEN, "ZeroDivisionError: 1/0")


def test_no_step_begins_after_the_time_is_up() -> None:
    slow = Step("slow", lambda seconds: time.sleep(0.05) or Outcome(PROVED))  # type: ignore[func-returns-value]
    outcome = in_steps(slow, slow)(0.01)
    assert (outcome.status, outcome.detail) == (OPEN, "slow: no time left")
