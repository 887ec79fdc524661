"""Errors of computed bounds, counted as they come: log-bounds, and ratios with what float64 does not know about those."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.units_in_the_last_place import FLOAT32, Floats, Format

REFERENCE_ERROR = 1e-10  # relative, of a float64 log-bound; 0.0017 units in the last place of a float32
WORST = 5

Result = dict[str, Any]


@dataclass
class Errors:
    """Errors of one quantity: how many there are of each size, and the worst, with the log-bounds there."""

    kind: Format
    inputs: int = 0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, dtype=np.int64))
    worst: list[list[Any]] = field(default_factory=list)

    def add(self, logp: Floats, computed: Floats, exact: Floats, expected: Floats, log_bound: Floats) -> Floats:
        """Take in some inputs; their errors. `expected` is the exact result, rounded."""
        self.inputs += logp.size
        error = self.kind.error(computed, exact)
        if self.kind is FLOAT32:
            right = int((computed == expected).sum())
            limits = [right, int((error < 1).sum()), int((error < 2).sum()), error.size]
        else:
            steps = np.abs(self.kind.ordinal(computed) - self.kind.ordinal(expected))
            steps[np.isinf(error)] = np.inf
            limits = [int((steps == 0).sum()), int((steps <= 1).sum()), steps.size, steps.size]
        self.counts += np.diff(limits, prepend=0)
        least = self.worst[-1][0] if len(self.worst) == WORST else -1.0
        candidates = np.flatnonzero(error > least)
        if candidates.size > WORST:
            candidates = candidates[np.argpartition(error[candidates], -WORST)[-WORST:]]
        found = [[float(error[i]), float(logp[i]).hex(), float(log_bound[i])] for i in candidates]
        self.worst = worst_of([*self.worst, *found])
        return error

    def result(self) -> Result:
        """JSON values."""
        return {"inputs": self.inputs, "counts": self.counts.tolist(), "worst": self.worst}


@dataclass
class RatioErrors:
    """Errors of ratios: of a float32 where the exact ratio is finite and normal, and apart from it where it is not."""

    errors: Errors
    largest: float = 0.0
    undecided: int = 0
    denormal: int = 0
    largest_denormal: float = 0.0
    overflow: list[int] = field(default_factory=lambda: [0, 0])
    zero: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, logp: Floats, computed: Floats, log_bound: Floats) -> None:
        """Take in some inputs."""
        kind = self.errors.kind
        with np.errstate(all="ignore"):
            exact = np.exp(log_bound)
            slack = np.minimum(np.abs(log_bound), 1000.0) * REFERENCE_ERROR  # relative error of the exact ratio, if it is one
            if kind is not FLOAT32:
                self.errors.add(logp, computed, exact, self._expected(computed, exact, slack), log_bound)
                return
        normal = (exact >= 2.0 ** (kind.least + kind.digits - 1)) & (exact <= kind.limit * (1 + 100 * REFERENCE_ERROR))
        if not normal.all():
            self._add_others(computed[~normal], exact[~normal], slack[~normal])
            logp, computed, log_bound, exact, slack = (each[normal] for each in (logp, computed, log_bound, exact, slack))
        if exact.size:
            error = self.errors.add(logp, computed, exact, kind.rounded(exact), log_bound)
            self.largest = max(self.largest, float((error + slack * 2.0**kind.digits).max()))

    def _add_others(self, computed: Floats, exact: Floats, slack: Floats) -> None:
        kind = self.errors.kind
        for entry, where, only in ((self.overflow, exact > 1, math.inf), (self.zero, exact == 0, 0.0)):
            entry[0] += int(where.sum())
            entry[1] += int((computed[where] != only).sum())
        small = (exact > 0) & (exact < 1)
        if small.any():
            self.denormal += int(small.sum())
            error = kind.error(computed[small], exact[small]) + slack[small] * exact[small] * 2.0**-kind.least
            self.largest_denormal = max(self.largest_denormal, float(error.max()))

    def _expected(self, computed: Floats, exact: Floats, slack: Floats) -> Floats:
        """The ratios rounded; where float64 does not know which of two is nearer, the computed one if it is one of them."""
        kind = self.errors.kind
        least, most = kind.rounded(exact * (1 - slack)), kind.rounded(exact * (1 + slack))
        self.undecided += int((least != most).sum())
        return np.where((computed == least) | (computed == most), computed, kind.rounded(exact))

    def result(self) -> Result:
        """JSON values."""
        return self.errors.result() | {
            "largest": self.largest,
            "undecided": self.undecided,
            "denormal": self.denormal,
            "largest_denormal": self.largest_denormal,
            "overflow": self.overflow,
            "zero": self.zero,
        }


def worst_of(found: list[list[Any]]) -> list[list[Any]]:
    """The `WORST` largest of errors with what goes with them, in an order that does not depend on the one given."""
    return sorted(found, key=lambda entry: (-entry[0], entry[1]))[:WORST]
