"""Cells of radii of a two-dimensional lookup table, every row of which is proved: what a row claims, and rows that hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandtheory.evidence.surface import Patch, SurfaceClaim, prove_surface
from bandtheory.radius_fit import MOST_ROWS, Fit, RadiusTarget, RowArray
from bandtheory.table_fit import DOMAIN, FLOOR, SIDES, TableError, halves, numbers
from bandtheory.table_proof import Report

Floats = NDArray[np.float64]

DEPTH = 14  # halvings of log δ
ROUNDS = 2  # that a row that cannot be proved is halved; then the cell of radii is


class SideCell(NamedTuple):
    """One side in one cell of radii, R rows.

    Attributes:
        log_delta: ends of the cell.
        scale: coefficients of X(s), shape (DEGREE + 1,).
        knots: of ξ, shape (R + 1,).
        coefficients: c_ik of tⁱ sᵏ, a log-ratio in nats, shape (R, 4, 4).
        errors: excess and shortfall, nats, shape (R, 2); an infinite shortfall claims nothing.
    """

    log_delta: tuple[float, float]
    scale: Floats
    knots: Floats
    coefficients: Floats
    errors: Floats


def proved_cells(target: RadiusTarget, edges: tuple[float, float], side: int, progress: Report | None) -> list[SideCell]:
    """Cells that cover the box in order; one in which no rows are good enough, or cannot be proved, is halved.

    Progress counts the box in parts of the smallest cell.
    """
    waiting, found, done = [(edges, 0)], list[SideCell](), 0
    while waiting:
        (low, high), depth = waiting.pop()
        cell = _proved_cell(target, (low, high), side)
        if cell is not None:
            found.append(cell)
            done += 2 ** (DEPTH - depth)
            if progress is not None:
                progress(done, 2**DEPTH)
            continue
        if depth == DEPTH:
            raise TableError(
                f"{target.divergence.name!r}: no polynomials for the {SIDES[side]} bound near delta = {math.exp(low):.6g} are "
                f"precise enough for max_error = {target.max_error!r}, or can be proved; accepted: a larger max_error"
            )
        middle = (low + high) / 2
        waiting += [((middle, high), depth + 1), ((low, middle), depth + 1)]
    return found


def claims(side: int, cell: SideCell) -> Iterator[SurfaceClaim]:
    """What each row says."""
    low, high = cell.log_delta
    for row, (first, last) in enumerate(zip(cell.knots[:-1], cell.knots[1:], strict=True)):
        shifted = side == 1 and bool(first >= 1)
        patch = Patch(((low + high) / 2, (high - low) / 2), tuple(cell.scale.tolist()), float(first), float(last), shifted)
        coefficients = tuple(tuple(part.tolist()) for part in cell.coefficients[row])
        excess, shortfall = map(float, cell.errors[row])
        size = np.abs(cell.coefficients[row])
        if side == 0 and size[0, 0] - size.ravel()[1:].sum() + shortfall >= FLOOR:
            shortfall = math.inf  # nothing is said of what is below the floor
        yield SurfaceClaim(SIDES[side], patch, coefficients, excess, shortfall)


def _proved_cell(target: RadiusTarget, edges: tuple[float, float], side: int) -> SideCell | None:
    low, high = edges
    fit = Fit(target, ((low + high) / 2, (high - low) / 2), side)
    start, size = np.array([0]), np.array([DOMAIN])
    parts: list[RowArray] = []
    for _ in range(ROUNDS):
        rows = fit.rows(start, size, MOST_ROWS - sum(map(len, parts)))
        if rows is None:
            return None
        holds = _holding(fit, edges, rows)
        parts.append(rows[holds])
        start, size = rows["start"][~holds], rows["size"][~holds]
        if not start.size:
            break
        if (size == 1).any():
            return None
        start, size = halves(fit.stop, start, size)
    else:
        return None
    rows = np.sort(np.concatenate(parts), order="start")
    knots = numbers(np.append(rows["start"], fit.stop))
    if fit.ends:
        last_knots, last = fit.last_rows()
        knots, rows = np.concatenate([knots, last_knots]), np.concatenate([rows, last])
        if not all(prove_surface(target.divergence, claim) for claim in claims(side, _cell(fit, edges, knots[-3:], last))):
            return None
    return _cell(fit, edges, knots, rows)


def _holding(fit: Fit, edges: tuple[float, float], rows: RowArray) -> NDArray[np.bool_]:
    """Which rows are proved."""
    holds = np.zeros(len(rows), dtype=bool)
    for row, (start, size) in enumerate(zip(rows["start"], rows["size"], strict=True)):
        knots = numbers(np.array([start, min(start + size, fit.stop)]))
        for errors in (rows["errors"][row].copy(), _loosest(fit, rows["errors"][row])):
            rows["errors"][row] = errors
            [claim] = claims(fit.side, _cell(fit, edges, knots, rows[row : row + 1]))
            holds[row] = prove_surface(fit.target.divergence, claim)
            if holds[row]:
                break
    return holds


def _loosest(fit: Fit, errors: Floats) -> Floats:
    """The largest errors that may be claimed."""
    return np.where((errors > 0) & np.isfinite(errors), fit.target.max_error, errors)


def _cell(fit: Fit, edges: tuple[float, float], knots: Floats, rows: RowArray) -> SideCell:
    coefficients = rows["coefficients"] * (1 if fit.side else -1) + 0.0  # no −0.0
    return SideCell(edges, fit.scale, knots, coefficients, rows["errors"])
