"""Where a band ends, between two numbers on which ball arithmetic has decided `g ≤ δ` and `g > δ`.

    g(p, r) = p f(r) + (1 − p) f(c),   c = (1 − r p)/(1 − p) = expm1(log r + log p)/expm1(log p)

The unknown is `z = |log r|`, in which nothing cancels for any p: a bound is known to a relative 2⁻⁶⁴ of its logarithm. `g` is
convex in r with minimum 0 at 1, so one sign decides on which side of the bound a number lies. How the numbers are found
(Newton steps from a guess, else halving) proves nothing and need not be trusted; only the signs count. A sign that is not
decided is asked for again with twice the bits, up to `MOST_BITS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import sympy
from flint import arb, ctx

from bandtheory.ball import ball_function, exact, limits, precision, slope
from bandtheory.divergence import FDivergence
from bandtheory.expressions import radius_symbol, symbol

FEWEST_BITS = 160
MOST_BITS = 4096
SEARCH_BITS = 256  # of the numbers z that are tried; each is exact
WIDTH = exact(2.0**-64)  # relative, of a bracket
NUDGE = exact(2.0**-66)  # from a root to the numbers that bracket it
CONVERGED = exact(2.0**-30)  # a relative Newton step after which the next root is good to about the square of it
BOTTOM, TOP = arb((1, -1080)), arb((1, 1030))  # z beyond float64 on either side: not searched further
STEPS = 400


class BallGenerator:
    """A divergence compiled to balls: `of(u) = [f, f']`, `of_log(y) = [f(e^y), f'(e^y)]`, `radius(δ)`, and the limits."""

    def __init__(self, divergence: FDivergence) -> None:
        u, x = symbol(), sympy.Symbol("x", real=True)
        pair = [divergence.generator, slope(divergence.generator, u)]
        self.divergence = divergence
        self.of: Callable[[arb], list[arb]] = ball_function(pair, u)
        self.of_log: Callable[[arb], list[arb]] = ball_function([part.subs(u, sympy.exp(x)) for part in pair], x)
        self._radius: Callable[[arb], arb] = ball_function(divergence.f_radius, radius_symbol())
        self.at_zero, self.recession = divergence.value_at_zero, divergence.recession_slope
        self._limits: dict[int, tuple[arb, arb]] = {}

    def radius(self, delta: float) -> arb:
        """The radius of `D_f` that δ stands for."""
        return self._radius(exact(delta))

    def limits(self) -> tuple[arb, arb]:
        """f(0) and f'(∞) at the working precision, +inf where they are; a limit that sympy did not find is not a number."""
        if ctx.prec not in self._limits:
            at_zero, recession = limits(self.divergence)
            self._limits[ctx.prec] = (
                arb.nan() if self.at_zero.has(sympy.Float) else at_zero,
                arb.nan() if self.recession.has(sympy.Float) else recession,
            )
        return self._limits[ctx.prec]


@lru_cache(maxsize=64)
def ball_generator(divergence: FDivergence) -> BallGenerator:
    """The compiled divergence; cached."""
    return BallGenerator(divergence)


class View(NamedTuple):
    """What was seen at one z.

    Attributes:
        feasible: whether `g ≤ δ`; None where `MOST_BITS` did not decide.
        excess: `g − δ`.
        steepness: `dg/dz`.
        slope_r, slope_c: f'(r) and f'(c).
    """

    feasible: bool | None
    excess: arb
    steepness: arb
    slope_r: arb
    slope_c: arb


