"""Tables of radii: the stated error is true for every radius of the box, and nothing wrong is accepted."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import bandtheory as bt
from bandtheory import radius_proof
from bandtheory.radius_table import RadiusTable
from bandtheory.rules import Band, RuleError, TableRule, parse
from bandtheory.schedules import Schedule, parse_schedule
from bandtheory.table_files import load_table, metadata
from bandtheory.tables import BandTable, TableError

COARSE = {"max_error": 1e-3, "logp_min": -8.0}
BOXES = {"tv": (0.02, 0.021), "kl": (0.05, 0.052), "pearson_chi2": (0.05, 0.052)}
ROUNDING = 1e-12
READ = [".safetensors", ".npz"]

Floats = NDArray[np.float64]


def build(name: str, inside: bool) -> RadiusTable:
    return RadiusTable.build(name, *BOXES[name], inside=inside, **COARSE)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=sorted(BOXES))
def table(request: pytest.FixtureRequest) -> RadiusTable:
    return build(request.param, False)


@pytest.fixture(scope="module", params=["tv", "kl"])
def inside(request: pytest.FixtureRequest) -> RadiusTable:
    return build(request.param, True)


@pytest.fixture(scope="module")
def tv() -> RadiusTable:
    return build("tv", False)


@pytest.fixture(scope="module")
def single() -> BandTable:
    return BandTable.build("tv", 0.02, **COARSE)  # type: ignore[arg-type]


def radii(found: RadiusTable, count: int) -> list[float]:
    """The ends of the box, and between."""
    middle = np.random.default_rng(3).uniform(found.delta_min, found.delta_max, count - 2)
    return [found.delta_min, *middle.tolist(), found.delta_max]


def tokens(found: RadiusTable, delta: float, count: int) -> Floats:
    """Of all sizes, around the places where bounds end, and both ends of the domain."""
    generator = np.random.default_rng(4)
    last = -found.logp_min
    sides = found.at(delta)
    around = [
        side.scale * (1 + 2.0 ** -generator.uniform(4, 40, 20) * generator.choice([-1, 1], 20))
        for side in (sides.lower, sides.upper)
    ]
    x = np.concatenate([generator.uniform(0, last, count), 10 ** generator.uniform(-12, 0, count), *around, [last, 1e-30]])
    return -np.clip(x, 0.0, last)


def claimed(found: RadiusTable, side: str, logp: Floats, delta: float) -> Floats:
    """Excess and shortfall of the row in which each token lies, [token, error]."""
    cells = getattr(found, side)
    [cell] = [cell for cell in cells if cell.log_delta[0] <= math.log(delta) < cell.log_delta[1]]
    low, high = cell.log_delta
    scale = float(np.polynomial.polynomial.polyval((2 * math.log(delta) - low - high) / (high - low), cell.scale))
    slope = scale if side == "lower" else float(cell.scale[0])
    xi = np.where(-logp <= scale, -logp / scale, 1 + (-logp - scale) / slope)
    errors: Floats = cell.errors[np.searchsorted(cell.knots[1:-1], xi, side="right")]
    return errors


# --- what a table says is true ----------------------------------------------------------------------------------------------


def test_the_error_is_the_one_that_is_claimed_of_each_row(table: RadiusTable) -> None:
    without_shortfall = 0
    for delta in radii(table, 8):
        logp = tokens(table, delta, 400)
        band = bt.log_bounds(logp=logp, divergence=table.divergence, delta=delta)
        for side, found in zip(("lower", "upper"), table.log_bounds(logp, delta), strict=False):
            true, distance = np.abs(getattr(band, side)), np.abs(found)
            excess, shortfall = claimed(table, side, logp, delta).T
            assert (distance <= true + excess + ROUNDING * true)[np.isfinite(true)].all()
            open_ended = np.isinf(shortfall) & np.isfinite(distance)
            assert (true <= distance + shortfall + ROUNDING).all()
            assert (np.isinf(distance) <= np.isinf(true)).all()
            without_shortfall += int(open_ended.sum())
        assert table.certified_error <= 1e-3
    assert without_shortfall < 8 * 60  # of 6,800 tokens, of which 320 were put where the bound ends


@given(st.floats(0, 1), st.floats(0, 8))
def test_certificates_agree(tv: RadiusTable, part: float, x: float) -> None:
    delta = tv.delta_min + part * (tv.delta_max - tv.delta_min)
    x = min(x, -tv.logp_min)
    found = tv.log_bounds(-x, delta)
    for side in ("lower", "upper"):
        value = float(getattr(found, side))
        excess, shortfall = claimed(tv, side, np.array([-x]), min(max(delta, tv.delta_min), tv.delta_max))[0]
        low, high = sorted(np.abs(bt.certify(-x, None, "tv", delta, side, log_ratio=value).log_enclosure))  # type: ignore[union-attr]
        assert abs(value) - excess - ROUNDING <= high
        assert low <= abs(value) + shortfall + ROUNDING


def test_inside_is_certified_by_ball_arithmetic(inside: RadiusTable) -> None:
    assert not inside.lower.errors[:, 0].any() and not inside.upper.errors[:, 0].any()
    for delta in radii(inside, 3):
        logp = np.random.default_rng(2).choice(tokens(inside, delta, 100), 40)
        for side in ("lower", "upper"):
            claim = getattr(inside.log_bounds(logp, delta), side)
            finite = np.isfinite(claim)
            assert finite.sum() > 10
            verdicts = bt.certify(
                logp[finite], None, inside.divergence, delta, side, log_ratio=claim[finite], tolerance=1e-300
            ).verdict
            assert set(verdicts) <= {"inside", "on"}
            zero = bt.certify(logp[~finite], None, inside.divergence, delta, side, log_ratio=claim[~finite])
            assert zero.holds.all()  # type: ignore[union-attr]


def test_inside_never_leaves_the_band_of_float64(inside: RadiusTable) -> None:
    for delta in radii(inside, 10):
        logp = tokens(inside, delta, 2000)
        band, found = bt.log_bounds(logp=logp, divergence=inside.divergence, delta=delta), inside.log_bounds(logp, delta)
        assert (found.lower >= band.lower).all() and (found.upper <= band.upper).all()


def test_bounds_are_monotone_and_constant_below_the_domain(table: RadiusTable) -> None:
    for delta in radii(table, 3):
        logp = np.sort(tokens(table, delta, 3000))
        found = table.log_bounds(logp, delta)
        lower, upper = found.lower, found.upper
        both = np.isfinite(lower)
        assert (np.diff(lower[both]) >= -2e-3).all() and (np.diff(upper) <= 2e-3).all()
        assert (lower <= 0).all() and (upper >= 0).all()
        beyond, end = table.log_bounds([-math.inf, -1e6, -9.0], delta), table.log_bounds(table.logp_min, delta)
        assert (beyond.lower == end.lower).all() and (beyond.upper == end.upper).all()


def test_tokens_of_any_shape_and_bad_ones(tv: RadiusTable) -> None:
    flat = tv.log_bounds([-1.0, -2.0, -3.0, -4.0], 0.0205)
    shaped = tv.log_bounds([[-1.0, -2.0], [-3.0, -4.0]], 0.0205)
    assert shaped.lower.shape == (2, 2) and (shaped.upper.ravel() == flat.upper).all()
    for logp in (0.5, math.nan):
        with pytest.raises(ValueError, match="logp"):
            tv.log_bounds([-1.0, logp], 0.0205)


def test_a_box_that_needs_several_cells_of_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell in which rows cannot be proved is halved: here, all that are wider than a third of the box."""
    prove = radius_proof._proved_cell
    third = math.log(0.024 / 0.02) / 3

    def narrow(target: Any, edges: tuple[float, float], side: int) -> Any:
        return prove(target, edges, side) if edges[1] - edges[0] < third else None

    monkeypatch.setattr(radius_proof, "_proved_cell", narrow)
    heard: list[tuple[int, int]] = []
    wide = RadiusTable.build("tv", 0.02, 0.024, max_error=0.03, logp_min=-3.0, progress=lambda *event: heard.append(event))
    assert len(heard) == len(wide.lower.counts) + len(wide.upper.counts) == 8
    assert [done for done, _ in heard] == [heard[-1][1] * k // 8 for k in range(1, 9)]
    assert wide.check() == []
    for delta in [*radii(wide, 12), *np.exp(wide.lower.edges[1:-1]).tolist()]:
        logp = -np.random.default_rng(6).uniform(0, 3, 300)
        band, found = bt.log_bounds(logp=logp, divergence="tv", delta=delta), wide.log_bounds(logp, delta)
        assert np.abs(found.lower - band.lower).max() <= 0.03 + ROUNDING
        assert np.abs(found.upper - band.upper).max() <= 0.03 + ROUNDING
    for delta in np.exp(wide.lower.edges[1:-1]).tolist():  # from cell to cell
        one, other = (wide.log_bounds(logp, d) for d in (float(np.nextafter(delta, 0.0)), float(np.nextafter(delta, 1.0))))
        assert np.abs(one.lower - other.lower).max() <= 0.06 and np.abs(one.upper - other.upper).max() <= 0.06


def test_progress_counts_to_the_end() -> None:
    heard: list[tuple[int, int]] = []
    found = RadiusTable.build("tv", 0.02, 0.021, max_error=0.03, logp_min=-2.0, progress=lambda *event: heard.append(event))
    assert heard[-1][0] == heard[-1][1]
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    heard.clear()
    assert found.check(lambda *event: heard.append(event)) == []
    assert heard == [(k + 1, found.size - len(found.lower.counts) - len(found.upper.counts)) for k in range(len(heard))]


# --- arguments --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0199999, 0.0210001, 0.0, -0.02, math.nan, math.inf])
def test_a_radius_outside_of_the_box_is_refused(tv: RadiusTable, delta: float) -> None:
    with pytest.raises(TableError, match=r"delta = .*certified box, 0\.02 to 0\.021"):
        tv.at(delta)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"delta_min": 0.0}, "delta_min"),
        ({"delta_min": math.nan}, "delta_min"),
        ({"delta_min": -1.0}, "delta_min"),
        ({"delta_max": 0.02}, "delta_max"),
        ({"delta_max": 0.01}, "delta_max"),
        ({"delta_max": math.inf}, "delta_max"),
        ({"delta_max": 300.0}, "delta_max"),
        ({"logp_min": 1.0}, "logp_min"),
        ({"logp_min": -math.inf}, "logp_min"),
        ({"max_error": 0.0}, "max_error"),
        ({"max_error": 1e-7}, "max_error"),
        ({"max_error": 1.0}, "max_error"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, float], name: str) -> None:
    with pytest.raises(TableError, match=f"{name} = .*accepted"):
        RadiusTable.build("kl", **({"delta_min": 0.02, "delta_max": 0.03} | arguments))  # type: ignore[arg-type]


