"""The laws of a band: each theorem that is a property, as one function of a subject and the inputs it is tried on.

A law returns by how much the subject misses it (0 or more, in the unit its property states) and raises a violation where that
is too much. A claimed log-bound y stands for the interval `y (1 ± tolerance)`; a law fails only if no values in the intervals
could satisfy it, so a subject with the promised accuracy passes however badly the comparison itself is conditioned.

`F(δ)` is the radius of `D_f` that δ stands for: δ itself for an f-divergence, another for a monotone function of one (Rényi).
"""

from __future__ import annotations

import mpmath
import numpy as np
from hypothesis import assume

from bandtheory.evidence.definition import LOG_OVERFLOW, Number, log_rest, precisely
from bandtheory.evidence.strategies import LARGEST_RADIUS, SMALLEST_RADIUS
from bandtheory.evidence.subject import Subject, interval
from bandtheory.evidence.wording import differing, expected_and_got

LIMIT_TOLERANCE = 1e-9
ONE_MORE = 1 + 1e-15  # allowance for the order of nearly equal doubles


@precisely
def order(subject: Subject, logp: float, delta: float) -> float:
    """`lower ≤ 1 ≤ upper ≤ 1/p`."""
    lower, upper = subject.token(logp, delta)
    rows = [("got", f"log lower = {lower!r}, log upper = {upper!r}, log(1/p) = {-logp!r}")]
    if not lower <= 0 <= upper:
        subject.fail("lower ≤ 1 ≤ upper", [logp], delta, rows)
    excess = max(0.0, float((mpmath.mpf(upper) + logp) / -mpmath.mpf(logp)))
    if excess > subject.tolerance:
        subject.fail("upper ≤ 1/p: no probability is above 1", [logp], delta, rows)
    return excess


def upper(subject: Subject, logp: float, delta: float) -> float:
    """`upper` is the largest r with g(p, r) ≤ F(δ)."""
    return _is_the_boundary(subject, logp, delta, "upper", subject.token(logp, delta)[1])


def lower(subject: Subject, logp: float, delta: float) -> float:
    """`lower` is the smallest r with g(p, r) ≤ F(δ)."""
    return _is_the_boundary(subject, logp, delta, "lower", subject.token(logp, delta)[0])


@precisely
def _is_the_boundary(subject: Subject, logp: float, delta: float, side: str, claimed: float) -> float:
    """g ≤ F(δ) just inside the claim and g > F(δ) just outside, both at the tolerance in log r; the relative error in between.

    The residual g − F(δ) itself says nothing where a lower bound is about to reach 0: g hardly depends on r there.
    """
    sign = 1 if side == "upper" else -1

    def excess(log_ratio: Number) -> Number:
        return subject.truth.excess(logp, log_ratio, delta)

    if sign * claimed < 0:
        _refuse(subject, logp, delta, side, claimed, f"{side} is on its side of 1")
    if claimed == -np.inf:  # 0, or below what float64 holds
        if subject.truth.holds(logp, -mpmath.inf, delta):
            return 0.0
        inside, outside = excess(-LOG_OVERFLOW), mpmath.inf
    else:
        step = mpmath.mpf(claimed) * mpmath.mpf(subject.tolerance)
        inside, outside = excess(claimed - step), excess(claimed + step)
        if claimed == 0:  # only the point 1 is claimed: nothing is just inside, and tolerance² is just outside
            outside = excess(sign * mpmath.mpf(subject.tolerance) ** 2 * min(-mpmath.mpf(logp), 1))
    equation = f"g(p, {side}) = {_radius_in_words(subject)}"
    if inside > 0:
        _refuse(subject, logp, delta, side, claimed, f"{equation}: the claimed bound is outside the band")
    if outside <= 0:
        _refuse(subject, logp, delta, side, claimed, f"{equation}: the claimed bound leaves a part of the band out")
    if not mpmath.isfinite(outside):
        return max(0.0, float((claimed + mpmath.mpf(logp)) / -mpmath.mpf(logp))) if side == "upper" else 0.0
    zero = -inside / (outside - inside)  # g is nearly straight between the two points
    return float(abs(2 * zero - 1) * subject.tolerance)


