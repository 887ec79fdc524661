"""The exhaustive comparison: its arithmetic, that it finds what is planted, that it goes on after a kill; its worst inputs."""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bandtheory import certify, log_bounds
from bandtheory.torch import TensorBounds
from bandtheory.torch import bounds as torch_bounds
from bandtheory.torch import log_bounds as torch_log_bounds
from benchmarks import exhaustive, exhaustive_pieces, exhaustive_state, parallel
from benchmarks.exhaustive_errors import Errors, RatioErrors
from benchmarks.exhaustive_pieces import Piece, measure, merge, nearest, patterns_above, uncertified
from benchmarks.exhaustive_report import side_record
from benchmarks.exhaustive_state import State
from benchmarks.units_in_the_last_place import BFLOAT16, FLOAT16, FLOAT32, FORMATS

RESULTS = Path(exhaustive.__file__).parent / "results"
FILES = ("exhaustive_float32.json", "exhaustive_float32_sweep.json", "exhaustive_half.json")
TABLES = 4  # rules of a file whose bounds are computed again: the first use of each takes seconds
SHORT = ("--lowest=-1e-41", "--piece", "3000", "--divergences", "tv")  # 7137 denormal numbers, −0 and the limits
INF, NAN = math.inf, math.nan
SMALLEST, LARGEST = 2.0**-149, 2.0**128 - 2.0**104


def _one(function: Any, *values: float) -> float:
    return float(function(*(np.array([value]) for value in values))[0])


@pytest.mark.parametrize(
    ("x", "unit"),
    [
        (1.0, 2.0**-23),
        (-1.0, 2.0**-23),
        (1 - 2.0**-24, 2.0**-24),  # the largest float32 below 1
        (2.0, 2.0**-22),
        (0.0, SMALLEST),
        (SMALLEST, SMALLEST),
        (2.0**-126, SMALLEST),  # the smallest normal one is as far from its neighbours as denormal ones
        (2.0**-125, 2.0**-148),
        (LARGEST, 2.0**104),
        (INF, 2.0**104),
        (1e300, 2.0**104),
    ],
)
def test_the_unit_is_the_distance_of_neighbours(x: float, unit: float) -> None:
    assert _one(FLOAT32.spacing, x) == unit


@pytest.mark.parametrize(
    ("computed", "exact", "error"),
    [
        (1.0, 1.0, 0.0),
        (1 + 2.0**-23, 1.0, 1.0),
        (1 - 2.0**-24, 1.0, 0.5),  # below a power of two numbers lie closer than the unit there
        (1.0, 1 - 2.0**-24, 1.0),
        (-1.5, -1.5 - 2.0**-24, 0.5),
        (0.0, SMALLEST / 2, 0.5),
        (3 * SMALLEST, SMALLEST, 2.0),
        (-SMALLEST, SMALLEST, 2.0),
        (INF, INF, 0.0),
        (-INF, -INF, 0.0),
        (INF, -INF, INF),
        (LARGEST, INF, INF),
        (INF, LARGEST, 1.0),  # infinity stands where 2**128 would
        (INF, 2.0**128, 0.0),
        (INF, 1e300, 0.0),
        (LARGEST, 1e300, 1.0),
        (NAN, 1.0, INF),
        (NAN, INF, INF),
    ],
)
def test_errors_are_in_units_at_the_exact_result(computed: float, exact: float, error: float) -> None:
    assert _one(FLOAT32.error, computed, exact) == error


