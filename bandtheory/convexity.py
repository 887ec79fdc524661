"""Whether a generator is convex with f(1) = 0: where it is not, in words with the place.

Two tests, of which either can refute it. Chords between 1,700 points from 1e-120 to 1e120, dense around 1 and around every
kink, in 400-digit arithmetic; and, for what lies between the points, `u² f''(u)` enclosed in balls over all of that range: an
interval on which it is certainly negative is a dent, however fine a grid would have to be to meet it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bandtheory import expressions
from bandtheory.divergence import FDivergence
from bandtheory.high_precision import digits

if TYPE_CHECKING:
    import mpmath
    import sympy

_DIGITS = 400  # decimal digits of the chords: those near u = 1e-120 cancel twice 120 of them
_REACH = 276.0  # |log u| over which the curvature is enclosed
_INTERVALS = 64  # of log u to begin with; each is halved until the sign is known on it
_NARROWEST = 1e-10  # an interval around a place where the curvature touches 0 is left alone
_ZERO_WIDTH = 1e-11  # of an interval of log u that may hold a kink
_EVALUATIONS = 6_000  # of a ball function
_BITS = 128


def convexity_fault(divergence: FDivergence) -> str | None:
    """What is wrong with a generator, in words with the place, or None."""
    import mpmath
    import sympy

    f = sympy.lambdify(expressions.symbol(), divergence.generator, "mpmath")
    with digits(_DIGITS):
        try:
            value = f(mpmath.mpf(1))
        except ZeroDivisionError:
            return "f(1) is not defined, expected 0"
        if not abs(value) < mpmath.mpf(10) ** -300:
            return f"f(1) = {mpmath.nstr(value, 8)}, expected 0"
        points = sorted({*_sample_points(), *_around_kinks(divergence.generator)})
        try:
            values = [mpmath.mpmathify(f(point)) for point in points]
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            return f"f cannot be evaluated on (0, ∞): {error}"
        for point, value in zip(points, values, strict=True):
            if not (isinstance(value, mpmath.mpf) and mpmath.isfinite(value)):
                return f"f({mpmath.nstr(point, 6)}) = {mpmath.nstr(value, 6)}, expected a finite real number"
        return _first_concave_chord(points, values) or _first_dent(divergence.generator)


def _sample_points() -> list[mpmath.mpf]:
    """Points of (0, ∞): a coarse grid over 240 decades, a fine one over [1e-4, 1e4], and a cluster around 1."""
    import mpmath

    coarse = [mpmath.mpf(10) ** (mpmath.mpf(k) / 2) for k in range(-240, 241)]
    fine = [mpmath.mpf(10) ** (mpmath.mpf(k) / 100) for k in range(-400, 401)]
    cluster = [1 + s * mpmath.mpf(10) ** (-mpmath.mpf(k) / 8) for k in range(1, 100) for s in (-1, 1)]
    return sorted({*coarse, *fine, *cluster})


def _around_kinks(generator: sympy.Expr) -> list[mpmath.mpf]:
    """Each place where an `abs`, `max` or `min` switches, with neighbours so close that only a kink shows in the chords."""
    import mpmath
    import sympy

    u = expressions.symbol()
    places: list[mpmath.mpf] = []
    for node in generator.atoms(sympy.Abs, sympy.Max, sympy.Min):
        pairs = itertools.combinations(node.args, 2) if not isinstance(node, sympy.Abs) else [(node.args[0], sympy.Integer(0))]
        for left, right in pairs:
            difference = sympy.lambdify(u, left - right, "mpmath")
            for low, high in _zeros(left - right):
                changes = mpmath.sign(difference(low)) != mpmath.sign(difference(high))
                place = _bisect(difference, low, high) if changes else (low + high) / 2
                if not any(abs(place - other) < place * mpmath.mpf(10) ** -90 for other in places):
                    places.append(place)
    return [place * (1 + s * mpmath.mpf(10) ** -k) for place in places for k in (20, 40, 60) for s in (-1, 1)] + places


def _zeros(difference: sympy.Expr) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Short intervals of u that may hold a zero: all zeros from 1e-120 to 1e120 lie in them, unless there are very many.

    By subdivision of `log u` while a ball does not exclude 0; two zeros that no grid of points would tell apart are found.
    """
    import mpmath
    from flint import arb

    from bandtheory.ball import ball_function, interval, precision

    function, found = ball_function(difference, expressions.symbol()), []
    with precision(_BITS):
        waiting = deque([(-_REACH, _REACH)])
        for _ in range(_EVALUATIONS):
            if not waiting:
                break
            low, high = waiting.pop()
            value = function(interval(arb(low), arb(high)).exp())
            if value > 0 or value < 0:
                continue
            if high - low < _ZERO_WIDTH:
                found.append((mpmath.exp(mpmath.mpf(low)), mpmath.exp(mpmath.mpf(high))))
            else:
                waiting.extend([(low, (low + high) / 2), ((low + high) / 2, high)])
    return found


