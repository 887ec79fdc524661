"""A rule's bounds, log-ratios or ratios, on every float32: cubics over its bit pattern.

In training the bounds are functions of one float, the old log-probability. A float32 is a piecewise linear function of its bit
pattern with a new piece at each power of two, so cutting the patterns into equal stretches cuts |log p| into 128 intervals an
octave, over all 76 decades: no logarithm is taken to find the interval, and the place in it is exact. On nearly all of them a
cubic is right to a small part of a unit in the last place. Where it is not (saturation, caps, kinks, log-ratios that fall to
−∞ exponentially) the stretch is cut again, and in the end into single floats:

    bits = pattern of |logp|                                 2³¹ patterns, those of NaN and ∞ among them
    n = nodes[bits >> 16]
    for (whole, part) in (16, 11), (11, 6), (6, 0):  if n < 0:  n = nodes[~n + ((bits >> part) mod 2^(whole − part))]
    bound = c₀ + t (c₁ + t (c₂ + t c₃)),  c = rows[n],  t ∈ [−1, 1) the place in the stretch

A cubic through four Chebyshev points is compared with the float64 bounds where its error is largest, and at the ends.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandtheory.bounds import DOUBT
from bandtheory.rules import Rule, parse
from bandtheory.tabulation import Floats, checked, expressed, is_regular, log_bounds_of, moved_inward, stays_inside

SHIFTS = (16, 11, 6, 0)  # a stretch of each level is 2**shift floats
ROOTS = 2**31 >> SHIFTS[0]
INFINITE = 0x7F800000  # the pattern of ∞; those above are NaN
ENOUGH = 0.05  # error of a cubic, before rounding, in units in the last place of a float32
STEEPEST = 1 / 8  # largest share of a bound that may come from the cubic's other terms: their rounding adds to its own
# relative error of a float64 log-bound that is worth 60 digits: a hundredth of a float32's last place or, as a ratio's relative
# error is |log-bound| ≤ 104 times that, a fiftieth
TOLERATED = {"log_ratio": 1e-9, "ratio": DOUBT}
LEAST_NORMAL, SMALL = 2.0**-126, 2.0**-123  # between them a ratio's rounding is looked at, as `_rounds_well` says
SMALL_ERROR = 1.6  # and may be this much, in units in the last place
MOST_REFINED = 4096  # stretches of a level; a rule that needs more has no table
SIDES = 2

_NODES = np.cos(np.pi * (2 * np.arange(4) + 1) / 8)  # zeros of T₄
_EXTREMES = np.array([-math.sqrt(0.5), 0.0, math.sqrt(0.5)])  # where |T₄| = 1, as it is at the ends ±1
_TO_COEFFICIENTS = np.linalg.inv(np.vander(_NODES, increasing=True))

# What rounding of coefficients and evaluation can change, relative and in the smallest numbers, and the largest number.
FLOAT32_ROUNDING = (3.5 * 2.0**-24, 2.0**-147, 2.0**128 - 2.0**106)
_ONE_AT_A_TIME = threading.Lock()


class FloatTable(NamedTuple):
    """Both bounds of one rule as functions of a float32, as the module describes.

    Attributes:
        nodes: int32, shape (N,). The first `ROOTS` belong to the stretches of the first level.
        rows: float32, shape (R, 8): c₀ … c₃ of the lower bound, then of the upper bound, as log-ratios (nats) or as ratios.
    """

    nodes: NDArray[np.int32]
    rows: NDArray[np.float32]


def float_table(rule: str, quantity: str = "log_ratio") -> FloatTable | None:
    """The table of a rule, given as its string, or None.

    There is none for a rule that changes too abruptly in too many places, nor for a band whose float64 bounds are solved in
    high precision token by token (`exp(u - 1) - u`, or a generator that is flat around 1 at radius 0). Building takes 0.1 to
    3 seconds, up to 30 where a band saturates as p → 1, and is done once for a rule.

    Args:
        rule: a rule's string.
        quantity: "log_ratio" for log-bounds in nats; "ratio" for their exponentials. Those have a table of their own, since the
            exponential of a float32 log-bound b is wrong by about |b|/2 units in its last place.

    Raises:
        ValueError: another quantity.
    """
    return _float_table(rule, checked(quantity))


@functools.lru_cache(maxsize=64)
def _float_table(rule: str, quantity: str) -> FloatTable | None:
    parsed = parse(rule)
    with _ONE_AT_A_TIME:
        return _Builder(parsed, quantity).build() if is_regular(parsed) else None


class _Builder:
    """Collects rows, and nodes but for those of the first level, which come first in the end."""

    def __init__(self, rule: Rule, quantity: str) -> None:
        self.rule, self.quantity = rule, quantity
        self.nodes: list[NDArray[np.int32]] = []
        self.rows: list[NDArray[np.float32]] = []
        self.row_count, self.node_count = 0, ROOTS

    def build(self) -> FloatTable | None:
        with np.errstate(all="ignore"):
            self.unknown = self._add_rows(np.full((1, SIDES, 4), np.nan))
            roots = self._level(np.arange(ROOTS, dtype=np.int64) << SHIFTS[0], 0)
        if roots is None:
            return None
        return FloatTable(np.concatenate([roots, *self.nodes]), np.concatenate(self.rows))

    def _level(self, starts: NDArray[np.int64], level: int) -> NDArray[np.int32] | None:
        """Nodes of the stretches of one level that begin at these patterns, after those of the levels below them."""
        if level == len(SHIFTS) - 1:
            return self._singles(starts)
        nodes, fits = self._cubics(starts, SHIFTS[level])
        failed = starts[~fits]
        if failed.size > MOST_REFINED:
            return None
        fanout = 1 << (SHIFTS[level] - SHIFTS[level + 1])
        children = self._level((failed[:, None] + (np.arange(fanout) << SHIFTS[level + 1])).ravel(), level + 1)
        if children is None:
            return None
        nodes[~fits] = ~(self._add_nodes(children) + fanout * np.arange(failed.size))
        return nodes

    def _bounds(self, logp: Floats) -> Floats:
        """Both bounds in a last axis before which the shape of logp stays."""
        logs = log_bounds_of(self.rule, logp.ravel(), TOLERATED[self.quantity])
        lower, upper = expressed(self.rule, self.quantity, *logs)
        if stays_inside(self.rule):
            lower, upper = moved_inward(self.quantity, lower, upper, FLOAT32_ROUNDING)
        return np.stack([lower, upper], axis=-1).reshape(*logp.shape, SIDES)

    def _cubics(self, starts: NDArray[np.int64], shift: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Row numbers of stretches of 2**shift patterns from `starts` on, and on which of them a cubic is precise."""
        nodes, fits = np.full(starts.size, self.unknown[0]), starts > INFINITE
        finite = np.flatnonzero(starts < INFINITE)
        first, last = _float64(starts[finite]), _float64(starts[finite] + (1 << shift))
        middle, half = (first + last) / 2, (last - first) / 2
        places = np.concatenate([_NODES, _EXTREMES])
        inner = self._bounds(-(middle[:, None] + half[:, None] * places))
        values = np.concatenate([inner, self._bounds(-first)[:, None], self._bounds(-last)[:, None]], axis=1)
        nearest = values.astype(np.float32)
        values[np.isinf(nearest)] *= np.inf  # what overflows a float32 is infinite,
        values[nearest == 0] *= 0.0  # and what underflows is 0, however fast it falls
        coefficients = np.einsum("ij,sjk->ski", _TO_COEFFICIENTS, values[:, :4])
        constant = (values == values[:, :1]).all(axis=1)
        coefficients[constant] = np.stack([values[:, 0][constant], *np.zeros((3, constant.sum()))], axis=-1)
        powers = np.vander(np.concatenate([_EXTREMES, [-1.0, 1.0]]), 4, increasing=True)
        error = np.abs(np.einsum("ti,ski->stk", powers, coefficients) - values[:, 4:])
        precise = error <= ENOUGH * np.spacing(np.abs(values[:, 4:]).astype(np.float32)).astype(np.float64)
        size = np.abs(coefficients)
        flat = size[..., 1:].sum(axis=-1) <= STEEPEST * size[..., 0]
        fitted = (constant | precise.all(axis=1) & flat).all(axis=1)
        if self.quantity == "ratio":
            lowest, highest = values.min(axis=1), values.max(axis=1)
            small = ((lowest < SMALL) & (highest >= LEAST_NORMAL)).any(axis=1)
            for i in np.flatnonzero(fitted & small):
                fitted[i] = _rounds_well(coefficients[i], shift)
        fits[finite[fitted]] = True
        nodes[finite[fitted]] = self._add_rows(coefficients[fitted])
        return nodes, fits

    def _singles(self, patterns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Row numbers of single floats."""
        coefficients = np.zeros((patterns.size, SIDES, 4))
        logp = np.where(patterns == INFINITE, -np.inf, -_float64(patterns))
        coefficients[..., 0] = self._bounds(logp)
        coefficients[patterns > INFINITE] = np.nan
        return self._add_rows(coefficients)

    def _add_rows(self, coefficients: Floats) -> NDArray[np.int32]:
        """Their numbers."""
        self.rows.append(coefficients.reshape(-1, 4 * SIDES).astype(np.float32))
        self.row_count += len(coefficients)
        return np.arange(self.row_count - len(coefficients), self.row_count, dtype=np.int32)

    def _add_nodes(self, nodes: NDArray[np.int32]) -> int:
        """Where they begin."""
        self.nodes.append(nodes)
        self.node_count += nodes.size
        return self.node_count - nodes.size


def _rounds_well(coefficients: Floats, shift: int) -> bool:
    """Whether cubics, shape (SIDES, 4), keep their precision in float32 at every place of a stretch.

    Next to the least normal number all terms but the first are denormal: each is rounded by as much as the sum, which adds up.
    """
    t = np.arange(1 << shift) * 2.0 ** (1 - shift) - 1
    exact = coefficients @ np.vander(t, 4, increasing=True).T
    looked_at = (exact >= LEAST_NORMAL) & (exact < SMALL)
    allowed = SMALL_ERROR * np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    first, *others = _to_float32(coefficients.T)[::-1, :, None]
    for fused in ((False, False, False), (False, False, True), (True, True, True)):  # as processors multiply and add
        value = first
        for coefficient, together in zip(others, fused, strict=True):
            product = value * t
            value = _to_float32(coefficient + (product if together else _to_float32(product)))
        if (looked_at & (np.abs(value - exact) > allowed)).any():
            return False
    return True


def _to_float32(values: Floats) -> Floats:
    return values.astype(np.float32).astype(np.float64)


def _float64(patterns: NDArray[np.int64]) -> Floats:
    """The numbers of float32 patterns; that of ∞ stands for 2¹²⁸, the end of the last stretch."""
    finite = patterns < INFINITE
    return np.where(finite, np.where(finite, patterns, 0).astype(np.int32).view(np.float32).astype(np.float64), 2.0**128)
