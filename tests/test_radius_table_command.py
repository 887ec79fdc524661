"""`bandtheory table --delta-range`: one table of all radii between two, as a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bandtheory import table_batch
from bandtheory.catalogue import examples
from bandtheory.cli import main
from bandtheory.divergence import divergence
from bandtheory.radius_table import RadiusTable
from bandtheory.table_batch import RadiusRequest, Request
from bandtheory.tables import BandTable, TableError

COARSE = {"max_error": 0.01, "logp_min": -4.0}
QUICK = ("--max-error", "0.01", "--logp-min", "-4", "--workers", "1")
BOX = ("--delta-range", "0.02", "0.021")
STEM = "tv_delta0.02to0.021_error0.01_logp-4"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["table", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def tv() -> RadiusTable:
    return RadiusTable.build("tv", 0.02, 0.021, **COARSE)  # type: ignore[arg-type]


@pytest.fixture
def file(tv: RadiusTable, tmp_path: Path) -> Path:
    path = tmp_path / f"{STEM}.safetensors"
    tv.save(path)
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tv: RadiusTable) -> list[RadiusRequest]:
    """Stands in for the proofs: every request gets the rows of one table; records what was asked for."""
    asked: list[RadiusRequest] = []

    def build(request: RadiusRequest, progress: Any = None) -> RadiusTable:
        asked.append(request)
        if request.divergence == "u*log(u)":
            raise TableError("no polynomials are precise enough")
        generator = table_batch.written_out(divergence(request.divergence))
        return dataclasses.replace(tv, divergence=request.divergence, generator=generator)

    monkeypatch.setattr(RadiusRequest, "build", build)
    return asked


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(one: RadiusTable, other: RadiusTable) -> bool:
    arrays, expected = one.arrays(), other.arrays()
    equal = all(np.array_equal(arrays[name], expected[name], equal_nan=True) for name in RadiusTable.ARRAYS)
    return equal and all(getattr(one, name) == getattr(other, name) for name in RadiusTable.FIELDS)


# --- building ---------------------------------------------------------------------------------------------------------------


def test_a_table_of_radii_is_built_and_proved(run: Any, tmp_path: Path, tv: RadiusTable) -> None:
    status, out, err = run("tv", *BOX, "--out", tmp_path / "new", *QUICK, "--json")
    result = json.loads(out)
    (row,) = result["tables"]
    assert (status, err, result["folder"], result["failed"]) == (0, "", str(tmp_path / "new"), 0)
    assert set(row) == {"file", "divergence", "delta", "knots", "certified_error", "seconds", "state", "error"}
    assert (row["divergence"], row["delta"], row["state"], row["error"]) == ("tv", [0.02, 0.021], "built", None)
    assert (row["knots"], row["certified_error"], row["seconds"] > 0) == (tv.size, tv.certified_error, True)
    assert Path(row["file"]) == tmp_path / "new" / f"{STEM}.safetensors"
    assert same(RadiusTable.load(row["file"]), tv)


def test_processes_build_the_same_tables(run: Any, tmp_path: Path, tv: RadiusTable) -> None:
    status, out, _ = run("tv", "squared_hellinger", *BOX, "--out", tmp_path, *QUICK[:-1], 2, "--json")
    rows = json.loads(out)["tables"]
    assert (status, [row["divergence"] for row in rows]) == (0, ["tv", "squared_hellinger"])
    assert same(RadiusTable.load(rows[0]["file"]), tv)
    assert RadiusTable.load(rows[1]["file"]).check() == []


def test_settings_reach_the_table(run: Any, tmp_path: Path, builds: list[RadiusRequest]) -> None:
    status, out, _ = run("kl", *BOX, "--out", tmp_path, *QUICK, "--inside", "--format", "npz", "--json")
    (row,) = json.loads(out)["tables"]
    assert (status, builds) == (0, [RadiusRequest("kl", 0.02, 0.021, -4.0, 0.01, True)])
    assert Path(row["file"]).name == "kl_delta0.02to0.021_error0.01_logp-4_inside.npz"


def test_the_default_error_is_that_of_tables_of_radii(run: Any, tmp_path: Path, builds: list[RadiusRequest]) -> None:
    run("tv", "--delta-range", 0.01, 0.1, "--out", tmp_path, "--workers", 1)
    assert builds == [RadiusRequest("tv", 0.01, 0.1, -104.0, 1e-4, False)]
    assert names(tmp_path) == ["tv_delta0.01to0.1.safetensors"]


def test_the_catalogue_is_every_example(run: Any, tmp_path: Path, builds: list[RadiusRequest]) -> None:
    assert run("--all", *BOX, "--out", tmp_path, *QUICK)[0] == 0
    assert [request.divergence for request in builds] == list(examples())
    assert len(names(tmp_path)) == len(examples())


def test_the_files_are_listed(run: Any, tmp_path: Path, tv: RadiusTable, builds: list[RadiusRequest]) -> None:
    status, out, _ = run("tv", *BOX, "--out", tmp_path, *QUICK)
    (line,) = [line for line in out.splitlines() if ".safetensors" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert (status, cells[:3]) == (0, [f"{STEM}.safetensors", str(tv.size), f"{tv.certified_error:.3g}"])
    assert cells[4] == "built"


def test_one_that_fails_does_not_stop_the_others(run: Any, tmp_path: Path, builds: list[RadiusRequest]) -> None:
    status, out, _ = run("u*log(u)", "tv", *BOX, "--out", tmp_path, *QUICK, "--json")
    failed, built = json.loads(out)["tables"]
    assert (status, failed["state"], failed["error"]) == (1, "failed", "no polynomials are precise enough")
    assert (failed["delta"], failed["knots"], failed["certified_error"]) == ([0.02, 0.021], None, None)
    assert (built["state"], names(tmp_path)) == ("built", [f"{STEM}.safetensors"])


# --- what is there already --------------------------------------------------------------------------------------------------


def test_a_second_run_builds_nothing(run: Any, file: Path, builds: list[RadiusRequest]) -> None:
    before = file.stat()
    status, out, err = run("tv", *BOX, "--out", file.parent, *QUICK, "--json")
    (row,) = json.loads(out)["tables"]
    assert (status, err, builds) == (0, "", [])
    assert (row["state"], row["seconds"], row["file"], row["delta"]) == ("reused", None, str(file), [0.02, 0.021])
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_another_format_is_converted_and_not_proved_again(
    run: Any, file: Path, tv: RadiusTable, builds: list[RadiusRequest]
) -> None:
    status, out, _ = run("tv", *BOX, "--out", file.parent, *QUICK, "--format", "npz", "safetensors", "--json")
    assert (status, builds) == (0, [])
    assert [row["state"] for row in json.loads(out)["tables"]] == ["converted", "reused"]
    assert same(RadiusTable.load(file.with_suffix(".npz")), tv)


def test_a_damaged_file_is_reported_and_built_again(run: Any, file: Path, tv: RadiusTable, builds: list[RadiusRequest]) -> None:
    data = bytearray(file.read_bytes())
    data[-40] ^= 4
    file.write_bytes(data)
    status, out, err = run("tv", *BOX, "--out", file.parent, *QUICK, "--json")
    assert (status, json.loads(out)["tables"][0]["state"], len(builds)) == (0, "built", 1)
    assert err.startswith(f"note: {file} is not used: ")
    assert same(RadiusTable.load(file), tv)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("divergence", "u - 1 + abs(u - 1)", "its divergence is "),
        ("generator", "abs(1 - u)/2", "its generator is 'abs(1 - u)/2', not 'abs(u - 1)/2'"),
        ("max_error", 0.02, "its max_error is 0.02, not 0.01"),
        ("version", "0", "its version is '0', not "),
        ("delta_max", float(np.nextafter(0.021, 0)), "its delta_max is 0.02099"),
    ],
)
def test_a_file_of_another_table_is_not_taken_for_this_one(
    run: Any, file: Path, tv: RadiusTable, builds: list[RadiusRequest], field: str, value: Any, message: str
) -> None:
    dataclasses.replace(tv, **{field: value}).save(file)
    status, out, err = run("tv", *BOX, "--out", file.parent, *QUICK, "--json")
    assert (status, json.loads(out)["tables"][0]["state"], len(builds)) == (0, "built", 1)
    assert message in err


def test_a_file_of_the_other_kind_is_not_taken_for_this_one(run: Any, tmp_path: Path, builds: list[RadiusRequest]) -> None:
    path = tmp_path / f"{STEM}.safetensors"
    BandTable.build("tv", 0.02, **COARSE).save(path)  # type: ignore[arg-type]
    _, out, err = run("tv", *BOX, "--out", tmp_path, *QUICK, "--json")
    assert err == f"note: {path} is not used: it holds a BandTable\n"
    assert (json.loads(out)["tables"][0]["state"], len(builds)) == ("built", 1)


def test_what_a_request_is_satisfied_with(tv: RadiusTable) -> None:
    request = RadiusRequest("tv", 0.02, 0.021, -4.0, 0.01)
    assert request.difference(tv) is None
    for name, value in (
        ("delta_min", 0.0201),
        ("delta_max", 0.0209),
        ("max_error", 0.02),
        ("inside", True),
        ("logp_min", -5.0),
    ):
        difference = dataclasses.replace(request, **{name: value}).difference(tv)
        assert difference is not None and difference.startswith(f"its {name} is ")
    assert Request("tv", 0.02, -4.0, 0.01).difference(tv) == "it holds a RadiusTable"


def test_no_two_tables_have_the_same_name() -> None:
    requests = [
        RadiusRequest(spec, low, high, logp, error, inside)
        for spec in ("kl", "tv", "vajda:1.5", "u*log(u)")
        for low, high in ((0.01, 0.1), (0.01, 1.0), (0.1, 1.0), (1e-5, 0.1))
        for logp in (-104.0, -8.0)
        for error in (1e-4, 1e-3)
        for inside in (False, True)
    ]
    stems = [request.stem for request in requests] + [Request("kl", 0.01).stem, Request("kl", 0.1).stem]
    assert len({stem.lower() for stem in stems}) == len(stems)
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for stem in stems)


# --- certificates again -----------------------------------------------------------------------------------------------------


def test_a_file_is_certified_from_itself(run: Any, file: Path, tv: RadiusTable) -> None:
    single = file.with_name("single.npz")
    BandTable.build("tv", 0.02, **COARSE).save(single)  # type: ignore[arg-type]
    status, out, err = run("--check", file, single, "--json", "--workers", 1)
    row, other = json.loads(out)["files"]
    assert (status, err, json.loads(out)["passed"]) == (0, "", True)
    assert set(row) == {"file", "divergence", "delta", "knots", "certified_error", "seconds", "passed", "faults"}
    assert (row["file"], row["divergence"], row["delta"], row["faults"]) == (str(file), "tv", [0.02, 0.021], [])
    assert (row["knots"], row["certified_error"], other["delta"]) == (tv.size, tv.certified_error, 0.02)
    assert run("--check", file)[1].splitlines()[-1] == "all 1 passed"


def test_coefficients_that_were_changed_are_found_though_the_hash_is_right(run: Any, file: Path, tv: RadiusTable) -> None:
    coefficients = tv.upper.coefficients.copy()
    coefficients[-1, 0, 0] += 0.03  # the upper bound of the last row: still monotone
    other = file.with_name("shifted.safetensors")
    dataclasses.replace(tv, upper=dataclasses.replace(tv.upper, coefficients=coefficients)).save(other)
    status, out, _ = run("--check", file, other, "--json", "--workers", 1)
    good, bad = json.loads(out)["files"]
    assert (status, good["passed"], bad["passed"]) == (1, True, False)
    (fault,) = bad["faults"]
    assert fault.startswith(f"cell 0, row {len(coefficients) - 1}, upper bound, delta in [0.02, 0.021], xi in [")
    assert fault.endswith("]: not proved")
    lines = run("--check", file, other, "--workers", 1)[1].splitlines()
    assert lines[-2:] == [f"{other}: {fault}", "1 of 2 failed"]


def test_a_damaged_file_fails_its_check(run: Any, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    status, out, err = run("--check", file, "--json")
    (row,) = json.loads(out)["files"]
    assert (status, err, row["passed"], row["knots"], len(row["faults"])) == (1, "", False, None, 1)
    assert row["faults"][0].startswith(str(file))


# --- bad input --------------------------------------------------------------------------------------------------------------

BAD_INPUT = {
    "out of order": (["--delta-range", "0.1", "0.01"], "--delta-range is 0.1 0.01; accepted: two radii above 0 in order"),
    "equal": (["--delta-range", "0.1", "0.1"], "--delta-range is 0.1 0.1; accepted: two radii"),
    "zero": (["--delta-range", "0", "0.1"], "--delta-range is 0.0 0.1; accepted: two radii above 0"),
    "negative": (["--delta-range", "-0.1", "0.1"], "--delta-range is -0.1 0.1; accepted"),
    "not a number": (["--delta-range", "nan", "0.1"], "--delta-range is nan 0.1; accepted"),
    "no end": (["--delta-range", "0.1", "inf"], "--delta-range is 0.1 inf; accepted"),
    "too wide": (
        ["--delta-range", "1e-5", "0.2"],
        "--delta-range is 1e-05 0.2; accepted: two radii above 0 in order, the second at most 10000 times",
    ),
    "one radius": (["--delta-range", "0.1"], "--delta-range"),
    "words": (["--delta-range", "a", "b"], "--delta-range"),
    "csv": ([*BOX, "--format", "csv"], "--format is csv; accepted: safetensors, npz with --delta-range"),
    "header": ([*BOX, "--format", "npz", "h"], "--format is h; accepted: safetensors, npz with --delta-range"),
    "dtype": ([*BOX, "--dtype", "float64"], "--dtype is float64; accepted: nothing but the default with --delta-range"),
    "error too small": ([*BOX, "--max-error", "1e-7"], "--max-error is 1e-07; accepted: 1e-06 to 0.1 with --delta-range"),
    "error too large": ([*BOX, "--max-error", "1"], "--max-error is 1.0; accepted: 1e-06 to 0.1 with --delta-range"),
    "positive end": ([*BOX, "--logp-min", "3"], "--logp-min is 3.0; accepted: -1000 to -1 (nats)"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_line_before_any_work(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD_INPUT[case]
    assert main(["table", "tv", *arguments, "--out", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bandtheory: error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert names(tmp_path) == []
