"""Bounds of a band in float64, in log space, for any divergence and any old probability.

A bound comes from the closed form where `closed_form_search` found one, else from the root finder of `reduction`. Each carries
an estimate of its own rounding error; the few tokens where that exceeds 1e-11 (a lower bound about to reach 0 is the difference
of two nearly equal numbers) are solved again in high precision. So the accuracy does not depend on where p happens to lie.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory.divergence import DivergenceError, FDivergence, as_divergence

if TYPE_CHECKING:
    from bandtheory.closed_forms import ClosedForm
    from bandtheory.reduction import Probability, Reduction
    from bandtheory.starts import StartTable

Floats = NDArray[np.float64]
Given = tuple[Floats | None, Floats | None]  # (log p, None) or (None, p): whichever the caller knows exactly

BLOCK = 16_384  # tokens evaluated at a time, so that the intermediates stay in cache
DOUBT = 1e-11  # a larger estimated relative error of a log-bound sends the token to high precision
CLOSED_FORM_ERROR = 1e-15  # relative error of a closed form; of its complement ratio c it is this over c
MAX_REFINED = 5_000  # per call; an expression without a stable evaluation would otherwise send every token to high precision
REACH = 690.0  # |log p| beyond which p itself is about to underflow and closed forms are left for the root finder
LOG_ZERO_RADIUS = -1e9  # stands for log 0 where a generator is flat around 1 and its band at radius 0 is an interval
PRECISE_REACH = 1e6  # |log p| beyond which no token is solved in high precision


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
) -> Bounds:
    """Log-ratio bounds of the band `{ r : p f(r) + (1 − p) f((1 − r p)/(1 − p)) ≤ δ }`.

    Args:
        p: old probabilities in (0, 1], any shape; or
        logp: their logarithms (nats, ≤ 0), which is the accurate way for p near 0 or 1; −inf gives the limit p → 0.
        divergence: a catalogue name, an expression in `u`, or an `FDivergence`.
        delta: radius of the trust region in nats, ≥ 0, a scalar or an array that broadcasts with p.
        max_ratio: cap on the upper bound as a ratio, ≥ 1; None for no cap.

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
    shape = np.broadcast_shapes(log_p.shape, radius.shape)
    cap = _log_cap(max_ratio)
    engine = _engine(resolved)
    with np.errstate(all="ignore"):
        flat_radius = np.broadcast_to(radius, shape).ravel()
        flat_log_p = np.broadcast_to(log_p, shape).ravel()
        flat_p = None if given_p is None else np.broadcast_to(given_p, shape).ravel()
        lower, upper, account = engine.log_bounds(flat_log_p, flat_p, flat_radius)
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
            raise ValueError(f"p = {_first(array, bad)} is not a probability in (0, 1]")
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
def _engine(divergence: FDivergence) -> _Engine:
    try:
        return _Engine(divergence)
    except (ArithmeticError, TypeError, NotImplementedError, RecursionError) as error:
        raise DivergenceError(f"{divergence.name!r} cannot be evaluated: {type(error).__name__}: {error}") from error


@dataclass
class _Account:
    """How many bounds were solved in high precision, and the largest estimated relative error among the others."""

    refined: int = 0
    error: float = 0.0

    @property
    def left(self) -> int:
        return max(0, MAX_REFINED - self.refined)

    def __str__(self) -> str:
        return f"estimated relative error {self.error:.1e}; {self.refined:,} bounds in high precision"


