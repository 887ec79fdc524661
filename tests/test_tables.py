"""Tables: the stated error is true, inside means inside, and nothing wrong is accepted."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bandtheory as bt
from bandtheory.catalogue import examples
from bandtheory.table_fit import FLOOR
from bandtheory.tables import BandTable, TableError

DELTAS = (0.001, 0.05, 1.0)
SMALL = {"max_error": 1e-4, "logp_min": -20.0}


@pytest.fixture(scope="module", params=[False, True], ids=["nearest", "inside"])
def kl(request) -> BandTable:
    return BandTable.build("kl", 0.05, inside=request.param)


def _distances(table: BandTable, logp: np.ndarray) -> np.ndarray:
    """Log-bounds as distances from ratio 1, of the band and of the table: [band or table, side, token]."""
    band = bt.log_bounds(logp=logp, divergence=table.divergence, delta=table.delta)
    found = table.log_bounds(logp)
    lower = np.where(np.isinf(band.lower), math.inf, np.minimum(-band.lower, FLOOR))
    return np.array([[lower, band.upper], [-found.lower, found.upper]])


def _differences(table: BandTable, logp: np.ndarray) -> np.ndarray:
    band, found = _distances(table, logp)
    return np.subtract(found, band, out=np.zeros_like(band), where=found != band)


def _float32_inputs(table: BandTable) -> np.ndarray:
    """Knots, the floats beside them, and random ones of all sizes."""
    generator = np.random.default_rng(5)
    beside = [np.nextafter(table.knots, np.float32(end)) for end in (0.0, np.inf)]
    random = generator.integers(0, int(table.knots[-1].view(np.int32)), 3000).astype(np.int32).view(np.float32)
    ordinary = generator.uniform(0.0, float(table.knots[-1]), 3000).astype(np.float32)
    x = np.concatenate([table.knots, *beside, random, ordinary]).astype(np.float64)
    return -np.clip(x, 0.0, float(table.knots[-1]))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("name", examples())
def test_every_divergence_has_a_small_table_that_is_as_good_as_it_says(name: str, delta: float) -> None:
    table = BandTable.build(name, delta, **SMALL)
    assert table.certified_error <= 1e-4
    assert len(table.values) <= 410
    difference = _differences(table, _float32_inputs(table))
    assert np.abs(difference).max() <= 1e-4


@pytest.mark.parametrize("name", ["kl", "tv", "squared_hellinger", "hockey_stick:2", "alpha:-0.5"])
def test_a_fine_table_has_few_knots_and_a_coarse_one_a_part_of_them(name: str) -> None:
    fine = BandTable.build(name, 0.05)
    coarse = BandTable.build(name, 0.05, max_error=1e-4)
    assert len(coarse.values) < 0.6 * len(fine.values) and len(fine.values) <= 4096
    assert np.abs(_differences(fine, _float32_inputs(fine))).max() <= fine.certified_error + 1e-9 <= 1e-6 + 1e-9


def test_errors_are_those_of_each_row(kl: BandTable) -> None:
    logp = _float32_inputs(kl)
    row = np.searchsorted(kl.knots[1:-1], -logp, side="right")
    excess, shortfall = np.moveaxis(kl.errors[row], -1, 0)
    difference = _differences(kl, logp).T
    assert (difference <= excess + 1e-9).all() and (-difference <= shortfall + 1e-9).all()


@given(st.floats(-103.9, 0.0))
def test_real_log_probabilities_between_the_floats_hold_the_error_too(kl: BandTable, logp: float) -> None:
    difference = _differences(kl, np.array([logp]))
    row = np.searchsorted(kl.knots[1:-1], -logp, side="right")
    assert (difference <= 1e-6).all()
    if not kl.gaps[row]:
        assert (difference >= -1e-6 - 1e-9).all()


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "tv", "vajda:1.5", "jeffreys"])
def test_inside_is_certified_by_ball_arithmetic(name: str) -> None:
    table = BandTable.build(name, 0.05, inside=True, **SMALL)
    logp = np.random.default_rng(2).choice(_float32_inputs(table), 60)
    for side in ("lower", "upper"):
        claim = getattr(table.log_bounds(logp), side)
        finite = np.isfinite(claim)
        verdicts = bt.certify(logp[finite], None, name, 0.05, side, log_ratio=claim[finite], tolerance=1e-300).verdict
        assert set(verdicts) <= {"inside", "on"}
    assert not table.errors[..., 0].any()


def test_bounds_are_monotone_and_constant_below_the_domain(kl: BandTable) -> None:
    logp = np.sort(np.concatenate([_float32_inputs(kl), np.random.default_rng(1).uniform(-104, 0, 20000)]))
    lower, upper = kl.log_bounds(logp)
    assert (np.diff(lower) >= -1e-12 * np.abs(lower[1:])).all() and (np.diff(upper) <= 1e-12 * upper[1:]).all()
    assert (lower <= 0).all() and (upper >= 0).all()
    beyond, end = kl.log_bounds([-math.inf, -1e6]), kl.log_bounds(-104.0)
    assert (beyond.lower == end.lower).all() and (beyond.upper == end.upper).all()


def test_bfloat16_inputs_are_all_within_the_error(kl: BandTable) -> None:
    patterns = np.arange(0x8000, 0xC2D0, dtype=np.uint32)  # −0 … −104
    logp = (patterns << 16).view(np.float32).astype(np.float64)
    assert np.abs(_differences(kl, logp)).max() <= 1e-6 + 1e-9


def test_a_table_proves_itself_again_and_a_false_one_does_not() -> None:
    table = BandTable.build("pearson_chi2", 0.05, max_error=1e-3, logp_min=-8.0)
    assert table.check() == []
    values = table.values.copy()
    values[7] += [-2e-3, 2e-3]
    faults = dataclasses.replace(table, values=values).check()
    assert len(faults) == 2 and "row 7" in faults[0]
    assert "generator" in dataclasses.replace(table, generator="u**2").check()[0]
    too_sure = table.errors.copy()
    too_sure[5] *= 0.5
    assert dataclasses.replace(table, errors=too_sure).check()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"values": np.zeros((2, 2))}, "shape"),
        ({"knots": np.array([0, 1, 1, 2], np.float32)}, "knots"),
        ({"delta": -1.0}, "delta"),
        ({"divergence": "no_such"}, "no_such"),
        ({"inside": True}, "inside"),
        ({"max_error": 1e-9}, "max_error"),
        ({"errors": np.full((3, 2, 2), -1.0)}, "errors"),
        ({"values": np.array([[0.0, 0.5], [0.0, 0.1], [0.0, 0.9]])}, "monotone"),
        ({"values": np.array([[0.0, -0.5], [0.0, 0.1], [0.0, 0.9]])}, "ratio 1"),
        ({"values": np.array([[0.0, 0.0], [math.nan, 0.1], [0.0, 0.9]])}, "finite"),
    ],
)
def test_validation_says_what_is_wrong(change: dict[str, object], problem: str) -> None:
    arrays = {
        "knots": np.array([0, 1, 2, 3], np.float32),
        "values": np.array([[0.0, 0.1], [-0.1, 0.2], [-0.2, 0.3]]),
        "coefficients": np.zeros((3, 2, 3), np.float32),
        "errors": np.full((3, 2, 2), 0.01),
    }
    table = BandTable("kl", "-log(u)", 0.05, -3.0, 0.05, "float32", False, "0", **arrays)
    table.validate()
    with pytest.raises(TableError, match=problem):
        dataclasses.replace(table, **change).validate()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"delta": -0.1}, "delta"),
        ({"delta": math.inf}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"logp_min": 1.0}, "logp_min"),
        ({"logp_min": -math.inf}, "logp_min"),
        ({"max_error": 0.0}, "max_error"),
        ({"max_error": 1e-8}, "max_error"),
        ({"dtype": "float16"}, "dtype"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(TableError, match=f"{name} = .*accepted"):
        BandTable.build("kl", **({"delta": 0.05} | arguments))  # type: ignore[arg-type]


def test_float64_coefficients_allow_a_smaller_error() -> None:
    table = BandTable.build("kl", 0.05, dtype="float64", max_error=1e-8, logp_min=-8.0)
    assert np.abs(_differences(table, _float32_inputs(table))).max() <= 1e-8 + 1e-10


def test_where_the_lower_bound_passes_the_floor_within_one_float() -> None:
    assert BandTable.build("kl", 0.1, logp_min=-12.0).gaps.sum() >= 1  # no cubic could be proved there once


def test_a_typed_generator() -> None:
    table = BandTable.build("u*log(u) - u + 1", 0.05, **SMALL)
    assert np.abs(_differences(table, _float32_inputs(table))).max() <= 1e-4


def test_logp_min_is_rounded_downwards_to_a_float32() -> None:
    table = BandTable.build("kl", 0.05, max_error=1e-3, logp_min=-10.1)
    assert table.logp_min == -float(table.knots[-1]) <= -10.1