class Problem(ABC):
    """One bound of one token: side σ = 1 (upper) or −1 (lower), `log r = σ z`, z between 0 and `end`."""

    def __init__(self, generator: BallGenerator, delta: float, sign: int, end: arb) -> None:
        self.generator, self.delta, self.sign, self.end = generator, delta, sign, end
        self.bits = FEWEST_BITS
        self._constants: dict[int, tuple[Any, ...]] = {}

    @abstractmethod
    def measure(self, z: arb) -> tuple[arb, arb, arb, arb]:
        """excess, steepness, slope_r and slope_c at z, at the working precision."""

    @abstractmethod
    def excess_at_end(self) -> arb:
        """`g − δ` where r is 1/p or 0, at the working precision."""

    @abstractmethod
    def make_constants(self) -> tuple[Any, ...]:
        """What does not depend on z, at the working precision."""

    @property
    def constants(self) -> tuple[Any, ...]:
        """`make_constants`, once per precision."""
        if ctx.prec not in self._constants:
            self._constants[ctx.prec] = self.make_constants()
        return self._constants[ctx.prec]

    def look(self, z: arb) -> View:
        """Decide the sign of `g − δ` at an exact z."""
        bits = self.bits
        while True:
            with precision(bits):
                parts = self.measure(z)
            feasible = True if parts[0] <= 0 else False if parts[0] > 0 else None
            if feasible is not None or bits >= MOST_BITS:
                self.bits = bits if feasible is not None else self.bits
                return View(feasible, *parts)
            bits *= 2

    def saturated(self) -> bool:
        """Whether the band certainly reaches the end of the simplex."""
        bits = self.bits
        while bits <= MOST_BITS:
            with precision(bits):
                excess = self.excess_at_end()
            if excess <= 0:
                return True
            if excess > 0:
                return False
            bits *= 2
        return False


class Token(Problem):
    """A token of probability strictly between 0 and 1."""

    def __init__(self, generator: BallGenerator, logp: float, delta: float, sign: int) -> None:
        super().__init__(generator, delta, sign, exact(-logp) if sign > 0 else arb.pos_inf())
        self.logp = exact(logp)

    def make_constants(self) -> tuple[Any, ...]:
        """p, 1 − p, the radius."""
        return self.logp.exp(), -self.logp.expm1(), self.generator.radius(self.delta)

    def measure(self, z: arb) -> tuple[arb, arb, arb, arb]:
        """By the formula of the module; `dg/dz = σ p r (f'(r) − f'(c))`."""
        p, rest, radius = self.constants
        y = z if self.sign > 0 else -z
        f_r, slope_r = self.generator.of_log(y)
        total = y + self.logp
        f_c, slope_c = self.generator.of(-total.expm1() / rest)
        return p * f_r + rest * f_c - radius, self.sign * total.exp() * (slope_r - slope_c), slope_r, slope_c

    def excess_at_end(self) -> arb:
        """Theorem 6: `p f(1/p) + (1 − p) f(0) − δ`, or `p f(0) + (1 − p) f(1/(1 − p)) − δ`."""
        p, rest, radius = self.constants
        at_zero = self.generator.limits()[0]
        f_r, f_c = (self.generator.of_log(self.end)[0], at_zero) if self.sign > 0 else (at_zero, self.generator.of(1 / rest)[0])
        excess: arb = p * f_r + rest * f_c - radius
        return excess


class CertainToken(Problem):
    """The lower bound of a token of probability 1: theorem 7, `h(r) = f(r) + (1 − r) f'(∞) ≤ δ`."""

    def __init__(self, generator: BallGenerator, delta: float) -> None:
        super().__init__(generator, delta, -1, arb.pos_inf())

    def make_constants(self) -> tuple[Any, ...]:
        """f'(∞), the radius."""
        return limits(self.generator.divergence)[1], self.generator.radius(self.delta)

    def measure(self, z: arb) -> tuple[arb, arb, arb, arb]:
        """`h − δ` and `dh/dz = r (f'(∞) − f'(r))`."""
        recession, radius = self.constants
        f_r, slope_r = self.generator.of_log(-z)
        return f_r - (-z).expm1() * recession - radius, (-z).exp() * (recession - slope_r), slope_r, recession

    def excess_at_end(self) -> arb:
        """`f(0) + f'(∞) − δ`. Here alone a tie is possible without p having to be transcendental, so sympy adds first."""
        g = self.generator
        total = g.at_zero + g.recession
        if total.is_Rational and g.divergence.radius == "delta":
            return exact(sympy.sign(total - sympy.Rational(self.delta)))
        at_zero, recession = g.limits()
        excess: arb = at_zero + recession - self.constants[1]
        return excess


class Bracket(NamedTuple):
    """`low ≤ |log bound| ≤ high`, exact numbers; `outer` is where `g > δ` was seen, None where high is the end."""

    low: arb
    high: arb
    outer: arb | None


