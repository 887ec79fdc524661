"""Token log-probabilities of a policy-gradient step, checked and in chunks, from arrays or from a file larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory.array_files import ArrayFileError, ArrayStream, from_file, from_mapping

LOGP_SLACK = 1e-3
"""A log-probability at most this far above 0 is rounding of a log-softmax and counts as 0; beyond it is an error."""

_REQUIRED = ("old_logp", "new_logp", "advantage")
_NEEDED = "needed: old_logp, new_logp, advantage (or advantages); optional: mask"


class AuditError(ValueError):
    """The token data cannot be audited; the message names the file or array, the value and what is accepted."""


@dataclass(frozen=True)
class TokenChunk:
    """The valid tokens of a run of positions: three float64 arrays of one length, and how many positions were passed."""

    old_logp: NDArray[np.float64]
    new_logp: NDArray[np.float64]
    advantage: NDArray[np.float64]
    positions: int


class TokenData:
    """Open token data; a context manager that closes its files.

    Args:
        source: path of an npz or safetensors file, or a mapping from array names to arrays. `old_logp` and `new_logp` (nats, of
            the sampled token) are `(B, T)` or `(N,)`, of any float type. `mask` has the same shape and holds 0 or 1; without it
            all positions are valid. `advantage` (or `advantages`) is `(B,)`, `(B, 1)` or `(B, T)`, or `(N,)`. Other arrays are
            ignored.

    Attributes:
        label: the path, or "arrays".
        shape: of `old_logp`.
        positions: the number of its elements.

    Raises:
        AuditError: missing arrays, wrong shapes or types, pickled objects, a file that is damaged or of another format.
    """

    def __init__(self, source: str | PathLike[str] | Mapping[str, ArrayLike]) -> None:
        self.label = "arrays" if isinstance(source, Mapping) else str(source)
        with ExitStack() as stack:
            try:
                if isinstance(source, Mapping):
                    arrays = from_mapping(source, _select)
                else:
                    arrays = from_file(Path(source), _select, stack)
                self._assign(arrays)
            except ArrayFileError as error:
                raise self._error(error) from None
            self._files = stack.pop_all()

    def __enter__(self) -> TokenData:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _error(self, error: Exception) -> AuditError:
        message = str(error)
        return AuditError(message if message.startswith(self.label) else f"{self.label}: {message}")

    def _assign(self, arrays: dict[str, ArrayStream]) -> None:
        self._old, self._new, self._advantage = (arrays[name] for name in _REQUIRED)
        self._mask = arrays.get("mask")
        self.shape, self.positions = self._old.shape, self._old.size
        if len(self.shape) not in (1, 2):
            raise ArrayFileError(f"old_logp has shape {self.shape}; accepted: (B, T) or (N,)")
        if self.positions == 0:
            raise ArrayFileError(f"old_logp has shape {self.shape}: there is no token to audit")
        for array in (self._new, self._mask):
            if array is not None and array.shape != self.shape:
                raise ArrayFileError(f"{array.name} has shape {array.shape}; accepted: {self.shape}, the shape of old_logp")
        for array in (self._old, self._new):
            if not array.is_float:
                raise ArrayFileError(f"{array.name} has dtype {array.dtype}; accepted: a float type")
        rows = self.shape[0]
        accepted = [self.shape] if len(self.shape) == 1 else [(rows,), (rows, 1), self.shape]
        if self._advantage.shape not in accepted:
            shapes = " or ".join(str(shape) for shape in accepted)
            raise ArrayFileError(f"{self._advantage.name} has shape {self._advantage.shape}; accepted: {shapes}")
        self._row_length = 1 if self._advantage.shape == self.shape else self.shape[1]

    def chunks(self, size: int) -> Iterator[TokenChunk]:
        """Chunks of at most `size` positions, in order; masked positions are never looked at.

        Raises:
            AuditError: at a valid position a log-probability that is NaN or above `LOGP_SLACK`, an `old_logp` of −inf (the
                sampled token has positive probability; a `new_logp` of −inf is ratio 0), or an advantage that is not finite;
                a mask value other than 0 and 1; truncated or damaged data.
        """
        try:
            for start in range(0, self.positions, size):
                yield self._chunk(start, min(start + size, self.positions))
        except ArrayFileError as error:
            raise self._error(error) from None

    def _chunk(self, start: int, stop: int) -> TokenChunk:
        old, new = self._old.window(start, stop), self._new.window(start, stop)
        first_row = start // self._row_length
        advantage = self._advantage.window(first_row, (stop - 1) // self._row_length + 1)
        valid = np.arange(stop - start) if self._mask is None else _valid(self._mask, start, stop)
        rows = (start + valid) // self._row_length
        return TokenChunk(
            _log_probability(self._old, old[valid], start + valid, least="above -inf and "),
            _log_probability(self._new, new[valid], start + valid),
            _finite(self._advantage, advantage[rows - first_row], rows),
            stop - start,
        )


def _select(found: list[str]) -> dict[str, str]:
    chosen = {name: name for name in (*_REQUIRED, "mask") if name in found}
    if "advantages" in found:
        if "advantage" in found:
            raise ArrayFileError("both 'advantage' and 'advantages' are present; accepted: one of them")
        chosen["advantage"] = "advantages"
    missing = [name for name in _REQUIRED if name not in chosen]
    if missing:
        listing = ", ".join(repr(name[:40]) for name in found[:12]) or "nothing"
        raise ArrayFileError(f"missing array {missing[0]!r}; found: {listing}; {_NEEDED}")
    return chosen


def _valid(mask: ArrayStream, start: int, stop: int) -> NDArray[np.intp]:
    raw = mask.window(start, stop)
    values = raw.view(np.uint8) if raw.dtype.kind == "b" else raw  # a damaged bool is neither 0 nor 1
    values = mask.to_float(values) if mask.is_float else values
    _refuse(mask, values, (values != 0) & (values != 1), np.arange(start, stop), "0 or 1")
    return np.flatnonzero(values)


def _log_probability(array: ArrayStream, raw: NDArray[Any], index: NDArray[np.intp], least: str = "") -> NDArray[np.float64]:
    values = array.to_float(raw)
    wrong = ~(values <= LOGP_SLACK)
    if least:
        wrong |= np.isneginf(values)
    accepted = f"at valid positions log-probabilities {least}at most 0 (rounding up to {LOGP_SLACK:g} counts as 0)"
    _refuse(array, values, wrong, index, accepted)
    return np.minimum(values, 0.0, out=values)


def _finite(array: ArrayStream, raw: NDArray[Any], index: NDArray[np.intp]) -> NDArray[np.float64]:
    values = array.to_float(raw)
    _refuse(array, values, ~np.isfinite(values), index, "finite numbers at valid positions")
    return values


def _refuse(array: ArrayStream, values: NDArray[Any], wrong: NDArray[Any], index: NDArray[np.intp], accepted: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise ArrayFileError(f"{array.place(int(index[first]))} = {values[first]!s}; accepted: {accepted}")
