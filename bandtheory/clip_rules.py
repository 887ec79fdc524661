"""Clip rules as objects; `bandtheory.rules` makes them from strings."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bandtheory.bounds import DOUBT, Bounds, log_bounds
from bandtheory.divergence import divergence as find_divergence

if TYPE_CHECKING:
    from bandtheory.radius_table import RadiusSlice, RadiusTable
    from bandtheory.tables import BandTable


class RuleError(ValueError):
    """A rule string or a rule's parameter that is not accepted; the message names it and what is."""


@dataclass(frozen=True)
class NoClip:
    """No clipping: the bounds are 0 and ∞."""

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        return _constant(logp, -math.inf, math.inf, "constant")

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class RatioClip:
    """PPO's and GRPO's clip: `1 − low ≤ r ≤ 1 + high` (arXiv 1707.06347; unequal sides: DAPO, arXiv 2503.14476)."""

    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        _require(0 <= self.low <= 1, self, "low", "a number in [0, 1]")
        _require(0 <= self.high < math.inf, self, "high", "a finite number ≥ 0")

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        return _constant(logp, *self.log_interval, "constant")

    @property
    def log_interval(self) -> tuple[float, float]:
        """The two log-ratios, the same for every token."""
        return math.log1p(-self.low) if self.low < 1 else -math.inf, math.log1p(self.high)

    def __str__(self) -> str:
        return f"clip:{_text(self.low)},{_text(self.high)}"


@dataclass(frozen=True)
class AdaptiveClip:
    """DCPO's clip: `½ + ½√max(1 − 4 low/p, 0) ≤ r ≤ min(½ + ½√(1 + 4 high/p), max_ratio)` (arXiv 2509.02333)."""

    low: float = 0.16
    high: float = 0.20
    max_ratio: float = 10.0

    def __post_init__(self) -> None:
        _require(0 <= self.low < math.inf, self, "low", "a finite number ≥ 0")
        _require(0 <= self.high < math.inf, self, "high", "a finite number ≥ 0")
        _require(self.max_ratio >= 1, self, "max_ratio", "a ratio ≥ 1")

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        with np.errstate(over="ignore", divide="ignore"):
            return Bounds(*self.log_bounds_in(np, _checked(logp)), "closed form")

    def log_bounds_in(self, xp: Any, logp: Any) -> tuple[Any, Any]:
        """The formula in an array namespace (numpy or torch); `4ε/p` is formed in the exponent."""
        low, high = (math.log(4 * epsilon) if epsilon else 0.0 for epsilon in (self.low, self.high))
        # ½ + ½√(1 + x) − 1 as x/(2 + 2√(1 + x)), which keeps its digits for small x; beyond 1e30 the 1 does not count
        down = xp.exp(low - logp)
        down = xp.where(down < 1, down, 1.0)
        lower = xp.log1p(-down / (2 + 2 * xp.sqrt(1 - down)))
        up = xp.exp(xp.where(high - logp < 70.0, high - logp, 70.0))
        upper = xp.log1p(up / (2 + 2 * xp.sqrt(1 + up)))
        upper = xp.where(high - logp < 70.0, upper, (high - logp) / 2 - math.log(2))
        cap = math.log(self.max_ratio)
        lower, upper = (side if epsilon else xp.zeros_like(side) for side, epsilon in ((lower, self.low), (upper, self.high)))
        return lower, xp.where(upper < cap, upper, cap)

    def __str__(self) -> str:
        cap = "" if self.max_ratio == 10 else f":{_text(self.max_ratio)}"
        return f"dcpo:{_text(self.low)},{_text(self.high)}{cap}"