@pytest.mark.parametrize("kind", FORMATS.values(), ids=FORMATS)
def test_rounding_agrees_with_numpy_and_torch(kind: Any) -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.normal(size=4000) * 2.0 ** generator.uniform(kind.least - 3, kind.top + 1, 4000), [0.0]])
    middles = np.arange(1, 64) * 2.0 ** (kind.least - 1)  # every second is halfway between two denormal numbers
    x = np.concatenate([x, middles, -middles, [INF, -INF, kind.limit - 2.0 ** (kind.top - kind.digits - 1), kind.limit]])
    with np.errstate(all="ignore"):  # torch rounds float64 to bfloat16 by way of float32
        x = x.astype(np.float32).astype(np.float64) if kind is BFLOAT16 else x
    by_others = {
        "float32": lambda: x.astype(np.float32),
        "float16": lambda: x.astype(np.float16),
        "bfloat16": lambda: torch.from_numpy(x).to(torch.bfloat16).double().numpy(),
    }
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(kind.rounded(x), by_others[kind.name]().astype(np.float64))


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16], ids=lambda kind: kind.name)
def test_the_ordinal_of_a_number_is_its_bit_pattern(kind: Any) -> None:
    patterns = torch.arange(kind.infinity + 1, dtype=torch.int32).to(torch.int16)
    numbers = patterns.view(getattr(torch, kind.name)).double().numpy()
    np.testing.assert_array_equal(kind.ordinal(numbers), np.arange(kind.infinity + 1))
    np.testing.assert_array_equal(kind.ordinal(-numbers), -np.arange(kind.infinity + 1))


@pytest.mark.parametrize(
    ("lowest", "count"),
    [
        (-104.0, 0x42D00000),  # 104 = 1.625 · 2⁶: exponent 127 + 6 = 0x85, fraction 0.625 = 0x500000
        (-1.0, 0x3F800000),
        (-SMALLEST, 1),
        (-3 * SMALLEST, 3),
        (-2.5 * SMALLEST, 3),
        (-INF, 0x7F800000),
    ],
)
def test_how_many_floats_lie_above_one(lowest: float, count: int) -> None:
    assert patterns_above(lowest, "float32") == count


def _piece(**changes: Any) -> Piece:
    whole = Piece("float32", "tv", 0.05, "cpu", first=0x3F000000, stride=1, count=5000, limits=True, sample=1000, seed=0)
    return replace(whole, **changes)


def _silent(done: int, total: int) -> None: ...


def test_a_piece_has_consecutive_floats_downwards_and_the_limits() -> None:
    first, last = _piece(first=0x3F800000, stride=3, count=2).inputs()
    assert first.tolist() == [-1.0, -1.0 - 3 * 2.0**-23]
    assert last.tolist() == [0.0, -INF]


def _planted(monkeypatch: pytest.MonkeyPatch, at: float, side: str, value: Any, function: Any = torch_log_bounds) -> None:
    """Let the operator be wrong at one input: `value` is a function of the right result."""

    def faulty(logp: torch.Tensor, rule: str) -> TensorBounds:
        bounds = function(logp, rule)
        right = getattr(bounds, side)
        return bounds._replace(**{side: torch.where(logp == at, value(right), right)})

    monkeypatch.setattr(exhaustive_pieces, f"torch_{function.__name__}", faulty)


def test_an_error_of_3_units_in_one_float_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    at = -0.5 - 1234 * 2.0**-24  # pattern 0x3F000000 + 1234
    before = measure(_piece(), _silent)
    _planted(monkeypatch, at, "upper", lambda right: right + 3 * 2.0**-27)  # log(1 + 0.05 e^0.5) = 0.079, unit 2⁻²⁷
    after = measure(_piece(), _silent)
    error, where, _ = after["upper"]["worst"][0]
    assert float.fromhex(where) == at
    assert 2 < error < 4
    assert after["upper"]["counts"][3] == 1
    assert after["upper"]["ratio"] == before["upper"]["ratio"]
    assert after["lower"] == before["lower"]
    assert before["upper"]["worst"][0][0] < 2
    assert not after["upper"]["not_certified"]


def test_an_error_of_3_units_in_one_ratio_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    at = -0.5 - 1234 * 2.0**-24
    before = measure(_piece(), _silent)
    _planted(monkeypatch, at, "upper", lambda right: right + 3 * 2.0**-23, torch_bounds)  # 1 + 0.05 e^0.5, unit 2⁻²³
    after = measure(_piece(), _silent)
    ratio = after["upper"].pop("ratio")
    error, where, bound = ratio["worst"][0]
    assert float.fromhex(where) == at
    assert bound == pytest.approx(math.log1p(0.05 * math.exp(-at)))
    assert 2 < error < ratio["largest"] < error + 1e-10 * 2**24
    assert ratio["counts"][3] == 1
    assert before["upper"].pop("ratio")["largest"] < 2
    assert after["lower"] == before["lower"]
    assert all(after["upper"][key] == before["upper"][key] for key in ("worst", "counts"))
    assert not side_record(after["upper"] | {"ratio": ratio}, "float32", 2.0, 1e-10)["passed"]


