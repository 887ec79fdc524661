"""Bounds of a clip rule for torch tensors, as log-ratios or as ratios, on any device.

In float32, float16 and bfloat16 the bounds are looked up in tables of the float64 bounds (`bandtheory.float_table`), which
costs the same for every band: no root is solved, and no closed form evaluated, once a rule has been used. float64 tensors are
computed: on the CPU by the numpy library, on a device by the same formulas over tensors. One custom operator holds it all, so
`torch.compile(fullgraph=True)`, CUDA graphs and fake tensors see a single elementwise node.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bandtheory.rules import Rule, parse
from bandtheory.tabulation import stays_inside
from bandtheory.torch.formulas import device_program, host_bounds
from bandtheory.torch.lookup import (
    HALF_TYPES,
    constant_bounds,
    contiguous_like,
    half_table_on,
    kernels_for,
    look_up,
    look_up_half,
    look_up_side,
    table_on,
)

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class TensorBounds(NamedTuple):
    """Lower and upper bound per token, tensors of the shape, dtype and device of the old log-probabilities.

    Ratios from `bounds`, log-ratios from `log_bounds`.
    """

    lower: Tensor
    upper: Tensor


def log_bounds(old_logp: Tensor, rule: Rule | str) -> TensorBounds:
    """Log-ratio bounds of `rule` for tokens of old log-probability `old_logp`.

    float16 and bfloat16: the correctly rounded bounds of the float64 library. float32: within 2 units in the last place of
    them. float64: the library's own accuracy, 1e-10 relative, on the CPU; on a device ten digits next to saturation. A typed
    generator that doubles cannot evaluate everywhere has no table: its bounds are those of the float64 library, see there.
    The first call with a rule builds its table, which takes 0.1 to 3 seconds (up to 30 where a band saturates as p → 1, as tv
    at δ = 1); make it before capturing a CUDA graph. Where the radius changes at every step, float64 tensors and the implicit
    evaluation of `policy_loss` need no table. Ratios come from `bounds`, more precisely than as the exponential of these.

    Args:
        old_logp: log-probabilities (nats) under the old policy, any shape and float dtype.
        rule: a rule of `bandtheory.rules` or its string, such as `"band:kl:0.05:10"`.

    Returns:
        `TensorBounds` without gradient, contiguous. NaN stays NaN at its position; values above 0 (rounding of a log-softmax)
        count as 0; −inf gives the limit p → 0, for most bands −inf and the cap.

    Raises:
        TypeError: old_logp is not a tensor of these dtypes; rule is neither a rule nor a string.
        RuleError, DivergenceError: an unknown rule or divergence.
    """
    return _checked_bounds(old_logp, rule, "log_ratio")


def bounds(old_logp: Tensor, rule: Rule | str) -> TensorBounds:
    """Ratio bounds `lower ≤ 1 ≤ upper` of `rule` for tokens of old log-probability `old_logp`: `log_bounds` exponentiated.

    For a band these are the ends of `{ r : p f(r) + (1 − p) f((1 − r p)/(1 − p)) ≤ δ }`, p = exp(old_logp), the upper one at
    most the cap; for a clip `1 − low` and `1 + high`. Taking `exp` of a float32 log-bound b loses about |b|/2 units in the last
    place, so the ratios have tables of their own.

    float16 and bfloat16: the exponentials of the float64 log-bounds, rounded once. float32: within 2 units in the last place of
    them where those are finite and normal, ∞ where they overflow, and within 4 times 2⁻¹⁴⁹ where they are denormal. float64:
    the exponentials of what `log_bounds` gives, so the relative error of a ratio is |log-bound| times that of the log-bound.
    Tables and the first call with a rule are as `log_bounds` describes, and each of the two functions builds its own table.

    Args:
        old_logp: log-probabilities (nats) under the old policy, any shape and float dtype.
        rule: a rule of `bandtheory.rules` or its string, such as `"band:kl:0.05:10"`.

    Returns:
        `TensorBounds` of ratios, without gradient, contiguous. NaN stays NaN at its position; values above 0 (rounding of a
        log-softmax) count as 0; −inf gives the limit p → 0, for most bands 0 and the cap.

    Raises:
        TypeError: old_logp is not a tensor of these dtypes; rule is neither a rule nor a string.
        RuleError, DivergenceError: an unknown rule or divergence.

    Example:
        >>> lower, upper = bounds(torch.tensor([0.5]).log(), "band:tv:0.05")
        >>> lower, upper
        (tensor([0.9000]), tensor([1.1000]))
    """
    return _checked_bounds(old_logp, rule, "ratio")


def _checked_bounds(old_logp: Tensor, rule: Rule | str, quantity: str) -> TensorBounds:
    if not (isinstance(old_logp, Tensor) and old_logp.dtype in DTYPES):
        found = old_logp.dtype if isinstance(old_logp, Tensor) else type(old_logp).__name__
        raise TypeError(f"old_logp must be a floating-point tensor (float64, float32, float16 or bfloat16), got {found}")
    if not isinstance(rule, str | Rule):
        raise TypeError(f"rule: expected a rule of bandtheory.rules or its string, got {type(rule).__name__}")
    lower, upper = _bounds(old_logp.detach(), rule if isinstance(rule, str) else str(rule), quantity)
    return TensorBounds(lower, upper)


@torch.library.custom_op("bandtheory::bounds", mutates_args=())
def _bounds(old_logp: Tensor, rule: str, quantity: str) -> tuple[Tensor, Tensor]:
    device, dtype = old_logp.device, old_logp.dtype
    if (interval := constant_bounds(rule, quantity, dtype)) is not None:
        unknown = torch.isnan(old_logp)
        return tuple(contiguous_like(old_logp).fill_(bound).masked_fill_(unknown, math.nan) for bound in interval)  # type: ignore[return-value]
    if dtype in HALF_TYPES and (halves := half_table_on(rule, dtype, device, quantity)) is not None:
        if fused := kernels_for(device):
            return fused.lookup_half(old_logp, halves.view(torch.int16))  # type: ignore[no-any-return]
        return look_up_half(old_logp, halves)
    if dtype == torch.float32 and (table := table_on(rule, device, quantity)) is not None:
        return fused.lookup(old_logp, table.nodes, table.rows) if (fused := kernels_for(device)) else look_up(old_logp, table)
    logp = torch.clamp(old_logp.contiguous().to(torch.float64), max=0.0)
    sides = host_bounds(logp, rule) if logp.device.type == "cpu" else device_program(rule)(logp)
    if quantity == "ratio":
        sides = sides[0].exp(), sides[1].exp()
    if dtype != torch.float64 and stays_inside(parse(rule)):
        sides = _rounded_inwards(sides, quantity, dtype)
    lower, upper = (torch.where(torch.isnan(logp), math.nan, side).to(dtype) for side in sides)
    return lower, upper


def _rounded_inwards(sides: tuple[Tensor, Tensor], quantity: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """float64 bounds moved towards ratio 1, not past it, by what rounding to a dtype can change."""
    one, zero = (0.0, -math.inf) if quantity == "log_ratio" else (1.0, 0.0)
    share, largest = torch.finfo(dtype).eps, torch.finfo(dtype).max
    least = torch.finfo(dtype).smallest_normal * share
    lower, upper = sides
    moved = torch.clamp(lower + share * torch.clamp(lower.abs(), max=largest) + least, max=one)
    return torch.where(lower > zero, moved, lower), torch.clamp(upper * (1 - share) - least, min=one, max=largest)


@_bounds.register_fake
def _(old_logp: Tensor, rule: str, quantity: str) -> tuple[Tensor, Tensor]:
    parse(rule)  # a faulty rule is refused while tracing, not when the graph first runs
    return contiguous_like(old_logp), contiguous_like(old_logp)


@_bounds.register_vmap
def _(info: Any, in_dims: Any, old_logp: Tensor, rule: str, quantity: str) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    return _bounds(old_logp, rule, quantity), (in_dims[0], in_dims[0])


def log_bound_on_side(old_logp: Tensor, is_upper: Tensor, rule: Rule | str) -> Tensor:
    """The upper log-bound of each token where `is_upper`, a bool tensor of the same shape, and the lower one elsewhere.

    What a loss needs: the sign of its advantage says which bound can clip a token. Everything else is as in `log_bounds`.
    """
    bound: Tensor = _log_bound_on_side(old_logp.detach(), is_upper, rule if isinstance(rule, str) else str(rule))
    return bound


@torch.library.custom_op("bandtheory::log_bound_on_side", mutates_args=())
def _log_bound_on_side(old_logp: Tensor, is_upper: Tensor, rule: str) -> Tensor:
    device = old_logp.device
    if (interval := constant_bounds(rule, "log_ratio", old_logp.dtype)) is not None:
        low, high = (torch.full((), bound, dtype=old_logp.dtype, device=device) for bound in interval)
        return torch.where(is_upper, high, low).contiguous().masked_fill_(torch.isnan(old_logp), math.nan)
    if old_logp.dtype == torch.float32 and not kernels_for(device) and (table := table_on(rule, device)) is not None:
        return look_up_side(old_logp, is_upper, table)
    lower, upper = _bounds(old_logp, rule, "log_ratio")
    return torch.where(is_upper, upper, lower).contiguous()


@_log_bound_on_side.register_fake
def _(old_logp: Tensor, is_upper: Tensor, rule: str) -> Tensor:
    parse(rule)
    return contiguous_like(old_logp)


@_log_bound_on_side.register_vmap
def _(info: Any, in_dims: Any, old_logp: Tensor, is_upper: Tensor, rule: str) -> tuple[Tensor, int]:
    parts = (
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip((old_logp, is_upper), in_dims, strict=False)
    )
    return _log_bound_on_side(*parts, rule), 0
