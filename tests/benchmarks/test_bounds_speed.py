"""The speed benchmark writes what it measured, on what, and how; how fast it is, is not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bandtheory.catalogue import examples
from benchmarks import bounds_speed
from benchmarks.environment import write_together


def test_it_writes_every_divergence_with_inputs_and_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "speed.json"
    assert bounds_speed.main(["--tokens", "1000", "--repeats", "2", "--out", str(target)]) == 0
    record = json.loads(target.read_text(encoding="utf-8"))
    assert [row["divergence"] for row in record["rows"]] == list(examples())
    assert record["inputs"] == {"logp": "-10**U, U uniform in [-8, 2]", "tokens": 1000, "delta": 0.05, "seed": 0, "repeats": 2}
    assert set(record["run"]) == {"date", "command", "machine", "versions"}
    for row in record["rows"]:
        assert row["times_clip"] == pytest.approx(row["seconds"] / record["clip_seconds"])
    assert capsys.readouterr().out.endswith("wrote speed.json\n")


@pytest.mark.parametrize("name", ["tokens", "repeats"])
def test_it_refuses_to_measure_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "speed.json"
    assert bounds_speed.main([f"--{name}", "0", "--out", str(target)]) == 2
    assert capsys.readouterr().err == f"error: {name} is 0; accepted: an integer of at least 1\n"
    assert not target.exists()


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    first, folder = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"before")
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        write_together({first: b"after", folder: b"after"})
    assert first.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
