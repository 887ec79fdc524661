"""The control group: right bounds that share no code with the library's, or differ from them by less than is promised.

A suite that flags one of these raises a false alarm. Closed forms are those of the theory, in 60 digits; the others are
bisections in the log-odds `z = log(r/c)`, in which `1/r = p + (1 − p) e^−z` and `1/c = 1 − p + p e^z` do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from benchmarks.planted.fault import Fault, Floats, LogBounds, Trial, library
from benchmarks.planted.mutations import log_rest

Exact = Any  # mpmath.mpf, which has no annotations
Ratios = Callable[[Exact, Exact, Exact], tuple[Exact, Exact]]  # (p, 1 − p, δ) ↦ (lower − 1, upper − 1)


def in_sixty_digits(ratios: Ratios, divergence: str) -> LogBounds:
    """Log-bounds from ratios less 1, token by token; a lower bound at or below 0 becomes −inf, an upper one is cut at 1/p.

    Arrays of more than 100 tokens take the library's path, which is quicker and, to the promised accuracy, the same.
    """

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        if logp.size > 100:
            return library(divergence)(logp, delta)
        sides = np.empty((2, logp.size))
        with mpmath.workdps(60):
            for i, x in enumerate(logp.tolist()):
                p, rest = mpmath.exp(x), -mpmath.expm1(x)
                low, high = ratios(p, rest, mpmath.mpf(delta))
                sides[0, i] = mpmath.log1p(low) if low > -1 else -np.inf
                sides[1, i] = mpmath.log1p(high) if p * high < rest else -x
        return sides[0], sides[1]

    return bounds


def either_way(move: Callable[[Exact, Exact, Exact], Exact]) -> Ratios:
    """`r = 1 ± move(p, 1 − p, δ)`."""

    def ratios(p: Exact, rest: Exact, delta: Exact) -> tuple[Exact, Exact]:
        distance = move(p, rest, delta)
        return -distance, distance

    return ratios


def vajda(k: int | str) -> Ratios:
    """`(δ/(p + pᵏ (1 − p)^{1−k}))^{1/k}`."""
    exponent = mpmath.mpf(k)
    return either_way(lambda p, rest, d: (d / (p + p**exponent * rest ** (1 - exponent))) ** (1 / exponent))


def hellinger(p: Exact, rest: Exact, delta: Exact) -> tuple[Exact, Exact]:
    """`p = cos²θ`, `q = cos²(θ ∓ a)` with `cos a = 1 − δ/2`, so `q − p = ± sin a sin(2θ ∓ a)` inside [0, π/2]."""
    theta, other = mpmath.atan2(mpmath.sqrt(rest), mpmath.sqrt(p)), mpmath.atan2(mpmath.sqrt(p), mpmath.sqrt(rest))
    angle = 2 * mpmath.asin(mpmath.sqrt(delta) / 2) if delta < 4 else mpmath.pi
    high = mpmath.sin(angle) * mpmath.sin(2 * theta - angle) / p if angle < theta else mpmath.inf
    low = -mpmath.sin(angle) * mpmath.sin(2 * theta + angle) / p if angle < other else -mpmath.inf
    return low, high


def le_cam(p: Exact, rest: Exact, delta: Exact) -> tuple[Exact, Exact]:
    """With `v = r − 1`: `p (2 + δ) v² − 2δ (1 − 2p) v − 4δ (1 − p) = 0`, whose roots have opposite signs."""
    a, half, c = p * (2 + delta), -delta * (1 - 2 * p), -4 * delta * rest
    root = mpmath.sqrt(half**2 - a * c)
    if half < 0:
        return c / (root - half), (root - half) / a
    return (-half - root) / a, -c / (half + root)


def hockey_stick(gamma: int) -> Ratios:
    """`upper = γ + δ/p`, `lower = (1 − δ − γ (1 − p))/p`."""
    return lambda p, rest, d: ((1 - d - gamma * rest) / p - 1, gamma + d / p - 1)


def bisection(f: Callable[[Floats], Floats]) -> LogBounds:
    """Both bounds by 64 halvings in log z, for a generator with f(0) = ∞ given as `x ↦ f̃(e^x)`, accurate near 0.

    The lower bound of p is `log c` of the upper bound of 1 − p.
    """

    def ratios(logp: Floats, rest: Floats, log_z: Floats) -> tuple[Floats, Floats]:
        z = np.exp(log_z)
        gap = np.log(-np.expm1(-z))
        step_r, step_c = np.exp(rest + gap), np.exp(logp + z + gap)  # 1 − 1/r and 1/c − 1
        log_r = -np.where(step_r < 0.5, np.log1p(-step_r), np.logaddexp(logp, rest - z))
        log_c = -np.where(step_c < 1, np.log1p(step_c), np.logaddexp(rest, logp + z))
        return log_r, log_c

    def half(logp: Floats, rest: Floats, delta: float) -> tuple[Floats, Floats]:
        low, high = np.full(logp.size, -420.0), np.full(logp.size, 709.0)
        for _ in range(64):
            middle = (low + high) / 2
            log_r, log_c = ratios(logp, rest, middle)
            inside = np.exp(logp) * f(log_r) + np.exp(rest) * f(log_c) <= delta
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        return ratios(logp, rest, low)

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        rest = log_rest(logp)
        with np.errstate(all="ignore"):
            return half(rest, logp, delta)[1], half(logp, rest, delta)[0]

    return bounds


def neyman(logp: Floats, delta: float) -> tuple[Floats, Floats]:
    """`v = r − 1`: `p (1 + δ) v² − δ (1 − 2p) v − δ (1 − p) = 0`, each root by the form that does not cancel, in float64."""
    p, rest = np.exp(logp), -np.expm1(logp)
    with np.errstate(all="ignore"):
        tilt = delta * (rest - p)
        root = np.sqrt(delta * (4 * p * rest + delta))  # (1 − 2p)² δ² + 4 p (1 + δ) δ (1 − p), with δ² (1 − 4p(1 − p)) joined
        high = np.where(tilt > 0, (tilt + root) / (2 * p * (1 + delta)), 2 * delta * rest / (root - tilt))
        upper = np.where(high > 1e300, np.log((tilt + root) / (2 * (1 + delta))) - logp, np.log1p(high))
        # lower · upper = 1/(1 + δ): a sum of two logarithms of one sign each, which cancels where upper is next to 1 + δ …
        low = np.where(tilt > 0, -2 * delta * rest / (tilt + root), (tilt - root) / (2 * p * (1 + delta)))
        lower = np.where(low > -0.9, np.log1p(low), -np.log1p(delta) - upper)  # … and is used where it is not
    return lower, upper


def neighbours(right: LogBounds) -> LogBounds:
    """The next doubles outwards."""

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        lower, upper = right(logp, delta)
        return np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)

    return bounds


def within_promise(right: LogBounds) -> LogBounds:
    """Relative errors of 5e-11, half of what is promised."""

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        lower, upper = right(logp, delta)
        return lower * (1 - 5e-11), upper * (1 - 5e-11)

    return bounds


def beyond_range(right: LogBounds) -> LogBounds:
    """Wrong for log p < −700 and for δ > 100, of which nothing is promised."""

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        lower, upper = right(logp, delta)
        return lower, np.where((logp < -700) | (delta > 100), 0.0, upper)

    return bounds


def one_at_a_time(right: LogBounds) -> LogBounds:
    """A call for each token of a short array, and one for a long one."""

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        if logp.size > 100:
            return right(logp, delta)
        columns = [right(np.array([x]), delta) for x in logp]
        return np.concatenate([c[0] for c in columns]), np.concatenate([c[1] for c in columns])

    return bounds


def _kl(x: Floats) -> Floats:
    """`e^x − 1 − x`, by its series near 0: the generator −log u tilted to its minimum at 1."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7 * (1 + x / 8))))))
    return np.where(np.abs(x) < 1e-2, series, np.expm1(x) - x)


