"""The band straight from its definition, in ball arithmetic: what every claimed number is judged by.

    g(p, r) = p f(r) + (1 − p) f(c),   c = (1 − r p)/(1 − p),   band = { r in [0, 1/p] : g(p, r) ≤ F(δ) }

`F(δ)` is the radius of `D_f` that the divergence's own radius stands for: δ itself for all but monotone functions of an
f-divergence, such as Rényi's. Only the text of the generator enters, and that of F. Tokens are given by `log p` and ratios by
`log r`, both as the exact numbers that a caller holds; `1 − p` and `1 − r p` are `−expm1(log p)` and `−expm1(log r + log p)`,
so nothing cancels however close p is to 0 or 1. Whatever else cancels is seen: a value is a ball that holds the exact one, and
it is computed anew with twice the bits until the ball is small enough. So `g ≤ F(δ)` is decided, not estimated.

The two limits of the generator are read off from its values far out; the symbolic ones are checked with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import mpmath
import sympy
from flint import arb, ctx

from bandtheory.ball import ball_function, precision
from bandtheory.divergence import FDivergence
from bandtheory.expressions import radius_symbol, symbol
from bandtheory.high_precision import digits

DIGITS = 60  # of what is computed with the values outside of this module
BITS, MOST_BITS = 160, 40_960  # of the first attempt and of the last: 1e306 takes 1,020 bits to be reduced modulo log 2
ACCURATE = 110  # bits of a value that is handed out, relative
FAR = 10_000  # f(0) and f'(∞) are read at u = e^∓FAR, e^∓2·FAR, e^∓4·FAR: u**0.01 has settled there, exp(u) still evaluates
SETTLED = mpmath.mpf(10) ** -30
LOG_OVERFLOW = mpmath.mpf(2) ** 1024  # a log-bound beyond it cannot be told from −inf in float64

Number: TypeAlias = Any  # mpmath.mpf, which has no annotations
Real: TypeAlias = Any  # float or mpmath.mpf

P = ParamSpec("P")
R = TypeVar("R")


class Unresolved(Exception):
    """The evidence cannot decide: a solver's enclosure is too wide, or a value has no ball. No finding about the subject."""


