"""Rows of a lookup table over log-probability and radius, fitted to float64 bounds. Nothing here is trusted.

A lower bound reaches ratio 0, or passes `FLOOR`, and an upper one leaves 1/p, at a log-probability that moves with the radius.
So in a cell of radii, `log δ = m + h s`, each side has a scale X(s), a polynomial through that place, and a coordinate ξ of
`x = |logp|`, in which a bound ends at ξ = 1 whatever the radius: `x = X(s) ξ`, but `x = X(s) + X(0) (ξ − 1)` for upper bounds
beyond it. Where a bound does not end, X = 1. Rows are cells of a dyadic grid in ξ, as in `table_fit`; each has a polynomial,
cubic in its place t and cubic in s, or one in s alone.

A lower bound that ends has two rows more: a gap, |ξ − 1| ≤ 2⁻¹⁶, which stays at what the bound is where the gap begins, so
inside the band, and behind it the ratio 0, or the floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from bandtheory.bounds import log_bounds
from bandtheory.divergence import FDivergence
from bandtheory.table_fit import FLOOR, NODES, OCTAVE, TO_POWERS, Patterns, halves, numbers

Floats = NDArray[np.float64]
RowArray = NDArray[Any]  # of dtype ROW

ROW = np.dtype([("start", "i8"), ("size", "i8"), ("coefficients", "f8", (4, 4)), ("errors", "f8", (2,))])
DEGREE = 9  # of X(s)
GAP = 2.0**-16
SMOOTH = 1e-9  # relative error of X(s)
SMALL = 64  # patterns: a cell next to p = 1, where a lower bound rises from 0 like a root, is a gap if it has no polynomial
ONE = 0x3F800000  # the pattern of ξ = 1, where the coordinate of upper bounds changes: a knot of theirs
MOST_ROWS = 3000  # of a side; a cell of radii that needs more is halved
_T = np.sort(np.concatenate([NODES, [-0.95, -0.765, -0.6, -0.22, 0.0, 0.22, 0.6, 0.765, 0.95]]))
_AT_NODES = np.searchsorted(_T, NODES)
_S = np.array([-1, -0.93, -0.765, -0.22, 0.0, 0.22, 0.765, 0.93, 1])
_FIT, _ROOM, _MARGIN = 0.9, 0.03, 1.05


class RadiusTarget(NamedTuple):
    """What is tabulated, and how well.

    Attributes:
        divergence: of the bands.
        furthest: end of the domain, a float32 number of |logp|.
        max_error: of both log-bounds, nats.
        inside: whether rows must not leave the band.
    """

    divergence: FDivergence
    furthest: float
    max_error: float
    inside: bool


@dataclass(frozen=True)
class Fit:
    """The fit of one side in one cell of radii; coefficients are of distances from ratio 1.

    Attributes:
        target: what is fitted.
        log_delta: m and h.
        side: 0 for lower, 1 for upper.
    """

    target: RadiusTarget
    log_delta: tuple[float, float]
    side: int

    @cached_property
    def _end(self) -> tuple[Floats, bool]:
        """X(s), and whether it is where the bound ends."""
        degree = np.arange(DEGREE + 1)
        places = np.cos(np.pi * (2 * degree + 1) / (2 * DEGREE + 2))
        checks = np.cos(np.pi * degree / DEGREE)
        found = self._ends(np.concatenate([places, checks]))
        if found is not None:
            scale = np.asarray(polynomial.polyfit(places, found[: places.size], DEGREE), np.float64)
            error = np.abs(polynomial.polyval(checks, scale) / found[places.size :] - 1).max()
            if error <= SMOOTH:  # else it ends in floating point only: the upper bound of kl comes exponentially close to 1/p
                return scale, True
        return np.eye(1, DEGREE + 1)[0], False

    @property
    def scale(self) -> Floats:
        """Coefficients of X(s)."""
        return self._end[0]

    @cached_property
    def furthest(self) -> float:
        """The largest ξ of the domain, over all radii."""
        least = float(2 * self.scale[0] - np.abs(self.scale).sum())
        last = 1 + (self.target.furthest - least) / self.scale[0] if self.side else self.target.furthest / least
        return float(last) * (1 + 1e-9)

    def distance(self, xi: Floats, s: Floats) -> Floats:
        """x at each ξ (cells, places) and s: (cells, places, s)."""
        xi, scale = xi[..., None], polynomial.polyval(s, self.scale)
        x: Floats = scale * np.minimum(xi, 1) + np.maximum(xi - 1, 0) * (self.scale[0] if self.side else scale)
        return x

    @cached_property
    def ends(self) -> bool:
        """Whether it is a lower bound that ends inside the domain."""
        return self.side == 0 and self._end[1] and self.furthest > 1 + GAP

    @cached_property
    def stop(self) -> int:
        """Pattern of the ξ up to which rows are polynomials."""
        last = 1 - GAP if self.ends else self.furthest
        pattern = int(np.float32(last).view(np.int32))
        return pattern if float(numbers(np.array([pattern]))[0]) >= last else pattern + 1

    def rows(self, start: Patterns, size: Patterns, most: int = MOST_ROWS) -> RowArray | None:
        """Rows for all parts of these cells, in any order; None where the cell of radii is too wide."""
        parts: list[RowArray] = []
        while start.size:
            if start.size + sum(map(len, parts)) > most:
                return None
            fitted = self._fit_cells(start, size)
            if fitted is None:
                return None
            excess, shortfall = fitted["errors"].T
            allowed = self.target.max_error
            good = (excess <= allowed) & ((shortfall <= allowed) | (excess < np.inf) & np.isinf(shortfall))
            good &= (self.side == 0) | (fitted["start"] >= ONE) | (fitted["start"] + fitted["size"] <= ONE)
            if (~good & (size == 1)).any():
                return None
            parts.append(fitted[good])
            start, size = halves(self.stop, start[~good], size[~good])
        return np.concatenate(parts)

    def last_rows(self) -> tuple[Floats, RowArray]:
        """Of a lower bound that ends: the gap and what is behind it, with the knots at their ends."""
        knots = np.array([1 + GAP, self.furthest])
        rows = np.zeros(2, ROW)
        value = TO_POWERS @ (self._bounds(numbers(np.array([[self.stop]])), NODES)[0, 0] - self._shift)
        value[0] = min(value[0], FLOOR)
        rows["coefficients"][0, 0] = value
        rows["coefficients"][1, 0, 0] = math.inf if np.isinf(self._raw(knots[:1, None], _S)).all() else FLOOR
        rows["errors"] = [[0.0 if self.target.inside else self.target.max_error, np.inf], [0.0, np.inf]]
        return knots, rows

    @property
    def _shift(self) -> float:
        return self.target.max_error / 2 if self.target.inside else 0.0

    def _ends(self, s: Floats) -> Floats | None:
        """Where the bound ends, by halving; None where it does not for some radius."""
        low, high = np.full(s.size, 1e-9), np.full(s.size, 4 * self.target.furthest)
        deltas = np.exp(self.log_delta[0] + self.log_delta[1] * s)
        first, last = self._has_ended(low, deltas), self._has_ended(high, deltas)
        if (first != (self.side == 1)).any() or (last != (self.side == 0)).any():
            return None
        for _ in range(120):
            middle = np.where(high > 4 * low, np.sqrt(low * high), (low + high) / 2)
            beyond = self._has_ended(middle, deltas) == (self.side == 0)
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return high

    def _has_ended(self, x: Floats, deltas: Floats) -> NDArray[np.bool_]:
        """Whether a lower bound is at ratio 0 or below the floor; an upper one at 1/p."""
        band = log_bounds(logp=-x, divergence=self.target.divergence, delta=deltas)
        ended: NDArray[np.bool_] = (band.upper >= x * (1 - 1e-14)) if self.side else (-band.lower >= FLOOR)
        return ended

    def _raw(self, xi: Floats, s: Floats) -> Floats:
        """Distances of bounds from ratio 1 at each ξ (cells, places) and s: (cells, places, s)."""
        x = self.distance(xi, s)
        deltas = np.broadcast_to(np.exp(self.log_delta[0] + self.log_delta[1] * s), x.shape)
        band = log_bounds(logp=-x.ravel(), divergence=self.target.divergence, delta=deltas.ravel())
        found: Floats = np.abs(band.upper if self.side else band.lower).reshape(x.shape)
        return found

    def _bounds(self, xi: Floats, s: Floats) -> Floats:
        found = self._raw(xi, s)
        return found if self.side else np.where(np.isinf(found), found, np.minimum(found, FLOOR))

    def _fit_cells(self, start: Patterns, size: Patterns) -> RowArray | None:
        """For each cell the better of a polynomial in s and one in t and s, with claimed errors: infinite, if too large.

        None where a cubic in s is not enough, however small the cell.
        """
        first, last = numbers(start), numbers(np.minimum(start + size, self.stop))
        middle, half = ((last + first) / 2)[:, None], ((last - first) / 2)[:, None]
        nodes = self._bounds(middle + half * NODES, NODES) - self._shift
        places = middle + half * _T
        tests = self._bounds(places, _S)
        if self._is_too_wide(nodes, tests):
            return None
        edges = self._bounds(np.stack([first, last], axis=1), NODES) - self._shift
        flat, full = np.zeros((len(start), 4, 4)), np.einsum("ia,jb,cab->cij", TO_POWERS, TO_POWERS, nodes)
        with np.errstate(invalid="ignore"):
            flat[:, 0] = (np.maximum(edges[:, 0], 0.0) if self.target.inside else edges.mean(axis=1)) @ TO_POWERS.T
            full[(size > OCTAVE) & (np.abs(full[:, 2:]).max(axis=(1, 2)) > 0)] = np.nan
            flat_errors, full_errors = (self._claimed(c, tests, places) for c in (flat, full))
        chosen = flat_errors.max(axis=1) <= self.target.max_error
        rows = np.zeros(len(start), ROW)
        rows["start"], rows["size"] = start, size
        rows["coefficients"] = np.where(chosen[:, None, None], flat, full)
        rows["errors"] = np.where(chosen[:, None], flat_errors, full_errors)
        gap = ~(rows["errors"].max(axis=1) <= self.target.max_error) & (size <= SMALL) & (self.side == 0)
        rows["coefficients"][gap] = 0.0
        rows["coefficients"][gap, 0] = np.maximum(edges[gap, 0], 0.0) @ TO_POWERS.T
        rows["errors"][gap] = 0.0 if self.target.inside else self.target.max_error, np.inf
        return rows

    def _is_too_wide(self, nodes: Floats, tests: Floats) -> bool:
        """Whether a cubic in s through the nodes is so far off between them that no smaller cell of ξ could help."""
        cubic = np.einsum("kb,cab,sk->cas", TO_POWERS, nodes + self._shift, np.vander(_S, 4, True))
        with np.errstate(invalid="ignore"):
            error = np.abs(cubic - tests[:, _AT_NODES])
        return bool((error > _FIT / 2 * self.target.max_error).any())

    def _claimed(self, coefficients: Floats, tests: Floats, xi: Floats) -> Floats:
        """Errors to be proved, a little larger than those seen; infinite where they are too large."""
        table = np.einsum("cij,ti,sj->cts", coefficients, np.vander(_T, 4, True), np.vander(_S, 4, True))
        excess = np.where(table <= 0, -np.inf, table - tests).max(axis=(1, 2))
        shortfall = (tests - table).max(axis=(1, 2))
        allowed = self.target.max_error
        room = _ROOM * allowed
        claims = np.stack([excess, shortfall], axis=1)
        good = (excess <= (-room if self.target.inside else _FIT * allowed)) & (shortfall <= _FIT * allowed)
        claims = np.minimum(np.maximum(_MARGIN * claims, 0.0) + room, allowed)
        if self.target.inside:
            claims[:, 0] = 0.0
        if self.side == 1:  # where the table is nearly 1/p, that the bound is at most 1/p is the proof
            from_certainty = (self.distance(xi, _S) - table).max(axis=(1, 2)) * _MARGIN + room
            claims[:, 1] = np.where(from_certainty <= allowed, np.maximum(claims[:, 1], from_certainty), claims[:, 1])
        claims[~good] = np.inf
        return claims