@pytest.mark.parametrize(
    ("log_bound", "computed", "counted", "fine"),
    [
        (89.0, INF, {"overflow": [1, 0]}, True),  # 2¹²⁸ = e^88.72…
        (89.0, LARGEST, {"overflow": [1, 1]}, False),
        (INF, NAN, {"overflow": [1, 1]}, False),
        (-INF, 0.0, {"zero": [1, 0]}, True),
        (-INF, SMALLEST, {"zero": [1, 1]}, False),
        (-1e30, NAN, {"zero": [1, 1]}, False),
        (-100.0, 26 * SMALLEST, {"denormal": 1}, True),  # e⁻¹⁰⁰ = 26.5 · 2⁻¹⁴⁹
        (-100.0, 22 * SMALLEST, {"denormal": 1}, False),
        (-1000 * math.log(2), 0.0, {"denormal": 1}, True),
    ],
)
def test_ratios_that_are_not_normal_are_counted_apart(
    log_bound: float, computed: float, counted: dict[str, Any], fine: bool
) -> None:
    nothing, ratio = RatioErrors(Errors(FLOAT32)), RatioErrors(Errors(FLOAT32))
    ratio.add(np.array([-1.0]), np.array([computed]), np.array([log_bound]))
    error = abs(computed - math.exp(log_bound)) / SMALLEST if "denormal" in counted else 0.0
    assert ratio.result() == nothing.result() | counted | {"largest_denormal": pytest.approx(error, abs=1e-6)}
    rest = {"certificates": 0, "not_certified": [], "not_a_number": 0, "infinity_differs": 0, "worst": [[0.0, "0x0p+0", 0.0]]}
    found = nothing.result() | rest | {"ratio": ratio.result()}
    assert side_record(found, "float32", 2.0, 1e-10)["passed"] is fine


def test_what_is_conceded_to_the_reference_grows_with_the_log_bound() -> None:
    ratio = RatioErrors(Errors(FLOAT32))
    exact = math.exp(-80.0)
    ratio.add(np.array([-1.0]), np.array([exact]), np.array([-80.0]))
    assert ratio.result()["worst"][0][0] < 1e-8  # exp of two libraries
    assert ratio.largest == pytest.approx(80 * 1e-10 * 2**24, rel=1e-6)


def test_a_half_ratio_that_float64_cannot_round_may_be_either_neighbour() -> None:
    middle, logp = math.log(1 + 2.0**-11), np.array([-1.0])  # float16 numbers above 1 are 2⁻¹⁰ apart
    for computed, shift, conceded in (
        (1.0, 0.0, [1, 0, 0, 0]),
        (1 + 2.0**-10, 0.0, [1, 0, 0, 0]),
        (1 + 2.0**-8, 0.0, [0, 0, 1, 0]),
        (1.0, 1e-9, [0, 1, 0, 0]),
        (1 + 2.0**-10, 1e-9, [1, 0, 0, 0]),
    ):
        ratio = RatioErrors(Errors(FLOAT16))
        ratio.add(logp, np.array([computed]), np.array([middle + shift]))
        assert ratio.result()["counts"] == conceded
        assert ratio.undecided == (shift == 0)