def precisely(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with `DIGITS` digits, whatever the caller's precision is."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with digits(DIGITS):
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
    """`f`, `g`, and the boundary of the band of one divergence, as mpmath numbers of 30 correct digits and more.

    Attributes:
        at_zero: f(0), possibly +inf.
        recession: f'(∞), possibly +inf.
        curvature, skewness: f''(1) and f'''(1); curvature is None where f has a kink at 1 or is flat there.
    """

    def __init__(self, divergence: FDivergence) -> None:
        self.divergence = divergence
        self._generator: Callable[[arb], arb] = ball_function(divergence.generator, symbol())
        self._radius: Callable[[arb], arb] = ball_function(divergence.f_radius, radius_symbol())
        far = _FarOut(divergence)
        self.at_zero, self.recession, self.curvature, self.skewness = far.at_zero, far.recession, far.curvature, far.skewness
        self._zero, self._slope = far.balls(self._generator)

    def f(self, u: Real) -> Number:
        """The generator, with its limit at 0."""
        return _number(lambda: self._f(_ball(u)), "f", u)

    def radius(self, delta: Real) -> Number:
        """`F(δ)`, the radius of `D_f` that δ stands for."""
        return _number(lambda: self._radius(_ball(delta)), "the radius", delta)

    def g(self, logp: Real, log_ratio: Real) -> Number:
        """`p f(r) + (1 − p) f(c)`; +inf outside the simplex, `r > 1/p`."""
        return _number(lambda: self._g(_ball(logp), _ball(log_ratio)), "g", logp, log_ratio)

    def excess(self, logp: Real, log_ratio: Real, delta: Real) -> Number:
        """`g(p, r) − F(δ)`: at most 0 exactly in the band."""
        return _number(lambda: self._excess(_ball(logp), _ball(log_ratio), _ball(delta)), "g − δ", logp, log_ratio, delta)

    def holds(self, logp: Real, log_ratio: Real, delta: Real) -> bool:
        """Whether r is in the band: `g(p, r) ≤ F(δ)`."""
        return _sign(lambda: self._excess(_ball(logp), _ball(log_ratio), _ball(delta)), "g − δ", logp, log_ratio, delta) <= 0

    @precisely
    def level(self, logp: Real, side: str) -> Number:
        """The radius δ from which on a bound saturates (theorem 6): `F(δ) = g(p, 1/p)` or `g(p, 0)`; +inf where never."""
        reached = self.g(logp, -mpmath.mpf(logp) if side == "upper" else -mpmath.inf)
        if not mpmath.isfinite(reached) or self.divergence.radius == "delta":
            return reached
        return _boundary(lambda delta: self.radius(delta) <= reached, mpmath.mpf(1), digits=20)

    @precisely
    def bound(self, logp: Real, delta: Real, side: str) -> Number:
        """The log-bound of one token by bisection of g; −inf for a lower bound at 0."""
        if side == "upper":
            if self.holds(logp, -mpmath.mpf(logp), delta):
                return -mpmath.mpf(logp)
            return _boundary(lambda y: self.holds(logp, y, delta), -mpmath.mpf(logp))
        if self.holds(logp, -mpmath.inf, delta):
            return -mpmath.inf
        return -_boundary(lambda y: self.holds(logp, -y, delta), mpmath.mpf(1))

    @precisely
    def limit(self, delta: Real) -> Number:
        """Theorem 7: `log c` of the root of `f(c) + (1 − c) f'(∞) = F(δ)`; 0 where `f'(∞) = ∞`, −inf where c = 0.

        For p → 1 the lower bound is c; for p → 0 the mass p·upper is 1 − c.
        """
        if not mpmath.isfinite(self.recession):
            return mpmath.mpf(0)

        def within(y: Number) -> bool:
            """Whether `c = e^−y` is in the band of the limit."""

            def excess() -> arb:
                c = arb(0) if y == mpmath.inf else (-_ball(y)).exp()
                rest = arb(1) if y == mpmath.inf else -(-_ball(y)).expm1()
                return self._f(c) + rest * self._slope() - self._radius(_ball(delta))

            return _sign(excess, "the limit for p → 0 and 1", -y, delta) <= 0

        if mpmath.isfinite(self.at_zero) and within(mpmath.inf):
            return -mpmath.inf
        return -_boundary(within, mpmath.mpf(1), digits=16)

    def _f(self, u: arb) -> arb:
        return self._zero() if u == 0 else self._generator(u)

    def _excess(self, logp: arb, log_ratio: arb, delta: arb) -> arb:
        radius: arb = self._radius(delta)
        return self._g(logp, log_ratio) - radius

    def _g(self, logp: arb, log_ratio: arb) -> arb:
        p, rest, mass = logp.exp(), -logp.expm1(), log_ratio + logp
        if mass > 0:
            return arb.pos_inf()
        if log_ratio == 0:
            return self._generator(arb(1))  # c = 1 too; computed, it would be a ball across the kink of |u − 1|
        if log_ratio == arb.neg_inf():
            return p * self._zero() + rest * self._f(1 / rest)
        return p * self._f(log_ratio.exp()) + rest * self._f(-mass.expm1() / rest)


class _FarOut:
    """What is read off a generator's values, by mpmath: its two limits, far out, and its derivatives at 1."""

    def __init__(self, divergence: FDivergence) -> None:
        self._generator = sympy.lambdify(symbol(), divergence.generator, "mpmath")
        self._symbolic: dict[int, Callable[[], arb]] = {}
        with digits(DIGITS):
            self.at_zero = self._settled(-1, divergence)
            self.recession = self._settled(1, divergence)
            self.curvature, self.skewness = self._derivatives_at_one()

    def _settled(self, direction: int, divergence: FDivergence) -> Number:
        """The limit of f (direction −1) or of f(u)/u (+1); from sympy only if convergence is slower than any power of u."""
        points = [mpmath.exp(direction * k * FAR) for k in (1, 2, 4)]
        first, second, third = (self._at(u) / (u if direction > 0 else 1) for u in points)
        if abs(third - second) <= SETTLED * (1 + abs(third)):
            return third
        if abs(third - second) >= abs(second - first) or not mpmath.isfinite(third):
            return mpmath.inf
        limit = divergence.recession_slope if direction > 0 else divergence.value_at_zero
        if limit == sympy.oo:
            return mpmath.inf
        self._symbolic[direction] = ball_function(limit)
        return mpmath.mpf(str(sympy.N(limit, DIGITS)))

    def balls(self, generator: Callable[[arb], arb]) -> tuple[Callable[[], arb], Callable[[], arb]]:
        """f(0) and f'(∞) as functions that give them at the working precision."""

        def far(direction: int) -> Callable[[int], arb]:
            def value(_: int) -> arb:
                u = arb(4 * direction * FAR).exp()
                return generator(u) / (u if direction > 0 else 1)

            return value

        def at_working_precision(limit: Number, direction: int) -> Callable[[], arb]:
            if not mpmath.isfinite(limit):
                return arb.pos_inf
            if direction in self._symbolic:
                return self._symbolic[direction]
            cached = lru_cache(maxsize=16)(far(direction))
            return lambda: cached(ctx.prec)

        return at_working_precision(self.at_zero, -1), at_working_precision(self.recession, 1)

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


def _ball(x: Real) -> arb:
    """The exact number, a float or an mpf, as a ball of radius 0."""
    return arb(x if isinstance(x, mpmath.mpf) and mpmath.isfinite(x) else float(x))


def _number(value: Callable[[], arb], what: str, *at: Real) -> Number:
    """The midpoint of a value's ball, to `ACCURATE` bits at least; 0 for one that cannot be told from 0 at `MOST_BITS`."""
    bits = BITS
    while True:
        with precision(bits):
            ball = value()
            if ball.is_nan():
                found = None
            elif ball.is_finite():
                found = ball if ball.rel_accuracy_bits() >= ACCURATE or ball == 0 else None
            else:
                return mpmath.inf if ball > 0 else -mpmath.inf if ball < 0 else _undecided(what, at)
            if found is not None:
                mantissa, exponent = found.mid().man_exp()
                return mpmath.mpf((int(mantissa), int(exponent)))
        if bits >= MOST_BITS:
            return mpmath.mpf(0) if ball.is_finite() and ball.contains(0) else _undecided(what, at)
        bits *= 4


def _sign(value: Callable[[], arb], what: str, *at: Real) -> int:
    """The sign of a value; 0 for one that cannot be told from 0 at `MOST_BITS`."""
    bits = BITS
    while True:
        with precision(bits):
            ball = value()
        if ball > 0:
            return 1
        if ball < 0:
            return -1
        if bits >= MOST_BITS:
            return 0 if ball.is_finite() else _undecided(what, at)
        bits *= 4


def _undecided(what: str, at: tuple[Real, ...]) -> Any:
    raise Unresolved(f"{what} at {', '.join(mpmath.nstr(x, 17) for x in at)} is not known with {MOST_BITS} bits")


def _boundary(feasible: Callable[[Number], bool], start: Number, digits: int = 25) -> Number:
    """The largest y > 0 with `feasible(y)`; infinite beyond `LOG_OVERFLOW`. Bracketed by growing factors: it may be 1e-300."""
    low = high = start
    factor = 2
    while feasible(high):
        if high > LOG_OVERFLOW:
            return mpmath.inf
        low, high, factor = high, high * factor, min(factor**2, 2**64)
    factor = 2
    while not feasible(low):
        low, high, factor = low / factor, low, min(factor**2, 2**64)
    while high - low > high * mpmath.mpf(10) ** -digits:
        middle = mpmath.sqrt(low * high) if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if feasible(middle) else (low, middle)
    return low