def _refuse(subject: Subject, logp: float, delta: float, side: str, claimed: float, statement: str) -> None:
    def rows() -> list[tuple[str, str]]:
        value = subject.truth.g(logp, claimed)
        radius, reached = differing(subject.truth.radius(delta), value)
        at = "outside the simplex" if value == mpmath.inf else f"g = {reached}, {_radius_in_words(subject)} = {radius}"
        return [*expected_and_got(f"log {side}", subject.truth.bound(logp, delta, side), claimed), ("there", at)]

    subject.fail(statement, [logp], delta, rows)


def _radius_in_words(subject: Subject) -> str:
    return "δ" if subject.divergence.radius == "delta" else "F(δ)"


@precisely
def saturation(subject: Subject, logp: float, side: str, digits: int, above: bool) -> float:
    """`upper = 1/p` iff `p f(1/p) + (1 − p) f(0) ≤ F(δ)`; `lower = 0` iff `p f(0) + (1 − p) f(1/(1 − p)) ≤ F(δ)`.

    Tried at radii that differ from this level by 10^−digits of it, on either side.
    """
    level = subject.truth.level(logp, side)
    assume(mpmath.isfinite(level))
    delta = float(level * (1 + (1 if above else -1) * mpmath.mpf(10) ** -digits))
    assume(SMALLEST_RADIUS <= delta <= LARGEST_RADIUS)
    claimed = subject.token(logp, delta)[side == "upper"]
    saturated = subject.truth.holds(logp, -mpmath.mpf(logp) if side == "upper" else -mpmath.inf, delta)
    end = "1/p" if side == "upper" else "0"

    def rows() -> list[tuple[str, str]]:
        expected = subject.truth.bound(logp, delta, side)
        level_text, delta_text = differing(level, delta)
        return [*expected_and_got(f"log {side}", expected, claimed), ("level", f"{level_text}, δ = {delta_text}")]

    reaches = abs(claimed + logp) <= subject.tolerance * -logp if side == "upper" else claimed == -np.inf
    if saturated and not reaches:
        subject.fail(f"{side} = {end} since δ reaches the saturation level", [logp], delta, rows)
    if side == "lower" and not saturated and reaches:
        subject.fail("lower > 0 since δ is below the saturation level", [logp], delta, rows)
    return _is_the_boundary(subject, logp, delta, side, claimed)


@precisely
def mirror(subject: Subject, logp: float, delta: float) -> float:
    """`p lower(p) + (1 − p) upper(1 − p) = 1` and the same with the roles exchanged.

    `1 − p` is rounded to a double m; `log(1 − m)` is then not a double, and the two next to it enclose its bounds (theorem 3).
    """
    other = float(log_rest(mpmath.mpf(logp)))
    exact = log_rest(mpmath.mpf(other))
    below, above = np.nextafter(float(exact), -np.inf), min(float(np.nextafter(float(exact), 0)), -5e-324)
    claims = subject.tokens([float(below), float(above), other], delta)
    (low_below, up_below), (low_above, up_above), (low_other, up_other) = claims

    def complement(log_ratio: Number) -> Number:
        """`log c` of `c = (1 − r m)/(1 − m)`."""
        left = log_ratio + other
        return -mpmath.inf if left >= 0 else log_rest(left) - exact

    worst = mpmath.mpf(0)
    for side, claim, first, last in (("lower", up_other, low_below, low_above), ("upper", low_other, up_above, up_below)):
        least, most = sorted(complement(end) for end in interval(subject, claim))
        low, high = interval(subject, first)[0], interval(subject, last)[1]
        opposite = "upper" if side == "lower" else "lower"
        if least > high or most < low:
            rows = expected_and_got(f"log {side}({mpmath.nstr(mpmath.exp(exact), 5)})", complement(mpmath.mpf(claim)), first)
            note = ("since", f"log {opposite} = {claim!r} at logp = {other!r}")
            subject.fail("p lower(p) + (1 − p) upper(1 − p) = 1", [float(below), other], delta, [*rows, note])
        width = high - low + most - least
        if mpmath.isfinite(width) and width > 0:
            worst = max(worst, abs(complement(mpmath.mpf(claim)) - first) / width)
    return float(worst)


