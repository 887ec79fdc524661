"""The benchmark of certified tables runs to its end and says what it measured; how fast, is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bandtheory.catalogue import examples
from benchmarks import tables

SMALL = ["--names", "tv", "--deltas", "0.05", "--boxed", "tv", "--box", "0.05", "0.051"]
SMALL += ["--looked-up", "tv", "--tokens", "64", "--repeats", "1"]
COMMITTED = Path(tables.__file__).parent / "results" / "tables.json"


def test_a_small_run_writes_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "tables.json"
    status = tables.main([*SMALL, "--workers", "1", "--out", str(target)])
    record = json.loads(target.read_text(encoding="utf-8"))
    assert status == (0 if all(row["met"] for row in record["targets"]) else 1)
    assert [(row["divergence"], row["delta"]) for row in record["rows"]] == [("tv", 0.05)]
    [row], [radii] = record["rows"], record["radii"]
    assert 0 < row["certified_error"] <= 1e-6
    assert row["knots_at_1e-4"] < row["knots"]
    assert 0 < radii["certified_error"] <= 1e-4
    assert {row["threads"] for row in record["lookups"]} >= {1}
    assert set(record["run"]) == {"date", "command", "machine", "versions"}
    printed = capsys.readouterr().out
    assert all(row["name"] in printed for row in record["targets"])


def test_the_committed_record_is_of_the_whole_catalogue() -> None:
    record = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert {row["divergence"] for row in record["rows"]} == set(examples())
    assert all(row["certified_error"] <= 1e-6 for row in record["rows"])


@pytest.mark.parametrize("option", ["tokens", "repeats", "workers"])
def test_what_cannot_be_measured_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main([f"--{option}", "0"]) == 2
    assert capsys.readouterr().err == f"error: {option} is 0; accepted: an integer of at least 1\n"