class _Engine:
    """A divergence compiled for numpy."""

    def __init__(self, divergence: FDivergence) -> None:
        from bandtheory.closed_form_search import closed_form
        from bandtheory.closed_forms import ClosedForm
        from bandtheory.evaluation import evaluator
        from bandtheory.reduction import Reduction

        self.divergence = divergence
        self.reduction: Reduction = Reduction(evaluator(divergence), np)
        self.saturates = bool(np.isfinite(self.reduction.evaluator.value_at_zero))
        form = closed_form(divergence)
        self.closed: ClosedForm | None = None if form is None else ClosedForm(form, np)
        self.method = "root" if form is None else "closed form"

    def log_bounds(self, log_p: Floats, p: Floats | None, delta: Floats) -> tuple[Floats, Floats, _Account]:
        """Lower and upper log-ratios of 1-D inputs, and what was done about rounding."""
        lower, upper, account = np.empty_like(log_p), np.empty_like(log_p), _Account()
        starts = self._starts(log_p, delta)
        for begin in range(0, log_p.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            given = (log_p[block], None) if p is None else (None, p[block])
            prob = _probability(log_p[block], given[1])
            upper[block] = self._side(prob, delta[block], starts[0], given, account, lower=False)
            lower[block] = self._side(prob.mirrored(), delta[block], starts[1], given, account, lower=True)
        return lower, upper, account

    def _starts(self, log_p: Floats, delta: Floats) -> tuple[StartTable | None, StartTable | None]:
        """Tables of first guesses, one per side, where an array is long enough to repay them."""
        from bandtheory.starts import StartTable

        inside = log_p[(log_p < 0) & (log_p > -REACH)]
        if self.closed or inside.size < 2 * BLOCK or delta.min() != delta.max() or delta[0] == 0:
            return None, None
        ends = _probability(np.array([inside.min(), inside.max()]), None)
        upper = StartTable.build(self.reduction, ends, float(delta[0]))
        return upper, StartTable.build(self.reduction, ends.mirrored(), float(delta[0]))

    def _side(
        self, prob: Probability, delta: Floats, start: StartTable | None, given: Given, account: _Account, lower: bool
    ) -> Floats:
        """`log r` of the upper bound of prob, or its `log c`, which is the lower bound of the token that prob mirrors."""
        from bandtheory.precision import solve_precisely

        log_delta = np.log(delta)
        value, error = np.full_like(delta, np.nan), np.zeros_like(delta)
        regular = np.isfinite(prob.log_p) & np.isfinite(prob.log_not_p) & (delta > 0)
        closed = regular & (np.minimum(prob.log_p, prob.log_not_p) > -REACH) if self.closed else np.zeros_like(regular)
        if self.closed and closed.any():
            part, keep = _take(prob, closed)
            form = self.closed(part, delta[keep], log_delta[keep])
            value[keep] = form.log_c if lower else form.log_r
            error[keep] = CLOSED_FORM_ERROR / (np.abs(form.margin) if lower and self.saturates else 1.0)
        rooted = regular & ~closed
        if rooted.any():
            part, keep = _take(prob, rooted)
            value[keep], error[keep] = self._root(part, log_delta[keep], start, lower)
        error[regular & np.isnan(value)] = np.inf
        beyond = np.minimum(prob.log_p, prob.log_not_p) < -PRECISE_REACH
        if self.reduction.evaluator.everywhere:
            error[beyond] = (
                0.0  # the estimate takes |log p| for a rounding error, which the ratio of two such numbers is free of
            )
        doubtful = np.flatnonzero(~(error <= DOUBT) & ~beyond)
        # the doubts about an accurate evaluation are few tokens near saturation; those about another may be all tokens
        limit = doubtful.size if self.reduction.evaluator.everywhere else account.left
        for i in doubtful[np.argsort(-error[doubtful], kind="stable")][:limit]:
            log_p, p = (None if array is None else float(array[i]) for array in given)
            value[i] = solve_precisely(self.divergence, log_p, p, float(delta[i]), lower)
            error[i] = 0.0
            account.refined += 1
        account.error = max(account.error, float(error.max(initial=0.0)))
        edge = ~regular
        if edge.any():
            value[edge] = self._edge(_take(prob, edge)[0], delta[edge], lower)
        return value

    def _root(self, prob: Probability, log_delta: Floats, start: StartTable | None, lower: bool) -> tuple[Floats, Floats]:
        """The bound, and its estimated relative error (infinite where even saturation is undecided)."""
        from bandtheory.reduction import solve

        reduction = self.reduction
        saturation = reduction.saturation(prob, log_delta)
        first = start(prob) if start is not None else reduction.start(prob, log_delta)
        root = solve(reduction, prob, log_delta, first)
        saturated = saturation <= 0
        if lower:
            value, error = np.where(saturated, -np.inf, root.log_c), root.error_c
        else:
            value, error = np.where(saturated, -prob.log_p, root.log_r), root.error_r
        # a saturation that rounding could have decided is in doubt too; it only matters for the complement
        unknown = np.isnan(root.log_z) & ~saturated | (lower & (np.abs(saturation) < 1e-11))
        if not reduction.evaluator.everywhere:
            unknown |= np.minimum(prob.log_p, prob.log_not_p) < -REACH
        return value, np.where(unknown, np.inf, np.where(saturated | np.isinf(value), 0.0, error))

    def _edge(self, prob: Probability, delta: Floats, lower: bool) -> Floats:
        """p = 1 and p = 0 (theorem 7), and δ = 0."""
        evaluator = self.reduction.evaluator
        if evaluator.flat and np.any(delta == 0):
            # a generator that is flat around 1: the largest feasible set, approached through the smallest radius
            bounded = _probability(np.clip(prob.log_p, -REACH, -1e-300), None)
            value, _ = self._root(bounded, np.full_like(delta, LOG_ZERO_RADIUS), None, lower)
        else:
            value = np.zeros_like(delta)
        positive = delta > 0
        certain = positive & (prob.log_not_p == -np.inf)  # the token had probability 1
        absent = positive & (prob.log_p == -np.inf)  # the token had probability 0
        if lower:
            value = np.where(certain, -np.inf, np.where(absent, self._limit(delta), value))
        else:
            value = np.where(certain, 0.0, np.where(absent, np.inf, value))
        return value

    def _limit(self, delta: Floats) -> Floats:
        """The complement's log-ratio as p → 0, for positive radii."""
        from bandtheory.reduction import certain_limit

        radii, index = np.unique(delta, return_inverse=True)
        return np.array([certain_limit(self.reduction, r) if r > 0 else 0.0 for r in radii])[index]


def _take(prob: Probability, mask: NDArray[np.bool_]) -> tuple[Probability, slice | NDArray[np.bool_]]:
    """The masked entries of a probability, without a copy when all are taken."""
    if mask.all():
        return prob, slice(None)
    return prob.where(mask), mask


def _probability(log_p: Floats, p: Floats | None) -> Probability:
    """All four faces of a probability from the one that was given."""
    from bandtheory.reduction import Probability

    if p is not None:
        return Probability(log_p, np.log1p(-p), p, 1 - p)
    return Probability.from_log(np, log_p)
