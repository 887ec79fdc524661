"""Tables of radii that were changed: what `validate` does not refuse, `check` does not prove."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bandtheory.radius_table import RadiusTable
from bandtheory.tables import TableError

Floats = NDArray[np.float64]

COARSE = {"max_error": 1e-3, "logp_min": -8.0}


@pytest.fixture(scope="module", params=["tv", "kl"])
def table(request: pytest.FixtureRequest) -> RadiusTable:
    return RadiusTable.build(request.param, 0.02, 0.021, **COARSE)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tv() -> RadiusTable:
    return RadiusTable.build("tv", 0.02, 0.021, **COARSE)  # type: ignore[arg-type]


def test_a_table_proves_itself_again(table: RadiusTable) -> None:
    table.validate()
    assert table.check() == []


def changed(found: RadiusTable, side: str, name: str, change: Callable[[Any], None]) -> RadiusTable:
    cells = getattr(found, side)
    array = getattr(cells, name).copy()
    change(array)
    return dataclasses.replace(found, **{side: dataclasses.replace(cells, **{name: array})})


def reported(found: RadiusTable) -> list[str]:
    """What validation, or else the proof, says against a table."""
    try:
        found.validate()
    except TableError as error:
        return [str(error)]
    return found.check()


def put(index: Any, value: float) -> Callable[[Any], None]:
    return lambda array: array.__setitem__(index, value)


def scaled(index: Any, factor: float) -> Callable[[Any], None]:
    return lambda array: array.__setitem__(index, array[index] * factor)


def middle_row(found: RadiusTable, side: str) -> int:
    """A row that has a cubic, and claims both errors."""
    cells = getattr(found, side)
    [row, *_] = np.flatnonzero((cells.coefficients[:, 1:] != 0).any(axis=(1, 2)) & np.isfinite(cells.errors).all(axis=1))
    return int(row)


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize(("i", "k"), [(0, 0), (1, 0), (0, 1), (2, 0), (3, 3)])
@pytest.mark.parametrize("by", [3e-3, -3e-3])
def test_every_coefficient_counts(tv: RadiusTable, side: str, i: int, k: int, by: float) -> None:
    row = middle_row(tv, side)

    def add(array: Floats) -> None:
        array[row, i, k] += by

    faults = reported(changed(tv, side, "coefficients", add))
    assert faults and side in faults[0]


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_errors_that_are_too_sure_are_not_proved(tv: RadiusTable, side: str) -> None:
    errors = getattr(tv, side).errors
    for which in (0, 1):
        row = int(np.argmax(np.where(errors[:, which] < 9e-4, errors[:, which], 0.0)))
        assert errors[row, which] > 1e-4
        faults = reported(changed(tv, side, "errors", scaled((row, which), 0.5)))
        assert len(faults) == 1 and f"row {row}, {side} bound" in faults[0] and "not proved" in faults[0]


@pytest.mark.parametrize(
    ("side", "name", "change", "problem"),
    [
        ("lower", "scales", scaled((0, 0), 1.001), "not proved|domain"),
        ("upper", "scales", scaled((0, 0), 1.01), "not proved|domain"),
        ("upper", "scales", scaled((0, 1), 3.0), "not proved|domain"),
        ("lower", "scales", put((0, 0), -1.0), "scale"),
        ("lower", "scales", put((0, 3), math.nan), "scale"),
        ("lower", "edges", put(0, -5.0), "log delta"),
        ("upper", "edges", put(1, 0.0), "log delta"),
        ("lower", "knots", put(0, 1e-9), "knots"),
        ("lower", "knots", put(-1, 1.2), "knots"),
        ("upper", "knots", put(3, 1.0), "knots"),
        ("upper", "knots", put(3, math.nan), "knots"),
        ("upper", "knots", scaled(-3, 1.3), "not proved"),
        ("lower", "counts", put(0, 1), "shape"),
        ("lower", "counts", put(0, -3), "shape"),
        ("lower", "errors", put((0, 0), -1e-9), "errors"),
        ("upper", "errors", put((2, 1), math.inf), "errors"),
        ("upper", "errors", put((2, 0), math.inf), "errors"),
        ("lower", "errors", put((0, 1), math.nan), "errors"),
        ("lower", "errors", put((0, 1), 1.5e-3), "errors"),
        ("upper", "coefficients", put((2, 0, 0), math.nan), "finite"),
        ("upper", "coefficients", put((2, 0, 0), -math.inf), "finite"),
        ("lower", "coefficients", put((-1, 1, 1), 0.5), "finite"),
        ("lower", "coefficients", put((2, 0, 0), -math.inf), "finite|monotone"),
        ("upper", "coefficients", scaled(-1, -1.0), "ratio 1"),
        ("upper", "coefficients", scaled(-1, 0.5), "monotone"),
    ],
)
def test_what_was_changed_is_found(tv: RadiusTable, side: str, name: str, change: Callable[[Any], None], problem: str) -> None:
    faults = reported(changed(tv, side, name, change))
    assert faults
    assert any(word in faults[0] for word in problem.split("|"))


def test_the_zero_of_another_radius_is_found(tv: RadiusTable) -> None:
    """The row of ratio 0 from a little earlier on: a gap of its own that claims nothing but to be inside."""
    cells = tv.lower
    assert np.isneginf(cells.coefficients[-1, 0, 0])
    faults = reported(changed(tv, "lower", "knots", put(-2, 1 - 1e-7)))
    assert faults and "not proved" in faults[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"delta_min": 0.019}, "log delta"),
        ({"delta_max": 0.022}, "log delta"),
        ({"delta_max": 0.01}, "delta_max"),
        ({"logp_min": -9.0}, "knots"),
        ({"logp_min": 3.0}, "logp_min"),
        ({"max_error": 1e-4}, "errors"),
        ({"max_error": 5.0}, "max_error"),
        ({"inside": True}, "inside"),
        ({"divergence": "no_such"}, "no_such"),
        ({"divergence": "kl"}, "generator"),
        ({"generator": "u**2"}, "generator"),
    ],
)
def test_other_words_about_a_table_are_found(tv: RadiusTable, change: dict[str, Any], problem: str) -> None:
    faults = reported(dataclasses.replace(tv, **change))
    assert faults and problem in faults[0]


def test_types_and_shapes_are_looked_at(tv: RadiusTable) -> None:
    for name, array in (
        ("coefficients", tv.lower.coefficients.astype(np.float32)),
        ("coefficients", tv.lower.coefficients[:, :3]),
        ("errors", tv.lower.errors[:-1]),
        ("counts", tv.lower.counts.astype(np.int32)),
        ("counts", tv.lower.counts.astype(np.float64)),
        ("knots", tv.lower.knots[1:]),
        ("scales", tv.lower.scales[:, :4]),
        ("edges", tv.lower.edges[:1]),
    ):
        with pytest.raises(TableError, match=f"lower bound: {name} has shape"):
            dataclasses.replace(tv, lower=dataclasses.replace(tv.lower, **{name: array})).validate()


def replaced(found: RadiusTable, side: str, **arrays: Any) -> RadiusTable:
    return dataclasses.replace(found, **{side: dataclasses.replace(getattr(found, side), **arrays)})


def test_an_upper_bound_of_nothing_is_found() -> None:
    table = RadiusTable.build("kl", 0.001, 0.00101, max_error=0.1, logp_min=-1.0)
    coefficients = np.zeros_like(table.upper.coefficients)
    coefficients[:, 0, 0] = -0.1
    assert reported(replaced(table, "upper", coefficients=coefficients, errors=np.zeros_like(table.upper.errors)))


def test_1_is_a_knot_of_upper_bounds() -> None:
    """There the coordinate changes: a row across it would be claimed of one place and evaluated at another."""
    table = RadiusTable.build("tv", 0.02, 0.03, max_error=0.1, logp_min=-8.0)
    cell = table.upper.cell(0)
    assert 1.0 in cell.knots
    row = int(np.searchsorted(cell.knots, 1.0))
    arrays = {name: np.delete(getattr(table.upper, name), row, axis=0) for name in ("knots", "coefficients", "errors")}
    [problem] = reported(replaced(table, "upper", counts=table.upper.counts - 1, **arrays))
    assert "1 must be a knot" in problem


def test_a_scale_that_makes_every_row_a_gap_is_found() -> None:
    table = RadiusTable.build("pearson_chi2", 0.05, 0.052, max_error=1e-3, logp_min=-8.0)
    scales = np.zeros_like(table.lower.scales)
    scales[:, 0] = 1e-8
    knots = np.array([0.0, 1 - 2.0**-16, 8e8 * (1 + 1e-9)])
    arrays = {"scales": scales, "counts": np.array([2]), "knots": knots, "coefficients": np.zeros((2, 4, 4))}
    assert reported(replaced(table, "lower", **arrays, errors=np.array([[0.0, 1e-3], [0.0, np.inf]])))


def test_an_infinite_knot_is_found() -> None:
    table = RadiusTable.build("tv", 0.02, 0.021, max_error=1e-3, logp_min=-8.0)
    knots = table.upper.knots.copy()
    knots[-1] = np.inf
    assert reported(replaced(table, "upper", knots=knots))
