"""The tables of `bandtheory.float_table` on tensors: a gather by bit pattern and a cubic.

Eager operations, for the CPU and for devices without Triton; `kernels_for` says where there is something faster.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bandtheory.float_table import SHIFTS, float_table
from bandtheory.half_table import half_table, to_half
from bandtheory.rules import NoClip, RatioClip, parse
from bandtheory.torch.tracing import constant

HALF_TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
CHUNK = 131_072  # tokens looked up at a time: the intermediates stay in cache, and in memory are a part of a long input


class TensorTable(NamedTuple):
    """A `FloatTable` on a device.

    Attributes:
        nodes: int32, shape (N,).
        rows: float32, shape (R, 8): what a token needs lies side by side, in one piece of 32 bytes.
        columns: c₀ … c₃ as 4 tensors of shape (2R,), lower bounds before upper ones; eager operations gather faster from them.
    """

    nodes: Tensor
    rows: Tensor
    columns: tuple[Tensor, ...]


@functools.lru_cache(maxsize=256)
def constant_bounds(rule: str, quantity: str = "log_ratio", dtype: torch.dtype = torch.float64) -> tuple[float, float] | None:
    """The bounds of a rule that has the same for every token, else None; for a 16-bit dtype they are rounded to it once."""
    match parse(rule):
        case NoClip():
            interval = (-math.inf, math.inf) if quantity == "log_ratio" else (0.0, math.inf)
        case RatioClip() as clip:
            interval = clip.log_interval if quantity == "log_ratio" else (1 - clip.low, 1 + clip.high)
        case _:
            return None
    if dtype not in HALF_TYPES:
        return interval
    lower, upper = torch.from_numpy(to_half(np.array(interval), HALF_TYPES[dtype])).view(torch.int16).view(dtype).tolist()
    return lower, upper


def contiguous_like(tensor: Tensor) -> Tensor:
    """An uninitialised tensor of the same shape, dtype and device, in the order of its indices."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@constant
def is_tabulated(rule: str) -> bool:
    """Whether a rule has a table of log-bounds."""
    return float_table(rule) is not None


def table_on(rule: str, device: torch.device, quantity: str = "log_ratio") -> TensorTable | None:
    """The table of a rule for a quantity of `bandtheory.float_table` on a device; None for a rule that has none."""
    return _table_on(rule, device, quantity)  # a cache takes a default for another argument than the same value given


@functools.lru_cache(maxsize=64)
def _table_on(rule: str, device: torch.device, quantity: str) -> TensorTable | None:
    table = float_table(rule, quantity)
    if table is None:
        return None
    nodes, rows = (torch.from_numpy(array).to(device) for array in table)
    return TensorTable(nodes, rows, tuple(torch.cat([rows[:, k], rows[:, 4 + k]]) for k in range(4)))


@functools.lru_cache(maxsize=128)
def half_table_on(rule: str, dtype: torch.dtype, device: torch.device, quantity: str) -> Tensor | None:
    """Lower and upper bounds of float16 or bfloat16 by bit pattern, shape (65536, 2); None for a rule that has no table."""
    table = half_table(rule, HALF_TYPES[dtype], quantity)
    return None if table is None else torch.from_numpy(table).view(torch.int16).view(dtype).to(device)


def kernels_for(device: torch.device) -> Any:
    """`bandtheory.torch.kernels` where its kernels run on a device, else None."""
    try:
        from bandtheory.torch import kernels
    except ImportError:
        return None
    return kernels if kernels.available(device) else None


def look_up(logp: Tensor, table: TensorTable) -> tuple[Tensor, Tensor]:
    """Both bounds of float32 log-probabilities of any shape; NaN stays NaN, and what is above 0 counts as 0."""
    flat, count = logp.contiguous().view(-1), len(table.rows)
    lower, upper = torch.empty_like(flat), torch.empty_like(flat)
    size = _chunk(flat)
    for begin in range(0, flat.numel(), size):
        chunk = slice(begin, begin + size)
        row, place = _find(flat[chunk], table.nodes)
        _cubic(table.columns, row, place, lower[chunk])
        _cubic(table.columns, row + count, place, upper[chunk])
    return lower.view(logp.shape), upper.view(logp.shape)