class Search:
    """Closes in on the bound of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.low, self.high = arb(0), problem.end
        self.outer: arb | None = None
        self.wall = self.end  # from here on g was too large to be evaluated: a hint for the search, and no more
        self._leap = 1

    @property
    def bracket(self) -> Bracket:
        """What is known so far."""
        return Bracket(self.low, self.high, self.outer)

    def run(self, start: arb) -> Bracket:
        """Bracket the bound, best from a z near it."""
        with precision(SEARCH_BITS):
            if self.problem.saturated():
                self.low = self.high
                return self.bracket
            z = start.mid() if 0 < start < self.end else self._halve()
            for step in range(STEPS):
                view = self.look(z)
                if self.done:
                    break
                aim = self._newton(z, view)
                if aim is None or step % 3 == 2 or not self.low < aim < self.high:
                    aim = self._edge(aim) if aim is not None and step % 3 != 2 else self._halve()
                elif abs(aim - z) < CONVERGED * z or view.feasible is None:
                    if self._pinch(aim):
                        break
                    aim = self._halve()
                z = aim
        return self.bracket

    @property
    def end(self) -> arb:
        """The end of the simplex, or of what is searched."""
        return min(self.problem.end, TOP)

    @property
    def done(self) -> bool:
        """Whether the bracket is tight, or beyond float64, or as far as g can be evaluated."""
        tight = any(end.is_finite() and end - self.low <= WIDTH * end for end in (self.high, self.wall))
        return bool(tight or self.high <= BOTTOM or self.low >= TOP)

    def look(self, z: arb) -> View:
        """Decide about z, and take it as an end of the bracket."""
        view = self.problem.look(z)
        if view.feasible is True and z > self.low:
            self.low = z
        elif view.feasible is False and z < self.high:
            self.high = self.outer = z
        elif view.feasible is None and not view.excess.is_finite():
            self.wall = min(self.wall, z)
        return view

    def _pinch(self, z: arb) -> bool:
        for near in (z * (1 - NUDGE), z * (1 + NUDGE)):
            if self.low < near.mid() < self.high:
                self.look(near.mid())
        return self.done

    def _newton(self, z: arb, view: View) -> arb | None:
        """The next z from a tangent, in coordinates that make g nearly straight; None where there is none.

        Power laws of r near 1 and of log r far out are straight in log z and log g. Near the end of the simplex
        `log(end − z)` takes the place of log z.
        """
        if not (view.steepness.is_finite() and view.steepness.mid() > 0):
            return None
        excess, steepness = view.excess.mid(), view.steepness.mid()
        delta = self.problem.constants[-1].mid()
        rest = self.problem.end - z
        if rest < z:
            aim = self.problem.end - rest * (excess / (rest * steepness)).exp()
        elif excess + delta > 0:
            value = excess + delta
            aim = z * (-(excess / delta).log1p() * value / (z * steepness)).exp()
        else:
            return None
        return aim.mid() if aim.is_finite() else None

    def _edge(self, aim: arb) -> arb:
        """An aim beyond the bracket: just inside its end where that is open, else half-way."""
        if aim >= self.high and self.outer is None:
            edge = (self.end * (1 - NUDGE)).mid() if self.problem.end < TOP else TOP
            if self.low < edge:
                return edge
        return self._halve()

    def _halve(self) -> arb:
        """Half-way in a geometric sense; leaps of growing length where one end is open."""
        end, low, high = self.end, self.low, min(self.high, self.wall)
        opened = self.outer is None and high == end
        if opened or low == 0:
            self._leap = min(2 * self._leap, 512)
        leap = arb((1, self._leap))
        if low == 0:
            return max(high / leap, BOTTOM).mid() if high < TOP else arb(1)
        if self.problem.end < TOP and 2 * low > end:  # near 1/p: the same for end − z
            left, right = end - low, end - high
            rest = (left * right).sqrt() if right > 0 else max(left / leap, end * NUDGE)
            return (end - rest).mid()
        if opened:
            return min(low * leap, TOP).mid() if self.problem.end >= TOP else (low + end).mid() / 2
        return (low * high).sqrt().mid()
