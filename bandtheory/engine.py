"""A divergence compiled for numpy: which method gives which token's bounds, and what is done about rounding.

A bound comes from the closed form where `closed_form_search` found one, else from the root finder of `reduction`. Each carries
an estimate of its own rounding error; the few tokens where that exceeds a doubt, 1e-11 unless said otherwise, are solved again
in high precision (a lower bound about to reach 0 is the difference of two nearly equal numbers). So the accuracy does not
depend on where p happens to lie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bandtheory.closed_form_search import PowerForm, closed_form
from bandtheory.closed_forms import ClosedForm
from bandtheory.divergence import FDivergence
from bandtheory.evaluation import evaluator
from bandtheory.precision import solve_precisely
from bandtheory.radius import Radius, f_radius
from bandtheory.reduction import Probability, Reduction, certain_limit, solve
from bandtheory.starts import StartTable

Floats = NDArray[np.float64]
Given = tuple[Floats | None, Floats | None]  # (log p, None) or (None, p): whichever the caller knows exactly

BLOCK = 16_384  # tokens evaluated at a time, so that the intermediates stay in cache
CLOSED_FORM_ERROR = 1e-15  # relative error of a closed form; of its complement ratio c it is this over c
MAX_REFINED = 5_000  # per call; an expression without a stable evaluation would otherwise send every token to high precision
REACH = 690.0  # |log p| beyond which p itself is about to underflow and closed forms are left for the root finder
LOG_ZERO_RADIUS = -1e9  # stands for log 0 where a generator is flat around 1 and its band at radius 0 is an interval
PRECISE_REACH = 1e6  # |log p| beyond which no token is solved in high precision
FAR = 2.0**40  # |log p| beyond which a double log z no longer resolves the root, and the bound is a straight line in log p


@dataclass
class Account:
    """How many bounds were solved in high precision, and the largest estimated relative error among the others."""

    doubt: float
    refined: int = 0
    error: float = 0.0

    @property
    def left(self) -> int:
        return max(0, MAX_REFINED - self.refined)

    def __str__(self) -> str:
        return f"estimated relative error {self.error:.1e}; {self.refined:,} bounds in high precision"


class Engine:
    """The bounds of one divergence; `method` is "closed form" or "root"."""

    def __init__(self, divergence: FDivergence) -> None:
        self.divergence = divergence
        self.reduction: Reduction = Reduction(evaluator(divergence), np)
        self.saturates = bool(np.isfinite(self.reduction.evaluator.value_at_zero))
        form = closed_form(divergence)
        self.closed: ClosedForm | None = None if form is None else ClosedForm(form, np)
        self.method = "root" if form is None else "closed form"
        self.reach = math.inf if isinstance(form, PowerForm) else REACH  # a power form is evaluated in logarithms throughout
        # a band of radius 0 that is more than the point 1 follows from the closed form like any other
        self.zero_is_regular = isinstance(form, PowerForm) and form.offset != 0

    def log_bounds(self, log_p: Floats, p: Floats | None, delta: Floats, doubt: float) -> tuple[Floats, Floats, Account]:
        """Lower and upper log-ratios of N tokens, and what was done about rounding; `delta` is of shape (N,) or (1,)."""
        lower, upper, account = np.empty_like(log_p), np.empty_like(log_p), Account(doubt)
        radius = f_radius(self.divergence, delta)
        starts = self._starts(log_p, radius)
        for begin in range(0, log_p.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            given = (log_p[block], None) if p is None else (None, p[block])
            prob, here = probability(log_p[block], given[1]), radius.where(block)
            upper[block] = self._side(prob, here, starts[0], given, account, lower=False)
            lower[block] = self._side(prob.mirrored(), here, starts[1], given, account, lower=True)
        return lower, upper, account

    def _starts(self, log_p: Floats, radius: Radius) -> tuple[StartTable | None, StartTable | None]:
        """Tables of first guesses, one per side, where an array is long enough to repay them."""
        if self.closed or log_p.size < 2 * BLOCK:
            return None, None
        inside = log_p[(log_p < 0) & (log_p > -REACH)]
        level = float(radius.log[0])
        if inside.size < 2 * BLOCK or radius.log.min() != radius.log.max() or not np.isfinite(level):
            return None, None
        ends = probability(np.array([inside.min(), inside.max()]), None)
        upper = StartTable.build(self.reduction, ends, level)
        return upper, StartTable.build(self.reduction, ends.mirrored(), level)

    def _side(
        self, prob: Probability, radius: Radius, start: StartTable | None, given: Given, account: Account, lower: bool
    ) -> Floats:
        """`log r` of the upper bound of prob, or its `log c`, which is the lower bound of the token that prob mirrors."""
        nearer = np.minimum(prob.log_p, prob.log_not_p)
        positive = self.zero_is_regular or radius.given.min(initial=np.inf) > 0
        if self.closed and positive and nearer.min(initial=0.0) > -self.reach:
            value, error = self._closed(self.closed, prob, radius, lower, account.doubt)
            self._refine(value, error, nearer, radius.given, given, account, lower)
            return value
        regular = np.isfinite(nearer) & np.isfinite(np.maximum(prob.log_p, prob.log_not_p))
        if not positive:
            regular &= radius.given > 0
        closed = regular & (nearer > -self.reach) if self.closed else np.zeros_like(regular)
        value, error = np.full_like(prob.log_p, np.nan), np.zeros_like(prob.log_p)
        if self.closed and closed.any():
            value[closed], error[closed] = self._closed(
                self.closed, prob.where(closed), radius.where(closed), lower, account.doubt
            )
        far = regular & ~closed & (prob.log_p < -FAR) & (not lower)
        if far.any():
            value[far] = self._far(prob.log_p[far], radius.spread(far.size).log[far])
        rooted = regular & ~closed & ~far
        if rooted.any():
            part, keep = _take(prob, rooted)
            value[keep], error[keep] = self._root(part, radius.spread(rooted.size).log[keep], start, lower)
        edge = ~regular
        if edge.any():
            value[edge] = self._edge(prob.where(edge), radius.spread(edge.size).where(edge), lower)
        self._refine(value, error, nearer, radius.given, given, account, lower)
        return value

    def _refine(
        self, value: Floats, error: Any, nearer: Floats, delta: Floats, given: Given, account: Account, lower: bool
    ) -> None:
        """Solve the doubtful tokens again in high precision, in place, and enter the errors of the others in the account."""
        unknown = np.isnan(value)
        if np.ndim(error) == 0 and error <= account.doubt and not unknown.any():
            account.error = max(account.error, float(error))
            return
        error = np.where(unknown, np.inf, error)
        beyond = nearer < -PRECISE_REACH
        if self.reduction.evaluator.everywhere:
            error[beyond] = 0.0  # the estimate takes |log p| for a rounding error, of which the ratio of two such is free
        doubtful, delta = np.flatnonzero(~(error <= account.doubt) & ~beyond), np.broadcast_to(delta, value.shape)
        # the doubts about an accurate evaluation are few tokens near saturation; those about another may be all tokens
        limit = doubtful.size if self.reduction.evaluator.everywhere else account.left
        for i in doubtful[np.argsort(-error[doubtful], kind="stable")][:limit]:
            log_p, p = (None if array is None else float(array[i]) for array in given)
            value[i] = solve_precisely(self.divergence, log_p, p, float(delta[i]), lower)
            error[i] = 0.0
            account.refined += 1
        account.error = max(account.error, float(error.max(initial=0.0)))

    def _closed(self, form: ClosedForm, prob: Probability, radius: Radius, lower: bool, doubt: float) -> tuple[Floats, Any]:
        """The bound, and its estimated relative error."""
        if not lower:
            return form.log_ratio(prob, radius), CLOSED_FORM_ERROR
        log_c, margin = form.log_complement(prob, radius)
        if not self.saturates:
            return log_c, CLOSED_FORM_ERROR
        size = np.abs(margin)
        worst = CLOSED_FORM_ERROR / size.min()
        return log_c, worst if worst <= doubt else CLOSED_FORM_ERROR / size

    def _root(self, prob: Probability, log_radius: Floats, start: StartTable | None, lower: bool) -> tuple[Floats, Floats]:
        """The bound, and its estimated relative error (infinite where even saturation is undecided)."""
        reduction = self.reduction
        saturation = reduction.saturation(prob, log_radius)
        first = start(prob) if start is not None else reduction.start(prob, log_radius)
        root = solve(reduction, prob, log_radius, first)
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

    def _far(self, log_p: Floats, log_radius: Floats) -> Floats:
        """The upper bound through its values at `FAR` and twice that: what bends it is logarithmic, below 1e-11 of it there."""
        levels, index = np.unique(log_radius, return_inverse=True)
        prob = probability(np.repeat([-FAR, -2 * FAR], levels.size), None)
        near, further = self._root(prob, np.tile(levels, 2), None, lower=False)[0].reshape(2, -1)[:, index]
        line: Floats = near + (further - near) * (-log_p / FAR - 1)
        return line

    def _edge(self, prob: Probability, radius: Radius, lower: bool) -> Floats:
        """p = 1 and p = 0 (theorem 7), and δ = 0."""
        positive = radius.given > 0
        value = np.zeros_like(prob.log_p)
        if self.reduction.evaluator.flat and not positive.all():
            # a generator that is flat around 1: the largest feasible set, approached through the smallest radius
            bounded = probability(np.clip(prob.log_p, -REACH, -1e-300), None)
            value, _ = self._root(bounded, np.full_like(value, LOG_ZERO_RADIUS), None, lower)
        certain = positive & (prob.log_not_p == -np.inf)  # the token had probability 1
        absent = positive & (prob.log_p == -np.inf)  # the token had probability 0
        if lower:
            return np.where(certain, -np.inf, np.where(absent, self._limit(radius), value))
        return np.where(certain, 0.0, np.where(absent, np.inf, value))

    def _limit(self, radius: Radius) -> Floats:
        """The complement's log-ratio as p → 0, for positive radii."""
        levels, index = np.unique(radius.log, return_inverse=True)
        return np.array([certain_limit(self.reduction, level) if level > -np.inf else 0.0 for level in levels])[index]


def _take(prob: Probability, mask: NDArray[np.bool_]) -> tuple[Probability, slice | NDArray[np.bool_]]:
    """The masked entries of a probability, without a copy when all are taken."""
    if mask.all():
        return prob, slice(None)
    return prob.where(mask), mask


def probability(log_p: Floats, p: Floats | None) -> Probability:
    """All four faces of a probability from the one that was given."""
    if p is not None:
        return Probability(log_p, np.log1p(-p), p, 1 - p)
    return Probability.from_log(np, log_p)
