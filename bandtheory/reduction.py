"""The scalar reduction of the band in log-odds coordinates, and its root.

By theorem 1 the band of a token of old probability p solves `g(p, r) = p f(r) + (1 − p) f(c) = δ` with
`p r + (1 − p) c = 1`. Everything here is written for the upper bound; the lower bound of p is the complement of the upper
bound of 1 − p (theorem 5), so one solver serves both.

The unknown is the increase of the log-odds `z = log(r/c) ≥ 0`. It gives both ratios without cancellation,

    1/r = p + (1 − p) e^{−z},     1/c = 1 − p + p e^{z},

and in terms of it `x = log r` and `y = log c` are accurate for every p in (0, 1), however close to either end. The equation
is solved as `log g = log δ` against `log z`, where it is close to a straight line in both extremes (`g ~ z²` and `g ~ z`).
The functions are written for an array namespace `xp` that is numpy or torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bandtheory.array_code import Array
from bandtheory.evaluation import Evaluator

MAX_ITERATIONS = 120
SMOOTH_STEP = 3e-8  # after a Newton step this short in z and in log z the error of a smooth equation is below 1e-14
LOG_Z_RANGE = (-420.0, 709.0)  # z from 1e-182 to 1e308


class Probability(NamedTuple):
    """A probability p and its complement, each with its logarithm, all four accurate."""

    log_p: Array
    log_not_p: Array
    p: Array
    not_p: Array

    @classmethod
    def from_log(cls, xp: Any, log_p: Array) -> Probability:
        """From `log p < 0`; the logarithm of the complement is taken where its argument is not rounded to 1."""
        p, not_p = xp.exp(log_p), -xp.expm1(log_p)
        return cls(log_p, xp.where(log_p > -0.7, xp.log(not_p), xp.log1p(-p)), p, not_p)

    def where(self, mask: Array) -> Probability:
        """The masked entries."""
        return Probability(*(field[mask] for field in self))

    def mirrored(self) -> Probability:
        return Probability(self.log_not_p, self.log_p, self.not_p, self.p)


class Step(NamedTuple):
    """What one evaluation at z yields: `log g − log δ`, its derivative by log z, and the two log-ratios."""

    residual: Array
    slope: Array
    log_r: Array
    log_c: Array
    q: Array
    not_q: Array


def softplus(xp: Any, a: Array) -> Array:
    """`log(1 + eᵃ)` without overflow."""
    return xp.where(a > 0, a, 0.0) + xp.log1p(xp.exp(-xp.abs(a)))


class Reduction:
    """The equation `log g(z) = log δ` of one divergence in one array namespace."""

    def __init__(self, evaluator: Evaluator, xp: Any = np) -> None:
        self.xp = xp
        self.evaluator = evaluator
        self.below = evaluator.below.code(xp)
        self.above = evaluator.above.code(xp)
        self.smooth = evaluator.smooth

    def step(self, prob: Probability, log_delta: Array, z: Array) -> Step:
        """Evaluate at z > 0. Shapes broadcast; all arrays of one dtype."""
        xp, (log_p, log_not_p, p, not_p) = self.xp, prob
        # 1/r − 1, in (−1, 0); log r from it, or from log 1/r = log p + log(1 + e^{log((1−p)/p) − z}) where it nears −1
        inverse_r_m1 = not_p * xp.expm1(-z)
        inverse_r = p + not_p * xp.exp(-z)
        far_r = log_p + softplus(xp, log_not_p - log_p - z)
        log_r = -xp.where(inverse_r_m1 > -0.5, xp.log1p(inverse_r_m1), far_r)
        # 1/c − 1, in (0, ∞); p eᶻ is formed in the exponent where either factor leaves the range of doubles
        growth = xp.where((z < 500) & (p > 1e-300), p * xp.expm1(z), xp.exp(log_p + z) * -xp.expm1(-z))
        far_c = log_not_p + softplus(xp, log_p - log_not_p + z)
        log_c = -xp.where(growth < 1, xp.log1p(growth), far_c)
        c = 1 / (1 + growth)
        c_m1 = xp.where(growth < 1, -growth * c, c - 1)

        log_above, above_slope = self.above(-log_r, inverse_r, inverse_r_m1)
        log_below, below_slope = self.below(log_c, c, c_m1)
        first, second = log_p + log_r + log_above, log_not_p + log_below
        log_g = xp.logaddexp(first, second)
        q, not_q = xp.exp(log_p + log_r), xp.exp(log_not_p + log_c)
        # a term that is 0 has weight 0, whatever its logarithmic slope
        above_part = xp.where(first > -np.inf, xp.exp(first - log_g) * not_q * (1 - above_slope), 0.0)
        below_part = xp.where(second > -np.inf, xp.exp(second - log_g) * q * below_slope, 0.0)
        return Step(log_g - log_delta, z * (above_part - below_part), log_r, log_c, q, not_q)

    def saturation(self, prob: Probability, log_delta: Array) -> Array:
        """`log g − log δ` at r = 1/p (theorem 6): the upper bound is 1/p where this is ≤ 0."""
        xp = self.xp
        if not np.isfinite(self.evaluator.value_at_zero):
            return xp.full_like(prob.log_p, np.inf)
        log_above, _ = self.above(prob.log_p, prob.p, -prob.not_p)
        at_zero = self.evaluator.value_at_zero
        log_at_zero = np.log(at_zero) if at_zero > 0 else -np.inf
        return xp.logaddexp(log_above, prob.log_not_p + log_at_zero) - log_delta

    def start(self, prob: Probability, log_delta: Array) -> Array:
        """A first guess of log z: the leading order of g at 1, `leading · z^order · p (1 − p)` for a quadratic minimum."""
        xp, half = self.xp, self.evaluator.below
        order, leading = (half.order, half.leading) if half.order and half.leading else (2.0, 1.0)
        guess = (log_delta - np.log(leading) - prob.log_p - prob.log_not_p) / order
        reach = xp.log(1.0 + xp.where(prob.log_p < prob.log_not_p, prob.log_not_p - prob.log_p, 0.0))
        return xp.where(guess < reach, guess, reach)


class Root(NamedTuple):
    """log z of the root, both log-ratios there, the relative error to expect in each of the two, and the steps taken."""

    log_z: np.ndarray
    log_r: np.ndarray
    log_c: np.ndarray
    error_r: np.ndarray
    error_c: np.ndarray
    steps: np.ndarray


def certain_limit(reduction: Reduction, log_radius: float) -> float:
    """`lim log c` of the upper bound for p → 0, that is of the lower bound for p → 1 (theorem 7), numpy.

    The root y of `f̃(e^y) + (1 − e^y) f̃'(∞) = δ`: 0 where f'(∞) is infinite, −∞ where even y = −∞ stays within δ.
    """
    from scipy.optimize import brentq

    evaluator = reduction.evaluator
    if not np.isfinite(evaluator.recession_slope):
        return 0.0
    if np.log(evaluator.value_at_zero + evaluator.recession_slope) <= log_radius:
        return -np.inf

    def excess(log_size: float) -> float:
        y = -np.exp(np.array([log_size]))
        log_value, _ = reduction.below(y, np.exp(y), np.expm1(y))
        level = float(np.logaddexp(log_value, np.log(-np.expm1(y) * evaluator.recession_slope))[0])
        return np.inf if np.isnan(level) else level - log_radius  # an overflow is above every radius

    smallest, largest = -744.0, 709.0
    with np.errstate(all="ignore"):
        if not excess(smallest) < 0:
            return 0.0
        if not excess(largest) > 0:
            return -np.inf
        return -float(np.exp(brentq(excess, smallest, largest, xtol=1e-15, rtol=1e-15)))


def _advance(
    xp: Any, step: Step, at: Array, low: Array, high: Array, stride: Array, far: Array
) -> tuple[Array, Array, Array, Array]:
    """The next `log z`, the narrowed bracket, and whether the step is Newton's.

    A Newton step that leaves the bracket is replaced by the midpoint or, with one end still open, by a step of `stride`.
    """
    above = ~(step.residual <= 0)  # an overflow (NaN) is above every radius
    high, low = xp.where(above, at, high), xp.where(above, low, at)
    ratio = step.residual / step.slope
    # far above the root log g grows like z rather than log z: take Newton's step in z, or, where z − residual/slope has no
    # digits left, fall back to `far`
    newton = xp.clip(at + xp.where((step.residual > 1) & (ratio < 1), xp.log1p(-ratio), -ratio), *LOG_Z_RANGE)
    newton = xp.where((step.residual > 1) & (ratio > 0.9) & (far > low) & (far < at), far, newton)
    inside = (newton >= low) & (newton <= high) & (xp.abs(ratio) < np.inf)
    open_end = xp.where(above, low == LOG_Z_RANGE[0], high == LOG_Z_RANGE[1])
    one_sided = xp.where(above, xp.maximum(at - stride, low), xp.minimum(at + stride, high))
    fallback = xp.where(open_end, one_sided, (low + high) / 2)
    proposal = xp.where(step.residual == 0, at, xp.where(inside, newton, fallback))
    return proposal, low, high, inside


def _far(xp: Any, prob: Probability, log_delta: Array) -> Array:
    """log of a z beyond which a term that grows like a power of r or 1/c exceeds any δ of interest."""
    return xp.log(1 - prob.log_p - prob.log_not_p + xp.abs(log_delta + 0 * prob.log_p))


def solve_fixed(reduction: Reduction, prob: Probability, log_delta: float, iterations: int) -> tuple[Array, Array]:
    """Log-ratios `log r` and `log c` of the root after a fixed number of steps, with no decision that depends on the data."""
    xp = reduction.xp
    at = xp.clip(reduction.start(prob, log_delta), *LOG_Z_RANGE)
    low, high, stride = xp.full_like(at, LOG_Z_RANGE[0]), xp.full_like(at, LOG_Z_RANGE[1]), xp.ones_like(at)
    far = _far(xp, prob, log_delta)
    for _ in range(iterations):
        step = reduction.step(prob, log_delta, xp.exp(at))
        at, low, high, _ = _advance(xp, step, at, low, high, stride, far)
        stride = stride * 2
    step = reduction.step(prob, log_delta, xp.exp(at))
    # at the end of the range log c is below −10³⁰⁷: an overflow, not a value
    return step.log_r, xp.where(at < LOG_Z_RANGE[1], step.log_c, -np.inf)


def solve(reduction: Reduction, prob: Probability, log_delta: np.ndarray, log_z: np.ndarray) -> Root:
    """The root by Newton's method inside a bracket that only shrinks; numpy, 1-D arrays of one length.

    Converged elements drop out of later iterations; their last, tiny step is applied to the ratios to first order. What has
    not converged after `MAX_ITERATIONS` stays NaN.
    """
    at = np.clip(log_z, *LOG_Z_RANGE)
    size = at.size
    result = Root(*(np.full(size, np.nan) for _ in Root._fields))
    low, high, stride = np.full(size, LOG_Z_RANGE[0]), np.full(size, LOG_Z_RANGE[1]), np.ones(size)
    where = np.arange(size)
    tiny = SMOOTH_STEP if reduction.smooth else 0.0
    for iteration in range(MAX_ITERATIONS):
        z = np.exp(at)
        step = reduction.step(prob, log_delta, z)
        proposal, low, high, inside = _advance(np, step, at, low, high, stride, _far(np, prob, log_delta))
        move = proposal - at
        rounding = 4e-15 * np.maximum(1.0, np.abs(at))
        done = (inside & (np.abs(move) * np.maximum(1.0, z) < tiny)) | (np.abs(move) <= rounding) | (high - low <= rounding)
        if done.any():
            index = where[done]
            for target, value in zip(result, _finish(reduction, prob, step, z, proposal, move), strict=False):
                target[index] = value[done]
            result.steps[index] = iteration + 1
            keep = ~done
            if not keep.any():
                return result
            where, proposal, low, high, stride = where[keep], proposal[keep], low[keep], high[keep], stride[keep]
            prob, log_delta = prob.where(keep), log_delta[keep]
        at = proposal
        stride = stride * 2
    return result


def _finish(
    reduction: Reduction, prob: Probability, step: Step, z: np.ndarray, log_z: np.ndarray, move: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The fields of `Root`: the step applied, and the rounding errors of `log g` carried over to the ratios."""
    log_r = step.log_r + step.not_q * z * move
    log_c = np.where(log_z < LOG_Z_RANGE[1], step.log_c - step.q * z * move, -np.inf)
    rounding = 2.3e-16 * (np.abs(prob.log_p) + np.abs(prob.log_not_p) + np.abs(log_r) + 8) + reduction.evaluator.accuracy
    sound = np.isfinite(step.residual) & (step.slope > 0) & (step.slope < np.inf)
    per_log_z = np.where(sound, rounding / np.abs(step.slope) * z, np.inf)
    return log_z, log_r, log_c, per_log_z * step.not_q / np.abs(log_r), per_log_z * step.q / np.abs(log_c)
