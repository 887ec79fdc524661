"""How sure a difference between rules is, given a handful of paired seeds: bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 9_999

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired_difference(values: Array, baseline: Array, seed: int) -> Interval:
    """Mean over seeds of ``values − baseline`` (both ``(S,)``, S ≥ 2, seed by seed) with its bootstrap interval.

    Pairing removes what both runs of a seed share: the task, the initial policy and the random numbers. Bias-corrected and
    accelerated bootstrap (B. Efron, Better Bootstrap Confidence Intervals, JASA 1987); ``seed`` fixes the resampling.
    """
    from scipy.stats import bootstrap

    differences = np.asarray(values, float) - np.asarray(baseline, float)
    if differences.ndim != 1 or differences.size < 2:
        raise ValueError(f"values: shape {differences.shape} has no paired seeds; accepted: (S,) with S >= 2")
    mean = float(differences.mean())
    if np.ptp(differences) == 0.0:  # every resample is the same: scipy would warn and return NaN
        return Interval(mean, mean, mean)
    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(seed),
    )
    return Interval(mean, float(found.confidence_interval.low), float(found.confidence_interval.high))


def pointwise_band(curves: Array, seed: int, resamples: int = 999) -> tuple[Array, Array]:
    """Lower and upper edge ``(T,)`` of the 95 % percentile bootstrap band around the mean of ``curves (T, S)`` over seeds.

    A resample of the seeds is a vector of weights, so that a whole curve is resampled by one matrix product.
    """
    seeds = curves.shape[-1]
    weights = np.random.default_rng(seed).multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(curves @ weights.T, [tail, 100 - tail], axis=-1)
    return low, high