def test_an_unknown_divergence_is_named() -> None:
    with pytest.raises(ValueError, match="kll"):
        RadiusTable.build("kll", 0.02, 0.03)


# --- files ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tv: RadiusTable, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    where = tmp_path / f"radii{request.param}"
    tv.save(where)
    return where


@pytest.mark.parametrize("path", READ, indirect=True)
def test_what_is_read_is_what_was_written(tv: RadiusTable, path: Path) -> None:
    found = RadiusTable.load(path)
    for name in RadiusTable.FIELDS:
        assert getattr(found, name) == getattr(tv, name)
        assert type(getattr(found, name)) is type(getattr(tv, name))
    arrays, expected = found.arrays(), tv.arrays()
    assert set(arrays) == set(expected) == set(RadiusTable.ARRAYS)
    for name in arrays:
        assert arrays[name].dtype == expected[name].dtype and arrays[name].tobytes() == expected[name].tobytes()
    before = path.read_bytes()
    found.save(path)
    assert path.read_bytes() == before
    assert isinstance(load_table(path), RadiusTable)


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for bit in np.random.default_rng(11).choice(8 * len(content), 200, replace=False).tolist():
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        with pytest.raises(TableError, match=path.name):
            RadiusTable.load(path)
        content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)
    RadiusTable.load(path)


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_file_cut_short_or_with_more_behind_it_is_an_error(path: Path) -> None:
    content = path.read_bytes()
    for part in [b"", content[:8], content[:100], content[: len(content) // 2], content[:-1], content + b"\0"]:
        path.write_bytes(part)
        with pytest.raises(TableError, match=path.name):
            RadiusTable.load(path)


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_consistent_file_of_an_impossible_table_is_an_error(tv: RadiusTable, path: Path) -> None:
    coefficients = tv.upper.coefficients.copy()
    coefficients[-1] *= -1
    dataclasses.replace(tv, upper=dataclasses.replace(tv.upper, coefficients=coefficients)).save(path)
    with pytest.raises(TableError, match=r"radii\..*ratio 1"):
        RadiusTable.load(path)


@pytest.mark.parametrize("suffix", READ)
def test_the_other_kind_of_table_is_told(tv: RadiusTable, single: BandTable, tmp_path: Path, suffix: str) -> None:
    radii_file, single_file = tmp_path / f"radii{suffix}", tmp_path / f"single{suffix}"
    tv.save(radii_file)
    single.save(single_file)
    with pytest.raises(TableError, match=r"radii.*holds a RadiusTable, not a BandTable"):
        BandTable.load(radii_file)
    with pytest.raises(TableError, match=r"single.*holds a BandTable, not a RadiusTable"):
        RadiusTable.load(single_file)


@pytest.mark.parametrize("suffix", [".csv", ".h", ".pt", ""])
def test_other_formats_are_refused(tv: RadiusTable, tmp_path: Path, suffix: str) -> None:
    with pytest.raises(TableError, match=r"accepted: \.safetensors, \.npz"):
        tv.save(tmp_path / f"radii{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_metadata_says_what_the_table_is(tv: RadiusTable) -> None:
    said = metadata(tv)
    assert (said["format"], said["divergence"], said["generator"]) == ("bandtheory radius table 1", "tv", "abs(u - 1)/2")
    assert (said["delta_min"], said["delta_max"], said["certified_error"]) == (0.02, 0.021, tv.certified_error)
    assert metadata(dataclasses.replace(tv, delta_max=0.0211))["sha256"] != said["sha256"]
    longer = dataclasses.replace(tv, lower=dataclasses.replace(tv.lower, knots=1.1 * tv.lower.knots))
    assert metadata(longer)["sha256"] != said["sha256"]


# --- rules ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["plain.npz", "a@b.npz", "a:b.npz", "a@0.02:3.npz", "with blank.npz"])
def rule_file(tv: RadiusTable, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    where: Path = tmp_path_factory.mktemp("rules") / request.param
    tv.save(where)
    return where


def test_strings_keep_everything(rule_file: Path) -> None:
    path = str(rule_file)
    for text, rule in (
        (f"table:{path}@0.0205", TableRule(path, None, 0.0205)),
        (f"table:{path}@0.0205:10", TableRule(path, 10.0, 0.0205)),
        (f"table:{path}@2.05e-2:1.5", TableRule(path, 1.5, 0.0205)),
        (f"table:{path}@0.0205:inf", TableRule(path, None, 0.0205)),
    ):
        assert parse(text) == rule == parse(str(rule))
    assert str(TableRule(path, 10.0, 0.0205)) == f"table:{path}@0.0205:10"
    assert parse(str(TableRule(path, None, 0.02))) == TableRule(path, None, 0.02)


def test_a_folder_whose_name_looks_like_a_radius(tv: RadiusTable, tmp_path: Path) -> None:
    for name in ("x@0.5", "x:2"):
        (tmp_path / name).mkdir()
        tv.save(tmp_path / name / "radii.npz")
        rule = TableRule(str(tmp_path / name / "radii.npz"), None, 0.0205)
        assert parse(str(rule)) == rule


def test_a_rule_is_the_table_at_its_radius_with_a_cap(tv: RadiusTable, tmp_path: Path) -> None:
    tv.save(tmp_path / "radii.npz")
    logp = tokens(tv, 0.0205, 100)
    expected = tv.log_bounds(logp, 0.0205)
    found = parse(f"table:{tmp_path / 'radii.npz'}@0.0205:1.05").log_bounds(logp)
    assert (found.lower == expected.lower).all()
    assert (found.upper == np.minimum(expected.upper, math.log(1.05))).all()
    assert (found.upper < expected.upper).any() and (found.upper == expected.upper).any()


def test_bad_rules(tv: RadiusTable, single: BandTable, tmp_path: Path) -> None:
    radii_file, single_file = tmp_path / "radii.npz", tmp_path / "single.npz"
    tv.save(radii_file)
    single.save(single_file)
    with pytest.raises(TableError, match=r"radii\.npz: a table of radii, 0\.02 to 0\.021; accepted: table:.*@DELTA"):
        parse(f"table:{radii_file}")
    with pytest.raises(TableError, match=r"radii\.npz: delta = 0\.03 is not accepted.*0\.02 to 0\.021"):
        parse(f"table:{radii_file}@0.03")
    with pytest.raises(TableError, match=r"radii\.npz: delta = nan"):
        parse(f"table:{radii_file}@nan")
    with pytest.raises(TableError, match=r"single\.npz: a table of one radius, 0\.02"):
        parse(f"table:{single_file}@0.02")
    with pytest.raises(RuleError, match="max_ratio"):
        parse(f"table:{radii_file}@0.0205:0.5")
    with pytest.raises(RuleError, match="path"):
        parse("table:@0.02")
    with pytest.raises(TableError, match="missing"):
        parse(f"table:{tmp_path / 'missing.npz'}@0.02")


def test_a_rule_that_asks_for_a_band_gets_its_table_or_an_error(tv: RadiusTable, tmp_path: Path) -> None:
    path = tmp_path / "radii.npz"
    tv.save(path)
    assert TableRule.of(Band("tv", 0.0205, 10), path) == TableRule(str(path), 10.0, 0.0205)
    for band, named in ((Band("kl", 0.0205), "'kl'"), (Band("tv", 0.03), r"0\.03"), (Band("tv", 0.0), r"0\.0")):
        with pytest.raises(TableError, match=f"radii.npz.*{named}"):
            TableRule.of(band, path)


# --- schedules --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["linear", "cosine", "polynomial^2"])
@pytest.mark.parametrize(("start", "end"), [(0.02, 0.021), (0.021, 0.02), (0.0203, 0.0208)])
def test_a_schedule_over_a_table_has_its_radius_at_every_step(
    tv: RadiusTable, tmp_path: Path, shape: str, start: float, end: float
) -> None:
    path = tmp_path / "radii.npz"
    tv.save(path)
    text = f"schedule:{shape}:{end!r}:7:table:{path}@{start!r}:10"
    schedule = parse_schedule(text)
    assert parse_schedule(str(schedule)) == schedule
    logp = -np.linspace(0.1, 7, 20)
    for step in (0, 1, 3, 6, 7, 50):
        rule = schedule.at(step)
        assert rule == TableRule(str(path), 10.0, schedule.delta(step))
        expected = tv.log_bounds(logp, schedule.delta(step))
        assert (rule.log_bounds(logp).lower == expected.lower).all()
    assert (schedule.at(0).delta, schedule.at(7).delta) == (start, end)  # type: ignore[union-attr]


def test_a_schedule_that_leaves_the_box_is_refused_at_once(tv: RadiusTable, single: BandTable, tmp_path: Path) -> None:
    tv.save(tmp_path / "radii.npz")
    single.save(tmp_path / "single.npz")
    for end in (0.01, 0.03):
        with pytest.raises(TableError, match=rf"delta = {end}.*certified box"):
            parse_schedule(f"schedule:linear:{end}:10:table:{tmp_path / 'radii.npz'}@0.0205")
    with pytest.raises(RuleError, match=r"no radius to change.*table:PATH@DELTA"):
        Schedule(TableRule(str(tmp_path / "single.npz")), 0.02, 10)
