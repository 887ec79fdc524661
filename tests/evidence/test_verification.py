"""verify: true divergences pass, faulty ones fail with a counter-example in words, and the report says what it looked at."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import sympy
from rich.console import Console

from bandtheory.bounds import log_bounds
from bandtheory.closed_form_search import symbols
from bandtheory.derivation import Saturation, derive
from bandtheory.divergence import DivergenceError, FDivergence
from bandtheory.evidence import convex, symbolic, verification
from bandtheory.evidence.properties import PROPERTIES
from bandtheory.evidence.verification import Check, VerificationReport, verify
from bandtheory.evidence.wording import ROWS

SHIPPED = ("kl", "vajda:1.5", "renyi:0.5", "hockey_stick:1.2")  # `verify --all`: all
TYPED = ("(u-1)**2/(u+1)", "(u-1)*log(u)", "u - 1")


@pytest.mark.parametrize("spec", [*SHIPPED, *TYPED])
def test_shipped_and_typed_divergences_are_verified(spec: str) -> None:
    report = verify(spec, effort="quick")
    assert report.passed, str(report)
    assert {"generator", "upper bound", "lower bound", "convex program"} <= {c.name for c in report.checks if c.passed}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("(u-1)**2*(u-3)**2", "f is not convex near u = 1.42"),
        ("(u-1)**2 - 3*max(u-1000,0)**2", "f is not convex near u = 1"),
        ("(u-1)**2 + 0.5", "f(1) = 0.5, expected 0"),
    ],
)
def test_a_faulty_generator_is_reported_and_nothing_else_is_run(spec: str, words: str) -> None:
    report = verify(spec)
    assert not report.passed
    (check,) = report.checks
    assert (check.name, check.passed) == ("generator", False)
    assert words in str(check.counterexample)
    assert "the other checks were not run" in check.note


def test_wrong_bounds_fail_with_the_smallest_inputs_in_words() -> None:
    def doubled(logp: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = log_bounds(logp=logp, divergence="tv", delta=2 * delta)
        return lower, upper

    report = verify("tv", log_bounds=doubled, effort="quick")
    failed = {check.name: check.counterexample for check in report.checks if check.passed is False}
    assert {"upper bound", "lower bound", "limit p -> 0", "limit p -> 1", "certificate"} <= set(failed)
    assert all(len(text.splitlines()) <= ROWS for text in report.counterexamples)
    assert "at          p = 0.367879 (logp = -1.0), delta = 0.1" in str(failed["upper bound"])
    assert "NOT verified" in report.summary


def closed_form_fault(spec: str, **change: object) -> str:
    derived = dataclasses.replace(derive(spec), **change)
    return str(symbolic.closed_forms(derived, 40, 0).offence)


def test_a_closed_form_with_a_flipped_sign_is_refuted() -> None:
    p, _, _, delta = symbols()
    upper = sympy.Piecewise((1 / p, 1 - p <= delta), (1 - delta / p, True))
    assert "the derived closed form of upper is wrong at p = " in closed_form_fault("tv", upper=upper)


def test_a_closed_form_without_its_saturation_is_refuted() -> None:
    p, _, _, delta = symbols()
    assert "the derived closed form of upper is wrong at p = " in closed_form_fault("tv", upper=1 + delta / p)


def test_a_closed_form_with_exchanged_sides_is_refuted() -> None:
    derived = derive("squared_hellinger")
    assert "is wrong" in closed_form_fault("squared_hellinger", upper=derived.lower, lower=derived.upper)


def test_a_wrong_saturation_condition_is_refuted() -> None:
    p, _, _, delta = symbols()
    wrong = Saturation(sympy.Le(p, delta), derive("tv").saturation.lower)
    found = symbolic.saturation(dataclasses.replace(derive("tv"), saturation=wrong), 40, 0)
    assert "the derived condition for upper = 1/p is wrong at p = " in str(found.offence)


def test_a_saturation_condition_that_is_never_met_is_refuted() -> None:
    wrong = Saturation(derive("tv").saturation.upper, sympy.false)
    found = symbolic.saturation(dataclasses.replace(derive("tv"), saturation=wrong), 40, 0)
    assert "the derived condition for lower = 0 is wrong" in str(found.offence)


def test_a_wrong_constraint_is_refuted() -> None:
    derived = derive("kl")
    wrong = sympy.Eq(2 * derived.constraint.lhs, derived.constraint.rhs)
    assert "the derived constraint is wrong" in str(
        symbolic.saturation(dataclasses.replace(derived, constraint=wrong), 40, 0).offence
    )


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"value_at_zero": sympy.Rational(1, 3)}, "f(0)"),
        ({"recession_slope": sympy.oo}, "f'(∞)"),
        ({"lower_at_one": sympy.Integer(1)}, "lim lower for p → 1"),
        ({"mass_at_zero": 2 * symbols()[3]}, "lim p upper for p → 0"),
    ],
)
def test_a_wrong_limit_is_refuted(change: dict[str, object], name: str) -> None:
    derived = derive("tv")
    wrong = dataclasses.replace(derived, limits=dataclasses.replace(derived.limits, **change))
    assert f"expected    {name}" in str(symbolic.limits(wrong, 20, 0).offence)


def test_a_divergence_with_a_wrong_value_at_zero_fails() -> None:
    class Wrong(FDivergence):
        value_at_zero = sympy.Rational(1, 3)

    report = verify(Wrong("wrong", "abs(u-1)/2"), effort="quick")
    assert "derived limits" in {check.name for check in report.checks if check.passed is False}


def test_a_missing_conic_form_is_visible_and_no_failure() -> None:
    report = verify("log(u)**2 + 2*u*log(u)", effort="quick")
    assert report.passed
    checks = {check.name: check for check in report.checks}
    assert (checks["convex program"].passed, checks["convex program"].verdict) == (None, "n/a")
    assert "conic=" in checks["convex program"].note
    assert checks["convex program"] in report.unavailable
    assert checks["certificate"].passed  # it stands in, with ten times as many examples
    assert checks["certificate"].inputs.startswith(f"{2 * verification.EXAMPLES['quick']} examples")


def test_a_conic_form_that_is_supplied_is_used() -> None:
    def conic(ratios: cp.Expression) -> cp.Expression:
        return cp.square(cp.pos(ratios + 1 - 2 * cp.sqrt(ratios)))

    without, given = (verify("(sqrt(u) - 1)**4", effort="quick", conic=form) for form in (None, conic))
    assert [check.passed for report in (without, given) for check in report.checks if check.name == "convex program"] == [
        None,
        True,
    ]


def test_an_inaccurate_solver_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def inaccurate(*arguments: object, **options: object) -> convex.ConvexSolution:
        solution = convex.solve_convex(*arguments, **options)
        return dataclasses.replace(solution, status="inaccurate")

    monkeypatch.setattr("bandtheory.evidence.agreement.solve_convex", inaccurate)
    (check,) = [check for check in verify("tv", effort="quick").checks if check.name == "convex program"]
    assert check.passed is None
    assert "left undecided" in check.note


def test_the_same_seed_gives_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "PROPERTIES", PROPERTIES[:4])

    def facts(report: VerificationReport) -> list[Check]:
        return [dataclasses.replace(check, seconds=0.0) for check in report.checks]

    first, second, other = (verify("tv", effort="quick", seed=seed) for seed in (3, 3, 4))
    assert facts(first) == facts(second)
    assert facts(first) != facts(other)


def test_progress_hears_of_each_check_in_turn() -> None:
    heard: list[Check] = []
    report = verify("tv", effort="quick", progress=heard.append)
    assert tuple(heard) == report.checks


def test_nothing_is_printed_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verification, "PROPERTIES", PROPERTIES[:3])
    monkeypatch.chdir(tmp_path)
    verify("kl", log_bounds=lambda logp, delta: (-np.ones_like(logp), np.ones_like(logp)), effort="quick")
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_report_prints_as_text_as_a_table_and_as_json() -> None:
    checks = (
        Check("generator", "definition", "1,600 points", seconds=0.25),
        Check("upper bound", "theorem 1", "7 examples", 2e-15, "relative", 0.5, False, "theorem 1: wrong [here]"),
    )
    report = VerificationReport("kl", "-log(u)", checks, 0.75, "quick", 0)
    assert str(report) == (
        "kl: f(u) = -log(u)\n"
        "check        theorem     verdict  worst             seconds  over\n"
        "generator    definition  passed                     0.25     1,600 points\n"
        "upper bound  theorem 1   FAILED   2.0e-15 relative  0.50     7 examples\n"
        "theorem 1: wrong [here]\n"
        "kl: NOT verified; 1 checks passed, 1 failed, 0 n/a, 0.8 s"
    )
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(report)
    assert "theorem 1: wrong [here]" in captured.get()
    data = json.loads(json.dumps(report.to_dict()))
    assert (data["passed"], data["checks"][1]["worst"]) == (False, 2e-15)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="effort is 'fast'; accepted: quick, default, deep"):
        verify("kl", effort="fast")
    with pytest.raises(DivergenceError, match="did you mean 'kl'"):
        verify("kll")


def test_effort_decides_how_many_examples() -> None:
    assert verification.EXAMPLES["quick"] < verification.EXAMPLES["default"] < verification.EXAMPLES["deep"]
