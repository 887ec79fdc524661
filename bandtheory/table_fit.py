"""Knots and cubics of a lookup table, fitted to float64 bounds. Nothing here is trusted: `bandtheory.tables` proves every row.

The coordinate is `x = |logp|`, and the knots are numbers whose float32 bit patterns lie on a dyadic grid. A pattern is a
piecewise linear logarithm: near p = 1 equal stretches of patterns are equal stretches of `log x ≈ −logit p`, and within an
octave they are equal stretches of `x ≈ −logit p`, where p is small. So dyadic cells follow the bounds where they are smooth, a
cell becomes as small as a single float where they are not, and a row is found from the bits of a float, without a logarithm.

A cell has a constant, or a cubic through the bounds at its ends and at ±(√2 − 1), where the error of a cubic with exact ends is
smallest. Its first end is exact and its last one is never beyond the bound there, so that the whole table is monotone. `inside`
moves every row towards 0 by half of the error that is allowed.

A lower bound of ratio 0 has the logarithm −∞. Where the lower bound falls to it, or past `FLOOR`, or from 0 at p = 1, faster
than float32 numbers follow each other, a row is one float wide and constant: a *gap*, right at its first knot and inside the
band between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandtheory.bounds import log_bounds
from bandtheory.divergence import FDivergence

Floats = NDArray[np.float64]
Patterns = NDArray[np.int64]

SIDES = ("lower", "upper")
OCTAVE = 2**23  # patterns
MOST_CELLS = 8192  # of one size that are tried
FLOOR = 104.0  # nats: e^−104 rounds to 0 in float32; finite lower log-bounds below −104, as −δ/p of kl, are tabulated as −104
DOMAIN = 2**31  # patterns of all floats ≥ 0, in which the grid is dyadic
NODES = np.array([-1.0, 1 - math.sqrt(2), math.sqrt(2) - 1, 1.0])
_PLACES = np.array([-0.97, -0.9, -0.765, -0.6, -0.22, 0.0, 0.22, 0.6, 0.765, 0.9, 0.97])  # extremes of the error among them
_HALVINGS = 2.0 ** -np.array([1, 2, 3, 5, 8, 12, 16, 20])  # further places in a cell of several octaves
TO_POWERS = np.linalg.inv(np.vander(NODES, increasing=True))
_FIT = 0.94  # share of the error that the fit may use; the rest is room for a proof
_MARGIN = 1.03  # of a claimed error over the largest that was seen
_FLAT = 2.0**-49  # relative: how far the last end of a row stays from the bound, for the rounding of its evaluation


class TableError(ValueError):
    """A table that cannot be built, read or used; the message says which, and why."""


class Target(NamedTuple):
    """What is tabulated, and how well.

    Attributes:
        divergence, delta: of the band.
        end: pattern of the last knot.
        max_error: of both log-bounds, nats.
        dtype: of the coefficients c₁, c₂, c₃.
        inside: whether rows must not leave the band.
    """

    divergence: FDivergence
    delta: float
    end: int
    max_error: float
    dtype: type[np.floating]
    inside: bool


@dataclass(frozen=True)
class Rows:
    """Rows in any order; arrays of the same length.

    Attributes:
        start: pattern of the first knot of each.
        size: patterns up to the next knot, but for a last row that ends at the table's end.
        values, coefficients, errors: as in `BandTable`.
    """

    start: Patterns
    size: Patterns
    values: Floats
    coefficients: NDArray[np.floating]
    errors: Floats

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, index: NDArray[Any]) -> Rows:
        return Rows(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of several parts."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def fit(target: Target, start: Patterns, size: Patterns) -> tuple[Rows, Patterns, Patterns]:
    """Rows for all parts of these cells that are good enough; start and size of what has none: single floats, or too many."""
    rows: list[Rows] = []
    hopeless: list[tuple[Patterns, Patterns]] = []
    while start.size:
        if start.size > MOST_CELLS:
            return Rows.joined(rows), start, size
        fitted, good = _fit_cells(target, start, size)
        rows.append(fitted[good])
        single = ~good & (size == 1)
        hopeless.append((start[single], size[single]))
        start, size = halves(target.end, start[~good & ~single], size[~good & ~single])
    singles, sizes = (np.concatenate(parts) for parts in zip(*hopeless, strict=True))
    return Rows.joined(rows), singles, sizes


def halves(end: int, start: Patterns, size: Patterns) -> tuple[Patterns, Patterns]:
    """Both halves of each cell, without those that begin at the end of the table or after it."""
    starts = np.concatenate([start, start + size // 2])
    sizes = np.concatenate([size // 2, size // 2])
    inside = starts < end
    return starts[inside], sizes[inside]


def numbers(patterns: Patterns) -> Floats:
    """The float32 numbers of bit patterns, as float64."""
    return patterns.astype(np.int32).view(np.float32).astype(np.float64)


def _fit_cells(target: Target, start: Patterns, size: Patterns) -> tuple[Rows, NDArray[np.bool_]]:
    """A row for each cell, and whether it is good enough."""
    first, last = numbers(start), numbers(np.minimum(start + size, target.end))
    middle, half = (first + last) / 2, (last - first) / 2
    inner = middle[:, None] + half[:, None] * np.concatenate([NODES[1:3], _PLACES])
    x = np.concatenate([first[:, None], last[:, None], inner, np.maximum(last[:, None] * _HALVINGS, first[:, None])], axis=1)
    band = log_bounds(logp=-x, divergence=target.divergence, delta=target.delta)
    lower = np.where(np.isinf(band.lower), np.inf, np.minimum(-band.lower, FLOOR))
    bounds = np.stack([lower, band.upper], axis=1)  # (cells, sides, places), distances from 0
    shift = target.max_error / 2 if target.inside else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        t = np.where(half[:, None] > 0, (x - middle[:, None]) / half[:, None], 0.0)[:, None, :]
        rows, errors = _choose(target, bounds, shift, t, wide=size > OCTAVE)
    first_lower, last_lower = bounds[:, 0, 0], bounds[:, 0, 1]
    fails = ~(errors[:, 0].max(axis=-1) <= target.max_error) | (first_lower < FLOOR) & (last_lower >= FLOOR)
    gap = (size == 1) & np.isfinite(first_lower) & fails
    rows[gap, 0] = 0.0
    rows[gap, 0, 0] = np.maximum(first_lower[gap] - shift, 0.0)
    errors[gap, 0] = 0.0 if target.inside else target.max_error, math.inf
    fine: NDArray[np.bool_] = np.max(errors, axis=2) <= target.max_error
    fine[gap, 0] = True
    signs = np.array([-1.0, 1.0])[:, None]
    errors[np.isinf(rows[..., 0])] = 0.0
    rows = rows * signs + 0.0  # no −0.0
    fitted = Rows(start, size, rows[..., 0], rows[..., 1:].astype(target.dtype), errors)
    return fitted, np.all(fine, axis=1, keepdims=True)[:, 0]


def _choose(target: Target, bounds: Floats, shift: float, t: Floats, wide: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Coefficients and claimed errors of the better of a constant and a cubic, for each cell and side; NaN where neither is."""
    first, last = bounds[..., 0], bounds[..., 1]
    constant = np.zeros((*first.shape, 4))
    constant[..., 0] = np.where(np.isinf(first), np.inf, np.maximum(first - shift, 0.0) if shift else (first + last) / 2)
    cubic = _cubic(target, bounds[..., [0, 2, 3, 1]] - shift)
    unfit = wide[:, None] & (cubic[..., 2:] != 0).any(axis=-1)
    cubic[unfit | ~_is_monotone(cubic) | ~(first >= shift)] = np.nan
    found = []
    for rows in (constant, cubic):
        table = rows[..., :1] + t * (rows[..., 1:2] + t * (rows[..., 2:3] + t * rows[..., 3:4]))
        saturated = np.isinf(bounds) & np.isinf(table)
        excess = np.max(np.where(saturated | (table <= 0), -np.inf, table - bounds), axis=-1)  # ratio 1 is in every band
        shortfall = np.max(np.where(saturated, 0.0, bounds - table), axis=-1)
        found.append(_claimed(target, excess, shortfall))
    flat: NDArray[np.bool_] = np.max(found[0], axis=-1) <= target.max_error
    return np.where(flat[..., None], constant, cubic), np.where(flat[..., None], found[0], found[1])


