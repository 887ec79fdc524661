"""Laws that hold a band against something else: other divergences, the n-token convex program and its Fenchel dual, and itself
in a longer array.

As in `laws`, each function returns by how much the subject misses, and raises a violation where that is too much.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np
from numpy.typing import NDArray

from bandtheory.divergence import FDivergence
from bandtheory.evidence.certificate import Certificate, certify
from bandtheory.evidence.convex import SMALL_RATIO, ConvexError, solve_convex
from bandtheory.evidence.definition import Unresolved, definition, precisely
from bandtheory.evidence.subject import Subject, interval
from bandtheory.evidence.wording import expected_and_got
from bandtheory.expressions import parse

CONVEX_TOLERANCE = 1e-9  # relative, beyond the verified enclosure; the input log p is only rounded, by 1e-16
ONE_MORE = 1 + 1e-15  # a radius rounded up

# Theorem 11: D_outer ≤ φ(D_inner), hence Band_inner(δ) ⊆ Band_outer(φ(δ)); (inner, outer, φ in words, φ).
_KL, _REVERSE_KL, _TV = "-log(u)", "u*log(u)", "abs(u - 1)/2"
_PEARSON, _HELLINGER, _LE_CAM = "(u - 1)**2", "(sqrt(u) - 1)**2", "(u - 1)**2/(u + 1)"
_JENSEN_SHANNON = "(u*log(2*u/(u + 1)) + log(2/(u + 1)))/2"
NESTINGS = (
    (_KL, _TV, "sqrt(δ/2), Pinsker", lambda d: mpmath.sqrt(d / 2)),
    (_REVERSE_KL, _TV, "sqrt(δ/2), Pinsker", lambda d: mpmath.sqrt(d / 2)),
    (_KL, _HELLINGER, "δ", lambda d: d),
    (_REVERSE_KL, _HELLINGER, "δ", lambda d: d),
    (_TV, _HELLINGER, "2 δ", lambda d: 2 * d),
    (_HELLINGER, _TV, "sqrt(δ (1 − δ/4))", lambda d: mpmath.sqrt(d * (1 - d / 4)) if d < 2 else mpmath.mpf(1)),
    (_HELLINGER, _LE_CAM, "2 δ", lambda d: 2 * d),
    (_LE_CAM, _HELLINGER, "δ", lambda d: d),
    (_PEARSON, _REVERSE_KL, "log(1 + δ)", mpmath.log1p),
    (_TV, _JENSEN_SHANNON, "δ log 2", lambda d: d * mpmath.log(2)),
)


@lru_cache(maxsize=128)
def nestings(divergence: FDivergence) -> tuple[int, ...]:
    """The rows of `NESTINGS` that speak about a divergence, recognised by its generator; none for another radius than δ."""
    if divergence.radius != "delta":
        return ()
    return tuple(i for i, row in enumerate(NESTINGS) if divergence.generator in (parse(row[0]), parse(row[1])))


@precisely
def nesting(subject: Subject, logp: float, delta: float, which: int) -> float:
    """An inequality `D_outer ≤ φ(D_inner)` nests the bands: `Band_inner(δ) ⊆ Band_outer(φ(δ))`."""
    rows = nestings(subject.divergence)
    inner, outer, words, radius = NESTINGS[rows[which % len(rows)]]
    statement = f"Band of f = {inner} at δ lies in that of f = {outer} at {words}"
    own, wide = subject.divergence.generator == parse(inner), radius(mpmath.mpf(delta))
    if own:
        partner = definition(FDivergence(outer, outer))
        for name, claimed in zip(("lower", "upper"), subject.token(logp, delta), strict=True):
            value = partner.g(logp, mpmath.mpf(claimed) * (1 - mpmath.mpf(subject.tolerance)))
            if value > wide * (1 + mpmath.mpf(10) ** -30):
                subject.fail(statement, [logp], delta, expected_and_got(f"D_outer at the {name} bound, at most,", wide, value))
        return 0.0
    partner, wide_radius = definition(FDivergence(inner, inner)), float(wide) * ONE_MORE
    claims = subject.token(logp, wide_radius)
    for side, sign, claimed in (("lower", -1, claims[0]), ("upper", 1, claims[1])):
        ends, needed = interval(subject, claimed), partner.bound(logp, delta, side)
        if sign * needed > sign * (ends[1] if sign > 0 else ends[0]):
            comparison = expected_and_got(f"log {side}, at {'least' if sign > 0 else 'most'},", needed, claimed)
            subject.fail(statement, [logp], wide_radius, comparison)
    return 0.0


def convex(subject: Subject, policy: NDArray[np.float64], action: int, delta: float, side: str) -> float:
    """The bound lies between a feasible policy of the n-token program and a dual bound of it.

    The program is that of `D_f` at the radius F(δ), rounded to float64.

    Raises:
        Unresolved: the solver's status is "inaccurate", it returned no point, or F(δ) is beyond float64.
        ConvexUnavailable: the generator has no conic form, and none was given.
    """
    action %= policy.size
    logp = float(np.log(policy[action]))
    claimed = subject.token(logp, delta)[side == "upper"]
    radius = delta
    f = subject.divergence
    if f.radius != "delta":
        f, radius = replace(f, radius="delta"), float(subject.truth.radius(delta))
    if not np.isfinite(radius):
        raise Unresolved(f"the radius of D_f at δ = {delta} is beyond float64")
    try:
        solution = solve_convex(policy, action, f, radius, side, conic=subject.conic)
    except (ConvexError, ArithmeticError) as error:  # numbers beyond what the solver or its verification can hold
        raise Unresolved(str(error)) from None
    if solution.status != "optimal":
        raise Unresolved(solution.evidence)
    ratio = float(np.exp(claimed)) if claimed <= 700 else np.inf
    ends = sorted((solution.ratio, solution.dual_bound))
    slack = CONVEX_TOLERANCE * max(solution.ratio, SMALL_RATIO)
    miss = max(float(ends[0]) - ratio, ratio - float(ends[1]), 0.0)
    if miss > slack:
        rows = [
            ("expected", f"{side} in [{ends[0]:.12g}, {ends[1]:.12g}], {solution.evidence}"),
            ("got", f"{side} = {ratio:.12g}"),
            ("policy", f"P = [{', '.join(f'{x:.6g}' for x in policy)}], action {action}"),
        ]
        subject.fail(f"{side} is the optimum of the {policy.size}-token convex program", [logp], delta, rows)
    return miss / max(solution.ratio, SMALL_RATIO)


def certificate(subject: Subject, logp: float, delta: float, side: str) -> float:
    """The claim is on the enclosed bound, and the Fenchel dual bound of theorem 1 does not cut it off.

    Raises:
        Unresolved: ball arithmetic leaves the verdict open.
    """
    claimed, sign = subject.token(logp, delta)[side == "upper"], 1 if side == "upper" else -1
    found = certify(logp, log_ratio=claimed, divergence=subject.divergence, delta=delta, side=side, tolerance=subject.tolerance)
    assert isinstance(found, Certificate)
    if found.verdict == "undecided":
        raise Unresolved(str(found))

    def refuse(statement: str, expected: float) -> None:
        subject.fail(statement, [logp], delta, expected_and_got(f"log {side}", expected, claimed))

    low, high = found.log_enclosure
    nearest = high if low == -np.inf or claimed > high else low
    if not found.holds:
        refuse(f"{side} is the bound that ball arithmetic encloses; the claim lies {found.verdict} the band", nearest)
    dual = found.log_dual_bound
    if sign * claimed * (1 - subject.tolerance) > sign * dual:
        refuse(f"{side} does not pass the Fenchel dual bound, λ = {found.multiplier:.6g}, ν = {found.price:.6g}", dual)
    return 0.0 if claimed == nearest else abs(claimed - nearest) / abs(nearest or 1.0)


def elementwise(subject: Subject, seed: int, size: int, delta: float) -> float:
    """A token's bounds do not depend on the tokens beside it: long arrays, which may take other paths, against one token."""
    rng = np.random.default_rng(seed)
    logp = -np.exp(rng.uniform(np.log(1e-6), np.log(700.0), size))
    logp[size // 2 :] = logp[rng.integers(0, size, size - size // 2)]  # some tokens are alike, as in any batch
    columns = subject.arrays(logp, delta)
    bad = np.flatnonzero(~((columns[0] <= 0) & (columns[1] >= 0)))
    picked = np.concatenate([bad[:1], rng.integers(0, size, 4)])
    worst = 0.0
    for i in picked:
        alone = subject.tokens([float(logp[i])], delta)[0]  # not from memory: the same call twice gives the same bounds
        for side, single, column in zip(("lower", "upper"), alone, columns, strict=True):
            value = float(column[i])
            error = 0.0 if value == single else abs(value - single) / abs(single) if single else np.inf
            if not error <= 2 * subject.tolerance:
                rows = expected_and_got(f"log {side}", single, value)
                extra = f", token {i} of {size} drawn with seed {seed}"
                subject.fail("a bound does not depend on the other tokens of the array", [float(logp[i])], delta, rows, extra)
            worst = max(worst, error)
    return worst