@pytest.mark.parametrize(("value", "counter"), [(NAN, "not_a_number"), (-7.0, "infinity_differs")])
def test_nan_and_finite_numbers_in_place_of_infinity_are_counted(
    value: float, counter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planted(monkeypatch, -INF, "lower", lambda right: torch.full_like(right, value))
    found = measure(_piece(count=10), _silent)["lower"]
    assert found[counter] == 1
    assert found["worst"][0][:2] == [INF, "-inf"]
    assert sum(found["counts"]) == 12 and found["counts"][3] == 1
    assert not side_record(found, "float32", 2.0, 1e-10)["passed"]


def test_a_half_that_is_off_by_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = _piece(format="bfloat16", first=0x3F00, count=64, limits=False)
    right = measure(piece, _silent)["upper"]
    assert right["counts"] == [64, 0, 0, 0]
    assert side_record(right, "half", None, 1e-10)["passed"]
    _planted(monkeypatch, -0.5, "upper", lambda bound: bound * (1 + 2.0**-7))
    wrong = measure(piece, _silent)["upper"]
    assert wrong["counts"] == [63, 1, 0, 0] and wrong["ratio"]["counts"] == [64, 0, 0, 0]
    assert not side_record(wrong, "half", None, 1e-10)["passed"]
    monkeypatch.undo()
    _planted(monkeypatch, -0.5, "upper", lambda bound: bound * (1 + 2.0**-7), torch_bounds)
    wrong = measure(piece, _silent)["upper"]
    assert wrong["counts"] == [64, 0, 0, 0] and wrong["ratio"]["counts"] == [63, 1, 0, 0]
    assert not side_record(wrong, "half", None, 1e-10)["passed"]


def test_a_wrong_reference_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uncertified(_piece(), "upper", [(-1.0, math.log1p(0.05 * math.e))]) == []
    monkeypatch.setattr(
        exhaustive_pieces, "log_bounds", lambda **given: TensorBounds(*(1.000001 * bound for bound in log_bounds(**given)))
    )
    found = measure(_piece(count=20, limits=False), _silent)["upper"]
    assert len(found["not_certified"]) == found["certificates"] > 16
    assert not side_record(found, "float32", 1e9, 1e-10)["passed"]


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_bound_between_two_halves_is_decided_by_a_certificate(side: str) -> None:
    middle = math.copysign(0.25 + 2.0**-13, 1 if side == "upper" else -1)  # float16 numbers near ¼ are 2⁻¹² apart
    # tv: the bounds are 1 ± δ/p, so p = δ/|r − 1|
    logp = math.log(0.05 / abs(math.expm1(middle)))
    for shift, expected in ((1e-12, 0.25), (-1e-12, 0.25 + 2.0**-12)):  # a more probable token has the narrower band
        exact = float(getattr(log_bounds(logp=logp * (1 - shift), divergence="tv", delta=0.05), side))
        assert FLOAT16.near_tie(np.array([exact]), 1e-10).all()
        found = nearest(FLOAT16, logp * (1 - shift), middle, side, _piece(format="float16"))
        assert found == math.copysign(expected, middle)


def test_an_exact_tie_goes_to_the_even_neighbour() -> None:
    saturated = _piece(format="float16", delta=0.95)  # at p = e⁻¹ the upper log-bound is −log p itself
    assert nearest(FLOAT16, -1 - 2.0**-11, 1 + 2.0**-11, "upper", saturated) == 1.0
    assert nearest(FLOAT16, -1 - 3 * 2.0**-11, 1 + 3 * 2.0**-11, "upper", saturated) == 1 + 2.0**-9


def test_pieces_add_up_to_the_whole() -> None:
    whole = measure(_piece(limits=False), _silent)
    parts = [_piece(limits=False, first=0x3F000000 + 2000 * k, count=n) for k, n in enumerate((2000, 2000, 1000))]
    merged = merge(measure(part, _silent) for part in reversed(parts))
    for side in ("lower", "upper"):
        for key in ("inputs", "counts", "not_a_number", "infinity_differs", "ratio"):
            assert merged[side][key] == whole[side][key]
        assert [entry[:2] for entry in merged[side]["worst"]] == [entry[:2] for entry in whole[side]["worst"]]


def _here(jobs: Any, workers: int, display: Any) -> dict[str, Any]:
    return {name: job(_silent) for name, job in jobs.items()}


def _run(out: Path, *arguments: str) -> tuple[int, Any]:
    status = exhaustive.main([*SHORT, *arguments, "--out", str(out)])
    return status, json.loads(out.read_text(encoding="utf-8")) if out.exists() else None


def test_a_run_that_was_broken_off_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parallel, "run", _here)
    status, straight = _run(tmp_path / "straight.json")
    assert status == 0 and [path.name for path in tmp_path.iterdir()] == ["straight.json"]

    def broken_off(jobs: Any, workers: int, display: Any) -> dict[str, Any]:
        for job in list(jobs.values())[:2]:
            job(_silent)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "run", broken_off)
    capsys.readouterr()
    assert _run(tmp_path / "resumed.json") == (130, None)
    assert capsys.readouterr().err == "interrupted; 2 of 3 pieces are finished, the same command goes on there\n"
    (state,) = tmp_path.glob("resumed.*.log")
    state.write_bytes(state.read_bytes()[:-40])  # a kill in the middle of the second line

    measured: list[str] = []

    def here(jobs: Any, workers: int, display: Any) -> dict[str, Any]:
        measured.extend(jobs)
        return _here(jobs, workers, display)

    monkeypatch.setattr(parallel, "run", here)
    status, resumed = _run(tmp_path / "resumed.json")
    assert status == 0 and measured == [f"float32, tv, δ = 0.05, part {k} of 3" for k in (2, 3)]
    assert {**resumed, "run": None} == {**straight, "run": None}
    assert not state.exists()


