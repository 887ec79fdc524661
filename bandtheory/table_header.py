"""Lookup tables as C source: one header with arrays and an inline function, for C99, C++11 and CUDA.

The function works in float. With u = 2⁻²⁴, arithmetic as IEEE 754 has it, and products and sums contracted to fused ones or
not, its result is within

    E = u (2 |c₀| + 8 (|c₁| + |c₂| + |c₃|) + 7 (|c₁| + 2 |c₂| + 3 |c₃|)) + 2⁻¹⁴⁶

of the cubic with the stored coefficients: c₀ … c₃ are rounded to float; `(x − x_i) · scale − 1` is within 7u of t, as the
difference, the scale 2/(x_{i+1} − x_i) and the product have a relative error of u each, and t one of u; Horner's rule adds at
most 6u on the terms in t, and u on the sum. The constants of a table that stays inside the band are moved towards 0 by E.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Template

import numpy as np
from numpy.typing import NDArray

from bandtheory.table_fit import FLOOR
from bandtheory.tables import BandTable

UNIT = 2.0**-24
SHIFT = 19  # a cell of the directory is 2**SHIFT patterns, a sixteenth of an octave
_NARROWEST = 2.0**-125  # rows in which 2/(width) is no float are constant: t = −1
_A_LINE = 8

Floats = NDArray[np.float64]

_TEMPLATE = Template("""\
/* Log-ratio bounds of the band of $divergence, radius $delta nats, by table. Written by bandtheory $version; do not edit.
 *
 * $name(logp, &lower, &upper):
 * the ratios of a token of old log-probability logp (nats) that the band allows are [exp(lower), exp(upper)].
 *
 *   generator        f(u) = $generator
 *   domain           logp in [$logp_min, 0]; below it the bounds are those at its end, which lie inside the band;
 *                    above 0 they are those at 0; NaN gives NaN
 *   certified error  $certified_error nats, that is, of a ratio, relative: each row proved in ball arithmetic, for
 *                    all real logp, for the table evaluated exactly$gaps;
 *                    finite lower bounds below -$floor (ratios that no float holds) count as -$floor
 *   float            evaluating in float adds at most $evaluation_error nats on any row, $typical_error where both bounds are
 *                    below 1; with IEEE arithmetic (no -ffast-math), with or without fused multiply-add
 *   $inside
 *   sha256           $sha256 (of the table)
 */
#ifndef $guard
#define $guard

#include <math.h>
#include <string.h>

#define ${guard}_ROWS $rows
#define ${guard}_KNOTS { \\
$knots }
#define ${guard}_SCALES { \\
$scales }
#define ${guard}_LOWER { \\
$lower }
#define ${guard}_UPPER { \\
$upper }
#define ${guard}_DIRECTORY { \\
$directory }

/* row i is knots[i] <= |logp| <= knots[i + 1]; scales[i] is 2/(knots[i + 1] - knots[i]); the directory has the row of every
 * 2^$shift-th bit pattern of |logp| */
static const float ${prefix}_knots[${guard}_ROWS + 1] = ${guard}_KNOTS;
static const float ${prefix}_scales[${guard}_ROWS] = ${guard}_SCALES;
static const float ${prefix}_lower[${guard}_ROWS][4] = ${guard}_LOWER;
static const float ${prefix}_upper[${guard}_ROWS][4] = ${guard}_UPPER;
static const unsigned short ${prefix}_directory[] = ${guard}_DIRECTORY;
#ifdef __CUDACC__
static __device__ const float ${prefix}_device_knots[${guard}_ROWS + 1] = ${guard}_KNOTS;
static __device__ const float ${prefix}_device_scales[${guard}_ROWS] = ${guard}_SCALES;
static __device__ const float ${prefix}_device_lower[${guard}_ROWS][4] = ${guard}_LOWER;
static __device__ const float ${prefix}_device_upper[${guard}_ROWS][4] = ${guard}_UPPER;
static __device__ const unsigned short ${prefix}_device_directory[] = ${guard}_DIRECTORY;
#define ${guard}_BOTH __host__ __device__
#else
#define ${guard}_BOTH
#endif
#ifdef __CUDA_ARCH__
#define ${guard}_(array) ${prefix}_device_##array
#else
#define ${guard}_(array) ${prefix}_##array
#endif

static inline ${guard}_BOTH void $name(float logp, float *lower, float *upper)
{
    float x = -logp, t;
    const float *low, *high;
    unsigned int bits;
    int row, last;
    if (!(x == x)) {
        *lower = *upper = x;
        return;
    }
    x = x > 0.0f ? x : 0.0f;
    x = x < ${guard}_(knots)[${guard}_ROWS] ? x : ${guard}_(knots)[${guard}_ROWS];
    memcpy(&bits, &x, sizeof bits);
    row = ${guard}_(directory)[bits >> $shift];
    last = ${guard}_(directory)[(bits >> $shift) + 1];
    while (row < last) { /* the last row that begins at x or before it: bisection, as a cell may hold some thirty rows */
        int middle = (row + last + 1) / 2;
        if (${guard}_(knots)[middle] <= x)
            row = middle;
        else
            last = middle - 1;
    }
    t = (x - ${guard}_(knots)[row]) * ${guard}_(scales)[row] - 1.0f;
    low = ${guard}_(lower)[row];
    high = ${guard}_(upper)[row];
    *lower = low[0] + t * (low[1] + t * (low[2] + t * low[3]));
    *upper = high[0] + t * (high[1] + t * (high[2] + t * high[3]));
    *lower = *lower < 0.0f ? *lower : 0.0f;
    *upper = *upper > 0.0f ? *upper : 0.0f;
}

