"""A rule's bounds on every float16 or bfloat16: a list by bit pattern, correctly rounded."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from bandtheory.bounds import DOUBT
from bandtheory.rules import parse
from bandtheory.tabulation import Floats, checked, expressed, is_regular, log_bounds_of, moved_inward, stays_inside

HALF_TYPES = ("float16", "bfloat16")
# What rounding to nearest can change, relative and in the smallest numbers, and the largest number.
HALF_ROUNDING = {
    "float16": (1.01 * 2.0**-11, 1.01 * 2.0**-25, 65504.0),
    "bfloat16": (1.01 * 2.0**-8, 1.01 * 2.0**-134, 255 * 2.0**120),
}


def half_table(rule: str, dtype: str, quantity: str = "log_ratio") -> NDArray[np.uint16] | None:
    """Bit patterns of both bounds by the bit pattern of logp, shape (65536, 2): those of float64, rounded once.

    None for a band whose float64 bounds are solved in high precision token by token.

    Args:
        rule: a rule's string.
        dtype: "float16" or "bfloat16".
        quantity: "log_ratio" for log-bounds in nats, "ratio" for their exponentials.

    Raises:
        ValueError: another dtype or quantity.
    """
    if dtype not in HALF_TYPES:
        raise ValueError(f"dtype: {dtype!r} is none of {', '.join(map(repr, HALF_TYPES))}")
    return _half_table(rule, dtype, checked(quantity))


@functools.lru_cache(maxsize=64)
def _half_table(rule: str, dtype: str, quantity: str) -> NDArray[np.uint16] | None:
    parsed = parse(rule)
    if not is_regular(parsed):
        return None
    unknown, logs = _half_log_bounds(rule, dtype)
    lower, upper = expressed(parsed, quantity, *logs)
    if stays_inside(parsed):
        lower, upper = moved_inward(quantity, lower, upper, HALF_ROUNDING[dtype])
    bounds = np.stack([lower, upper], axis=1)
    bounds[unknown] = np.nan
    return to_half(bounds, dtype)


@functools.lru_cache(maxsize=4)  # for who asks for both quantities
def _half_log_bounds(rule: str, dtype: str) -> tuple[NDArray[np.bool_], tuple[Floats, Floats]]:
    """Which of all patterns are NaN, and both log-bounds by pattern."""
    patterns = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        if dtype == "float16":
            logp = patterns.view(np.float16).astype(np.float64)
        else:
            logp = (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    unknown = np.isnan(logp)
    return unknown, log_bounds_of(parse(rule), np.where(unknown, -1.0, np.minimum(logp, 0.0)), DOUBT)


def to_half(values: Floats, dtype: str) -> NDArray[np.uint16]:
    """Bit patterns of the nearest 16-bit floats, ties to even, without the detour over float32 that would round twice."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(np.float32)
    # Rounding to odd in float32 keeps on which side of a tie of bfloat16 the double lies.
    bits = nearest.view(np.uint32).copy()
    inexact = np.isfinite(values) & np.isfinite(nearest) & (nearest.astype(np.float64) != values)
    beyond = inexact & (np.abs(nearest.astype(np.float64)) > np.abs(values))
    bits[beyond] -= 1
    bits[inexact] |= 1
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)
