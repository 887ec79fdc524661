"""The figure of a lookup table: both log-bounds with their knots, and under them what is proved of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bandtheory.plots import BLACK, BLUE, VERMILLION, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bandtheory.tables import BandTable

LINEAR_BELOW = 1e-9  # nats: |logp| to which the axis is linear, logarithmic beyond
POINTS_PER_ROW = 8
_COLOURS = {"lower": VERMILLION, "upper": BLUE}
_DASHES: dict[str, Any] = {"excess": "-", "shortfall": (0, (3, 1.6))}


def table_figure(table: BandTable) -> Figure:
    """Log-ratio bounds of a table against logp, and the certified errors of its rows (nats).

    logp is on an axis that is logarithmic in |logp|, with p = 1 on the right. Dots are knots. A lower bound of −∞ (ratio 0) is
    drawn at the bottom. The errors of both bounds are steps, the excess (how far the table may lie beyond the band) solid and
    the shortfall (how far inside of it) dashed; a gap, a row one float wide whose shortfall is infinite, is a vertical line.
    """
    figure = new_figure(9.0, 6.6)
    bounds, errors = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _bounds_panel(bounds, table)
    _errors_panel(errors, table)
    for axes in (bounds, errors):
        axes.set_xscale("symlog", linthresh=LINEAR_BELOW, linscale=0.5)
        axes.set_xlim(table.logp_min, 0)
        axes.set_xticks(logp_ticks(table.logp_min))
        tidy(axes)
        axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper right")
    errors.set_xlabel("logp, nats (logarithmic in |logp|)")
    return figure


def _bounds_panel(axes: Axes, table: BandTable) -> None:
    knots = table.knots.astype(np.float64)
    x = np.unique(np.linspace(knots[:-1], knots[1:], POINTS_PER_ROW + 1))
    curves, marks = table.log_bounds(-x), table.log_bounds(-knots)
    finite = curves.lower[np.isfinite(curves.lower)]
    top, bottom = max(float(curves.upper.max()), 1e-9), min(float(finite.min(initial=0.0)), -1e-9)
    bottom = min(bottom, -top) if finite.size < x.size else bottom  # −∞ must not be mistaken for a value
    for side, curve, mark in (("lower", curves.lower, marks.lower), ("upper", curves.upper, marks.upper)):
        colour = _COLOURS[side]
        axes.plot(-x, np.maximum(curve, 2 * bottom), color=colour, linewidth=1.6, label=f"{side} bound")
        axes.plot(-knots, np.maximum(mark, 2 * bottom), ".", color=colour, markersize=3.5, label=f"_knots of the {side} bound")
    axes.axhline(0.0, linestyle=(0, (1, 2.5)), color="#666666", linewidth=1.0, label="_ratio 1")
    if np.isinf(curves.lower[-1]):
        axes.annotate("−∞: ratio 0", (table.logp_min, 2 * bottom), (6, 6), textcoords="offset points", fontsize=9)
    axes.set_yscale("symlog", linthresh=10.0 ** np.clip(np.floor(np.log10(max(table.delta, 1e-6))), -6, -1), linscale=0.5)
    axes.set_ylim(2 * bottom, 3 * top)
    title = f"{table.divergence}, δ = {table.delta:g} nats: {len(knots):,} knots"
    axes.set_title(title if len(title) < 90 else f"{title[:60]} … {title[-25:]}", loc="left")
    axes.set_ylabel("log-ratio, nats")


def _errors_panel(axes: Axes, table: BandTable) -> None:
    ends = -table.knots.astype(np.float64)
    for side, name in enumerate(_COLOURS):
        for kind, (word, dash) in enumerate(_DASHES.items()):
            steps = np.where(np.isfinite(table.errors[:, side, kind]), table.errors[:, side, kind], np.nan)
            axes.stairs(
                steps[::-1],
                ends[::-1],
                baseline=None,
                color=_COLOURS[name],
                linestyle=dash,
                linewidth=1.1,
                label=f"{name}, {word}",
            )
    for number, row in enumerate(np.flatnonzero(table.gaps)):
        axes.axvline(ends[row], color=BLACK, linestyle=(0, (1.2, 1.4)), linewidth=1.1, label="gap" if number == 0 else "_gap")
    axes.axhline(table.max_error, color="#666666", linewidth=1.0, label=f"max_error = {table.max_error:g}")
    axes.set_ylim(0, 1.4 * table.max_error)
    axes.set_title(f"Certified error of each row, at most {table.certified_error:.4g} nats", loc="left")
    axes.set_ylabel("nats")


def logp_ticks(logp_min: float) -> NDArray[np.float64]:
    """Places of every other decade of |logp|, and 0."""
    powers = 10.0 ** np.arange(np.floor(np.log10(-logp_min)), np.log10(LINEAR_BELOW) - 0.5, -2)
    return np.append(-powers, 0.0)