#undef ${guard}_
#endif
""")


def header(table: BandTable, sha256: str) -> str:
    """The text of the header; its names hold the divergence and the radius."""
    knots = table.knots.astype(np.float64)
    errors = evaluation_errors(table)
    values = _constants(table, errors)
    coefficients = table.coefficients.astype(np.float32).astype(np.float64)
    cubics = np.concatenate([values[..., None], coefficients], axis=-1)
    width = np.diff(knots)
    scales = np.where(width < _NARROWEST, 0.0, 2 / np.maximum(width, _NARROWEST))
    prefix = re.sub(r"\W+", "_", f"bandtheory_{table.divergence}_{table.delta!r}").strip("_").lower()
    ordinary = np.where((np.abs(table.values) < 1).all(axis=1), errors.max(axis=1), 0.0)
    inside = "inside           no result leaves the band: the constants make up for float arithmetic"
    gap_rows = int(table.gaps.sum())
    return _TEMPLATE.substitute(
        divergence=_comment(table.divergence),
        generator=_comment(table.generator),
        delta=repr(table.delta),
        version=table.version,
        name=f"{prefix}_log_bounds",
        prefix=prefix,
        guard=prefix.upper(),
        logp_min=repr(table.logp_min),
        certified_error=f"{table.certified_error:.9g}",
        gaps=f", {gap_rows} rows of the lower bound, one float wide each,\n *                    at floats only"
        if gap_rows
        else "",
        floor=f"{FLOOR:g}",
        evaluation_error=f"{errors[np.isfinite(table.values)].max():.2g}",
        typical_error=f"{ordinary.max():.2g}",
        inside=inside if table.inside else "inside           results may leave the band by these errors",
        sha256=sha256,
        rows=len(values),
        knots=_lines(map(_float, knots)),
        scales=_lines(map(_float, scales)),
        lower=_lines((_row(row) for row in cubics[:, 0]), 2),
        upper=_lines((_row(row) for row in cubics[:, 1]), 2),
        directory=_lines(map(str, _directory(table.knots)), 16),
        shift=SHIFT,
    )


def evaluation_errors(table: BandTable) -> Floats:
    """E of each row and side, nats, shape (K, 2); the module derives it."""
    value, slopes = np.abs(table.values), np.abs(table.coefficients.astype(np.float64))
    steep = slopes @ np.array([1.0, 2.0, 3.0])
    error = UNIT * (2 * value + 8 * slopes.sum(axis=-1) + 7 * steep) * 1.001 + 2.0**-146
    narrow = np.diff(table.knots.astype(np.float64)) < _NARROWEST
    return np.where(np.isfinite(value), error + np.where(narrow[:, None], 2 * steep, 0.0), 0.0)


def _constants(table: BandTable, errors: Floats) -> Floats:
    """c₀ as floats, those of a table that stays inside moved towards 0 and rounded that way."""
    if not table.inside:
        return table.values.astype(np.float32).astype(np.float64)
    size = np.maximum(np.abs(table.values) - errors, 0.0)
    rounded = size.astype(np.float32)
    rounded = np.where(rounded > size, np.nextafter(rounded, np.float32(0)), rounded)
    return np.copysign(rounded.astype(np.float64), table.values)


def _directory(knots: NDArray[np.float32]) -> list[int]:
    """The row of the first pattern of each cell, up to the cell after that of the last knot."""
    cells = (int(knots[-1].view(np.int32)) >> SHIFT) + 2
    starts = (np.arange(cells, dtype=np.int64) << SHIFT).astype(np.int32).view(np.float32)
    rows = np.searchsorted(knots, starts, side="right") - 1
    found: list[int] = np.minimum(rows, len(knots) - 2).tolist()
    return found


def _row(row: Floats) -> str:
    return "{" + ", ".join(map(_float, row)) + "}"


def _float(x: float) -> str:
    """A float constant: nine digits, from which the same float is read."""
    if np.isneginf(x):
        return "-HUGE_VALF"
    text = f"{x:.9g}"
    return text + ("" if "." in text or "e" in text else ".0") + "f"


def _lines(parts: Iterable[str], a_line: int = _A_LINE) -> str:
    """An initialiser's body in lines of a macro."""
    found = list(parts)
    lines = [", ".join(found[i : i + a_line]) for i in range(0, len(found), a_line)]
    return ", \\\n".join(f"    {line}" for line in lines)


def _comment(text: str) -> str:
    """Text that cannot end a comment: a typed generator may hold `*/`."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")
