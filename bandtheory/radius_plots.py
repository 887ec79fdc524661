"""The figure of a lookup table over log-probability and radius: bounds at a few radii, and what is proved of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bandtheory.plots import BLACK, BLUE, VERMILLION, new_figure, tidy
from bandtheory.table_plots import LINEAR_BELOW, logp_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

    from bandtheory.radius_cells import SideCells
    from bandtheory.radius_table import RadiusTable

RADII = 5
POINTS = 2000


def radius_table_figure(table: RadiusTable) -> Figure:
    """Log-ratio bounds against logp at five radii of the box, and the certified error of each row as a map over logp and δ.

    The larger of excess and shortfall, nats, is drawn at the place that a row has at the middle radius of its cell. Where the
    table only stays inside the band, as around the end of a lower bound, the map is black.
    """
    figure = new_figure(9.0, 8.6)
    bounds, lower, upper = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    _bounds_panel(bounds, table)
    mesh = None
    for axes, name, cells in ((lower, "lower", table.lower), (upper, "upper", table.upper)):
        mesh = _error_map(axes, cells, name == "upper", table.max_error)
        axes.set_title(
            f"Certified error of the {name} bound: {len(cells.counts)} cells of radii, {len(cells.errors)} rows", loc="left"
        )
        axes.set_ylabel("δ, nats")
    for axes in (bounds, lower, upper):
        axes.set_xscale("symlog", linthresh=LINEAR_BELOW, linscale=0.5)
        axes.set_xlim(table.logp_min, 0)
        axes.set_xticks(logp_ticks(table.logp_min))
        tidy(axes)
    bounds.legend(frameon=False, fontsize=9, ncols=2, loc="upper right")
    upper.set_xlabel("logp, nats (logarithmic in |logp|)")
    assert mesh is not None
    figure.colorbar(mesh, ax=[lower, upper], label="excess or shortfall, nats")
    return figure


def _bounds_panel(axes: Axes, table: RadiusTable) -> None:
    x = np.append(0.0, np.geomspace(LINEAR_BELOW / 10, -table.logp_min, POINTS))
    radii = np.geomspace(table.delta_min, table.delta_max, RADII)
    lowest = 0.0
    for k, delta in enumerate(radii):
        found = table.log_bounds(-x, float(np.clip(delta, table.delta_min, table.delta_max)))
        lowest = min(lowest, float(found.lower[np.isfinite(found.lower)].min(initial=0.0)))
        for name, curve, colour in (("lower", found.lower, VERMILLION), ("upper", found.upper, BLUE)):
            label = f"{name} bound, δ from {table.delta_min:g} to {table.delta_max:g} nats" if k == RADII - 1 else "_"
            axes.plot(-x, np.maximum(curve, -1e3), color=colour, alpha=0.3 + 0.7 * k / (RADII - 1), linewidth=1.4, label=label)
    axes.axhline(0.0, linestyle=(0, (1, 2.5)), color="#666666", linewidth=1.0, label="_ratio 1")
    axes.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(table.delta_min)), linscale=0.5)
    axes.set_ylim(2 * lowest, -3 * table.logp_min)
    axes.set_title(f"{table.divergence}: certified error at most {table.certified_error:.4g} nats", loc="left")
    axes.set_ylabel("log-ratio, nats")


def _error_map(axes: Axes, cells: SideCells, upper: bool, max_error: float) -> QuadMesh:
    mesh = None
    axes.set_facecolor(BLACK)
    for cell in cells:
        low, high = cell.log_delta
        side = cells.at((low + high) / 2, upper)
        x = np.where(cell.knots <= 1, cell.knots * side.scale, side.scale + (cell.knots - 1) * side.beyond)
        errors = np.where(np.isfinite(cell.errors), cell.errors, np.nan).max(axis=1)
        mesh = axes.pcolormesh(-x[::-1], np.exp([low, high]), errors[None, ::-1], vmin=0, vmax=max_error, cmap="viridis")
    assert mesh is not None
    axes.set_yscale("log")
    return mesh
