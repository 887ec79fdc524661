"""The figure of a lookup table shows what is in the table."""

from __future__ import annotations

import numpy as np
import pytest

from bandtheory.plots import render
from bandtheory.table_plots import table_figure
from bandtheory.tables import BandTable


@pytest.fixture(scope="module")
def tv() -> BandTable:
    return BandTable.build("tv", 0.05, max_error=1e-3, logp_min=-8.0)


def test_the_figure_has_the_bounds_their_knots_and_every_error(tv: BandTable) -> None:
    bounds, errors = table_figure(tv).axes
    lines = {str(line.get_label()): line for line in (*bounds.lines, *errors.lines)}
    assert np.array_equal(lines["_knots of the upper bound"].get_xdata(), -tv.knots.astype(float))
    x = np.asarray(lines["upper bound"].get_xdata())
    assert np.array_equal(lines["upper bound"].get_ydata(), tv.log_bounds(x).upper)
    steps = {str(patch.get_label()): patch.get_data() for patch in errors.patches}
    assert np.array_equal(steps["upper, shortfall"].values[::-1], tv.errors[:, 1, 1])
    assert np.array_equal(steps["lower, excess"].values[::-1], tv.errors[:, 0, 0])
    shortfall = steps["lower, shortfall"].values[::-1]
    assert np.array_equal(np.isnan(shortfall), tv.gaps)
    assert np.array_equal(shortfall[~tv.gaps], tv.errors[~tv.gaps, 0, 1])
    assert lines["max_error = 0.001"].get_ydata()[0] == 1e-3
    marked = sorted(float(line.get_xdata()[0]) for line in errors.lines if "gap" in str(line.get_label()))
    assert marked == sorted(-tv.knots[:-1][tv.gaps].astype(float))
    assert tv.gaps.any()


def test_a_tiny_radius_can_be_drawn() -> None:
    table = BandTable.build("kl", 1e-12, max_error=1e-3, logp_min=-8.0)
    assert render(table_figure(table), "png").startswith(b"\x89PNG")
