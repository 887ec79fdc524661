"""The band of a single token in arbitrary precision, for the few where doubles lose their digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from bandtheory import expressions
from bandtheory.divergence import FDivergence
from bandtheory.high_precision import digits
from bandtheory.radius import precise_radius

_DIGITS = 60
_DIGITS_OF_A_RADIUS = 120  # a Rényi radius may differ from the largest one by e⁻¹⁰⁰ of it


@functools.lru_cache(maxsize=100_000)
def solve_precisely(divergence: FDivergence, log_p: float | None, p: float | None, delta: float, lower: bool) -> float:
    """A log-bound of one token, given exactly by `log_p` or by `p`, correct to double precision.

    The constraint is evaluated straight from the generator in 60 digits and its sign change in the increase of the log-odds is
    enclosed. A radius that equals the saturation level to all but 20 digits counts as saturated.
    """
    import mpmath

    f, at_zero = _generator(divergence)
    decimals = _DIGITS if divergence.radius == "delta" else _DIGITS_OF_A_RADIUS
    with digits(decimals):
        token = _probability(log_p, p)
        prob, not_prob = reversed(token) if lower else token
        radius = precise_radius(divergence, delta)

        def excess(z: Any) -> Any:
            c = 1 / (not_prob + prob * mpmath.exp(z))
            level = prob * f(mpmath.exp(z) * c) + not_prob * f(c)
            if not level > 0:
                return -mpmath.inf
            return mpmath.log(level / radius) if radius else mpmath.inf

        if at_zero is not None:
            level = prob * f(1 / prob) + not_prob * at_zero
            if level <= radius * (1 + mpmath.mpf(10) ** (20 - decimals)):
                return -float("inf") if lower else _minus_log(prob, not_prob, -mpmath.inf)
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while excess(high) < 0:
            low, high = high, 2 * high
        z = _sign_change(excess, low, high)
        return _minus_log(not_prob, prob, z) if lower else _minus_log(prob, not_prob, -z)


def _minus_log(constant: Any, weight: Any, exponent: Any) -> float:
    """`−log(constant + weight·e^exponent)` where constant + weight = 1."""
    import mpmath

    change = weight * mpmath.expm1(exponent)
    if abs(change) < 0.5:
        return -float(mpmath.log1p(change))
    return -float(mpmath.log(constant + weight * mpmath.exp(exponent)))


@functools.lru_cache(maxsize=64)
def _generator(divergence: FDivergence) -> tuple[Callable[[Any], Any], Any]:
    """The tilted generator for mpmath, and its value at 0 (None if infinite)."""
    import mpmath
    import sympy

    at_zero = divergence.value_at_zero + divergence.slope_at_one
    with digits(_DIGITS_OF_A_RADIUS):
        value = None if at_zero == sympy.oo else mpmath.mpf(sympy.N(at_zero, _DIGITS_OF_A_RADIUS))
    return sympy.lambdify(expressions.symbol(), divergence.tilted, "mpmath"), value


def _probability(log_p: float | None, p: float | None) -> tuple[Any, Any]:
    """p and 1 − p of the token as given."""
    import mpmath

    if log_p is not None:
        return mpmath.exp(mpmath.mpf(log_p)), -mpmath.expm1(mpmath.mpf(log_p))
    return mpmath.mpf(p), 1 - mpmath.mpf(p)


def _sign_change(function: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """The sign change of a non-decreasing function, to 30 digits, by Ridders' method, which at least halves the bracket."""
    import mpmath

    f_low, f_high = function(low), function(high)
    while high - low > high * mpmath.mpf(10) ** -30:
        middle = (low + high) / 2
        f_middle = function(middle)
        place = middle
        if mpmath.isfinite(f_low):
            place += (middle - low) * -f_middle / mpmath.sqrt(f_middle**2 - f_low * f_high)
        for x, f_x in sorted({(middle, f_middle), (place, function(place))}):
            if f_x >= 0 and x < high:
                high, f_high = x, f_x
            elif f_x < 0 and x > low:
                low, f_low = x, f_x
        if f_high == 0:
            return high
    return (low + high) / 2
