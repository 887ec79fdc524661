"""The band straight from its definition, in `DIGITS` digits: what every claimed number is judged by.

    g(p, r) = p f(r) + (1 − p) f(c),   c = (1 − r p)/(1 − p),   band = { r in [0, 1/p] : g(p, r) ≤ δ }

Only the text of the generator enters. Tokens are given by `log p` and ratios by `log r`, both as the exact numbers that a
caller holds; `1 − p` and `1 − r p` are `−expm1(log p)` and `−expm1(log r + log p)`, so nothing cancels however close p is to 0
or 1. The two limits of the generator are read off from its values far out; the symbolic ones are checked with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import mpmath
import sympy

from bandtheory.divergence import FDivergence
from bandtheory.expressions import symbol

DIGITS = 60
FAR = 10_000  # f(0) and f'(∞) are read at u = e^∓FAR, e^∓2·FAR, e^∓4·FAR: u**0.01 has settled there, exp(u) still evaluates
SETTLED = mpmath.mpf(10) ** -30
LOG_OVERFLOW = mpmath.mpf(2) ** 1024  # a log-bound beyond it cannot be told from −inf in float64

Number: TypeAlias = Any  # mpmath.mpf, which has no annotations
Real: TypeAlias = Any  # float or mpmath.mpf

P = ParamSpec("P")
R = TypeVar("R")


def precisely(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with `DIGITS` digits, whatever the caller's precision is."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpmath.workdps(DIGITS):
            return function(*args, **kwargs)

    return wrapped


def log_rest(log_x: Number) -> Number:
    """`log(1 − x)` from `log x < 0`, to full relative accuracy at both ends."""
    result: Number = mpmath.log(-mpmath.expm1(log_x)) if log_x > -1 else mpmath.log1p(-mpmath.exp(log_x))
    return result


@lru_cache(maxsize=128)
def definition(divergence: FDivergence) -> Definition:
    """The definition of a divergence's band; cached, since its limits take some evaluations."""
    return Definition(divergence)


class Definition:
    """`f`, `g`, and the boundary of the band of one divergence, as mpmath numbers.

    Attributes:
        at_zero: f(0), possibly +inf.
        recession: f'(∞), possibly +inf.
        curvature, skewness: f''(1) and f'''(1); curvature is None where f has a kink at 1 or is flat there.
    """

    def __init__(self, divergence: FDivergence) -> None:
        self.divergence = divergence
        self._generator = sympy.lambdify(symbol(), divergence.generator, "mpmath")
        with mpmath.workdps(DIGITS):
            self.at_zero = self._settled(lambda x: self._at(mpmath.exp(-x)), divergence, "value_at_zero")
            self.recession = self._settled(lambda x: self._at(mpmath.exp(x)) / mpmath.exp(x), divergence, "recession_slope")
            self.curvature, self.skewness = self._derivatives_at_one()

    @staticmethod
    def _settled(value: Callable[[int], Number], divergence: FDivergence, symbolic: str) -> Number:
        """The limit of `value(x)` for x → ∞; from sympy only if convergence is slower than any power of u."""
        first, second, third = (value(k * FAR) for k in (1, 2, 4))
        if abs(third - second) <= SETTLED * (1 + abs(third)):
            return third
        if abs(third - second) >= abs(second - first) or not mpmath.isfinite(third):
            return mpmath.inf
        limit = getattr(divergence, symbolic)
        return mpmath.inf if limit == sympy.oo else mpmath.mpf(str(sympy.N(limit, DIGITS)))

    def _at(self, u: Number) -> Number:
        try:
            return mpmath.mpf(self._generator(u))
        except OverflowError:
            return mpmath.inf

    def _derivatives_at_one(self) -> tuple[Number | None, Number]:
        h = mpmath.mpf(10) ** -12
        f = {k: self._at(1 + k * h / 2) for k in (-4, -2, -1, 0, 1, 2, 4)}
        coarse, fine = (f[2] - 2 * f[0] + f[-2]) / h**2, 4 * (f[1] - 2 * f[0] + f[-1]) / h**2
        smooth = abs(coarse - fine) <= abs(coarse) / 10**6 and coarse > SETTLED
        return (coarse if smooth else None), (f[4] - 2 * f[2] + 2 * f[-2] - f[-4]) / (2 * h**3)

    @precisely
    def f(self, u: Real) -> Number:
        """The generator, with its limit at 0."""
        return self.at_zero if u == 0 else self._at(mpmath.mpf(u))

    @precisely
    def g(self, logp: Real, log_ratio: Real) -> Number:
        """`p f(r) + (1 − p) f(c)`; +inf outside the simplex, `r > 1/p`."""
        logp, log_ratio = mpmath.mpf(logp), mpmath.mpf(log_ratio)
        if log_ratio + logp > 0:
            return mpmath.inf
        rest, other = -mpmath.expm1(logp), -mpmath.expm1(log_ratio + logp)
        return mpmath.exp(logp) * self.f(mpmath.exp(log_ratio)) + rest * self.f(other / rest)

    @precisely
    def bound(self, logp: Real, delta: Real, side: str) -> Number:
        """The log-bound of one token by bisection of g; −inf for a lower bound at 0."""
        if side == "upper":
            if self.g(logp, -logp) <= delta:
                return -mpmath.mpf(logp)
            return _boundary(lambda y: self.g(logp, y) <= delta, -mpmath.mpf(logp))
        if self.g(logp, -mpmath.inf) <= delta:
            return -mpmath.inf
        return -_boundary(lambda y: self.g(logp, -y) <= delta, mpmath.mpf(1))

    @precisely
    def limit(self, delta: Real) -> Number:
        """Theorem 7: `log c` of the root of `f(c) + (1 − c) f'(∞) = δ`; 0 where `f'(∞) = ∞`, −inf where δ reaches f(0) + f'(∞).

        For p → 1 the lower bound is c; for p → 0 the mass p·upper is 1 − c.
        """
        if not mpmath.isfinite(self.recession):
            return mpmath.mpf(0)
        if self.at_zero + self.recession <= delta:
            return -mpmath.inf
        return -_boundary(lambda y: self.f(mpmath.exp(-y)) - mpmath.expm1(-y) * self.recession <= delta, mpmath.mpf(1))


def _boundary(feasible: Callable[[Number], bool], start: Number) -> Number:
    """The largest y > 0 with `feasible(y)`, to 25 digits; infinite beyond `LOG_OVERFLOW`."""
    low = high = start
    while feasible(high):
        low, high = high, 2 * high
        if low > LOG_OVERFLOW:
            return mpmath.inf
    while not feasible(low):
        low, high = low / 2, low
    while high - low > high * mpmath.mpf(10) ** -25:
        middle = (low + high) / 2
        low, high = (middle, high) if feasible(middle) else (low, middle)
    return low