def _bisect(function: Callable[[mpmath.mpf], mpmath.mpf], low: mpmath.mpf, high: mpmath.mpf) -> mpmath.mpf:
    """The place of a sign change to 100 digits."""
    import mpmath

    positive = function(low) > 0
    while high - low > high * mpmath.mpf(10) ** -100:
        middle = (low + high) / 2
        if (function(middle) > 0) == positive:
            low = middle
        else:
            high = middle
    return high


def _first_concave_chord(points: list[mpmath.mpf], values: list[mpmath.mpf]) -> str | None:
    """The concave triple closest to u = 1 whose chords differ visibly (or any, if none does), as a sentence."""
    import mpmath

    slopes = [(values[i + 1] - values[i]) / (points[i + 1] - points[i]) for i in range(len(points) - 1)]
    falls = {}
    for i in range(len(slopes) - 1):
        fall = (slopes[i] - slopes[i + 1]) / (abs(slopes[i]) + abs(slopes[i + 1]) or 1)
        if fall > mpmath.mpf(10) ** -25:
            falls[i] = fall
    if not falls:
        return None
    visible = [i for i, fall in falls.items() if fall > 1e-6] or list(falls)
    i = min(visible, key=lambda k: abs(mpmath.log(points[k + 1])))
    before, after = mpmath.nstr(slopes[i], 8), mpmath.nstr(slopes[i + 1], 8)
    left, middle, right = (mpmath.nstr(points[i + k], 8) for k in range(3))
    if len({left, middle, right}) < 3:
        return f"f is not convex near u = {mpmath.nstr(points[i + 1], 12)}: its slope falls from {before} to {after} there"
    return (
        f"f is not convex near u = {middle}: the slope of its chord falls from {before} on [{left}, {middle}] "
        f"to {after} on [{middle}, {right}]"
    )


def _first_dent(generator: sympy.Expr) -> str | None:
    """The first interval met on which `u² f''(u) < 0` for certain, as a sentence; None if there is none within the budget.

    Intervals of log u are halved until the sign is known; by turns the widest of them, and the one whose enclosure reaches the
    lowest, which leads into a dent however narrow it is. Kinks do not count here: the chords have looked at each.
    """
    import sympy
    from flint import arb

    from bandtheory.ball import BallError, ball_function, hull, interval, precision

    u = expressions.symbol()
    second = sympy.diff(generator, u, 2)
    second = second.replace(lambda node: isinstance(node, (sympy.DiracDelta, sympy.Derivative)), lambda *_: sympy.Integer(0))
    try:
        curvature = ball_function(u**2 * second, u)
    except BallError:
        return None
    queue = _Undecided()
    width = 2 * _REACH / _INTERVALS
    parts = [(-_REACH + k * width, -_REACH + (k + 1) * width) for k in range(_INTERVALS)]
    with precision(_BITS):
        for _ in range(_EVALUATIONS):
            for low, high in parts:
                value = curvature(interval(arb(low), arb(high)).exp())
                if value < 0:
                    place = arb((low + high) / 2).exp().str(8, radius=False)
                    return f"f is not convex near u = {place}: u² f''(u) is at most {hull(value)[1]:.6g} there"
                if not value >= 0 and high - low > _NARROWEST:
                    queue.add(low, high, hull(value)[0])
            widest = queue.pop()
            if widest is None:
                return None
            low, high = widest
            parts = [(low, (low + high) / 2), ((low + high) / 2, high)]
    return None


class _Undecided:
    """Intervals waiting to be halved, taken by turns in order of their width and of how low their enclosure reaches."""

    def __init__(self) -> None:
        self.orders: tuple[list[Any], list[Any]] = ([], [])
        self.waiting: set[tuple[float, float]] = set()
        self.turn = 0

    def add(self, low: float, high: float, lowest: float) -> None:
        self.waiting.add((low, high))
        for order, key in zip(self.orders, (low - high, lowest), strict=True):
            heapq.heappush(order, (key, low, high))

    def pop(self) -> tuple[float, float] | None:
        """The next one; None if none is left."""
        self.turn = 1 - self.turn
        order = self.orders[self.turn]
        while order:
            _, low, high = heapq.heappop(order)
            if (low, high) in self.waiting:
                self.waiting.remove((low, high))
                return low, high
        return None
