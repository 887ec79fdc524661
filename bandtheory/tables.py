"""Lookup tables of a band's log-bounds, every row of which is proved.

    from bandtheory.tables import BandTable

    table = BandTable.build("kl", 0.05)       # some hundred cubics in |logp|, and a proof for each
    table.certified_error                     # ≤ 1e-6 nats: the relative error of a ratio
    table.save("kl.safetensors")
    BandTable.load("kl.safetensors").log_bounds([-3.0, -0.1])

Rows are fitted by `bandtheory.table_fit` to float64 bounds, and proved by `bandtheory.evidence.interval` from the generator and
the stored numbers alone, for all real log-probabilities of the domain. The proof is about the cubics as they are stored; a
program that evaluates them adds its own rounding: here, in float64, about 1e-15 relative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory import expressions
from bandtheory._version import __version__
from bandtheory.bounds import Bounds, log_probability
from bandtheory.divergence import FDivergence, as_divergence, divergence
from bandtheory.table_fit import SIDES, TableError, Target, numbers, steepest_descent

if TYPE_CHECKING:
    from bandtheory.table_proof import Report

DTYPES: dict[str, type[np.floating]] = {"float32": np.float32, "float64": np.float64}
LEAST_ERROR = {"float32": 1e-7, "float64": 1e-9}
MOST_ERROR = 0.1
DEEPEST, SHALLOWEST = -1000.0, -1.0  # what logp_min may be
_ROUNDING = 2.0**-46  # relative, of a bound at a knot: what the evaluation in float64 may leave of its monotonicity

Floats = NDArray[np.float64]

__all__ = ["BandTable", "TableError"]


@dataclass(frozen=True, eq=False)
class BandTable:
    """Both log-bounds of one band as cubics in `x = |logp|` between knots.

    On row i, `x_i ≤ x ≤ x_{i+1}`:  `bound = c₀ + t (c₁ + t (c₂ + t c₃))`,  `t = (2x − x_i − x_{i+1})/(x_{i+1} − x_i)`. Below
    `logp_min` the bounds are those at `logp_min`, which lie inside the band (theorem 3). Sides are in the order lower, upper.

    For all real x of a row, and as distances from ratio 1, `|table| − excess ≤ |bound| ≤ |table| + shortfall`, where finite
    lower log-bounds below −104, ratios that no float32 holds, count as −104. In a gap the shortfall is infinite: one float
    wide, the row is right within `max_error` at its first knot, and has no excess up to the next but what is written.

    Attributes:
        divergence: what `bandtheory.divergence` makes it from: a name or an expression.
        generator: `f(u)` written out.
        delta: radius, nats.
        logp_min: end of the domain, nats; a float32.
        max_error: that was asked for, nats.
        dtype: of the coefficients, "float32" or "float64".
        inside: whether the table never leaves the band: every excess is 0.
        version: of the library that built it.
        knots: x₀ = 0 … x_K, float32, shape (K + 1,).
        values: c₀, a log-ratio in nats, float64, shape (K, 2). −inf for the ratio 0.
        coefficients: c₁, c₂, c₃, shape (K, 2, 3).
        errors: excess and shortfall, nats, float64, shape (K, 2, 2).

    Source: theorems 3, 6 and 7 of the theory; the certificate is this library's.
    """

    FORMAT: ClassVar[str] = "bandtheory table 1"
    FIELDS: ClassVar = ("divergence", "generator", "delta", "logp_min", "max_error", "dtype", "inside", "version")
    ARRAYS: ClassVar = ("coefficients", "errors", "knots", "values")

    divergence: str
    generator: str
    delta: float
    logp_min: float
    max_error: float
    dtype: str
    inside: bool
    version: str
    knots: NDArray[np.float32]
    values: Floats
    coefficients: NDArray[np.floating]
    errors: Floats

    @classmethod
    def build(
        cls,
        divergence: str | FDivergence,
        delta: float,
        *,
        logp_min: float = -104.0,
        max_error: float = 1e-6,
        dtype: str = "float32",
        inside: bool = False,
        progress: Report | None = None,
    ) -> BandTable:
        """Fit a table and prove it.

        Args:
            divergence: a catalogue name, an expression in `u`, or an `FDivergence`.
            delta: radius in nats, > 0: at 0 every claim would be a tie, which ball arithmetic cannot decide.
            logp_min: end of the domain, nats; rounded to a float32, downwards.
            max_error: of both log-bounds, nats.
            dtype: of the coefficients c₁, c₂, c₃.
            inside: move the table into the band, by at most `max_error`.
            progress: called with the numbers of rows that are proved, and of all.

        Raises:
            TableError: an argument out of range; or a generator with which the error cannot be reached or proved.
            DivergenceError: an unknown or faulty divergence.
        """
        from bandtheory.table_proof import proved_rows

        found = as_divergence(divergence)
        target = _target(found, delta, logp_min, max_error, dtype, inside)
        rows = proved_rows(target, progress)
        table = cls(
            divergence=found.spec,
            generator=written_out(found),
            delta=target.delta,
            logp_min=-float(numbers(np.array([target.end]))[0]),
            max_error=target.max_error,
            dtype=dtype,
            inside=target.inside,
            version=__version__,
            knots=numbers(np.append(rows.start, target.end)).astype(np.float32),
            values=rows.values,
            coefficients=rows.coefficients,
            errors=rows.errors,
        )
        table.validate()
        return table

    @property
    def certified_error(self) -> float:
        """The largest excess or shortfall, nats, gaps apart."""
        return float(self.errors[np.isfinite(self.errors)].max())

    @property
    def size(self) -> int:
        """Knots."""
        return len(self.knots)

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """Which rows of the lower bound hold their shortfall at the first knot only, shape (K,)."""
        return np.isinf(self.errors[:, 0, 1])

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds in nats, float64, for log-probabilities of any shape.

        Raises:
            ValueError: logp above 0 or NaN.
        """
        log_p = log_probability(None, logp)[0]
        x = np.minimum(-log_p, np.float64(self.knots[-1]))
        row = np.searchsorted(self.knots[1:-1], x, side="right")
        lower, upper = (self._evaluated(side, row, x) for side in (0, 1))
        return Bounds(np.minimum(lower, 0.0), np.maximum(upper, 0.0), f"table, certified error {self.certified_error:.3g}")

    def check(self, progress: Report | None = None) -> list[str]:
        """Prove all of it again, in ball arithmetic, from generator and stored numbers alone: in words, what does not hold."""
        from bandtheory.evidence.interval import prove
        from bandtheory.table_proof import claims

        found = divergence(self.divergence)
        if written_out(found) != self.generator:
            return [f"generator {self.generator!r} is not that of {self.divergence!r}, {written_out(found)!r}"]
        rows, faults = len(self.values), []
        for row in range(rows):
            parts = (self.values[row], self.coefficients[row], self.errors[row])
            for side, claim in enumerate(claims(self.knots[row : row + 2], self.max_error, *parts)):
                if prove(found, self.delta, claim) is None:
                    high, low = float(-self.knots[row]) + 0.0, float(-self.knots[row + 1])
                    faults.append(f"row {row}, {SIDES[side]} bound, logp in [{low!r}, {high!r}]: not proved")
            if progress is not None:
                progress(row + 1, rows)
        return faults

    def validate(self) -> None:
        """Check what takes no proof: types, shapes, ranges, the order of the knots, and that both bounds are monotone.

        Raises:
            TableError: says what is wrong.
        """
        for problem in self._problems():
            raise TableError(problem)

    def save(self, path: str | Path) -> None:
        """Write a file in the format that its name ends in, .safetensors, .npz, .csv or .h; whole, or not at all.

        Raises:
            TableError: another ending; OSError: the file cannot be written.
        """
        from bandtheory.table_files import save_table

        save_table(self, path)

    @classmethod
    def load(cls, path: str | Path) -> BandTable:
        """Read a .safetensors or .npz file.

        Raises:
            TableError: it is damaged, of another version or not a table; names the file.
        """
        from bandtheory.table_files import load_kind

        return load_kind(path, cls)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds, by name."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    @classmethod
    def from_arrays(cls, fields: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> BandTable:
        """The table of a file's content, not yet checked."""
        return cls(**fields | arrays)

    def _evaluated(self, side: int, row: NDArray[np.intp], x: Floats) -> Floats:
        first, last = (self.knots[row + end].astype(np.float64) for end in (0, 1))
        t = (2 * x - first - last) / (last - first)
        c1, c2, c3 = np.moveaxis(self.coefficients[row, side].astype(np.float64), -1, 0)
        value: Floats = self.values[row, side] + t * (c1 + t * (c2 + t * c3))
        return value

    def _problems(self) -> Iterator[str]:
        rows = max(len(self.knots) - 1, 0) if self.knots.ndim == 1 else 0
        expected = {
            "knots": ((rows + 1,), np.float32),
            "values": ((rows, 2), np.float64),
            "coefficients": ((rows, 2, 3), DTYPES.get(self.dtype, np.float32)),
            "errors": ((rows, 2, 2), np.float64),
        }
        for name, (shape, dtype) in expected.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype or not rows:
                yield f"{name} has shape {array.shape} and dtype {array.dtype}, not {shape} and {np.dtype(dtype)}"
                return
        try:
            _target(divergence(self.divergence), self.delta, self.logp_min, self.max_error, self.dtype, self.inside)
        except ValueError as error:
            yield str(error)
            return
        if not (self.knots[0] == 0 and self.knots[-1] == -self.logp_min and (np.diff(self.knots) > 0).all()):
            yield f"knots must increase from 0 to {-self.logp_min!r}"
        zero = np.isneginf(self.values) & (self.coefficients == 0).all(axis=-1) & [True, False]
        if not ((np.isfinite(self.values) | zero).all() and np.isfinite(self.coefficients).all()):
            yield "values and coefficients must be finite, but for a lower bound −inf"
            return
        yield from self._shape_problems()
        allowed = np.where(self.gaps[:, None, None] & [[False, True], [False, False]], np.inf, self.max_error)
        if not ((self.errors >= 0) & (self.errors <= allowed)).all():
            yield f"errors must lie between 0 and max_error = {self.max_error!r}"
        if self.inside and self.errors[..., 0].any():
            yield "a table that is inside the band has no excess"
        wide = np.nextafter(self.knots[:-1], np.float32(np.inf)) < self.knots[1:]
        if (self.gaps & (wide | (self.coefficients[:, 0] != 0).any(axis=-1))).any():
            yield "a gap must be constant and one float wide"

    def _shape_problems(self) -> Iterator[str]:
        """Signs, and that |bound| does not decrease in x: on rows, and from row to row."""
        signs = np.array([-1.0, 1.0])
        size, slopes = self.values * signs, self.coefficients.astype(np.float64) * signs[:, None]
        first, last = (size + end * (slopes[..., 0] + end * (slopes[..., 1] + end * slopes[..., 2])) for end in (-1.0, 1.0))
        rows = np.concatenate([size[..., None], slopes], axis=-1)
        slack = np.where(np.isfinite(first), _ROUNDING * np.abs(first), 0.0)
        for side, name in enumerate(SIDES):
            if (first[:, side] < -1e-15).any():
                yield f"the {name} bound must not be on the other side of ratio 1"
            if (steepest_descent(rows[:, side]) < 0).any() or (first[1:, side] < last[:-1, side] - slack[1:, side]).any():
                yield f"the {name} bound must be monotone in logp"


def written_out(found: FDivergence) -> str:
    """The generator `f(u)` as text with its parameters in place, and the radius of `D_f` if it is not δ itself."""
    radius = "" if found.radius == "delta" else f"; radius {found.f_radius}"
    return expressions.text(found.generator) + radius


def _target(found: FDivergence, delta: float, logp_min: float, max_error: float, dtype: str, inside: bool) -> Target:
    """The arguments of `BandTable.build`, checked."""
    require("dtype", dtype, dtype in DTYPES, ", ".join(map(repr, DTYPES)))
    least = LEAST_ERROR[dtype]
    require("delta", delta, 0 < delta < math.inf, "a finite radius > 0 (nats)")
    require("max_error", max_error, least <= max_error <= MOST_ERROR, f"nats from {least:g} to {MOST_ERROR:g} with {dtype}")
    return Target(found, float(delta), last_pattern(logp_min), float(max_error), DTYPES[dtype], bool(inside))


def require(name: str, value: object, good: bool, accepted: str) -> None:
    """Refuse an argument that is not good."""
    if not good:
        raise TableError(f"{name} = {value!r} is not accepted; accepted: {accepted}")


def last_pattern(logp_min: float) -> int:
    """The pattern of −logp_min, rounded up to a float32."""
    require("logp_min", logp_min, DEEPEST <= logp_min <= SHALLOWEST, f"nats from {DEEPEST:g} to {SHALLOWEST:g}")
    last = np.float32(-logp_min)
    if last < -logp_min:
        last = np.nextafter(last, np.float32(np.inf))
    return int(last.view(np.int32))
