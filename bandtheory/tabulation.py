"""What tables of a rule's bounds on floats have in common: which rules have one, in which quantity, and how they round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bandtheory.closed_form_search import PowerForm, closed_form
from bandtheory.divergence import divergence
from bandtheory.evaluation import evaluator
from bandtheory.rules import Band, RatioClip, RelaxedBand, Rule, TableRule

Floats = NDArray[np.float64]

QUANTITIES = ("log_ratio", "ratio")


def checked(quantity: str) -> str:
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity: {quantity!r} is none of {', '.join(map(repr, QUANTITIES))}")
    return quantity


def is_regular(rule: Rule) -> bool:
    """Whether a rule's float64 bounds cost about the same, and are as good, for an array of any length.

    A slice of a table of radii counts as irregular: it is for runs in which the next step has another.
    """
    if isinstance(rule, TableRule):
        return rule.delta is None
    band = rule.band if isinstance(rule, RelaxedBand) else rule
    if not isinstance(band, Band):
        return True
    resolved = divergence(band.divergence)
    compiled, form = evaluator(resolved), closed_form(resolved)
    return (compiled.everywhere or isinstance(form, PowerForm)) and (band.delta > 0 or not compiled.flat)


def log_bounds_of(rule: Rule, logp: Floats, doubt: float) -> tuple[Floats, Floats]:
    bounds = rule.log_bounds(logp, doubt=doubt) if isinstance(rule, Band | RelaxedBand) else rule.log_bounds(logp)
    return np.broadcast_to(bounds.lower, logp.shape), np.broadcast_to(bounds.upper, logp.shape)


def expressed(rule: Rule, quantity: str, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Log-bounds as a quantity."""
    if quantity == "log_ratio":
        return lower, upper
    if isinstance(rule, RatioClip):
        return np.full_like(lower, 1 - rule.low), np.full_like(upper, 1 + rule.high)
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(lower), np.exp(upper)


def stays_inside(rule: Rule) -> bool:
    """Whether no bound may leave the band, by rounding neither."""
    return isinstance(rule, TableRule) and rule.table.inside


def moved_inward(quantity: str, lower: Floats, upper: Floats, rounding: tuple[float, float, float]) -> tuple[Floats, Floats]:
    """Both bounds moved towards ratio 1, not past it, by what rounding can change, and none that would overflow."""
    one, zero = (0.0, -np.inf) if quantity == "log_ratio" else (1.0, 0.0)
    share, least, largest = rounding
    positive = lower > zero  # a ratio of 0 stays
    lower = np.where(positive, np.minimum(lower + share * np.abs(np.where(positive, lower, one)) + least, one), zero)
    return lower, np.clip(upper * (1 - share) - least, one, largest)
