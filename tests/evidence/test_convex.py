"""The n-token conic program against an independent bisection of the scalar constraint (theorem 1), and its honesty."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import mpmath
import numpy as np
import pytest
import sympy
from flint import arb

from bandtheory import ball
from bandtheory.divergence import divergence
from bandtheory.evidence import convex
from bandtheory.evidence.compiled_program import compiled
from bandtheory.evidence.convex import SMALL_RATIO, TOLERANCE, ConvexError, ConvexUnavailable, solve_convex
from bandtheory.evidence.enclosure import BITS, Enclosure
from bandtheory.expressions import symbol

SHIPPED = ("kl", "reverse_kl", "tv", "pearson_chi2", "squared_hellinger")
TYPED = (
    "(u-1)**2/u",
    "(u-1)**2/(u+1)",
    "(u*log(2*u/(u+1)) + log(2/(u+1)))/2",
    "(u-1)*log(u)",
    "(u-1)**2*(u+1)/u",
    "abs(u-1)**3",
    "(u**0.123 - 1 - 0.123*(u-1))/(0.123*(0.123-1))",
    "(u**(-0.5) - 1 + 0.5*(u-1))/0.75",
    "max(u-1.2,0)",
    "0.3*u*log(u/(0.7+0.3*u)) - 0.7*log(0.7+0.3*u)",
    "sqrt(1+(u-1)**2) - 1",
)


def scalar_bound(spec: str, p: float, delta: float, side: str) -> float:
    """Bisection of g(p, r) = p f(r) + (1 − p) f((1 − rp)/(1 − p)) ≤ δ in 40 digits; r = 1 + (end − 1)(1 − e^{−y})."""
    f = divergence(spec)
    value = sympy.lambdify(symbol(), f.generator, "mpmath")
    with mpmath.workdps(40):
        p, delta = mpmath.mpf(p), mpmath.mpf(delta)
        zero = mpmath.inf if f.value_at_zero == sympy.oo else mpmath.mpf(str(sympy.N(f.value_at_zero, 40)))
        end = 1 / p if side == "upper" else mpmath.mpf(0)

        def feasible(r: mpmath.mpf) -> bool:
            c = (1 - r * p) / (1 - p)
            return p * (value(r) if r > 0 else zero) + (1 - p) * (value(c) if c > 0 else zero) <= delta

        if feasible(end):
            return float(end)
        low, high = mpmath.mpf(0), mpmath.mpf(80)
        for _ in range(150):
            middle = (low + high) / 2
            low, high = (middle, high) if feasible(1 - (end - 1) * mpmath.expm1(-middle)) else (low, middle)
        return float(1 - (end - 1) * mpmath.expm1(-low))


def policy(n: int, p: float, seed: int = 0) -> np.ndarray:
    """A policy whose token 0 has probability p and whose others spread over eight decades."""
    others = np.exp(np.random.default_rng(seed).uniform(np.log(1e-8), 0, n - 1))
    return np.concatenate([[p], others * (1 - p) / others.sum()])


def agrees(spec: str, n: int, p: float, delta: float, side: str) -> None:
    solution = solve_convex(policy(n, p), 0, spec, delta, side)
    expected = scalar_bound(spec, p, delta, side)
    assert solution.status == "optimal", solution.attempts
    assert abs(solution.ratio - expected) <= TOLERANCE * max(expected, SMALL_RATIO)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("p", [1e-8, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("spec", SHIPPED)
def test_theorem_1_every_shipped_divergence_equals_the_scalar_problem(spec: str, p: float, side: str) -> None:
    for delta in (1e-4, 0.05, 2.0):
        agrees(spec, 7, p, delta, side)


@pytest.mark.parametrize("spec", TYPED)
def test_theorem_1_typed_generators_equal_the_scalar_problem(spec: str) -> None:
    agrees(spec, 5, 0.1, 0.05, "upper")
    agrees(spec, 5, 1e-6, 0.01, "upper")
    agrees(spec, 5, 0.4, 0.01, "lower")


@pytest.mark.parametrize("spec", ["kl", "pearson_chi2"])
def test_a_thousand_tokens_with_probabilities_down_to_1e_8(spec: str) -> None:
    agrees(spec, 1000, 1e-3, 0.05, "upper")


@pytest.mark.parametrize("spec", ["kl", "tv", "pearson_chi2"])
def test_the_policy_is_in_the_simplex_and_in_the_ball(spec: str) -> None:
    P = policy(20, 0.05)
    solution = solve_convex(P, 3, spec, 0.02, "upper")
    assert np.all(solution.policy >= 0)
    assert abs(solution.policy.sum() - 1) <= 1e-15
    f = {"kl": lambda u: -np.log(u), "tv": lambda u: abs(u - 1) / 2, "pearson_chi2": lambda u: (u - 1) ** 2}[spec]
    assert abs(float(np.sum(P * f(solution.policy / P))) - 0.02) <= 1e-12  # tight and not exceeded, up to float64 summation
    assert solution.divergence <= 0.02


def test_ratio_and_dual_bound_enclose_the_closed_form() -> None:
    # tv: upper = 1 + δ/p (theory, section 4), here 1 + 0.05/0.25 = 1.2 exactly; λ = d upper/dδ = 1/p = 4
    solution = solve_convex([0.25, 0.25, 0.5], 0, "tv", 0.05)
    assert solution.ratio <= 1.2 + 1e-15
    assert solution.dual_bound >= 1.2 - 1e-15
    assert abs(solution.ratio - 1.2) <= 1e-9
    assert abs(solution.dual - 4) <= 1e-6


def test_the_multiplier_is_the_slope_of_the_bound_in_delta() -> None:
    # pearson: upper = 1 + sqrt(δ(1 − p)/p), slope sqrt((1 − p)/(p δ))/2 = 3 at p = 0.1, δ = 0.25
    assert abs(solve_convex([0.1, 0.6, 0.3], 0, "pearson_chi2", 0.25).dual - 3) <= 1e-6


def test_saturation_reaches_the_vertex() -> None:
    # pearson: p(1/p − 1)² + (1 − p) = (1 − p)/p = 3 ≤ δ
    assert abs(solve_convex([0.25, 0.75], 0, "pearson_chi2", 3.5).ratio - 4) <= 4e-7
    assert solve_convex([0.25, 0.75], 0, "pearson_chi2", 3.5, "lower").ratio <= 1e-12


def test_radius_zero_allows_only_the_old_policy_where_the_divergence_is_strict() -> None:
    solution = solve_convex([0.2, 0.3, 0.5], 1, "kl", 0.0)
    assert solution.status == "optimal"
    assert abs(solution.ratio - 1) <= 1e-12


def test_theorem_10_hockey_stick_at_radius_zero_is_ratio_clipping() -> None:
    solution = solve_convex([0.2, 0.3, 0.5], 0, "max(u-1.2,0)", 0.0)
    assert solution.status == "optimal"
    assert abs(solution.ratio - 1.2) <= 1.2e-7


def test_a_far_point_with_an_optimal_claim_is_reported_inaccurate(monkeypatch: pytest.MonkeyPatch) -> None:
    P = np.array([0.2, 0.3, 0.5])
    # A feasible but far from optimal point under the claim "optimal": too much of the divergence goes to token 1.
    lie = convex._Answer(np.array([0.21, 0.4, 0.39]), 1.0, 0.0, "optimal")
    monkeypatch.setattr(convex, "_solve", lambda *_: lie)
    solution = solve_convex(P, 0, "kl", 0.05)
    assert solution.status == "inaccurate"
    assert solution.gap > 0.1
    assert solution.ratio < scalar_bound("kl", 0.2, 0.05, "upper") < solution.dual_bound


def test_an_infeasible_point_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = convex._Answer(np.array([0.9, 0.05, 0.05]), 1.0, 0.0, "optimal")
    monkeypatch.setattr(convex, "_solve", lambda *_: outside)
    solution = solve_convex([0.2, 0.3, 0.5], 0, "kl", 0.05)
    assert solution.divergence <= 0.05
    assert solution.ratio <= scalar_bound("kl", 0.2, 0.05, "upper")


def test_no_point_from_any_solver_is_an_error_that_lists_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convex, "_solve", lambda *_: "failed, stalled")
    with pytest.raises(ConvexError, match=r"CLARABEL: failed, stalled.*SCS: failed, stalled"):
        solve_convex([0.2, 0.3, 0.5], 0, "kl", 0.05)


def test_any_multipliers_give_a_valid_bound() -> None:
    problem = Enclosure(np.array([0.2, 0.3, 0.5]), 0, 0.05, 1, divergence("kl"))
    optimum = scalar_bound("kl", 0.2, 0.05, "upper")
    for multiplier, price in [(1.0, 0.0), (2.0, 5.5), (0.01, 7.0), (30.0, -3.0)]:
        with ball.precision(BITS):
            near = (arb(1.5), arb(0.9))  # where the suprema are sought first; they are found anyway
            assert problem.weak_duality(arb(multiplier), arb(price), near, 1.0) >= optimum


def test_scs_alone_solves_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convex, "_ATTEMPTS", [a for a in convex._ATTEMPTS if a.solver == "SCS"])
    solution = solve_convex([0.2, 0.3, 0.5], 0, "kl", 0.05)
    assert (solution.solver, solution.status) == ("SCS", "optimal")


def quartic(ratios: cp.Expression) -> cp.Expression:
    return cp.power(ratios - 1, 4)


def test_a_supplied_conic_form_is_used() -> None:
    expected = scalar_bound("(u-1)**4", 0.3, 0.01, "upper")
    assert abs(solve_convex([0.3, 0.7], 0, "(u-1)**4", 0.01, conic=quartic).ratio - expected) <= 1e-7 * expected


def test_renyi_is_the_alpha_divergence_at_another_radius() -> None:
    # α = ½: radius (e^{(α−1)δ} − 1)/(α(α − 1)) = 4 (1 − e^{−δ/2})
    P, delta = [0.1, 0.2, 0.7], 0.3
    renyi, alpha = (solve_convex(P, 0, name, d) for name, d in (("renyi:0.5", delta), ("alpha:0.5", -4 * np.expm1(-delta / 2))))
    assert renyi.status == alpha.status == "optimal"
    assert abs(renyi.ratio - alpha.ratio) <= 1e-9 * alpha.ratio


def test_a_renyi_radius_beyond_float64_is_no_constraint_where_every_policy_is_nearer() -> None:
    # α = 60, δ = 100: log radius = 5900 − log 3540 > 709, while the greatest divergence is about p^{−59}/3540 = 1e38/3540
    solution = solve_convex([0.227, 0.773], 0, "renyi:60", 100.0)
    assert solution.status == "optimal"
    assert abs(solution.ratio - 1 / 0.227) <= 1e-7 / 0.227


@pytest.mark.parametrize("spec", ["kl", "tv", "pearson_chi2", "jensen_shannon", "vajda:60", "alpha:0.999"])
@pytest.mark.parametrize(
    ("n", "p", "delta", "side"), [(2, 1e-12, 1e-12, "upper"), (3, 0.4, 100.0, "upper"), (200, 1e-3, 1e-3, "lower")]
)
def test_sizes_probabilities_and_radii_at_the_ends_of_their_ranges(
    spec: str, n: int, p: float, delta: float, side: str
) -> None:
    agrees(spec, n, p, delta, side)


def test_the_data_of_a_compiled_program_are_those_of_cvxpy() -> None:
    program = compiled(divergence("jensen_shannon"), 3, None)
    form = program._canonical("CLARABEL")
    rows = np.random.default_rng(0).uniform(0.5, 2, program.numbers.shape)
    data = form.data_at(rows)
    program.numbers.value = rows
    expected = program.problem.get_problem_data("CLARABEL", solver_opts={})[0]
    for name in ("c", "b"):
        assert np.array_equal(data[name], expected[name])
    assert (data["A"] - expected["A"]).count_nonzero() == 0


def test_threads_get_the_answers_of_one_thread() -> None:
    policies = [policy(6, p) for p in (0.02, 0.1, 0.3, 0.6)]
    alone = [solve_convex(P, 0, "kl", 0.05).ratio for P in policies]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda P: solve_convex(P, 0, "kl", 0.05).ratio, policies * 5))
    assert together == alone * 5


def test_a_wrong_conic_form_does_not_pass() -> None:
    # The verification uses the generator: the point is still feasible and the enclosure still holds.
    P = np.array([0.3, 0.1, 0.6])
    solution = solve_convex(P, 0, "kl", 0.05, conic=lambda ratios: cp.square(ratios - 1) + cp.abs(ratios - 1.3) - 0.3)
    assert solution.divergence <= 0.05
    assert solution.ratio <= scalar_bound("kl", 0.3, 0.05, "upper") <= solution.dual_bound + 1e-12


def test_a_concave_conic_form_is_refused() -> None:
    with pytest.raises(ConvexUnavailable, match="convex cvxpy expression of shape"):
        solve_convex([0.3, 0.7], 0, "kl", 0.05, conic=cp.log)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"P": [1.0]}, "at least 2 tokens"),
        ({"P": [[0.5, 0.5]]}, "one-dimensional"),
        ({"P": [0.5, 0.0, 0.5]}, r"P\[1\] is 0.0"),
        ({"P": [1.0, 1e-300]}, r"P\[1\] is 1e-300"),
        ({"P": [0.5, float("nan")]}, r"P\[1\] is nan"),
        ({"P": [0.5, 0.4]}, "P sums to 0.9"),
        ({"P": ["x", "y"]}, "array of probabilities"),
        ({"action": 2}, "action is 2; it must be an integer from 0 to 1"),
        ({"action": -1}, "action is -1"),
        ({"action": 0.5}, "action is 0.5"),
        ({"delta": -0.1}, "delta is -0.1"),
        ({"delta": float("inf")}, "delta is inf"),
        ({"delta": float("nan")}, "delta is nan"),
        ({"side": "up"}, "side is 'up'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve_convex(**{"P": [0.5, 0.5], "action": 0, **arguments})


def test_a_solution_prints_its_numbers_and_its_evidence() -> None:
    text = str(solve_convex([0.25, 0.25, 0.5], 0, "tv", 0.05))
    assert text.startswith("ratio 1.2")
    assert "conic program of 3 tokens, CLARABEL, optimal, verified relative gap" in text


def test_a_sum_off_by_less_than_1e_9_is_renormalised() -> None:
    solution = solve_convex([0.25, 0.75 + 5e-10], 0, "tv", 0.05)
    assert abs(solution.ratio - 1.2) <= 1e-8