def test_other_sources_have_another_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = State.beside(tmp_path / "a.json", "cpu")
    assert State.beside(tmp_path / "a.json", "cpu") == one
    monkeypatch.setattr(exhaustive_state, "sources", lambda: "changed")
    assert State.beside(tmp_path / "a.json", "cpu") != one


def test_a_small_run_in_processes_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, record = _run(tmp_path / "new" / "walk.json", "--workers", "2")
    assert status == 0 and record["passed"] and record["allowed_ulp"] == 2
    (row,) = record["rows"]
    assert (row["type"], row["rule"]) == ("float32", "band:tv:0.05")
    for side in ("lower", "upper"):
        found = row[side]
        assert found["inputs"] == sum(found["histogram"].values()) == patterns_above(-1e-41, "float32") + 2
        assert found["certificates"]["made"] == found["certificates"]["hold"] > 3 * 16
        assert [entry["ulp"] for entry in found["worst_inputs"]] == sorted(
            (w["ulp"] for w in found["worst_inputs"]), reverse=True
        )
        for errors in (found, found["ratio"]):
            worst = errors["worst_inputs"][0]
            assert (errors["worst_at"], errors["worst_ulp"]) == (worst["logp"], worst["ulp"])
        ratio = found["ratio"]
        assert ratio["inputs"] == sum(ratio["histogram"].values()) == found["inputs"] - 1
        assert ratio["zero" if side == "lower" else "overflow"] == {"inputs": 1, "wrong": 0}  # at −∞
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "7,137 floats in 3 pieces, 0 of them finished; 2 processes"
    assert lines[-2:] == ["2 of 2 bounds are within what is allowed", "wrote walk.json"]
    assert not any("\x1b" in line for line in lines)
    assert multiprocessing.active_children() == []


def test_an_error_beyond_what_is_allowed_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parallel, "run", _here)
    _planted(monkeypatch, -SMALLEST, "lower", lambda right: right * (1 + 2.0**-20))
    status, record = _run(tmp_path / "walk.json")
    assert status == 1 and not record["passed"]
    assert record["rows"][0]["lower"]["worst_at"] == (-SMALLEST).hex()
    assert "FAILED" in capsys.readouterr().out


