"""Files of lookup tables: safetensors and npz, which are read again, and of tables of one radius CSV for people, and C.

Both formats that are read hold the arrays of a table as they are, and the metadata below as JSON. They hold a SHA-256 of
the arrays and of the metadata, and no byte that is not checked: a safetensors file must be, to the last bit, what is written
for the table that was read from it, and an npz file ends in a SHA-256 of all that comes before. So a flipped bit is an error
wherever it is. Nothing in a file is executed or unpickled.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bandtheory.divergence import divergence
from bandtheory.radius_table import RadiusTable
from bandtheory.table_fit import SIDES
from bandtheory.tables import BandTable, TableError
from bandtheory.whole_files import write_whole

Table = BandTable | RadiusTable

KINDS: dict[str, type[Table]] = {kind.FORMAT: kind for kind in (BandTable, RadiusTable)}
AnyTable = TypeVar("AnyTable", BandTable, RadiusTable)
LARGEST = 2**28  # bytes of a file that is read
_TYPES: dict[str, type] = {"inside": bool, **dict.fromkeys(("delta", "delta_min", "delta_max", "logp_min", "max_error"), float)}
_SAFETENSORS = {"float32": "F32", "float64": "F64", "int64": "I64"}
_SEAL = b"sha256 "  # before the digest at the end of an npz file
_DAY = (1980, 1, 1, 0, 0, 0)  # of the members of an npz file


def save_table(table: Table, path: str | os.PathLike[str]) -> None:
    """Write a table in the format that the path ends in; whole, or not at all.

    Raises:
        TableError: another ending, or one that this kind of table is not written in.
        OSError: the file cannot be written; names it.
    """
    where = Path(path)
    write_whole(where, _format(where, _WRITERS[type(table)])(table))


def load_table(path: str | os.PathLike[str]) -> Table:
    """Read a safetensors or npz file of either kind of table.

    Raises:
        TableError: it is missing, damaged, of another format, or no table; names the file and says what is wrong.
    """
    where = Path(path)
    read: Callable[[bytes], Table] = _format(where, _READERS)
    try:
        size = where.stat().st_size
        if size > LARGEST:
            raise ValueError(f"it has {size:,} bytes, more than any table")
        return read(where.read_bytes())
    except OSError as error:
        raise TableError(f"{where}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, EOFError, SyntaxError, OverflowError, MemoryError, RuntimeError) as error:
        raise TableError(f"{where}: {error}") from None
    except (zipfile.BadZipFile, struct.error, NotImplementedError) as error:
        raise TableError(f"{where}: not an npz file: {error}") from None


def load_kind(path: str | os.PathLike[str], kind: type[AnyTable]) -> AnyTable:
    """The same of a file that must hold this kind of table."""
    table = load_table(path)
    if not isinstance(table, kind):
        raise TableError(f"{path}: holds a {type(table).__name__}, not a {kind.__name__}")
    return table


def metadata(table: Table) -> dict[str, Any]:
    """What a file says of its table besides the arrays; `sha256` is that of the rest and of the arrays."""
    found: dict[str, Any] = {"format": table.FORMAT} | {name: getattr(table, name) for name in table.FIELDS}
    found["parameters"] = {name: str(value) for name, value in divergence(table.divergence).parameters}
    found["certified_error"] = table.certified_error
    digest = hashlib.sha256(_json(found))
    for name, array in sorted(table.arrays().items()):
        digest.update(name.encode() + _little_endian(array).tobytes())
    return found | {"sha256": digest.hexdigest()}


def _format(path: Path, known: Mapping[str, Any]) -> Any:
    if path.suffix not in known:
        raise TableError(f"{path}: ends in {path.suffix!r}; accepted: {', '.join(known)}")
    return known[path.suffix]


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _table(said: Any, arrays: Mapping[str, NDArray[Any]]) -> Table:
    """The table of a file's content, checked."""
    kind = KINDS.get(str(said.get("format"))) if isinstance(said, dict) else None
    if kind is None:
        found = said.get("format") if isinstance(said, dict) else said
        raise ValueError(f"its format is {found!r}, which is none of {', '.join(map(repr, KINDS))}")
    for name in kind.FIELDS:
        if type(said.get(name)) is not _TYPES.get(name, str):
            raise ValueError(f"{name} is {said.get(name)!r}, which is no {_TYPES.get(name, str).__name__}")
    if set(arrays) != set(kind.ARRAYS):
        raise ValueError(f"its arrays are {', '.join(sorted(arrays)) or 'missing'}, not {', '.join(kind.ARRAYS)}")
    native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
    table = kind.from_arrays({name: said[name] for name in kind.FIELDS}, native)
    table.validate()
    if metadata(table) != said:
        raise ValueError("its content is not what its SHA-256 is of: the file is damaged")
    return table


