"""Rows of a lookup table with their proofs: what a row claims, and rows all of whose claims are proved."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bandtheory.evidence.interval import IntervalClaim, prove
from bandtheory.table_fit import DOMAIN, FLOOR, SIDES, Rows, TableError, Target, fit, halves, numbers

Floats = NDArray[np.float64]
Report = Callable[[int, int], None]


def proved_rows(target: Target, progress: Report | None) -> Rows:
    """Rows that cover the domain in order; those that cannot be proved are halved and fitted again."""
    start, size = np.array([0]), np.array([DOMAIN])
    parts: list[Rows] = []
    total = done = 0
    while start.size:
        rows, failed, sizes = fit(target, start, size)
        if failed.size:
            _give_up(target, failed, sizes, "no cubic is precise enough")
        total += len(rows)
        holds = np.zeros(len(rows), dtype=bool)
        for row in range(len(rows)):
            knots = numbers(np.array([rows.start[row], min(rows.start[row] + rows.size[row], target.end)]))
            said = claims(knots, target.max_error, rows.values[row], rows.coefficients[row], rows.errors[row])
            holds[row] = all(prove(target.divergence, target.delta, claim) is not None for claim in said)
            done += int(holds[row])
            if progress is not None:
                progress(done, total)
        parts.append(rows[holds])
        start, size = rows.start[~holds], rows.size[~holds]
        if (size == 1).any():
            _give_up(target, start[size == 1], size[size == 1], "the error of a cubic cannot be proved")
        total -= len(start)
        start, size = halves(target.end, start, size)
    joined = Rows.joined(parts)
    return joined[np.argsort(joined.start)]


def _give_up(target: Target, start: NDArray[np.int64], size: NDArray[np.int64], why: str) -> None:
    low, high = numbers(np.array([start[0], start[0] + size[0]])).tolist()
    raise TableError(
        f"{target.divergence.name!r}, delta = {target.delta!r}: {why} for max_error = {target.max_error!r} "
        f"at logp in [{-high!r}, {-low!r}]; accepted: a larger max_error"
    )


def claims(
    knots: NDArray[np.floating], max_error: float, values: Floats, coefficients: NDArray[np.floating], errors: Floats
) -> list[IntervalClaim]:
    """What a row says of both bounds."""
    low, high = map(float, knots)
    found = []
    for side, name in enumerate(SIDES):
        cubic = (float(values[side]), *map(float, coefficients[side]))
        excess, shortfall = map(float, errors[side])
        gap = math.isinf(shortfall)
        if gap:
            shortfall = max_error
        if name == "lower" and abs(cubic[0]) - sum(map(abs, cubic[1:])) + shortfall >= FLOOR:
            shortfall, gap = math.inf, False
        found.append(IntervalClaim(name, low, high, cubic, excess, shortfall, gap))  # type: ignore[arg-type]
    return found