def test_what_is_measured_by_default() -> None:
    full, sweep, half = (
        exhaustive.Settings(),
        exhaustive.Settings(stride=997),
        exhaustive.Settings(type="half"),
    )
    assert [settings.target.name for settings in (full, sweep, half)] == list(FILES)
    cases = exhaustive.plan(full)
    assert list(cases) == [("float32", name, 0.05) for name in ("kl", "tv", "pearson_chi2")]
    pieces = list(cases["float32", "kl", 0.05].values())
    assert sum(piece.count for piece in pieces) == 0x42D00000
    assert all(a.first + a.count == b.first for a, b in itertools.pairwise(pieces))
    assert len(exhaustive.plan(sweep)) == 100 and len(exhaustive.plan(half)) == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stride", "0"], "stride is 0; accepted: an integer of at least 1"),
        (["--workers", "0"], "workers is 0; accepted: an integer of at least 1"),
        (["--lowest", "1"], "lowest is 1.0; accepted: a number below 0, or -inf"),
        (["--deltas", "0"], "deltas: 0.0 is not accepted; accepted: finite radii above 0 (nats)"),
        (["--divergences", "kll"], "kll"),
        (["--device", "abacus"], "device is 'abacus': "),
    ],
)
def test_wrong_arguments_end_with_status_2_and_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exhaustive.main([*arguments, "--out", str(tmp_path / "never.json")]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--divergences", "kl"], "divergences is ('kl',), which exhaustive_float32.json is not for; "),
        (["--deltas", "0.05", "0.1"], "deltas is (0.05, 0.1), which exhaustive_float32.json is not for; "),
        (["--stride", "996"], "stride is 996, which exhaustive_float32_sweep.json is not for; "),
        (["--stride", "997", "--deltas", "0.05"], "deltas is (0.05,), which exhaustive_float32_sweep.json is not for; "),
        (["--lowest=-1"], "lowest is -1.0, which exhaustive_float32.json is not for; "),
        (["--sample", "1000000"], "sample is 1000000, which exhaustive_float32.json is not for; "),
        (["--type", "half", "--stride", "997"], "stride is 997, which exhaustive_half.json is not for; "),
    ],
)
def test_a_part_does_not_replace_the_whole(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exhaustive, "RESULTS", tmp_path)
    assert exhaustive.main(arguments) == 2
    assert f"{message}accepted: the default, or any with a file to write in out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_defaults_may_be_spelled_out() -> None:
    exhaustive._check(exhaustive.Settings(divergences=exhaustive.WALKED, deltas=exhaustive.WALKED_DELTAS))
    exhaustive._check(exhaustive.Settings(stride=997, deltas=exhaustive.SWEPT_DELTAS))
    exhaustive._check(exhaustive.Settings(type="half", lowest=-1.0))  # of which half takes no notice


def _rows(name: str) -> list[dict[str, Any]]:
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def _claims(found: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Worst inputs of a quantity, and the log-bounds there."""
    worst = found["worst_inputs"]
    return np.array([float.fromhex(w["logp"]) for w in worst]), np.array([float(w["bound"]) for w in worst])


def _identity(row: dict[str, Any]) -> str:
    return f"{row['type']}-{row['rule']}"


@pytest.mark.parametrize("name", FILES)
def test_the_result_is_there_and_everything_in_it_passed(name: str) -> None:
    record = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    assert record["passed"] is True
    assert record["rows"]


@pytest.mark.parametrize("row", [row for name in FILES for row in _rows(name)], ids=_identity)
def test_the_bounds_at_the_worst_inputs_are_certain(row: dict[str, Any]) -> None:
    for side in ("lower", "upper"):
        both = (_claims(row[side]), _claims(row[side]["ratio"]))
        logp, bounds = (np.concatenate(parts) for parts in zip(*both, strict=True))
        certificates = certify(
            logp, log_ratio=bounds, divergence=row["divergence"], delta=row["delta"], side=side, tolerance=1e-10
        )
        assert certificates.holds.all(), str(certificates)


def _worst_rows(name: str) -> list[dict[str, Any]]:
    return sorted(_rows(name), key=lambda row: -max(row[side]["worst_ulp"] for side in ("lower", "upper")))[:TABLES]


@pytest.mark.parametrize("row", [row for name in FILES for row in _worst_rows(name)], ids=_identity)
def test_the_operator_is_as_good_as_allowed_at_the_worst_inputs(row: dict[str, Any]) -> None:
    kind, half = FORMATS[row["type"]], row["type"] != "float32"
    for side in ("lower", "upper"):
        for function, found in ((torch_log_bounds, row[side]), (torch_bounds, row[side]["ratio"])):
            logp, log_bounds_there = _claims(found)
            exact = log_bounds_there if function is torch_log_bounds else np.exp(log_bounds_there)
            tensor = torch.tensor(logp.tolist(), dtype=torch.float64).to(getattr(torch, row["type"]))
            computed = getattr(function(tensor, row["rule"]), side).double().numpy()
            assert kind.error(computed, exact).max(initial=0.0) <= (0.5 * (1 + 1e-6) if half else 2.0)