@dataclass(frozen=True)
class Band:
    """The band of an f-divergence of radius δ (nats), its upper bound capped at `max_ratio` (arXiv 2603.04918)."""

    divergence: str = "kl"
    delta: float = 0.05
    max_ratio: float | None = None

    def __post_init__(self) -> None:
        _require(0 <= self.delta < math.inf, self, "delta", "a finite radius ≥ 0 (nats)")
        _require(self.max_ratio is None or self.max_ratio >= 1, self, "max_ratio", "a ratio ≥ 1, or None for no cap")
        object.__setattr__(self, "divergence", find_divergence(self.divergence).name)  # as the catalogue spells it
        if self.max_ratio == math.inf:
            object.__setattr__(self, "max_ratio", None)

    def log_bounds(self, logp: ArrayLike, *, doubt: float = DOUBT) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape; `doubt` as in `bandtheory.log_bounds`."""
        return log_bounds(logp=logp, divergence=self.divergence, delta=self.delta, max_ratio=self.max_ratio, doubt=doubt)

    def __str__(self) -> str:
        cap = "" if self.max_ratio is None else f":{_text(self.max_ratio)}"
        return f"band:{self.divergence}:{_text(self.delta)}{cap}"


@dataclass(frozen=True)
class RelaxedBand:
    """The BandPO paper's ablation: `min(lower, 1 − low) ≤ r ≤ max(upper, 1 + high)`, upper capped at `max_ratio`."""

    divergence: str = "kl"
    delta: float = 0.05
    max_ratio: float | None = None
    low: float = 0.2
    high: float = 0.28

    def __post_init__(self) -> None:
        _ = self.clip
        object.__setattr__(self, "divergence", self.band.divergence)
        object.__setattr__(self, "max_ratio", self.band.max_ratio)

    @property
    def band(self) -> Band:
        return Band(self.divergence, self.delta, self.max_ratio)

    @property
    def clip(self) -> RatioClip:
        return RatioClip(self.low, self.high)

    def log_bounds(self, logp: ArrayLike, *, doubt: float = DOUBT) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape; `doubt` as in `bandtheory.log_bounds`."""
        band = self.band.log_bounds(logp, doubt=doubt)
        low, high = self.clip.log_interval
        cap = math.inf if self.max_ratio is None else math.log(self.max_ratio)
        return Bounds(np.minimum(band.lower, low), np.minimum(np.maximum(band.upper, high), cap), band.evidence)

    def __str__(self) -> str:
        text = "relaxed" + str(self.band).removeprefix("band")
        if (self.low, self.high) == (0.2, 0.28):
            return text
        cap = ":inf" if self.max_ratio is None else ""
        return f"{text}{cap}:{_text(self.low)},{_text(self.high)}"


@dataclass(frozen=True)
class TableRule:
    """The band of a file of `bandtheory.tables`, its upper bound capped at `max_ratio`: nothing is solved.

    Bounds are within the table's certified error of the band's, in nats. The file is read once in a process, and kept.

    Attributes:
        path: of the file.
        max_ratio: cap on the upper bound, ≥ 1; None for no cap.
        delta: radius in nats, where the file is a `RadiusTable`; None where it has one radius.
    """

    path: str
    max_ratio: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        _require(self.max_ratio is None or self.max_ratio >= 1, self, "max_ratio", "a ratio ≥ 1, or None for no cap")
        object.__setattr__(self, "path", os.fspath(self.path))
        if self.max_ratio == math.inf:
            object.__setattr__(self, "max_ratio", None)
        _ = self.table

    @property
    def table(self) -> BandTable | RadiusSlice:
        """What is evaluated."""
        return _tabulated(self.path, self.delta)

    @classmethod
    def of(cls, band: Band, path: str | os.PathLike[str]) -> TableRule:
        """The rule of a file that must hold the table of this band.

        Raises:
            TableError: the file is damaged, or a table of another divergence or radius.
        """
        from bandtheory.tables import BandTable, TableError

        where = os.fspath(path)
        found = _loaded(where)
        delta = found.delta if isinstance(found, BandTable) else None
        if found.divergence != band.divergence or delta not in (None, band.delta):
            radius = "" if delta is None else f" with delta = {delta!r}"
            raise TableError(
                f"{where}: a table of {found.divergence!r}{radius}, not of {band.divergence!r} with delta = {band.delta!r}"
            )
        return cls(where, band.max_ratio, band.delta if delta is None else None)

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        bounds = self.table.log_bounds(logp)
        cap = math.inf if self.max_ratio is None else math.log(self.max_ratio)
        return Bounds(bounds.lower, np.minimum(bounds.upper, cap), bounds.evidence)

    def __str__(self) -> str:
        radius = "" if self.delta is None else f"@{_text(self.delta)}"
        text = self.path + radius + ("" if self.max_ratio is None else f":{_text(self.max_ratio)}")
        if split_table(text) != (self.path, self.delta, self.max_ratio):
            text += ":inf"  # else the end of the path would be taken for a cap
        return f"table:{text}"


Rule = NoClip | RatioClip | AdaptiveClip | Band | RelaxedBand | TableRule


def _text(value: float) -> str:
    """The shortest decimal that reads back as the same number."""
    return repr(float(value)).removesuffix(".0")


def _require(condition: bool, rule: Any, name: str, accepted: str) -> None:
    if not condition:
        names = [field.name for field in fields(rule)]
        assert name in names
        raise RuleError(f"{type(rule).__name__}: {name} = {getattr(rule, name)!r} is not {accepted}")


def _checked(logp: ArrayLike) -> np.ndarray:
    """Log-probabilities as float64; NaN and positive values are refused by the same check as `bandtheory.log_bounds`."""
    from bandtheory.bounds import log_probability

    return log_probability(None, logp)[0]


def _constant(logp: ArrayLike, lower: float, upper: float, evidence: str) -> Bounds:
    shape = _checked(logp).shape
    return Bounds(np.full(shape, lower), np.full(shape, upper), evidence)


def split_table(text: str) -> tuple[str, float | None, float | None]:
    """Path, radius and cap of `PATH[@DELTA][:CAP]`; a path may have colons itself, if no number follows the last one."""
    rest, cap = _split_number(text, ":")
    path, delta = _split_number(rest, "@")
    return path, delta, None if cap == math.inf else cap


def _split_number(text: str, mark: str) -> tuple[str, float | None]:
    """A text and the number behind the last mark in it; None if there is none."""
    before, found, after = text.rpartition(mark)
    try:
        return (before, float(after)) if found else (text, None)
    except ValueError:
        return text, None


@functools.lru_cache(maxsize=64)
def _loaded(path: str) -> BandTable | RadiusTable:
    from bandtheory.table_files import load_table

    return load_table(path)


@functools.lru_cache(maxsize=256)
def _tabulated(path: str, delta: float | None) -> BandTable | RadiusSlice:
    from bandtheory.tables import BandTable, TableError

    found = _loaded(path)
    if isinstance(found, BandTable):
        if delta is not None:
            raise TableError(f"{path}: a table of one radius, {found.delta!r}, which takes none; accepted: table:{path}")
        return found
    if delta is None:
        raise TableError(f"{path}: a table of radii, {found.delta_min!r} to {found.delta_max!r}; accepted: table:{path}@DELTA")
    try:
        return found.at(delta)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