@precisely
def shape_in_p(subject: Subject, pair: tuple[float, float], delta: float) -> float:
    """`upper` is non-increasing and `lower` non-decreasing in p; the masses `p upper` and `p lower` are non-decreasing.

    The second half is the same convexity: at fixed q = p r, `∂g/∂p = f*(f'(c)) − f*(f'(r))` has the sign of c − r.
    """
    claims = subject.tokens(pair, delta)
    at = [[interval(subject, bound) for bound in claim] for claim in claims]
    shift = mpmath.mpf(pair[1]) - pair[0]
    worst = mpmath.mpf(0)
    for name, k, sign, move in (
        ("upper is non-increasing in p", 1, -1, 0),
        ("lower is non-decreasing in p", 0, 1, 0),
        ("p upper is non-decreasing in p", 1, 1, shift),
        ("p lower is non-decreasing in p", 0, 1, shift),
    ):
        (low0, high0), (low1, high1) = at[0][k], at[1][k]
        gap = low0 - high1 - move if sign > 0 else low1 - high0 + move
        if gap > abs(move) * mpmath.mpf(10) ** -40:
            what = "log upper" if k else "log lower"
            rows = [("got", f"{what} = {claims[0][k]!r}, then {claims[1][k]!r}")]
            subject.fail(name, pair, delta, rows)
        rise = sign * (mpmath.mpf(claims[0][k]) - claims[1][k] - (move if sign > 0 else 0))
        width = high0 - low0 + high1 - low1
        if mpmath.isfinite(width) and width > 0:
            worst = max(worst, 2 * rise / width)
    return float(worst)


@precisely
def shape_in_delta(subject: Subject, logp: float, deltas: tuple[float, float, float]) -> float:
    """`upper` is non-decreasing and concave in F(δ), the radius of D_f, `lower` non-increasing and convex."""
    claims = [subject.token(logp, delta) for delta in deltas]
    d, radius = [subject.truth.radius(delta) for delta in deltas], _radius_in_words(subject)
    assume(d[0] < d[2])
    weight = (d[1] - d[0]) / (d[2] - d[0])
    worst = mpmath.mpf(0)
    for k, sign, monotone, curved in ((1, 1, "non-decreasing", "concave"), (0, -1, "non-increasing", "convex")):
        name = "upper" if k else "lower"
        moves = []  # distance of the ratio from 1, with the interval that the claim stands for
        for claim in claims:
            ends = sorted(sign * mpmath.expm1(end) for end in interval(subject, claim[k]))
            moves.append((ends[0], sign * mpmath.expm1(claim[k]), ends[1]))
        values = ", ".join(repr(claim[k]) for claim in claims)
        rows = [("got", f"log {name} = {values}"), ("for", f"delta = {', '.join(map(repr, deltas))}")]
        for i in (0, 1):
            if moves[i][0] > moves[i + 1][2] * ONE_MORE:
                subject.fail(f"{name} is {monotone} in {radius}", [logp], deltas[i], rows)
        chord = [(1 - weight) * moves[0][j] + weight * moves[2][j] for j in range(3)]
        if chord[0] > moves[1][2]:
            subject.fail(f"{name} is {curved} in {radius}", [logp], deltas[1], rows)
        width = moves[1][2] - moves[1][0] + chord[2] - chord[0]
        if width > 0:
            worst = max(worst, 2 * (chord[1] - moves[1][1]) / width)
    return float(worst)


