"""`bandtheory table` and `plot --table`: file names, reuse, damage, interruption, certificates again, and clear errors."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bandtheory import table_batch, table_command
from bandtheory.catalogue import examples
from bandtheory.cli import main
from bandtheory.divergence import divergence
from bandtheory.table_batch import Request
from bandtheory.tables import BandTable, TableError

COARSE = {"max_error": 1e-3, "logp_min": -8.0}
QUICK = ("--max-error", "1e-3", "--logp-min", "-8", "--workers", "1")
SETTINGS = "error0.001_logp-8"
COMMAND = [sys.executable, "-m", "bandtheory", "table"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object, command: str = "table") -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([command, *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def tv() -> BandTable:
    return BandTable.build("tv", 0.05, **COARSE)


@pytest.fixture
def file(tv: BandTable, tmp_path: Path) -> Path:
    path = tmp_path / f"tv_delta0.05_{SETTINGS}.safetensors"
    tv.save(path)
    return path


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tv: BandTable) -> list[str]:
    """Stands in for the proofs: every request gets the rows of one table; records what was asked for."""
    asked: list[str] = []

    def build(request: Request, progress: Any = None) -> BandTable:
        asked.append(request.label)
        if request.divergence == "u*log(u)":
            raise TableError("no cubic is precise enough")
        generator = table_batch.written_out(divergence(request.divergence))
        return dataclasses.replace(tv, divergence=request.divergence, generator=generator, delta=request.delta)

    monkeypatch.setattr(Request, "build", build)
    return asked


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(one: BandTable, other: BandTable) -> bool:
    fields = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(BandTable)]
    return all(np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype for a, b in fields)


# --- building ---------------------------------------------------------------------------------------------------------------


def test_all_combinations_are_built_and_proved(run: Any, tmp_path: Path) -> None:
    status, out, _ = run("tv", " kl", "--delta", 0.05, 0.2, "--out", tmp_path / "new", *QUICK, "--json")
    result = json.loads(out)
    assert status == 0
    assert (result["folder"], result["failed"]) == (str(tmp_path / "new"), 0)
    order = [("tv", 0.05), ("tv", 0.2), ("kl", 0.05), ("kl", 0.2)]
    assert [(row["divergence"], row["delta"]) for row in result["tables"]] == order
    for row, (name, delta) in zip(result["tables"], order, strict=True):
        table = BandTable.load(row["file"])
        assert same(table, BandTable.build(name, delta, **COARSE))
        assert Path(row["file"]).name == f"{name}_delta{delta}_{SETTINGS}.safetensors"
        assert set(row) == {"file", "divergence", "delta", "knots", "certified_error", "seconds", "state", "error"}
        assert (row["knots"], row["certified_error"]) == (len(table.knots), table.certified_error)
        assert (row["state"], row["error"], row["seconds"] > 0) == ("built", None, True)
    assert len(names(tmp_path / "new")) == 4


def test_processes_build_the_same_tables(run: Any, tmp_path: Path, tv: BandTable) -> None:
    status, out, _ = run("u*log(u)", "tv", "--out", tmp_path, *QUICK[:-1], 2, "--json")
    rows = json.loads(out)["tables"]
    assert (status, [row["divergence"] for row in rows]) == (0, ["u*log(u)", "tv"])
    assert same(BandTable.load(rows[1]["file"]), tv)
    assert len(names(tmp_path)) == 2


def test_settings_reach_the_table(run: Any, tmp_path: Path) -> None:
    status, out, _ = run("tv", "--out", tmp_path, *QUICK, "--dtype", "float64", "--inside", "--json")
    (row,) = json.loads(out)["tables"]
    table = BandTable.load(row["file"])
    assert (status, table.dtype, table.inside, table.max_error, table.logp_min) == (0, "float64", True, 1e-3, -8.0)
    assert Path(row["file"]).name == f"tv_delta0.05_{SETTINGS}_float64_inside.safetensors"


@pytest.mark.parametrize("arguments", [("--all",), ("catalogue",)])
def test_the_catalogue_is_every_example(run: Any, tmp_path: Path, builds: list[str], arguments: tuple[str, ...]) -> None:
    assert run(*arguments, "--out", tmp_path, *QUICK)[0] == 0
    assert builds == [f"{name}, delta 0.05" for name in examples()]
    assert len(names(tmp_path)) == len(examples())


def test_what_is_named_twice_is_built_once(run: Any, tmp_path: Path, builds: list[str]) -> None:
    run("vajda:2", "vajda:2.0", "vajda:2", "--delta", 0.1, 0.1, "--out", tmp_path, *QUICK)
    assert builds == ["vajda:2, delta 0.1"]


def test_the_files_are_listed(run: Any, tmp_path: Path, tv: BandTable) -> None:
    status, out, _ = run("tv", "--out", tmp_path, *QUICK)
    (line,) = [line for line in out.splitlines() if ".safetensors" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert status == 0
    assert cells[:3] == [f"tv_delta0.05_{SETTINGS}.safetensors", str(len(tv.knots)), f"{tv.certified_error:.3g}"]
    assert (float(cells[3]) >= 0, cells[4]) == (True, "built")


def test_several_formats_are_one_proof(run: Any, tmp_path: Path, builds: list[str]) -> None:
    status, out, _ = run("tv", "--out", tmp_path, *QUICK, "--format", "npz", "h", "csv", "npz", "--json")
    assert (status, len(builds)) == (0, 1)
    assert [Path(row["file"]).suffix for row in json.loads(out)["tables"]] == [".npz", ".h", ".csv"]
    assert len(names(tmp_path)) == 3


def test_another_format_is_converted_and_not_proved_again(run: Any, file: Path, builds: list[str]) -> None:
    status, out, _ = run("tv", "--out", file.parent, *QUICK, "--format", "h", "safetensors", "--json")
    assert (status, builds) == (0, [])
    assert [row["state"] for row in json.loads(out)["tables"]] == ["converted", "reused"]
    assert names(file.parent) == [file.with_suffix(".h").name, file.name]


def test_one_that_fails_does_not_stop_the_others(run: Any, tmp_path: Path, builds: list[str]) -> None:
    status, out, err = run("u*log(u)", "tv", "--out", tmp_path, *QUICK, "--json")
    failed, built = json.loads(out)["tables"]
    assert (status, err) == (1, "")
    assert (failed["state"], failed["error"], failed["knots"]) == ("failed", "no cubic is precise enough", None)
    assert (built["state"], names(tmp_path)) == ("built", [Path(built["file"]).name])
    assert "no cubic is precise enough" in run("u*log(u)", "--out", tmp_path, *QUICK)[1]


# --- what is there already --------------------------------------------------------------------------------------------------


def test_a_second_run_builds_nothing(run: Any, file: Path, builds: list[str]) -> None:
    before = file.stat()
    status, out, err = run("tv", "--out", file.parent, *QUICK, "--json")
    (row,) = json.loads(out)["tables"]
    assert (status, err, builds) == (0, "", [])
    assert (row["state"], row["seconds"], row["file"]) == ("reused", None, str(file))
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_damaged_file_is_reported_and_built_again(run: Any, file: Path, tv: BandTable) -> None:
    data = bytearray(file.read_bytes())
    data[-40] ^= 4
    file.write_bytes(data)
    status, out, err = run("tv", "--out", file.parent, *QUICK, "--json")
    assert (status, json.loads(out)["tables"][0]["state"]) == (0, "built")
    assert err.startswith(f"note: {file} is not used: ")
    assert err.count(str(file)) == 1
    assert same(BandTable.load(file), tv)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("delta", 0.06, "its delta is 0.06, not 0.05"),
        ("max_error", 2e-3, "its max_error is 0.002, not 0.001"),
        ("divergence", "u - 1 + abs(u - 1)", "its divergence is "),
        ("generator", "abs(1 - u)/2", "its generator is 'abs(1 - u)/2', not 'abs(u - 1)/2'"),
    ],
)
def test_a_file_of_another_table_is_not_taken_for_this_one(
    run: Any, file: Path, tv: BandTable, builds: list[str], field: str, value: Any, message: str
) -> None:
    dataclasses.replace(tv, **{field: value}).save(file)
    status, out, err = run("tv", "--out", file.parent, *QUICK, "--json")
    assert (status, json.loads(out)["tables"][0]["state"], len(builds)) == (0, "built", 1)
    assert message in err


def test_a_table_of_another_version_is_built_again(
    run: Any, file: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_batch, "__version__", "99")
    assert "its version is " in run("tv", "--out", file.parent, *QUICK)[2]
    assert len(builds) == 1


# --- interruption and full disks --------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_leaves_whole_files_only(tmp_path: Path, workers: str) -> None:
    command = [*COMMAND, "catalogue", "--delta", "0.3", "0.01", "0.05", "--out", str(tmp_path), *QUICK[:-1], workers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("*.safetensors"))) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the processes get it too
    out, err = process.communicate(timeout=60)
    finished = names(tmp_path)
    assert (process.returncode, out, "Traceback" in err) == (130, "", False)
    assert 2 <= len(finished) < 3 * len(examples())
    assert f"interrupted; {len(finished)} of {3 * len(examples())} tables are finished in {tmp_path}" in err
    for name in finished:
        assert BandTable.load(tmp_path / name).delta in (0.01, 0.05, 0.3)


def test_a_disk_that_fills_up_ends_the_work_with_what_is_finished(
    run: Any, tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save = BandTable.save

    def full(table: BandTable, path: Path) -> None:
        if table.divergence == "kl":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(table, path)

    monkeypatch.setattr(BandTable, "save", full)
    status, out, err = run("tv", "kl", "le_cam", "--out", tmp_path, *QUICK)
    first, second = err.splitlines()
    assert (status, out, builds) == (2, "", ["tv, delta 0.05", "kl, delta 0.05"])
    assert first == f"stopped; 1 of 3 tables are finished in {tmp_path}: the same command goes on"
    assert second == f"bandtheory: error: {tmp_path / f'kl_delta0.05_{SETTINGS}.safetensors'}: No space left on device"
    assert len(names(tmp_path)) == 1


def test_a_full_disk_is_noticed_before_the_work(
    run: Any, tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(table_command.os, "fsync", full)
    status, _, err = run("tv", "--out", tmp_path, *QUICK)
    assert (status, builds, names(tmp_path)) == (2, [], [])
    assert err == (
        f"bandtheory: error: {tmp_path}: --out: No space left on device; accepted: a folder to write in, with room for 1 MiB\n"
    )


# --- certificates again -----------------------------------------------------------------------------------------------------


def test_a_file_is_certified_from_itself(run: Any, file: Path, tv: BandTable) -> None:
    status, out, err = run("--check", file, "--json")
    (row,) = json.loads(out)["files"]
    assert (status, err, json.loads(out)["passed"]) == (0, "", True)
    assert set(row) == {"file", "divergence", "delta", "knots", "certified_error", "seconds", "passed", "faults"}
    assert (row["file"], row["divergence"], row["delta"]) == (str(file), "tv", 0.05)
    assert (row["knots"], row["certified_error"], row["faults"]) == (len(tv.knots), tv.certified_error, [])
    assert run("--check", file)[1].splitlines()[-1] == "all 1 passed"


def test_values_that_were_shifted_are_found_though_the_hash_is_right(run: Any, file: Path, tv: BandTable) -> None:
    shifted = tv.values.copy()
    shifted[-1, 1] += 5e-3  # the upper bound of the last row: still monotone
    other = file.with_name("shifted.safetensors")
    dataclasses.replace(tv, values=shifted).save(other)
    status, out, _ = run("--check", file, other, "--json", "--workers", 1)
    good, bad = json.loads(out)["files"]
    assert (status, good["passed"], bad["passed"]) == (1, True, False)
    (fault,) = bad["faults"]
    assert fault.startswith(f"row {len(tv.values) - 1}, upper bound, logp in [-8.0, ")
    assert fault.endswith("]: not proved")
    lines = run("--check", file, other, "--workers", 1)[1].splitlines()
    assert lines[-2:] == [f"{other}: {fault}", "1 of 2 failed"]


def test_a_generator_that_is_not_the_librarys_is_told(run: Any, file: Path, tv: BandTable) -> None:
    dataclasses.replace(tv, generator="2*abs(u - 1)").save(file)
    status, out, _ = run("--check", file)
    assert status == 1
    assert f"{file}: generator '2*abs(u - 1)' is not that of 'tv', 'abs(u - 1)/2'" in out


def test_a_damaged_file_fails_its_check(run: Any, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])
    status, out, err = run("--check", file, "--json")
    (row,) = json.loads(out)["files"]
    assert (status, err, row["passed"], row["knots"], len(row["faults"])) == (1, "", False, None, 1)
    assert row["faults"][0].startswith(str(file))


def test_many_faults_are_cut_short_but_not_in_json(run: Any, file: Path, tv: BandTable) -> None:
    dataclasses.replace(tv, values=tv.values + np.array([0.0, 5e-3])).save(file)
    faults = json.loads(run("--check", file, "--json")[1])["files"][0]["faults"]
    lines = run("--check", file)[1].splitlines()
    assert len(faults) == len(tv.values)
    assert lines[-2] == f"{file}: and {len(faults) - 10} more (--json has all)"


# --- figure -----------------------------------------------------------------------------------------------------------------


def test_plot_draws_the_table_of_a_file(run: Any, file: Path) -> None:
    figure = file.with_name("a.png")
    status, out, err = run("--table", file, "--out", figure, command="plot")
    assert (status, out.replace("\n", ""), err) == (0, f"wrote {figure}", "")
    assert figure.read_bytes().startswith(b"\x89PNG")


# --- bad input --------------------------------------------------------------------------------------------------------------

BAD_INPUT = {
    "nothing": (["table", "--out", "x"], "name at least one divergence to tabulate, or give --all (not both)"),
    "names and all": (["table", "kl", "--all", "--out", "x"], "or give --all (not both)"),
    "no folder": (["table", "kl"], "--out is missing; accepted: a folder for the files"),
    "unknown divergence": (["table", "tv", "kll", "--out", "x"], "unknown divergence 'kll'; did you mean 'kl'?"),
    "negative radius": (["table", "kl", "--delta", "0.1", "-1", "--out", "x"], "--delta is -1.0; accepted: finite radii"),
    "radius not a number": (["table", "kl", "--delta", "nan", "--out", "x"], "--delta is nan; accepted: finite radii"),
    "no radius": (["table", "kl", "--delta", "--out", "x"], "--delta has no value; accepted: at least one"),
    "no format": (["table", "kl", "--format", "--out", "x"], "--format has no value; accepted: at least one"),
    "unknown format": (["table", "kl", "--format", "txt", "--out", "x"], "invalid choice 'txt' for argument '--format'"),
    "error too small": (["table", "kl", "--max-error", "1e-9", "--out", "x"], "--max-error is 1e-09; accepted: 1e-07 to 0.1"),
    "positive end": (["table", "kl", "--logp-min", "3", "--out", "x"], "--logp-min is 3.0; accepted: -1000 to -1 (nats)"),
    "no process": (["table", "kl", "--workers", "0", "--out", "x"], "--workers is 0; accepted: an integer of at least 1"),
    "folder is a file": (["table", "kl", "--out", "notes.txt"], "notes.txt: --out is a file; accepted: a folder"),
    "folder in a file": (["table", "kl", "--out", "notes.txt/x"], "notes.txt/x: --out: Not a directory; accepted: a folder"),
    "check and names": (
        ["table", "kl", "--check", "a.npz"],
        "--check FILE builds nothing: it excludes DIVERGENCE, --all and --out",
    ),
    "check a header": (["table", "--check", "a.h"], "--check 'a.h' has the suffix '.h'; accepted: .safetensors, .npz"),
    "check no file": (["table", "--check", "a.npz"], "--check 'a.npz': no such file"),
    "plot no file": (["plot", "--table", "a.npz", "--out", "a.png"], "a.npz: "),
    "plot something else": (["plot", "--table", "notes.txt", "--out", "a.png"], "notes.txt"),
    "plot rules too": (
        ["plot", "--table", "a.npz", "--rules", "clip", "--out", "a.png"],
        "--table draws a table and no rules: it excludes --rules and --show",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_line_before_any_work(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("notes\n")
    arguments, expected = BAD_INPUT[case]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bandtheory: error: ")
    assert err.count("\n") == 1
    assert expected in err
    assert names(tmp_path) == ["notes.txt"]
