"""Files of tables: what is read is what was written, and whatever else is found is an error that names the file."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from bandtheory import whole_files
from bandtheory.table_files import metadata
from bandtheory.tables import BandTable, TableError

READ = [".safetensors", ".npz"]
WRITTEN = [*READ, ".csv", ".h"]


@pytest.fixture(scope="module")
def table() -> BandTable:
    return BandTable.build("vajda:3", 0.05, max_error=1e-3, logp_min=-8.0)


@pytest.fixture
def path(table: BandTable, tmp_path: Path, request) -> Path:
    where = tmp_path / f"band{request.param}"
    table.save(where)
    return where


@pytest.mark.parametrize("path", READ, indirect=True)
def test_what_is_read_is_what_was_written(table: BandTable, path: Path) -> None:
    found = BandTable.load(path)
    for name in BandTable.FIELDS:
        assert getattr(found, name) == getattr(table, name)
    for name in BandTable.ARRAYS:
        array, expected = getattr(found, name), getattr(table, name)
        assert array.dtype == expected.dtype and array.tobytes() == expected.tobytes()
    found.save(path)
    again = path.read_bytes()
    table.save(path)
    assert path.read_bytes() == again


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for bit in np.random.default_rng(11).choice(8 * len(content), 500, replace=False).tolist():
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        with pytest.raises(TableError, match=path.name):
            BandTable.load(path)
        content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)
    BandTable.load(path)


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_file_cut_short_or_with_more_behind_it_is_an_error(path: Path) -> None:
    content = path.read_bytes()
    for part in [b"", content[:1], content[:8], content[:100], content[: len(content) // 2], content[:-1], content + b"\0"]:
        path.write_bytes(part)
        with pytest.raises(TableError, match=path.name):
            BandTable.load(path)


@pytest.mark.parametrize("path", READ, indirect=True)
def test_a_consistent_file_of_an_impossible_table_is_an_error(table: BandTable, path: Path) -> None:
    """The hash says that a file is as written, not that it makes sense."""
    values = table.values.copy()
    values[3] *= -1
    dataclasses.replace(table, values=values).save(path)
    with pytest.raises(TableError, match="ratio 1"):
        BandTable.load(path)


def test_other_files_are_told_apart(tmp_path: Path, table: BandTable) -> None:
    from safetensors.numpy import save_file

    foreign = tmp_path / "weights.safetensors"
    save_file({"layer": np.zeros(3)}, foreign)
    with pytest.raises(TableError, match=r"weights\.safetensors.*not a safetensors file of a table"):
        BandTable.load(foreign)
    huge = tmp_path / "huge.safetensors"
    huge.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(TableError, match="huge"):
        BandTable.load(huge)
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, values=np.zeros(3))
    with pytest.raises(TableError, match="SHA-256"):
        BandTable.load(arrays)
    for name, reason in (
        ("missing.npz", "No such file"),
        ("band.txt", r"\.txt.*accepted"),
        ("band", "accepted"),
        ("band.csv", "accepted"),
    ):
        with pytest.raises(TableError, match=reason):
            BandTable.load(tmp_path / name)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(TableError, match="directory"):
        BandTable.load(tmp_path / "folder.npz")
    with pytest.raises(TableError, match=r"\.pt.*accepted"):
        table.save(tmp_path / "band.pt")


def test_another_format_number_is_named(table: BandTable, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(BandTable, "FORMAT", "bandtheory table 2")
    table.save(tmp_path / "band.npz")
    monkeypatch.undo()
    with pytest.raises(TableError, match="bandtheory table 2"):
        BandTable.load(tmp_path / "band.npz")


def test_metadata_says_what_the_table_is(table: BandTable) -> None:
    said = metadata(table)
    assert said["parameters"] == {"k": "3"} and said["generator"] == table.generator and said["delta"] == 0.05
    assert said["certified_error"] == table.certified_error and len(said["sha256"]) == 64
    assert metadata(dataclasses.replace(table, max_error=2e-3))["sha256"] != said["sha256"]


def test_csv_holds_every_number(table: BandTable, tmp_path: Path) -> None:
    table.save(tmp_path / "band.csv")
    lines = (tmp_path / "band.csv").read_text().splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    assert json.loads(head["divergence"]) == "vajda:3" and json.loads(head["delta"]) == 0.05
    body = [line for line in lines if not line.startswith("#")]
    numbers = np.array([[float(x) for x in line.split(",")] for line in body[1:]])
    assert body[0].split(",")[:3] == ["x_first", "x_last", "lower_c0"]
    assert (numbers[:, 0] == table.knots[:-1]).all() and (numbers[:, 1] == table.knots[1:]).all()
    assert (numbers[:, 2] == table.values[:, 0]).all() and (numbers[:, 9:12] == table.coefficients[:, 1]).all()
    assert (numbers[:, 6:8] == table.errors[:, 0]).all()


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_write_that_fails_leaves_what_was_there(table: BandTable, tmp_path: Path, monkeypatch, suffix: str) -> None:
    where = tmp_path / f"band{suffix}"
    where.write_bytes(b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    for error in (full, lambda _: (_ for _ in ()).throw(KeyboardInterrupt)):
        monkeypatch.setattr(whole_files.os, "fsync", error)
        with pytest.raises((OSError, KeyboardInterrupt)) as caught:
            table.save(where)
        assert isinstance(caught.value, KeyboardInterrupt) or where.name in str(caught.value)
        assert where.read_bytes() == b"before" and list(tmp_path.iterdir()) == [where]


def test_where_nothing_can_be_written(table: BandTable, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere.*band\.npz"):
        table.save(tmp_path / "nowhere" / "band.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.npz"):
        table.save(tmp_path / "folder.npz")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX")
def test_files_have_ordinary_permissions(table: BandTable, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        table.save(tmp_path / "band.npz")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "band.npz").stat().st_mode) == 0o644
