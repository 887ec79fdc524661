"""Lookup tables of a band's log-bounds over log-probability and radius, for runs that change the radius.

    from bandtheory.radius_table import RadiusTable

    table = RadiusTable.build("kl", 0.01, 0.1)    # every radius of this box, and a proof for all of them
    table.at(0.05).log_bounds([-3.0, -0.1])       # for one radius: cubics in |logp|, at the cost of a small table

Rows are fitted by `bandtheory.radius_fit` to float64 bounds, and proved by `bandtheory.evidence.surface` from the generator and
the stored numbers alone, for all real log-probabilities and all real radii of the box. As with tables of one radius, the proof
is about the stored polynomials; a program that evaluates them adds its rounding, about 1e-15 relative here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory._version import __version__
from bandtheory.bounds import Bounds, log_probability
from bandtheory.divergence import FDivergence, as_divergence, divergence
from bandtheory.radius_cells import PARTS, SideCells, SliceSide
from bandtheory.radius_fit import RadiusTarget
from bandtheory.radius_proof import claims, proved_cells
from bandtheory.table_fit import SIDES, TableError, numbers
from bandtheory.table_proof import Report
from bandtheory.tables import MOST_ERROR, last_pattern, require, written_out

Floats = NDArray[np.float64]

LEAST_ERROR = 1e-6
WIDEST = 1e4  # ratio of the two radii of a box
_GRID = 2.0**-20  # of log δ: the ends of a box, so that halves of cells are exact

__all__ = ["RadiusSlice", "RadiusTable"]


@dataclass(frozen=True, eq=False)
class RadiusSlice:
    """A table over log-probability alone, for one radius of a `RadiusTable`.

    Attributes:
        delta: radius, nats.
        logp_min: end of the domain, nats.
        certified_error, inside: as in the table.
        lower, upper: what is evaluated.
    """

    delta: float
    logp_min: float
    certified_error: float
    inside: bool
    lower: SliceSide
    upper: SliceSide

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds in nats, float64, for log-probabilities of any shape; below `logp_min` those at `logp_min`.

        Raises:
            ValueError: logp above 0 or NaN.
        """
        x = np.minimum(-log_probability(None, logp)[0], -self.logp_min)
        evidence = f"table of radii, certified error {self.certified_error:.3g}"
        return Bounds(np.minimum(self.lower(x), 0.0), np.maximum(self.upper(x), 0.0), evidence)