def _control(divergence: str, what: str, bounds: LogBounds, why: str) -> Fault:
    return Fault(f"{divergence}, right: {what}", "control", divergence, "nothing", why, lambda: Trial(divergence, bounds))


def _exact(divergence: str, what: str, ratios: Ratios) -> Fault:
    return _control(divergence, f"{what} in 60 digits", in_sixty_digits(ratios, divergence), _INDEPENDENT)


_INDEPENDENT = "written from the theory alone"
CONTROLS = (
    _exact("tv", "closed form", either_way(lambda p, rest, d: d / p)),
    _exact("pearson_chi2", "closed form", either_way(lambda p, rest, d: mpmath.sqrt(d * rest / p))),
    _exact("vajda:1.5", "closed form", vajda("1.5")),
    _exact("vajda:3", "closed form", vajda(3)),
    _exact("squared_hellinger", "angles", hellinger),
    _exact("le_cam", "closed form", le_cam),
    _exact("hockey_stick:2", "closed form", hockey_stick(2)),
    _control("neyman_chi2", "quadratic in float64", neyman, _INDEPENDENT),
    _control("kl", "bisection in float64", bisection(_kl), _INDEPENDENT),
    _control("jeffreys", "bisection in float64", bisection(lambda x: np.expm1(x) * x), _INDEPENDENT),
    _control("symmetric_chi2", "bisection in float64", bisection(lambda x: np.expm1(x) ** 2 * (1 + np.exp(-x))), _INDEPENDENT),
    _control("reverse_kl", "half of the allowed error", within_promise(library("reverse_kl")), "the promise is 1e-10"),
    _control("alpha:-0.5", "neighbouring doubles", neighbours(library("alpha:-0.5")), "rounding upwards"),
    _control("jensen_shannon", "wrong outside the range", beyond_range(library("jensen_shannon")), "nothing is promised there"),
    _control("renyi:3", "one token at a time", one_at_a_time(library("renyi:3")), "a loop instead of arrays"),
    _control("alpha:3", "half of the allowed error", within_promise(library("alpha:3")), "the promise is 1e-10"),
)