def look_up_side(logp: Tensor, is_upper: Tensor, table: TensorTable) -> Tensor:
    """One bound for each token, the upper one where `is_upper`: half of the cubics."""
    flat, sides, count = logp.contiguous().view(-1), is_upper.contiguous().view(-1), len(table.rows)
    bound, size = torch.empty_like(flat), 2 * _chunk(flat)  # one bound, half of the intermediates
    for begin in range(0, flat.numel(), size):
        chunk = slice(begin, begin + size)
        row, place = _find(flat[chunk], table.nodes)
        _cubic(table.columns, row.add_(sides[chunk].to(torch.int32), alpha=count), place, bound[chunk])
    return bound.view(logp.shape)


def look_up_half(logp: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Both bounds of float16 or bfloat16 log-probabilities of any shape."""
    flat = logp.contiguous().view(-1)
    lower, upper = torch.empty_like(flat), torch.empty_like(flat)
    size = _chunk(flat)
    for begin in range(0, flat.numel(), size):
        chunk = slice(begin, begin + size)
        pattern = flat[chunk].view(torch.int16).to(torch.int32) & 0xFFFF
        lower[chunk], upper[chunk] = (side.index_select(0, pattern) for side in table.T)
    return lower.view(logp.shape), upper.view(logp.shape)


def _chunk(flat: Tensor) -> int:
    return CHUNK if flat.device.type == "cpu" else max(CHUNK, flat.numel() // 16)


def _find(logp: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The row of each token and its place t in the stretch that the row is for."""
    bits = torch.clamp(logp, max=0.0).view(torch.int32).bitwise_and_(0x7FFF_FFFF)
    row, place = nodes.index_select(0, bits >> SHIFTS[0]), _place(bits, SHIFTS[0])
    return (_refine_few if logp.device.type == "cpu" else _refine_all)(row, place, bits, nodes)


def _refine_few(row: Tensor, place: Tensor, bits: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The same after going down to the stretch that has a row: on the CPU a shape may depend on the data, and few tokens do."""
    where = (row < 0).nonzero().squeeze(1)
    for whole, part in itertools.pairwise(SHIFTS):
        if not where.numel():
            break
        pattern = bits.index_select(0, where)
        found = nodes.index_select(0, _child(row.index_select(0, where), pattern, whole, part))
        row.index_copy_(0, where, found)
        if part:  # a single float has no place: its cubic is constant
            place.index_copy_(0, where, _place(pattern, part))
        where = where[found < 0]
    return row, place


def _refine_all(row: Tensor, place: Tensor, bits: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The same with every token at every level."""
    for whole, part in itertools.pairwise(SHIFTS):
        refined = row < 0
        child = torch.where(refined, _child(row, bits, whole, part), 0)
        row = torch.where(refined, nodes.index_select(0, child), row)
        if part:
            place = torch.where(refined, _place(bits, part), place)
    return row, place


def _child(row: Tensor, bits: Tensor, whole: int, part: int) -> Tensor:
    """The node one level down, for nodes that are refined."""
    return ~row + ((bits >> part) & ((1 << (whole - part)) - 1))


def _place(bits: Tensor, shift: int) -> Tensor:
    """t ∈ [−1, 1) from the last `shift` bits: the mantissa of a float in [2, 4), less 3."""
    return ((bits << (23 - shift)).bitwise_and_(0x7F_FFFF).bitwise_or_(0x4000_0000)).view(torch.float32).sub_(3.0)


def _cubic(coefficients: tuple[Tensor, ...], row: Tensor, place: Tensor, out: Tensor) -> None:
    value = coefficients[3].index_select(0, row)
    for coefficient in coefficients[2:0:-1]:
        value.mul_(place).add_(coefficient.index_select(0, row))
    torch.addcmul(coefficients[0].index_select(0, row), value, place, out=out)
