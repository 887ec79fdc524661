"""Bounds of a band in float64, in log space, for any divergence and any old probability; computed by `engine`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory.divergence import DivergenceError, FDivergence, as_divergence

if TYPE_CHECKING:
    from bandtheory.engine import Engine

Floats = NDArray[np.float64]

DOUBT = 1e-11  # what is solved in doubles up to a larger relative error is solved again in high precision


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bound per token; unpacks as `lower, upper`.

    Attributes:
        lower, upper: float64, of the shape of the input; ratios from `bounds`, log-ratios from `log_bounds`.
        evidence: closed form or root, the largest estimated relative error, and how many bounds needed high precision.
    """

    lower: Floats
    upper: Floats
    evidence: str = ""

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.lower, self.upper))


def log_bounds(
    p: ArrayLike | None = None,
    *,
    logp: ArrayLike | None = None,
    divergence: str | FDivergence = "kl",
    delta: ArrayLike = 0.05,
    max_ratio: float | None = None,
    doubt: float = DOUBT,
) -> Bounds:
    """Log-ratio bounds of the band `{ r : p f(r) + (1 − p) f((1 − r p)/(1 − p)) ≤ δ }`.

    Args:
        p: old probabilities in (0, 1], any shape; or
        logp: their logarithms (nats, ≤ 0), which is the accurate way for p near 0 or 1; −inf gives the limit p → 0.
        divergence: a catalogue name, an expression in `u`, or an `FDivergence`.
        delta: radius of the trust region in nats, ≥ 0, a scalar or an array that broadcasts with p.
        max_ratio: cap on the upper bound as a ratio, ≥ 1; None for no cap.
        doubt: estimated relative error of a log-bound beyond which it is solved again in 60 digits.

    Returns:
        Bounds of log-ratios in nats; `lower` is −inf where the band reaches 0.

    Raises:
        ValueError: p outside (0, 1], logp above 0, NaN, δ negative or not finite, max_ratio below 1; names the entry.
        DivergenceError: an unknown or faulty divergence.

    Source: theorems 1, 5, 6, 7 of the theory; BandPO, arXiv 2603.04918.
    """
    resolved = as_divergence(divergence)
    log_p, given_p = log_probability(p, logp)
    radius = np.asarray(delta, dtype=np.float64)
    if not (np.all(np.isfinite(radius)) and np.all(radius >= 0)):
        raise ValueError(f"delta = {_first(radius, ~(np.isfinite(radius) & (radius >= 0)))} is not a finite radius ≥ 0 (nats)")
    try:
        shape = np.broadcast_shapes(log_p.shape, radius.shape)
    except ValueError:
        raise ValueError(f"delta of shape {radius.shape} does not broadcast with p of shape {log_p.shape}") from None
    cap = _log_cap(max_ratio)
    engine = _engine(resolved)
    with np.errstate(all="ignore"):
        flat_radius = radius.ravel() if radius.size == 1 else np.broadcast_to(radius, shape).ravel()
        flat_log_p = np.broadcast_to(log_p, shape).ravel()
        flat_p = None if given_p is None else np.broadcast_to(given_p, shape).ravel()
        lower, upper, account = engine.log_bounds(flat_log_p, flat_p, flat_radius, doubt)
    return Bounds(lower.reshape(shape), np.minimum(upper, cap).reshape(shape), f"{engine.method}; {account}")


def bounds(
    p: ArrayLike | None = None,
    *,
    logp: ArrayLike | None = None,
    divergence: str | FDivergence = "kl",
    delta: ArrayLike = 0.05,
    max_ratio: float | None = None,
) -> Bounds:
    """Ratio bounds `lower ≤ 1 ≤ upper` of the band; arguments and errors as `log_bounds`.

    Example:
        >>> import bandtheory as bt
        >>> lower, upper = bt.bounds(0.5, divergence="tv", delta=0.05)
        >>> float(lower), float(upper)
        (0.9, 1.1)
    """
    logs = log_bounds(p, logp=logp, divergence=divergence, delta=delta, max_ratio=max_ratio)
    with np.errstate(over="ignore"):
        return Bounds(np.exp(logs.lower), np.exp(logs.upper), logs.evidence)


def _first(array: Floats, bad: NDArray[np.bool_]) -> str:
    """The first bad entry, with its index in an array."""
    index = np.unravel_index(int(np.argmax(bad)), array.shape)
    value = repr(float(array[index]))
    return value if array.ndim == 0 else f"{value} at index {tuple(map(int, index))}"


def log_probability(p: ArrayLike | None, logp: ArrayLike | None) -> tuple[Floats, Floats | None]:
    """Validated log-probabilities, and the probabilities where those were given."""
    if (p is None) == (logp is None):
        raise ValueError("give exactly one of p (probabilities in (0, 1]) and logp (their logarithms, ≤ 0)")
    if p is not None:
        array = np.asarray(p, dtype=np.float64)
        bad = ~((array > 0) & (array <= 1))
        if bad.any():
            raise ValueError(f"p = {_first(array, bad)} is not a probability in (0, 1]; log-probabilities go in logp=")
        return np.log(array), array
    array = np.asarray(logp, dtype=np.float64)
    bad = ~(array <= 0)
    if bad.any():
        raise ValueError(f"logp = {_first(array, bad)} is not a log-probability; accepted: numbers ≤ 0 (nats) and -inf")
    return array, None


def _log_cap(max_ratio: float | None) -> float:
    if max_ratio is None:
        return np.inf
    if not max_ratio >= 1:
        raise ValueError(f"max_ratio = {max_ratio!r} is not a cap ≥ 1 (or None for no cap)")
    return float(np.log(max_ratio))


@functools.lru_cache(maxsize=64)
def _engine(divergence: FDivergence) -> Engine:
    from bandtheory.engine import Engine

    try:
        return Engine(divergence)
    except (ArithmeticError, TypeError, NotImplementedError, RecursionError) as error:
        raise DivergenceError(f"{divergence.name!r} cannot be evaluated: {type(error).__name__}: {error}") from error