@precisely
def limit_at_zero(subject: Subject, delta: float) -> float:
    """p → 0: `q = p upper` solves `q f'(∞) + f(1 − q) = F(δ)`; where `f'(∞) = ∞`, q → 0, but slower than p."""
    tokens = (-350.0, -700.0)
    uppers = [mpmath.mpf(claim[1]) for claim in subject.tokens(tokens, delta)]
    masses = [upper + x for upper, x in zip(uppers, tokens, strict=True)]
    truth = subject.truth
    rows = [("got", f"log upper = {float(uppers[0])!r} at logp = {tokens[0]}, {float(uppers[1])!r} at logp = {tokens[1]}")]
    if not mpmath.isfinite(truth.recession):
        saturated = truth.holds(tokens[1], -tokens[1], delta)
        if not saturated and masses[1] >= masses[0]:
            subject.fail("p upper → 0 for p → 0 since f'(∞) = ∞", tokens, delta, rows)
        if uppers[1] <= uppers[0]:
            subject.fail("upper → ∞ for p → 0", tokens, delta, rows)
        return 0.0
    limit = truth.limit(delta)
    mass = mpmath.log(-mpmath.expm1(limit))
    rows = [*expected_and_got("log(p upper)", mass, masses[1]), *rows]
    statement = f"p upper → q with q f'(∞) + f(1 − q) = {_radius_in_words(subject)} for p → 0"
    return _reaches(subject, statement, mass, masses, uppers[1] * subject.tolerance, tokens, delta, rows)


@precisely
def limit_at_one(subject: Subject, delta: float) -> float:
    """p → 1: `lower` solves `f(r) + (1 − r) f'(∞) = F(δ)` (1 where `f'(∞) = ∞`), and `upper → 1`."""
    tokens = (-1e-150, -1e-300)
    lowers = [mpmath.mpf(claim[0]) for claim in subject.tokens(tokens, delta)]
    limit = subject.truth.limit(delta)
    rows = expected_and_got("log lower", limit, lowers[1])
    if not mpmath.isfinite(subject.truth.recession):
        if lowers[1] < 0 and lowers[1] <= lowers[0] and not subject.truth.holds(tokens[1], -mpmath.inf, delta):
            subject.fail("lower → 1 for p → 1 since f'(∞) = ∞", tokens, delta, rows)
        return 0.0
    statement = f"lower → r with f(r) + (1 − r) f'(∞) = {_radius_in_words(subject)} for p → 1"
    return _reaches(subject, statement, limit, lowers, -lowers[1] * subject.tolerance, tokens, delta, rows)


def _reaches(
    subject: Subject,
    statement: str,
    limit: Number,
    values: list[Number],
    slack: Number,
    tokens: tuple[float, float],
    delta: float,
    rows: list[tuple[str, str]],
) -> float:
    """The second value is the limit up to `slack`, or on the way: at most half as far from it as the first."""
    if abs(values[1] - limit) <= slack or values[1] == limit:
        return 0.0
    far, near = (abs(value / limit - 1) if limit else abs(value) for value in values)
    if near > LIMIT_TOLERANCE and not near <= far / 2:
        subject.fail(statement, tokens, delta, rows)
    return float(near)


@precisely
def small_radius(subject: Subject, logp: float, delta: float) -> float:
    """δ → 0: `r − 1 ≈ ± sqrt(2 F(δ) (1 − p)/(p f''(1)))`, with an error of the order of the next derivative of f."""
    truth = subject.truth
    assume(truth.curvature is not None)
    odds = mpmath.exp(logp) / -mpmath.expm1(logp)
    move = mpmath.sqrt(2 * truth.radius(delta) / (odds * truth.curvature))
    allowed = 2 * (1 + abs(truth.skewness / truth.curvature)) * max(move, move * odds)
    assume(allowed < 0.02)
    worst = mpmath.mpf(0)
    for name, sign, claimed in zip(("lower", "upper"), (-1, 1), subject.token(logp, delta), strict=True):
        share = abs(sign * mpmath.expm1(claimed) / move - 1) / allowed
        if share > 1:
            rows = expected_and_got(f"{name} - 1, to {mpmath.nstr(100 * allowed, 2)} %,", sign * move, mpmath.expm1(claimed))
            subject.fail(f"r − 1 ≈ ± sqrt(2 {_radius_in_words(subject)} (1 − p)/(p f''(1)))", [logp], delta, rows)
        worst = max(worst, share)
    return float(worst)