def _to_safetensors(table: Table) -> bytes:
    """The format's own layout, written here so that equal tables are equal files, which the package does not promise."""
    header: dict[str, Any] = {"__metadata__": {"table": _json(metadata(table)).decode()}}
    data, end = [], 0
    arrays = {name: _little_endian(array) for name, array in table.arrays().items()}
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):  # so that each begins where its type may
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _SAFETENSORS[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
        data.append(array.tobytes())
    text = _json(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def _from_safetensors(content: bytes) -> Table:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(content)
        size = int.from_bytes(content[:8], "little")
        said = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["table"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a safetensors file of a table: {error}") from None
    table = _table(said, arrays)
    if _to_safetensors(table) != content:
        raise ValueError("its bytes are not those of the table in it: the file is damaged")
    return table


def _to_npz(table: Table) -> bytes:
    """Stored arrays, the metadata as UTF-8 bytes, and as the archive's comment a SHA-256 of all that is before it."""
    arrays = {name: _little_endian(array) for name, array in table.arrays().items()}
    arrays["metadata"] = np.frombuffer(_json(metadata(table)), np.uint8)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _DAY), member.getvalue())
        archive.comment = _SEAL + b"0" * 64
    sealed = stream.getvalue()[:-64]
    return sealed + hashlib.sha256(sealed).hexdigest().encode()


def _from_npz(content: bytes) -> Table:
    sealed, seal = content[:-64], content[-64:]
    if not sealed.endswith(_SEAL):
        raise ValueError("not an npz file of a table: it does not end in a SHA-256")
    if hashlib.sha256(sealed).hexdigest().encode() != seal:
        raise ValueError("its bytes are not those that its SHA-256 is of: the file is damaged")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return _table(json.loads(arrays.pop("metadata").tobytes()), arrays)


def _to_csv(table: BandTable) -> bytes:
    """One line a row, floats that read back as the same, after the metadata in lines that begin with #."""
    stream = io.StringIO()
    for name, value in metadata(table).items():
        stream.write(f"# {name}: {json.dumps(value, ensure_ascii=False)}\n")
    stream.write("# log-bound = c0 + t (c1 + t (c2 + t c3)), t = (2x - x_first - x_last)/(x_last - x_first), x = -logp; nats\n")
    columns = [f"{side}_{part}" for side in SIDES for part in ("c0", "c1", "c2", "c3", "excess", "shortfall")]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["x_first", "x_last", *columns])
    for row in range(len(table.values)):
        parts = [table.values[row][:, None], table.coefficients[row].astype(np.float64), table.errors[row]]
        numbers = np.concatenate([table.knots[row : row + 2].astype(np.float64), np.concatenate(parts, axis=1).ravel()])
        writer.writerow([repr(number) for number in numbers.tolist()])
    return stream.getvalue().encode()


def _to_header(table: BandTable) -> bytes:
    from bandtheory.table_header import header

    return header(table, metadata(table)["sha256"]).encode()


_WRITERS: dict[type[Table], dict[str, Callable[[Any], bytes]]] = {
    BandTable: {".safetensors": _to_safetensors, ".npz": _to_npz, ".csv": _to_csv, ".h": _to_header},
    RadiusTable: {".safetensors": _to_safetensors, ".npz": _to_npz},
}
_READERS: dict[str, Callable[[bytes], Table]] = {".safetensors": _from_safetensors, ".npz": _from_npz}