def _claimed(target: Target, excess: Floats, shortfall: Floats) -> Floats:
    """Errors to be proved, a little larger than those seen; infinite where the fit is not good enough."""
    allowed = _FIT * target.max_error
    room = 0.02 * target.max_error
    claims = np.stack([excess, shortfall], axis=-1)
    exact = claims <= 0
    claims = np.where(exact, room, np.minimum(_MARGIN * claims + room, target.max_error))
    good = (excess <= (-room if target.inside else allowed)) & (shortfall <= allowed)
    claims[~good] = np.inf
    if target.inside:
        claims[good, 0] = 0.0
    return claims


def _cubic(target: Target, values: Floats) -> Floats:
    """Coefficients of the cubic through values at the four nodes; c₁, c₂, c₃ as they are stored."""
    rows: Floats = np.einsum("ij,...j->...i", TO_POWERS, values)
    noise = 2.0**-44 * np.abs(values).max(axis=-1, keepdims=True)
    rows[..., 1:] = np.where(np.abs(rows[..., 1:]) <= noise, 0.0, rows[..., 1:])
    rows[..., 1:] = rows[..., 1:].astype(target.dtype)
    rise = values[..., 3] - values[..., 0] - _FLAT * np.abs(values[..., 3])
    for _ in range(4):  # of a unit in the last place each, towards 0: the rise from the first end to the last is 2 (c₁ + c₃)
        beyond = 2 * (rows[..., 1] + rows[..., 3]) > rise
        lowered = np.nextafter(rows[..., 1].astype(target.dtype), target.dtype(0)).astype(np.float64)
        lowered = np.minimum(lowered, rows[..., 1] - _FLAT / 2 * np.abs(values[..., 3])).astype(target.dtype)
        rows[..., 1] = np.where(beyond, lowered, rows[..., 1])
    rows[..., 0] = values[..., 0] + (rows[..., 1] - rows[..., 2] + rows[..., 3])
    rows[2 * (rows[..., 1] + rows[..., 3]) > np.maximum(rise, 0.0)] = np.nan
    return rows


def _is_monotone(rows: Floats) -> NDArray[np.bool_]:
    """Whether each cubic never decreases on [−1, 1]."""
    return steepest_descent(rows) >= 0


def steepest_descent(rows: Floats) -> Floats:
    """The smallest derivative of each cubic on [−1, 1]: `c₁ + 2 c₂ t + 3 c₃ t²` at an end or at its vertex."""
    _, c1, c2, c3 = np.moveaxis(rows, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.where((c3 > 0) & (np.abs(c2) < 3 * c3), c1 - c2 * c2 / (3 * c3), np.inf)
    slope: Floats = np.minimum(np.minimum(c1 - 2 * c2 + 3 * c3, c1 + 2 * c2 + 3 * c3), vertex)
    return slope
