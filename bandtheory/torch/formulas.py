"""Log-ratio bounds in float64 by formulas over tensors, for devices: no decision that depends on the data.

The formulas of the numpy layer run on tensors; where there is no closed form the root takes a fixed number of Newton steps,
measured when the rule is first used. They lack that layer's high precision for doubtful tokens: right at the point of
saturation a lower bound keeps about ten digits.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandtheory.bounds import log_bounds as numpy_log_bounds
from bandtheory.closed_form_search import closed_form
from bandtheory.closed_forms import ClosedForm
from bandtheory.divergence import divergence
from bandtheory.engine import LOG_ZERO_RADIUS, REACH
from bandtheory.evaluation import evaluator
from bandtheory.radius import Radius, f_radius
from bandtheory.radius_cells import SliceSide
from bandtheory.radius_table import RadiusSlice
from bandtheory.reduction import Probability, Reduction, solve, solve_fixed
from bandtheory.rules import AdaptiveClip, Band, NoClip, RatioClip, RelaxedBand, TableRule, parse
from bandtheory.tables import BandTable


def host_bounds(logp: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """The numpy library itself, for CPU tensors: faster there than tensor operations, and it corrects what rounding spoils."""
    bounds = parse(rule).log_bounds(torch.where(torch.isnan(logp), -1.0, logp).numpy())
    return torch.from_numpy(np.asarray(bounds.lower)), torch.from_numpy(np.asarray(bounds.upper))


def through_the_host(rule: str, logp: Tensor) -> tuple[Tensor, Tensor]:
    """`host_bounds` of a tensor on any device, which waits for it."""
    lower, upper = host_bounds(logp.cpu(), rule)
    return lower.to(logp.device), upper.to(logp.device)


@functools.lru_cache(maxsize=256)
def device_program(rule: str) -> Any:
    """The rule as a function of float64 log-probabilities ≤ 0 on any device, without a decision that depends on the data."""
    match parse(rule):
        case NoClip():
            return functools.partial(_constant, -math.inf, math.inf)
        case RatioClip() as clip:
            return functools.partial(_constant, *clip.log_interval)
        case AdaptiveClip() as adaptive:
            return functools.partial(adaptive.log_bounds_in, torch)
        case Band() as band:
            return _BandProgram(band)
        case RelaxedBand() as relaxed:
            return _relaxed(relaxed)
        case TableRule(table=BandTable() as table) as tabulated:
            return _TableProgram(table, tabulated.max_ratio)
        case TableRule(table=RadiusSlice() as table) as tabulated:
            return _SliceProgram(table, tabulated.max_ratio)


def _constant(lower: float, upper: float, logp: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full_like(logp, lower), torch.full_like(logp, upper)


def _relaxed(rule: RelaxedBand) -> Any:
    band, (low, high) = _BandProgram(rule.band), rule.clip.log_interval
    cap = math.inf if rule.max_ratio is None else math.log(rule.max_ratio)

    def program(logp: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = band(logp)
        return torch.clamp(lower, max=low), torch.clamp(torch.clamp(upper, min=high), max=cap)

    return program


class _BandProgram:
    """A band compiled for torch: everything that depends only on the divergence and its radius is a Python number here."""

    def __init__(self, band: Band) -> None:
        resolved = divergence(band.divergence)
        self.band = band
        self.cap = math.inf if band.max_ratio is None else math.log(band.max_ratio)
        form = closed_form(resolved)
        self.closed = None if form is None else ClosedForm(form, torch)
        self.reduction = Reduction(evaluator(resolved), torch)
        self.saturates = math.isfinite(self.reduction.evaluator.value_at_zero)
        with np.errstate(divide="ignore"):
            self.radius = Radius(*(float(field[0]) for field in f_radius(resolved, np.array([band.delta]))))
        self.log_radius = self.radius.log if band.delta > 0 else LOG_ZERO_RADIUS
        self.pointlike = band.delta == 0 and not self.reduction.evaluator.flat
        edges = [-math.inf, 0.0]
        limits = numpy_log_bounds(logp=edges, divergence=resolved, delta=band.delta)
        self.absent, self.certain = np.stack([limits.lower, limits.upper], axis=1).tolist()
        needs_root = self.closed is None or not self.saturates
        self.iterations = _iterations(Reduction(evaluator(resolved)), self.log_radius) if needs_root else 0

    def __call__(self, logp: Tensor) -> tuple[Tensor, Tensor]:
        if self.pointlike:
            return _constant(0.0, 0.0, logp)
        if not self.reduction.evaluator.everywhere:
            # a generator that grows too fast for doubles, as exp(u): these formulas lose it at extreme tokens, numpy does not
            return through_the_host(str(self.band), logp)
        inside = (logp < 0) & (logp > -math.inf)
        log_p = torch.where(inside, logp, -1.0)
        prob = Probability.from_log(torch, log_p)
        upper, lower = self._log_ratio(prob), self._log_complement(prob.mirrored())
        ends = [
            torch.where(logp == -math.inf, absent, torch.full_like(logp, certain))
            for absent, certain in zip(self.absent, self.certain, strict=True)
        ]
        lower, upper = torch.where(inside, lower, ends[0]), torch.where(inside, upper, ends[1])
        return lower, torch.clamp(upper, max=self.cap)

    def _log_ratio(self, prob: Probability) -> Tensor:
        """`log r` of the upper bound."""
        return self._root(prob)[0] if self.closed is None else self.closed.log_ratio(prob, self.radius)

    def _log_complement(self, prob: Probability) -> Tensor:
        """`log c` at the upper bound."""
        if self.closed is None:
            return self._root(prob)[1]
        # where the complement's probability underflows, c is out of reach of the closed form: 0 if the bound saturates at all
        gone = prob.log_not_p < -REACH
        return torch.where(
            gone, -math.inf if self.saturates else self._root(prob)[1], self.closed.log_complement(prob, self.radius)[0]
        )

    def _root(self, prob: Probability) -> tuple[Tensor, Tensor]:
        log_r, log_c = solve_fixed(self.reduction, prob, self.log_radius, self.iterations)
        saturated = self.reduction.saturation(prob, self.log_radius) <= 0
        return torch.where(saturated, -prob.log_p, log_r), torch.where(saturated, -math.inf, log_c)


class _TableProgram:
    """A table on the device that asks first, evaluated in float64."""

    def __init__(self, table: BandTable, max_ratio: float | None) -> None:
        self.cap = math.inf if max_ratio is None else math.log(max_ratio)
        self.arrays = [torch.from_numpy(array.astype(np.float64)) for array in (table.knots, table.values, table.coefficients)]

    def __call__(self, logp: Tensor) -> tuple[Tensor, Tensor]:
        self.arrays = [array.to(logp.device) for array in self.arrays]
        knots, values, coefficients = self.arrays
        x = torch.minimum(-logp, knots[-1])
        row, t = _row_and_place(x, knots)
        c1, c2, c3 = coefficients[row].unbind(-1)
        t = t.unsqueeze(-1)
        lower, upper = (values[row] + t * (c1 + t * (c2 + t * c3))).unbind(-1)
        return torch.clamp(lower, max=0.0), torch.clamp(upper, min=0.0, max=self.cap)


class _SliceProgram:
    """One radius of a table of radii, on the device that asks first, evaluated in float64."""

    def __init__(self, table: RadiusSlice, max_ratio: float | None) -> None:
        self.cap = math.inf if max_ratio is None else math.log(max_ratio)
        self.furthest, self.sides = -table.logp_min, (table.lower, table.upper)
        self.arrays = [tuple(map(torch.from_numpy, (side.knots, side.coefficients))) for side in self.sides]

    def __call__(self, logp: Tensor) -> tuple[Tensor, Tensor]:
        self.arrays = [tuple(array.to(logp.device) for array in arrays) for arrays in self.arrays]
        x = torch.clamp(-logp, max=self.furthest)
        lower, upper = (self._side(x, side, *arrays) for side, arrays in zip(self.sides, self.arrays, strict=True))
        return torch.clamp(lower, max=0.0), torch.clamp(upper, min=0.0, max=self.cap)

    def _side(self, x: Tensor, side: SliceSide, knots: Tensor, coefficients: Tensor) -> Tensor:
        xi = torch.where(x <= side.scale, x / side.scale, 1 + (x - side.scale) / side.beyond)
        row, t = _row_and_place(xi, knots)
        c0, c1, c2, c3 = coefficients[row].unbind(-1)
        return c0 + t * (c1 + t * (c2 + t * c3))


def _row_and_place(x: Tensor, knots: Tensor) -> tuple[Tensor, Tensor]:
    """The row between two knots, and t ∈ [−1, 1] along it."""
    row = torch.searchsorted(knots[1:-1], x, right=True)
    first, last = knots[row], knots[row + 1]
    return row, (2 * x - first - last) / (last - first)


def _iterations(reduction: Reduction, log_radius: float) -> int:
    """Steps after which every token of a grid over (0, 1), extremes included, has converged, and one for those between."""
    decades = np.geomspace(1e-300, 1e4, 3001)
    with np.errstate(all="ignore"):
        log_p = np.concatenate([-decades, -np.geomspace(1e-6, 104, 2001)])
        prob = Probability.from_log(np, log_p)
        needed = 1
        for side in (prob, prob.mirrored()):
            level = np.full_like(log_p, log_radius)
            open_ended = reduction.saturation(side, level) > 0
            if open_ended.any():
                part, level = side.where(open_ended), level[open_ended]
                needed = max(needed, int(np.nanmax(solve(reduction, part, level, reduction.start(part, level)).steps)))
    return needed + 1
