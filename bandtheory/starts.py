"""First guesses for the root finder: a cubic through roots solved on a coarse grid, so that one Newton step finishes.

The root `log z` is a smooth function of the log-odds of p except where the bound saturates; tokens in the interval where it
does are simply solved from further away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bandtheory.reduction import Probability, Reduction, solve

KNOTS = 4096


@dataclass(frozen=True)
class StartTable:
    """`log z` at equidistant log-odds, with the coefficients of the cubic on each interval."""

    origin: float
    step: float
    coefficients: NDArray[np.float64]  # (KNOTS − 1, 4), ascending powers of the position in [0, 1]

    @classmethod
    def build(cls, reduction: Reduction, ends: Probability, log_radius: float) -> StartTable:
        """Solve the grid between the two tokens of `ends` for one radius."""
        odds = np.sort(ends.log_p - ends.log_not_p)
        grid = np.linspace(odds[0], odds[1] + 1e-9, KNOTS)
        log_p, log_not_p = -np.logaddexp(0, -grid), -np.logaddexp(0, grid)
        prob = Probability(log_p, log_not_p, np.exp(log_p), np.exp(log_not_p))
        level = np.full(KNOTS, log_radius)
        knots = solve(reduction, prob, level, reduction.start(prob, level)).log_z
        slope = np.gradient(knots, edge_order=2)
        rise = np.diff(knots)
        left, right = slope[:-1], slope[1:]
        coefficients = np.stack([knots[:-1], left, 3 * rise - 2 * left - right, left + right - 2 * rise], axis=1)
        return cls(float(grid[0]), float(grid[1] - grid[0]), np.nan_to_num(coefficients))

    def __call__(self, prob: Probability) -> NDArray[np.float64]:
        position = (prob.log_p - prob.log_not_p - self.origin) / self.step
        index = np.clip(position.astype(np.int64), 0, len(self.coefficients) - 1)
        t = np.clip(position - index, 0.0, 1.0)
        c0, c1, c2, c3 = self.coefficients[index].T
        guess: NDArray[np.float64] = c0 + t * (c1 + t * (c2 + t * c3))
        return guess
