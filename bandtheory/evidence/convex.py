"""The n-token problem itself, solved as a conic program: what theorem 1 must agree with, for any divergence and any policy.

    max or min Q_a / P_a   subject to   Q ≥ 0,  Σ Q_i = 1,  Σ P_i f(Q_i / P_i) ≤ δ

cvxpy sees P, δ and a conic form of the generator that is translated from sympy; nothing here knows the scalar constraint or the
bounds that follow from it. A solver's word is not taken for its answer: its point is moved along the ray from P to the edge of
the feasible set, its divergence evaluated anew, and the optimum bounded by weak duality on the other side (`enclosure`). The
status is "optimal" only if the two sides are within `TOLERANCE`, whatever the solver claims.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory.divergence import FDivergence, as_divergence
from bandtheory.evidence.compiled_program import compiled
from bandtheory.evidence.conic import Conic, ConvexUnavailable
from bandtheory.evidence.enclosure import SMALL_RATIO, Enclosure, Size

__all__ = ["SMALL_RATIO", "TOLERANCE", "ConvexError", "ConvexSolution", "ConvexUnavailable", "solve_convex"]

TOLERANCE = 1e-7  # largest relative gap that may be called optimal
SMALLEST_PROBABILITY = 1e-14  # 1/P multiplies the program's coefficients; below this float64 cannot hold them side by side
NEAR_ZERO = 1e-3  # after a ratio below it, the attempts that are posed for small ratios come next
SMALL_RADIUS = 1e-8  # below it the program is solved at this radius for the direction P → Q; its length is found at δ

Array = NDArray[np.float64]
_ONE_AT_A_TIME = threading.RLock()  # compiled programs and the precision of balls are shared by all threads


@dataclass(frozen=True)
class _Attempt:
    """One way to pose the program to one solver.

    `balance` 1 counts a token's move in mass, 0 in ratio. `box` keeps ratios within that many expected moves of 1; without it
    a token of probability 1e-8 may be off by a factor 1e4, which costs the solver's tolerance nothing. A box can only shrink
    the feasible set, so a point in it is feasible, and the dual bound does not know about it. Not `boxed`: without a box, if f
    keeps R ≥ 0 by itself. `near_zero` counts a small ratio of the action in its own units instead of its distance from 1.
    """

    solver: str
    balance: float
    box: float
    options: dict[str, Any]
    near_zero: bool = False
    boxed: bool = True


_TOLERANCES = ("tol_gap_abs", "tol_gap_rel", "tol_feas")


def _clarabel(balance: float, box: float, regularization: float, step: float = 0.9) -> _Attempt:
    tolerances = dict.fromkeys(_TOLERANCES, 1e-10)
    # With loose "reduced" tolerances Clarabel hands over a stalled point instead of raising, to be verified here.
    reduced = {"reduced_tol_gap_abs": 1e-2, "reduced_tol_gap_rel": 1e-2, "reduced_tol_feas": 1e-3, "reduced_tol_ktratio": 1e-1}
    tuning = {"static_regularization_constant": regularization, "max_step_fraction": step, "max_iter": 200}
    return _Attempt("CLARABEL", balance, box, {**tolerances, **reduced, **tuning})


def _quick(balance: float, box: float, regularization: float, step: float = 0.9, tolerance: float = 1e-9) -> _Attempt:
    """The same in two thirds of the time: without refinement of linear systems and rescaling of what is scaled already."""
    careful = _clarabel(balance, box, regularization, step)
    hasty = {"iterative_refinement_enable": False, "equilibrate_enable": False}
    return replace(careful, options={**careful.options, **dict.fromkeys(_TOLERANCES, tolerance), **hasty}, boxed=False)


_SCS = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20_000}
_ATTEMPTS = (
    replace(_quick(0.5, 4, 1e-9, step=0.97, tolerance=3e-8), near_zero=True),
    _clarabel(0, 4, 1e-12),
    _quick(1, 4, 1e-14),
    _quick(0.5, 4, 1e-10),
    _clarabel(1, 4, 1e-14),
    _clarabel(1, 4, 1e-12),
    _clarabel(0.5, 4, 1e-12),
    _clarabel(0, 4, 1e-14),
    replace(_clarabel(1, 4, 1e-14), near_zero=True),
    replace(_clarabel(0, 4, 1e-12), near_zero=True),
    _clarabel(1, 1e6, 1e-8, step=0.99),
    _clarabel(1, 2.2, 1e-14, step=0.8),
    _Attempt("SCS", 0, 4, _SCS, near_zero=True),
    _Attempt("SCS", 0.5, 4, _SCS),
)


class ConvexError(RuntimeError):
    """No solver returned a point; the message lists the attempts."""


@dataclass(frozen=True)
class ConvexSolution:
    """A verified enclosure of the optimum of the n-token problem.

    Attributes:
        ratio: Q_a/P_a at `policy`, which is feasible: at most the maximum (side "upper"), at least the minimum ("lower").
        policy: Q, shape (n,), the feasible policy.
        dual: the multiplier λ of the divergence constraint that gives `dual_bound`: |d ratio / d δ| where that exists.
        dual_bound: bound of the optimal ratio by weak duality, on the other side of it than `ratio`.
        gap: |dual_bound − ratio| / max(ratio, SMALL_RATIO).
        status: "optimal" if gap ≤ TOLERANCE, else "inaccurate": then only the enclosure is claimed, not the ratio.
        solver: the solver whose point this is.
        seconds: wall time, including verification.
        divergence: Σ P f(Q/P) at `policy`, in nats, at most δ; for Rényi's at most the radius that δ stands for.
        attempts: one line per solver run: its own status, its unverified ratio, the gap after verification.
    """

    ratio: float
    policy: Array = field(repr=False)
    dual: float
    dual_bound: float
    gap: float
    status: str
    solver: str
    seconds: float
    divergence: float
    attempts: tuple[str, ...] = field(default=(), repr=False)

    @property
    def evidence(self) -> str:
        """One line: how far the ratio is known, and from what."""
        return f"conic program of {self.policy.size} tokens, {self.solver}, {self.status}, verified relative gap {self.gap:.1e}"

    def __str__(self) -> str:
        return f"ratio {self.ratio:.12g}, dual bound {self.dual_bound:.12g}, multiplier {self.dual:.6g} ({self.evidence})"


def solve_convex(
    P: ArrayLike,
    action: int,
    divergence: str | FDivergence = "kl",
    delta: float = 0.05,
    side: str = "upper",
    *,
    conic: Conic | None = None,
) -> ConvexSolution:
    """Solve `max` (side "upper") or `min` ("lower") of `Q_a/P_a` over policies with `Σ P_i f(Q_i/P_i) ≤ δ`.

    For a monotone function of an f-divergence, such as Rényi's, `δ` is its own radius.

    Args:
        P: old policy, shape (n,), n ≥ 2, each at least SMALLEST_PROBABILITY (strictly positive: 0 is refused), with sum 1
            within 1e-9 (it is renormalised).
        action: the token a, 0 ≤ a < n.
        divergence: an FDivergence, a catalogue name or an expression in u.
        delta: radius δ ≥ 0 in nats.
        side: "upper" or "lower".
        conic: for a generator that cannot be translated: takes a cvxpy expression of ratios, shape (n,), and returns the convex
            expression `f` of it, elementwise. The answer is verified against the generator of `divergence`, not against this.
            Programs are cached by this function: define it once, not in a loop.

    Returns:
        A ConvexSolution with status "optimal" or "inaccurate"; see there for what each claims.

    Raises:
        ValueError: an argument outside the above.
        ConvexUnavailable: the generator has no disciplined convex form and `conic` is missing or not convex.
        ConvexError: no solver returned a point.
    """
    started = time.perf_counter()
    policy = _checked_policy(P)
    _check_rest(policy.size, action, delta, side)
    if not (conic is None or callable(conic)):
        raise ValueError(f"conic = {conic!r} is not a function from a cvxpy expression of ratios to a convex one")
    f = as_divergence(divergence)
    with _ONE_AT_A_TIME:
        enclosure = Enclosure(policy, int(action), float(delta), 1 if side == "upper" else -1, f)
        best = _best(enclosure, conic)
    return replace(best, seconds=time.perf_counter() - started)


def _best(enclosure: Enclosure, conic: Conic | None) -> ConvexSolution:
    """The first attempt that is optimal after verification, or the one with the smallest gap."""
    size = enclosure.size(max(enclosure.radius, SMALL_RADIUS))
    best: ConvexSolution | None = None
    log: list[str] = []
    attempts = list(_ATTEMPTS)
    while attempts:
        near_zero = [attempt for attempt in attempts if attempt.near_zero] if best and best.ratio < NEAR_ZERO else []
        attempt = (near_zero or attempts)[0]
        attempts.remove(attempt)
        answer = _solve(enclosure, size, attempt, conic, best.ratio if best else size.ratio)
        if isinstance(answer, str):
            log.append(f"{attempt.solver}: {answer}")
            continue
        found = _verified(enclosure, answer, attempt.solver)
        claimed = answer.masses[enclosure.action] / enclosure.P[enclosure.action]
        log.append(f"{attempt.solver}: {answer.status}, ratio {claimed:.12g} unverified, gap {found.gap:.1e} verified")
        if best is None or found.gap < best.gap:
            best = found
        if best.status == "optimal":
            break
    if best is None:
        where = f"{enclosure.divergence.name!r}, radius {enclosure.radius}, action {enclosure.action}"
        raise ConvexError(f"no solver returned a point for {where}: {'; '.join(log)}")
    return replace(best, attempts=tuple(log))


def _checked_policy(P: ArrayLike) -> Array:
    try:
        policy = np.array(P, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"P must be an array of probabilities: {error}") from None
    if policy.ndim != 1 or policy.size < 2:
        raise ValueError(f"P must be one-dimensional with at least 2 tokens, got shape {policy.shape}")
    bad = np.flatnonzero(~(np.isfinite(policy) & (policy >= SMALLEST_PROBABILITY)))
    if bad.size:
        raise ValueError(f"P[{bad[0]}] is {policy[bad[0]]}; every probability must be a number ≥ {SMALLEST_PROBABILITY}")
    total = math.fsum(policy)
    if abs(total - 1) > 1e-9:
        raise ValueError(f"P sums to {total!r}; it must sum to 1 within 1e-9")
    return policy / total


def _check_rest(n: int, action: object, delta: object, side: object) -> None:
    if isinstance(action, bool) or not isinstance(action, int | np.integer) or not 0 <= action < n:
        raise ValueError(f"action is {action!r}; it must be an integer from 0 to {n - 1}")
    if isinstance(delta, bool) or not isinstance(delta, int | float | np.integer | np.floating) or not 0 <= delta < math.inf:
        raise ValueError(f"delta is {delta!r}; it must be a finite number ≥ 0")
    if side not in ("upper", "lower"):
        raise ValueError(f"side is {side!r}; it must be 'upper' or 'lower'")


@dataclass(frozen=True)
class _Answer:
    """What a solver returned: masses Q, shape (n,), its multipliers in units of the ratio, and its own status."""

    masses: Array
    multiplier: float
    price: float
    status: str


def _solve(problem: Enclosure, size: Size, attempt: _Attempt, conic: Conic | None, reached: float) -> _Answer | str:
    """One solver run with variables in units of the expected `size` (mass, divergence); or why there is no point.

    Unscaled, a token with P = 1e-8 has ratios up to 1e8 beside others near 1, and interior points stall. `reached` is the
    ratio of the best earlier run, at first the one expected.
    """
    P, a = problem.P, problem.action
    move, spent, _ = size
    expected = np.full(P.size, move / (1 - P[a]))  # |R − 1|, up to a factor of 2
    expected[a] = move / P[a]
    base, scale = np.ones(P.size), expected * P**-attempt.balance
    base[a], scale[a] = (0, max(reached, SMALL_RATIO)) if attempt.near_zero and reached < 0.1 else (1, expected[a])
    values = {
        "base": base,
        "scale": scale,
        "floor": (np.maximum(0, 1 - attempt.box * expected) - base) / scale,
        "ceiling": (1 + attempt.box * expected - base) / scale,
        "objective": problem.sign * (np.arange(P.size) == a),
        "height": spent / P,
        "budget": min(max(problem.radius, SMALL_RADIUS) / spent, 100),
        "mass": P * scale / move,
        "rest": P[a] * (1 - base[a]) / move,
    }
    point = compiled(problem.divergence, P.size, conic, attempt.boxed).solve(values, attempt.solver, attempt.options)
    if isinstance(point, str):
        return point
    masses = np.maximum(P * (base + scale * point.x), 0)
    multiplier, price = (part * float(scale[a]) for part in (point.radius_multiplier, point.total_multiplier))
    return _Answer(masses, multiplier / spent, price / move, point.status)


def _verified(problem: Enclosure, answer: _Answer, solver: str) -> ConvexSolution:
    """The enclosure that the solver's point and multipliers give, and the status that it deserves."""
    policy, divergence = problem.to_the_edge(answer.masses, answer.multiplier)
    ratio = float(policy[problem.action] / problem.P[problem.action])
    dual, bound = problem.dual_bound(policy, answer.multiplier, answer.price)
    gap = abs(bound - ratio) / max(ratio, SMALL_RATIO)
    status = "optimal" if gap <= TOLERANCE else "inaccurate"
    return ConvexSolution(ratio, policy, dual, bound, gap, status, solver, seconds=0.0, divergence=divergence)
