"""Inequalities `F ≥ 0` over whole boxes, by subdivision in ball arithmetic: roundings go outwards, no point is left out.

A box is cut until on each piece an enclosure of F lies on the right side of 0. A point where F is certainly on the wrong side
is a counter-example; a budget that is used up leaves the statement open. Cuts are made in the scale of the axis (log δ,
logit p), where the functions at hand vary evenly. Where a cut falls does not matter: neighbours share it exactly.

The enclosure of an expression is the better one of two: its value in ball arithmetic, and the mean-value form

    F(x) ∈ F(m) + Σ_i ∂_iF(box) (x_i − m_i),    m the midpoint,

whose excess width is of second order. Other enclosures, such as monotone functions at the corners, can be given instead.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from proofs.statement import Outcome, Status

if TYPE_CHECKING:
    import sympy

BITS = 128
MAX_PIECES = 400_000
_SCALES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "linear": (lambda x: x, lambda y: y),
    "log": (math.log, math.exp),
    "logit": (lambda x: math.log(x) - math.log1p(-x), lambda y: 1 / (1 + math.exp(-y))),
}

Ends = tuple[Fraction, Fraction]
Enclosure = Callable[[Sequence[Ends]], Any]


@dataclass(frozen=True)
class Axis:
    """A closed range `[low, high]` of one variable, and the scale in which it is cut: linear, log or logit."""

    name: str
    low: Fraction
    high: Fraction
    scale: str = "linear"

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"axis {self.name}: low must be below high, got [{self.low}, {self.high}]")
        if self.scale not in _SCALES:
            raise ValueError(f"axis {self.name}: scale must be one of {', '.join(_SCALES)}, got {self.scale!r}")

    def width(self, ends: Ends) -> float:
        """Length of a part of the axis in its scale."""
        forward, _ = _SCALES[self.scale]
        return forward(float(ends[1])) - forward(float(ends[0]))

    def middle(self, ends: Ends) -> Fraction:
        """A number well inside the part: the middle in the scale, up to rounding."""
        forward, back = _SCALES[self.scale]
        near = Fraction(back((forward(float(ends[0])) + forward(float(ends[1]))) / 2))
        return near if ends[0] < near < ends[1] else (ends[0] + ends[1]) / 2

    def __str__(self) -> str:
        return f"{self.name} ∈ [{_short(self.low)}, {_short(self.high)}]"


def _short(x: Fraction) -> str:
    complement = 1 - x
    if 0 < complement < Fraction(1, 1000):
        return f"1 − {float(complement):g}"
    return f"{float(x):.9g}"


def positive_over(
    axes: Sequence[Axis],
    enclosure: Enclosure,
    seconds: float,
    *,
    strict: bool = True,
    skip: Callable[[Sequence[Ends]], bool] | None = None,
    max_pieces: int = MAX_PIECES,
) -> Outcome:
    """Prove `F > 0` (or `F ≥ 0`) for every point of a box, by an enclosure of F over each piece of it.

    Args:
        axes: the box.
        enclosure: the ends of a piece along each axis ↦ a ball below which F does not go at any of its points; not finite for
            "unknown". For a piece with equal ends, the ball holds F at that point.
        seconds: after which the statement is open.
        strict: whether F = 0 is a counter-example.
        skip: pieces that are certainly outside the region of interest.
        max_pieces: after which the statement is open.
    """
    from bandtheory.ball import precision

    end = time.monotonic() + seconds
    pieces: deque[tuple[Ends, ...]] = deque([tuple((axis.low, axis.high) for axis in axes)])
    looked_at, proved, skipped = 0, 0, 0
    with precision(BITS):
        while pieces:
            if looked_at >= max_pieces or time.monotonic() > end:
                why = "pieces" if looked_at >= max_pieces else "time"
                return Outcome(
                    Status.OPEN,
                    f"out of {why}: {proved} pieces proved, at least {len(pieces)} left near {_where(axes, pieces[0])}",
                )
            piece = pieces.popleft()  # large ones first: counter-examples are met early
            looked_at += 1
            if skip is not None and skip(piece):
                skipped += 1
                continue
            value = enclosure(piece)
            if value > 0 or (not strict and value >= 0):
                proved += 1
                continue
            middles = [axis.middle(ends) for axis, ends in zip(axes, piece, strict=True)]
            point = [(middle, middle) for middle in middles]
            at_point = enclosure(point)
            if (at_point < 0 or (strict and at_point <= 0)) and not (skip is not None and skip(point)):
                return Outcome(Status.REFUTED, f"fails at {_where(axes, point)}: {at_point.str(8)}")
            widths = [axis.width(ends) for axis, ends in zip(axes, piece, strict=True)]
            longest = widths.index(max(widths))
            low, high = piece[longest]
            for half in ((low, middles[longest]), (middles[longest], high)):
                pieces.append((*piece[:longest], half, *piece[longest + 1 :]))
    outside = f", {skipped} outside the region" if skipped else ""
    return Outcome(Status.PROVED, f"{proved} pieces{outside}: {', '.join(map(str, axes))}")


def _where(axes: Sequence[Axis], piece: Sequence[Ends]) -> str:
    return ", ".join(f"{axis.name} = {_short(axis.middle(ends))}" for axis, ends in zip(axes, piece, strict=True))


def expression_enclosure(expression: sympy.Expr, symbols: Sequence[sympy.Symbol]) -> Enclosure:
    """The enclosure of a sympy expression: direct, and in the mean-value form where there is one and it is tighter."""
    import sympy

    from bandtheory.ball import BallError, ball_function, exact, interval

    value = ball_function(expression, *symbols)
    try:
        gradient = ball_function([sympy.diff(expression, symbol) for symbol in symbols], *symbols)
    except BallError:  # the slope of a function with kinks
        gradient = None

    def enclose(piece: Sequence[Ends]) -> Any:
        balls = [interval(*ends) for ends in piece]
        direct = value(*balls)
        if gradient is None or direct > 0 or direct < 0:
            return direct
        middles = [exact((low + high) / 2) for low, high in piece]
        centred = value(*middles)
        for ball, middle, slope in zip(balls, middles, gradient(*balls), strict=True):
            centred += slope * (ball - middle)
        return _tighter(direct, centred)

    return enclose


def _tighter(first: Any, second: Any) -> Any:
    """The one of two balls for the same number that has the smaller radius; one that is not finite knows nothing."""
    if not second.is_finite():
        return first
    return second if not first.is_finite() or second.rad() < first.rad() else first
