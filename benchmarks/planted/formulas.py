"""Bounds written the way papers and first drafts have them: in probabilities, with eps, with a fixed number of steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.planted.fault import Floats, LogBounds, Mutation

Ratio = Callable[[Floats, float], Floats]  # (p, δ) ↦ ratio


def formula(lower: Ratio | None = None, upper: Ratio | None = None) -> Mutation:
    """Ratios from p = exp(log p), their logarithms taken; a side that is not given stays right."""

    def mutation(right: LogBounds) -> LogBounds:
        def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
            low, high = right(logp, delta)
            with np.errstate(all="ignore"):
                p = np.exp(logp)
                return np.log(lower(p, delta)) if lower else low, np.log(upper(p, delta)) if upper else high

        return bounds

    return mutation


def kl_divergence(p: Floats, q: Floats) -> Floats:
    """The two-outcome KL(P‖Q) with an eps inside each logarithm's denominator."""
    tiny = 1e-300
    return p * np.log(p / (q + tiny)) + (1 - p) * np.log((1 - p + tiny) / (1 - q + tiny))


def bisection(steps: int, tolerance: float = 0.0, step_by_ratio: bool = False) -> Mutation:
    """Bisection of the two-outcome KL in q = p r, all in float64.

    Args:
        steps: halvings of [p, 1] and of [0, p].
        tolerance: stop once the whole bracket is below it; absolute, in q.
        step_by_ratio: bisect [1, 1/p] in the ratio instead.
    """

    def half(p: Floats, delta: float, end: Floats) -> Floats:
        near, far = p.copy(), np.broadcast_to(end, p.shape).copy()
        for _ in range(steps):
            middle = (near + far) / 2
            inside = kl_divergence(p, middle) <= delta
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
            if np.max(np.abs(far - near)) < tolerance:
                break
        return (near + far) / 2 if tolerance else near

    return formula(lambda p, delta: half(p, delta, np.zeros(1)) / p, lambda p, delta: half(p, delta, np.ones(1)) / p)


def newton(steps: int) -> Mutation:
    """So many Newton steps for `−p log r − (1 − p) log c = δ` (kl) from the leading order of small radii."""

    def half(p: Floats, delta: float, sign: int) -> Floats:
        r = 1 + sign * np.sqrt(2 * delta * (1 - p) / p)
        r = np.clip(r, 1e-3, (1 - 1e-3 * (1 - p)) / p)
        for _ in range(steps):
            c = (1 - r * p) / (1 - p)
            g = -p * np.log(r) - (1 - p) * np.log(c) - delta
            r = np.clip(r - g / (p / c - p / r), 1e-6 * r, r + (1 / p - r) / 2)
        return r

    return formula(lambda p, delta: half(p, delta, -1), lambda p, delta: half(p, delta, 1))


def first_order(curvature: float) -> Mutation:
    """`r = 1 ± sqrt(2 δ (1 − p)/(p f''(1)))` for every radius, cut at the ends of the simplex."""

    def move(p: Floats, delta: float) -> Floats:
        return np.sqrt(2 * delta * (1 - p) / (p * curvature))

    return formula(lambda p, d: np.maximum(1 - move(p, d), 0), lambda p, d: np.minimum(1 + move(p, d), 1 / p))


def tv_textbook(p: Floats, delta: float) -> Floats:
    """`min(1 + δ/p, 1/p)`, whose logarithm has no digits left for small δ."""
    return np.minimum(1 + delta / p, 1 / p)


def vajda_move(k: float, first: float = 1.0, second: float = 1.0) -> Ratio:
    """`(δ/(first·p + second·pᵏ (1 − p)^{1−k}))^{1/k}`."""
    return lambda p, delta: (delta / (first * p + second * p**k * (1 - p) ** (1 - k))) ** (1 / k)


def within_simplex(move: Ratio) -> Mutation:
    """`1 ± move`, cut at the ends of the simplex."""
    return formula(lambda p, d: np.maximum(1 - move(p, d), 0), lambda p, d: np.minimum(1 + move(p, d), 1 / p))


def neyman_roots(p: Floats, delta: float, sign: int) -> Floats:
    """`p (1 + δ) r² − (2p + δ) r + p = 0`, by the formula taught at school."""
    return (2 * p + delta + sign * np.sqrt(delta**2 + 4 * p * delta * (1 - p))) / (2 * p * (1 + delta))


def le_cam_roots(p: Floats, delta: float, sign: int) -> Floats:
    """`p (2 + δ) r² − (4p + 2δ (1 − p)) r + 2p − δ (2 − p) = 0`, by the formula taught at school."""
    a, b, c = p * (2 + delta), -(4 * p + 2 * delta * (1 - p)), 2 * p - delta * (2 - p)
    return np.clip((-b + sign * np.sqrt(np.maximum(b * b - 4 * a * c, 0))) / (2 * a), 0, 1 / p)


def hellinger_angle(p: Floats, delta: float, sign: int, wraps: bool) -> Floats:
    """`q = cos²(θ ∓ a)`, `p = cos²θ`, `cos a = 1 − δ/2`; without a clamp the angle runs past the end and q comes back."""
    angle = np.arctan2(np.sqrt(1 - p), np.sqrt(p)) - sign * np.arccos(np.clip(1 - delta / 2, -1, 1))
    return np.cos(angle if wraps else np.clip(angle, 0, np.pi / 2)) ** 2 / p


def hockey_stick(gamma: float, upper_gamma: float | None = None, lower_gamma: float | None = None) -> Mutation:
    """`min(γ + δ/p, 1/p)` and `max((1 − δ − γ (1 − p))/p, 0)`, with another γ on a side that is given one."""
    high = gamma if upper_gamma is None else upper_gamma
    low = gamma if lower_gamma is None else lower_gamma
    return formula(
        lambda p, d: np.clip((1 - d - low * (1 - p)) / p, 0, 1),
        lambda p, d: np.minimum(high + d / p, 1 / p),
    )
