"""The cells of radii of a two-dimensional lookup table, as arrays, and one bound of it at one radius."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from bandtheory.radius_fit import DEGREE, GAP, SMALL
from bandtheory.radius_proof import SideCell
from bandtheory.table_fit import FLOOR

Floats = NDArray[np.float64]

_S = np.linspace(-1, 1, 9)  # where monotonicity is looked at


@dataclass(frozen=True, eq=False)
class SideCells:
    """One side: K cells of radii with R rows in all.

    Attributes:
        edges: of log δ, increasing, shape (K + 1,).
        scales: coefficients of X(s) of each cell, shape (K, DEGREE + 1).
        counts: rows of each cell, int64, shape (K,).
        knots: of ξ, those of a cell one after another, shape (R + K,).
        coefficients: c_ik of tⁱ sᵏ, a log-ratio in nats, shape (R, 4, 4). c₀₀ = −inf is the ratio 0.
        errors: excess and shortfall, nats, shape (R, 2); an infinite shortfall claims nothing.
    """

    edges: Floats
    scales: Floats
    counts: NDArray[np.int64]
    knots: Floats
    coefficients: Floats
    errors: Floats

    @classmethod
    def of(cls, cells: list[SideCell]) -> SideCells:
        """The cells of a box, in order."""
        edges = [cells[0].log_delta[0], *(cell.log_delta[1] for cell in cells)]
        counts = [len(cell.errors) for cell in cells]
        parts = (np.concatenate([getattr(cell, name) for cell in cells]) for name in ("knots", "coefficients", "errors"))
        return cls(np.array(edges), np.stack([cell.scale for cell in cells]), np.array(counts), *parts)

    def __iter__(self) -> Iterator[SideCell]:
        return (self.cell(k) for k in range(len(self.counts)))

    def cell(self, k: int) -> SideCell:
        """One of the cells."""
        first = int(self.counts[:k].sum())
        last = first + int(self.counts[k])
        low, high = self.edges[k : k + 2].tolist()
        knots = self.knots[first + k : last + k + 1]
        return SideCell((low, high), self.scales[k], knots, self.coefficients[first:last], self.errors[first:last])

    def at(self, log_delta: float, upper: bool) -> SliceSide:
        """The bound at one radius."""
        cell = self.cell(int(np.clip(np.searchsorted(self.edges, log_delta, side="right") - 1, 0, len(self.counts) - 1)))
        low, high = cell.log_delta
        s = float(np.clip((2 * log_delta - low - high) / (high - low), -1.0, 1.0))
        scale = float(polynomial.polyval(s, cell.scale))
        return SliceSide(scale, float(cell.scale[0]) if upper else scale, cell.knots, cell.coefficients @ s ** np.arange(4.0))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def problems(self, box: tuple[float, float], furthest: float, max_error: float, inside: bool, lower: bool) -> Iterator[str]:
        """What is wrong with types, shapes and ranges, with how the cells and rows cover the box, and with monotonicity."""
        count, rows = self.counts.size, int(self.counts.sum()) if self.counts.dtype == np.int64 else 0
        shapes = ((count + 1,), (count, DEGREE + 1), (count,), (rows + count,), (rows, 4, 4), (rows, 2))
        for (name, array), shape in zip(self.arrays().items(), shapes, strict=True):
            dtype = np.dtype(np.int64 if name == "counts" else np.float64)
            if array.shape != shape or array.dtype != dtype or not count:
                yield f"{name} has shape {array.shape} and dtype {array.dtype}, not {shape} and {dtype}"
                return
        if not ((self.counts > 0).all() and (self.edges[0], self.edges[-1]) == box and (np.diff(self.edges) > 0).all()):
            yield f"the cells must cover log delta from {box[0]!r} to {box[1]!r}"
            return
        for k, cell in enumerate(self):
            yield from (f"cell {k}: {problem}" for problem in _problems(cell, furthest, max_error, inside, lower))


PARTS = tuple(field.name for field in fields(SideCells))


@dataclass(frozen=True, eq=False)
class SliceSide:
    """One bound at one radius: on row i, ξ from knots[i] to knots[i + 1] and t ∈ [−1, 1] along it, `bound = Σ c_k tᵏ`.

    Attributes:
        scale, beyond: X and X', with `x = |logp| = X ξ` up to ξ = 1, and `X + X' (ξ − 1)` from there.
        knots: shape (R + 1,).
        coefficients: c₀ … c₃, nats, shape (R, 4).
    """

    scale: float
    beyond: float
    knots: Floats
    coefficients: Floats

    def __call__(self, x: Floats) -> Floats:
        """The log-bound at each `x = |logp|`."""
        xi = np.where(x <= self.scale, x / self.scale, 1 + (x - self.scale) / self.beyond)
        row = np.searchsorted(self.knots[1:-1], xi, side="right")
        first, last = self.knots[row], self.knots[row + 1]
        t = (2 * xi - first - last) / (last - first)
        c0, c1, c2, c3 = np.moveaxis(self.coefficients[row], -1, 0)
        value: Floats = c0 + t * (c1 + t * (c2 + t * c3))
        return value


def _problems(cell: SideCell, furthest: float, max_error: float, inside: bool, lower: bool) -> Iterator[str]:
    least = 2 * cell.scale[0] - np.abs(cell.scale).sum()
    if not (np.isfinite(cell.scale).all() and least > 0):
        yield "the scale must be positive"
        return
    last = furthest / least if lower else 1 + (furthest - least) / cell.scale[0]
    if not (cell.knots[0] == 0 and (np.diff(cell.knots) > 0).all() and last <= cell.knots[-1] < np.inf):
        yield "knots must increase from 0 to the end of the domain"
        return
    if not lower and 1.0 not in cell.knots:
        yield "1 must be a knot, where the coordinate changes"
    zero = np.isneginf(cell.coefficients[:, 0, 0]) & lower
    finite = np.where(zero, 0.0, cell.coefficients[:, 0, 0])
    rest = cell.coefficients.copy()
    rest[:, 0, 0] = finite
    if not np.isfinite(rest).all() or rest[zero].any():
        yield "coefficients must be finite, but for a lower bound −inf"
        return
    allowed = np.where(np.isinf(cell.errors) & [False, True] & _may_be_gaps(cell, lower)[:, None], np.inf, max_error)
    if not ((cell.errors >= 0) & (cell.errors <= allowed)).all():
        yield f"errors must lie between 0 and max_error = {max_error!r}"
    if inside and cell.errors[:, 0].any():
        yield "a table that is inside the band has no excess"
    values = np.einsum("rik,ti,sk->rts", rest, np.vander([-1.0, 1.0], 4, True), np.vander(_S, 4, True))
    values[zero] = -np.inf
    ends = values.reshape(-1, _S.size) * (-1 if lower else 1)
    if (ends < -max_error).any():
        yield "the bound must not be on the other side of ratio 1"
    with np.errstate(invalid="ignore"):
        falls = (ends[1:] < ends[:-1] - 2 * max_error).any()
    if falls:
        yield "the bound must be monotone in logp"


def _may_be_gaps(cell: SideCell, lower: bool) -> NDArray[np.bool_]:
    """Which rows may do without a shortfall: of a lower bound, behind its end, in the gap before that, or flat and tiny."""
    is_flat = (cell.coefficients[:, 1:] == 0).all(axis=(1, 2))
    ended = is_flat & (cell.coefficients[:, 0, 0] <= -FLOOR) & (cell.coefficients[:, 0, 1:] == 0).all(axis=1)
    gap = (cell.knots[:-1] >= 1 - GAP) & (cell.knots[1:] <= 1 + GAP) & np.append(ended[1:], False)
    patterns = cell.knots.astype(np.float32).view(np.int32).astype(np.int64)
    found: NDArray[np.bool_] = (ended | gap | is_flat & (np.diff(patterns) <= SMALL)) & lower
    return found
