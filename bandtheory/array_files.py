"""Named arrays of npz and safetensors files, read forward in windows: a file may exceed memory. Nothing is unpickled."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import ArrayLike, NDArray

_MAX_TRANSPOSED_BYTES = 2**28  # a Fortran-ordered array cannot be streamed in C order; up to this size it is read whole
_SAFETENSORS_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "|b1",
    "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
}  # fmt: skip
_DAMAGE = (
    EOFError, IndexError, KeyError, MemoryError, NotImplementedError, OverflowError, RuntimeError, SyntaxError, TypeError,
    ValueError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class ArrayFileError(ValueError):
    """A file or an array in it cannot be read; the message names it and says why."""


@dataclass
class ArrayStream:
    """One array whose elements are read in C order, window by window.

    Attributes:
        name: as in the file.
        shape: of the whole array.
        dtype: of the elements as stored; uint16 if `bfloat16`.
        stream: where the elements that are not in `buffer` come from.
        buffer: a run of elements, the first of which is element `begin`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    bfloat16: bool = False
    stream: IO[bytes] | None = None
    buffer: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    begin: int = 0

    def __post_init__(self) -> None:
        if self.dtype.kind == "O":
            raise ArrayFileError(f"array {self.name!r} holds pickled Python objects; accepted: plain numbers")
        if self.dtype.kind not in "fbiu":
            raise ArrayFileError(f"array {self.name!r} has dtype {self.dtype}; accepted: real numbers or booleans")

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.bfloat16 or self.dtype.kind == "f"

    def window(self, start: int, stop: int) -> NDArray[Any]:
        """Elements `start` to `stop` as stored. A window starts no earlier than the last one, and no later than its end."""
        end = self.begin + self.buffer.size
        if stop > end:
            kept = self.buffer[start - self.begin :]
            fresh = self._read(stop - end)
            self.buffer = np.concatenate([kept, fresh]) if kept.size else fresh
            self.begin = start
        return self.buffer[start - self.begin : stop - self.begin]

    def _read(self, count: int) -> NDArray[Any]:
        stream, wanted = self.stream, count * self.dtype.itemsize
        data = guarded(f"array {self.name!r}", stream.read, wanted) if stream else b""
        if len(data) < wanted:
            raise ArrayFileError(f"array {self.name!r} is truncated: {wanted - len(data)} bytes are missing")
        return np.frombuffer(data, self.dtype)

    def to_float(self, raw: NDArray[Any]) -> NDArray[np.float64]:
        """Stored elements as a new float64 array."""
        if self.bfloat16:  # the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(all="ignore"):  # signalling NaN, and long doubles beyond float64: the reader checks the values
            return raw.astype(np.float64)

    def place(self, index: int) -> str:
        """`old_logp[3, 7]` for the element with a flat index."""
        return f"{self.name}[{', '.join(str(int(i)) for i in np.unravel_index(index, self.shape))}]"


def guarded(what: str, action: Callable[..., Any], *arguments: Any) -> Any:
    """Call `action`; whatever a missing or damaged file makes it raise becomes an ArrayFileError of one line."""
    try:
        return action(*arguments)
    except ArrayFileError:
        raise
    except FileNotFoundError:
        raise ArrayFileError(f"{what}: no such file") from None
    except OSError as error:
        raise ArrayFileError(f"{what} cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ArrayFileError(f"{what} cannot be read, it is truncated or damaged: {reason}") from None


Select = Callable[[list[str]], dict[str, str]]
"""From the names found in a source to {our name: name in the source}, the arrays to open."""


def from_mapping(source: Mapping[str, ArrayLike], select: Select) -> dict[str, ArrayStream]:
    """Arrays in memory behind the same interface."""
    arrays = {}
    for name, key in select([str(name) for name in source]).items():
        values = guarded(f"array {key!r}", np.asarray, source[key])
        arrays[name] = ArrayStream(key, values.shape, values.dtype, buffer=values.reshape(-1))
    return arrays


def from_file(path: Path, select: Select, stack: ExitStack) -> dict[str, ArrayStream]:
    """Open the selected arrays of an npz or safetensors file, told apart by content; `stack` closes the handles.

    Raises:
        ArrayFileError: no such file, neither format, truncated or damaged, pickled objects, or what `select` raises.
    """
    return guarded(str(path), _from_file, path, select, stack)  # type: ignore[no-any-return]


def _from_file(path: Path, select: Select, stack: ExitStack) -> dict[str, ArrayStream]:
    if path.is_dir():
        raise ArrayFileError("is a directory; accepted: an npz or safetensors file")
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise ArrayFileError("is empty; accepted: an npz or safetensors file")
    if head[:2] == b"PK":
        return _from_npz(path, select, stack)
    if path.suffix == ".safetensors" or head[8:] == b"{":
        return _from_safetensors(path, select, stack)
    known = {b"\x93N": "is a single .npy array", b"\x80": "is a pickle"}
    kind = known.get(head[:2]) or known.get(head[:1]) or "has an unknown format"
    raise ArrayFileError(f"{kind}; accepted: an npz or safetensors file")


def _from_npz(path: Path, select: Select, stack: ExitStack) -> dict[str, ArrayStream]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
    arrays = {}
    for name, key in select(list(members)).items():
        stream = stack.enter_context(archive.open(members[key]))
        arrays[name] = guarded(f"array {key!r}", _npy_array, key, stream, archive.getinfo(members[key]).file_size)
    return arrays


def _npy_array(name: str, stream: IO[bytes], member_size: int) -> ArrayStream:
    version = npy_format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ArrayFileError(f"array {name!r} has npy format version {version}; accepted: 1.0 and 2.0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy remarks on headers written by Python 2
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran_order, dtype = read(stream)
    array = ArrayStream(name, shape, dtype, stream=stream)
    if min(shape, default=0) < 0 or member_size != stream.tell() + array.size * dtype.itemsize:
        raise ArrayFileError(f"array {name!r} is truncated or damaged: {member_size} bytes do not hold {shape} {dtype}")
    if not fortran_order or len(shape) < 2:
        return array
    if array.size * dtype.itemsize > _MAX_TRANSPOSED_BYTES:
        raise ArrayFileError(f"array {name!r} is in Fortran order and too large to transpose in memory; accepted: C order")
    transposed = array.window(0, array.size).reshape(shape, order="F")
    return ArrayStream(name, shape, dtype, buffer=transposed.reshape(-1))


def _from_safetensors(path: Path, select: Select, stack: ExitStack) -> dict[str, ArrayStream]:
    """The library checks the header; the bytes are read here, as its numpy slices lack bfloat16 and map the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as checked:
            found = list(checked.keys())
    except SafetensorError as error:
        raise ArrayFileError(f"cannot be read, it is truncated or damaged: {error}") from None
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    arrays = {}
    for name, key in select(found).items():
        entry = header[key]
        if entry["dtype"] not in _SAFETENSORS_TYPES:
            raise ArrayFileError(f"array {key!r} has dtype {entry['dtype']}; accepted: {', '.join(_SAFETENSORS_TYPES)}")
        stream = stack.enter_context(path.open("rb"))
        stream.seek(8 + length + entry["data_offsets"][0])
        dtype = np.dtype(_SAFETENSORS_TYPES[entry["dtype"]])
        arrays[name] = ArrayStream(key, tuple(entry["shape"]), dtype, entry["dtype"] == "BF16", stream)
    return arrays