@dataclass(frozen=True, eq=False)
class RadiusTable:
    """Both log-bounds of the bands of one divergence for all radii from `delta_min` to `delta_max`.

    In a cell of radii, `log δ = m + h s`, and on a row, `ξ = (ξ_i + ξ_{i+1})/2 + t (ξ_{i+1} − ξ_i)/2`, a log-bound is
    `Σ c_ik tⁱ sᵏ`. The coordinate is `x = |logp| = X(s) ξ`, for upper bounds and ξ > 1 `x = X(s) + X(0) (ξ − 1)`. For all real
    x and δ of the row, and as distances from ratio 1,

        |table| − excess ≤ |bound| ≤ |table| + shortfall

    where finite lower log-bounds below −104, ratios that no float32 holds, count as −104. Where the shortfall is infinite, the
    table only stays inside the band: behind that floor; within 2⁻¹⁶, relative, of the |logp| at which the lower bound reaches
    ratio 0 or the floor; and where the lower bound leaves ratio 1 like a root, on at most 64 float32 numbers next to p = 1.

    Attributes:
        divergence, generator, logp_min, max_error, inside, version: as in `BandTable`.
        delta_min, delta_max: the box, nats.
        lower, upper: the cells of each side.

    Source: theorems 3, 6 and 7 of the theory; the certificate is this library's.
    """

    FORMAT: ClassVar[str] = "bandtheory radius table 1"
    FIELDS: ClassVar = ("divergence", "generator", "delta_min", "delta_max", "logp_min", "max_error", "inside", "version")
    ARRAYS: ClassVar = tuple(sorted(f"{side}_{name}" for side in SIDES for name in PARTS))

    divergence: str
    generator: str
    delta_min: float
    delta_max: float
    logp_min: float
    max_error: float
    inside: bool
    version: str
    lower: SideCells
    upper: SideCells

    @classmethod
    def build(
        cls,
        divergence: str | FDivergence,
        delta_min: float,
        delta_max: float,
        *,
        logp_min: float = -104.0,
        max_error: float = 1e-4,
        inside: bool = False,
        progress: Report | None = None,
    ) -> RadiusTable:
        """Fit a table and prove it.

        Args:
            divergence: a catalogue name, an expression in `u`, or an `FDivergence`.
            delta_min, delta_max: the box of radii in nats, 0 < delta_min < delta_max.
            logp_min: end of the domain, nats; rounded to a float32, downwards.
            max_error: of both log-bounds, nats.
            inside: move the table into the band, by at most `max_error`.
            progress: called with the part of the work that is done, and with all of it.

        Raises:
            TableError: an argument out of range; or a generator with which the error cannot be reached or proved.
            DivergenceError: an unknown or faulty divergence.
        """
        found = as_divergence(divergence)
        edges = _edges(delta_min, delta_max)
        _require_error(max_error)
        furthest = float(numbers(np.array([last_pattern(logp_min)]))[0])
        target = RadiusTarget(found, furthest, float(max_error), bool(inside))
        sides = (
            SideCells.of(proved_cells(target, edges, side, None if progress is None else _part(progress, side)))
            for side in range(len(SIDES))
        )
        table = cls(
            found.spec,
            written_out(found),
            float(delta_min),
            float(delta_max),
            -furthest,
            target.max_error,
            target.inside,
            __version__,
            *sides,
        )
        table.validate()
        return table

    @property
    def certified_error(self) -> float:
        """The largest excess or shortfall, nats, where a shortfall is claimed."""
        errors = np.concatenate([self.lower.errors, self.upper.errors])
        return float(errors[np.isfinite(errors)].max())

    @property
    def size(self) -> int:
        """Knots, over both sides and all cells of radii."""
        return len(self.lower.knots) + len(self.upper.knots)

    def at(self, delta: float) -> RadiusSlice:
        """The table of one radius.

        Raises:
            TableError: a radius outside the box.
        """
        box = f"a radius of the certified box, {self.delta_min!r} to {self.delta_max!r} nats"
        require("delta", delta, self.delta_min <= delta <= self.delta_max, box)
        lower, upper = (side.at(math.log(delta), side is self.upper) for side in (self.lower, self.upper))
        return RadiusSlice(float(delta), self.logp_min, self.certified_error, self.inside, lower, upper)

    def log_bounds(self, logp: ArrayLike, delta: float) -> Bounds:
        """`at(delta).log_bounds(logp)`."""
        return self.at(delta).log_bounds(logp)

    def check(self, progress: Report | None = None) -> list[str]:
        """Prove all of it again, in ball arithmetic, from generator and stored numbers alone: in words, what does not hold."""
        from bandtheory.evidence.surface import prove_surface

        found = divergence(self.divergence)
        if written_out(found) != self.generator:
            return [f"generator {self.generator!r} is not that of {self.divergence!r}, {written_out(found)!r}"]
        faults, done, total = [], 0, sum(len(side.errors) for side in (self.lower, self.upper))
        for side, cells in enumerate((self.lower, self.upper)):
            for k, cell in enumerate(cells):
                for row, claim in enumerate(claims(side, cell)):
                    if not prove_surface(found, claim):
                        low, high = map(math.exp, cell.log_delta)
                        at = f"delta in [{low:.6g}, {high:.6g}], xi in [{claim.patch.low!r}, {claim.patch.high!r}]"
                        faults.append(f"cell {k}, row {row}, {SIDES[side]} bound, {at}: not proved")
                    done += 1
                    if progress is not None:
                        progress(done, total)
        return faults

    def validate(self) -> None:
        """Check what takes no proof: types, shapes, ranges, that cells and rows cover the box, and that bounds are monotone.

        Raises:
            TableError: says what is wrong.
        """
        for problem in self._problems():
            raise TableError(problem)

    def save(self, path: str | Path) -> None:
        """Write a .safetensors or .npz file; whole, or not at all.

        Raises:
            TableError: another ending; OSError: the file cannot be written.
        """
        from bandtheory.table_files import save_table

        save_table(self, path)

    @classmethod
    def load(cls, path: str | Path) -> RadiusTable:
        """Read a .safetensors or .npz file.

        Raises:
            TableError: it is damaged, of another version or no table of radii; names the file.
        """
        from bandtheory.table_files import load_kind

        return load_kind(path, cls)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds, by name."""
        sides = zip(SIDES, (self.lower, self.upper), strict=True)
        return {f"{side}_{name}": array for side, cells in sides for name, array in cells.arrays().items()}

    @classmethod
    def from_arrays(cls, fields: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RadiusTable:
        """The table of a file's content, not yet checked."""
        lower, upper = ({name: arrays[f"{side}_{name}"] for name in PARTS} for side in SIDES)
        return cls(**fields, lower=SideCells(**lower), upper=SideCells(**upper))

    def _problems(self) -> Iterator[str]:
        try:
            divergence(self.divergence)
            edges = _edges(self.delta_min, self.delta_max)
            _require_error(self.max_error)
            furthest = float(numbers(np.array([last_pattern(self.logp_min)]))[0])
        except ValueError as error:
            yield str(error)
            return
        for name, cells in zip(SIDES, (self.lower, self.upper), strict=True):
            found = cells.problems(edges, furthest, self.max_error, self.inside, name == "lower")
            yield from (f"{name} bound: {problem}" for problem in found)


def _edges(delta_min: float, delta_max: float) -> tuple[float, float]:
    """The box in log δ, rounded outwards to a grid."""
    require("delta_min", delta_min, 0 < delta_min < math.inf, "a finite radius > 0 (nats)")
    accepted = f"a radius above delta_min, at most {WIDEST:g} times it (nats)"
    require("delta_max", delta_max, delta_min < delta_max <= delta_min * WIDEST, accepted)
    return math.floor(math.log(delta_min) / _GRID - 1) * _GRID, math.ceil(math.log(delta_max) / _GRID + 1) * _GRID


def _require_error(max_error: float) -> None:
    require("max_error", max_error, LEAST_ERROR <= max_error <= MOST_ERROR, f"nats from {LEAST_ERROR:g} to {MOST_ERROR:g}")


def _part(progress: Report, side: int) -> Report:
    """Progress of one side, as half of the work."""
    return lambda done, total: progress(side * total + done, 2 * total)
