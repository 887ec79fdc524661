"""The clipped surrogate of the policy loss as one differentiable operator around the fused kernel.

`torch.ops.bandtheory.surrogate` computes, in one pass over the tokens, what the loss, its gradient and its statistics need.
The eager loss in `bandtheory.torch.losses` says what that is; this one is for devices on which memory traffic is the cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bandtheory.torch.lookup import kernels_for, table_on
from bandtheory.torch.tracing import constant

LOG_RATIO_LIMIT = 20.0
"""Log-ratios beyond ± this are clamped, with gradient 0: e²⁰ ≈ 4.9e8 is finite in every dtype the loss is computed in."""

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_LOSS, _TOKENS, _LOG_RATIO_MAX = 0, 1, 7  # places in `bandtheory.torch.kernels.PARTIALS`


class SurrogateSums(NamedTuple):
    """Sums over the valid tokens, from which the caller makes means. float32, on the device of the inputs.

    Attributes:
        row_loss: `(B,)`, sum of the token losses of each row; the only field with a gradient, to `logp`.
        row_tokens: `(B,)`, valid tokens of each row.
        tokens: 0-dim, as all that follow: valid tokens.
        clipped_up: tokens with A > 0 and log-ratio above the upper bound.
        clipped_down: tokens with A < 0 and log-ratio below the lower bound.
        dual_clipped: tokens with A < 0 and log-ratio above `log_cap`.
        saturated: tokens with |log-ratio| > 20.
        excess: sum of r − 1, r the ratio of the log-ratio clamped to ±20.
        log_ratio_max: largest clamped log-ratio, −inf if nothing is valid.
        approximate_kl: sum of r − 1 − log r.
    """

    row_loss: Tensor
    row_tokens: Tensor
    tokens: Tensor
    clipped_up: Tensor
    clipped_down: Tensor
    dual_clipped: Tensor
    saturated: Tensor
    excess: Tensor
    log_ratio_max: Tensor
    approximate_kl: Tensor


@constant
def available(device: torch.device | str) -> bool:
    """Whether `surrogate_sums` can run on tensors of `device`: Triton is installed and compiles for it or interprets."""
    return kernels_for(torch.device(device)) is not None


def surrogate_sums(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    rule: str,
    log_cap: float,
) -> SurrogateSums:
    """Clipped surrogate loss of each row, `Σ −min(r·A, clip(r, lower, upper)·A)`, and the sums behind its statistics.

    The token losses, their gradients and what counts as clipped are those of `bandtheory.torch.policy_loss` in float32, with
    the bounds that the rule's table gives at `old_logp`. Values where `mask` is 0 are never looked at.

    Args:
        logp, old_logp: log-probabilities (nats), `(B, T)`, float32, float16 or bfloat16 each; gradients flow to `logp` alone.
        advantages: `(B, T)` or one a row, `(B, 1)`; any real dtype.
        mask: `(B, T)`, bool or any real dtype; anything but 0 is valid.
        rule: string of a rule with a float table (`bandtheory.float_table`), which is built at the first call.
        log_cap: logarithm of the dual clip, `math.inf` for none.

    Returns:
        `SurrogateSums`. There is no host synchronisation, and the result is the same in every run.

    Raises:
        ImportError: Triton is missing; see `available`.
        TypeError, ValueError: dtypes, shapes or devices other than these.
    """
    row_loss, _, partials = _surrogate(logp, old_logp, advantages, mask, rule, log_cap)
    partials = partials.detach()
    some = partials.numel() > 0  # known from the shape; amax refuses an empty tensor
    highest = partials[..., _LOG_RATIO_MAX].amax() if some else partials.new_full((), -torch.inf)
    # In float64, where counts stay exact beyond 2²⁴ tokens; there are a thousand times fewer partial sums than tokens.
    by_row = partials.sum(dim=1, dtype=torch.float64)
    sums = list(by_row.sum(dim=0).to(torch.float32).unbind())
    sums[_LOG_RATIO_MAX] = highest
    return SurrogateSums(row_loss, by_row[:, _TOKENS].to(torch.float32), *sums[_TOKENS:])


@torch.library.custom_op("bandtheory::surrogate", mutates_args=())
def _surrogate(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    rule: str,
    log_cap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the token losses by row, their derivatives in `logp`, and all partial sums."""
    from bandtheory.torch import kernels

    _check(logp, old_logp, advantages, mask)
    table = table_on(rule, logp.device)
    if table is None:
        raise ValueError(f"rule: {rule!r} has no float table (`bandtheory.float_table`)")
    coefficient, partials = kernels.surrogate(logp, old_logp, advantages, mask, table.nodes, table.rows, log_cap)
    return partials[..., _LOSS].sum(dim=1), coefficient, partials


@_surrogate.register_fake
def _(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    rule: str,
    log_cap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    from bandtheory.torch import kernels

    _check(logp, old_logp, advantages, mask)
    count, length = logp.shape
    blocks = (length + kernels.PIECE - 1) // kernels.PIECE
    return (
        logp.new_empty((count,), dtype=torch.float32),
        logp.new_empty((count, length), dtype=torch.float32),
        logp.new_empty((count, blocks, len(kernels.PARTIALS)), dtype=torch.float32),
    )


def _check(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> None:
    for name, tensor in (("logp", logp), ("old_logp", old_logp)):
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"{name}: expected dtype {' or '.join(map(str, _DTYPES))}, got {tensor.dtype}")
    if logp.ndim != 2:
        raise ValueError(f"logp: expected shape (B, T), got {tuple(logp.shape)}")
    for name, tensor, accepted in (
        ("old_logp", old_logp, (logp.shape,)),
        ("mask", mask, (logp.shape,)),
        ("advantages", advantages, (logp.shape, (logp.shape[0], 1))),
    ):
        if tensor.device != logp.device:
            raise ValueError(f"{name}: is on device {tensor.device}, but logp is on {logp.device}")
        if tensor.shape not in accepted:
            shapes = " or ".join(str(tuple(shape)) for shape in accepted)
            raise ValueError(f"{name}: expected shape {shapes}, got {tuple(tensor.shape)}")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.dtype = inputs[0].dtype
    ctx.set_materialize_grads(False)  # or a batch of zeros would be made for an output that nothing depends on


def _backward(ctx: Any, row_gradient: Tensor | None, token_gradient: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    """The coefficient is a multiple of e^logp or 0, so it is its own derivative, which makes second derivatives right."""
    (coefficient,) = ctx.saved_tensors
    gradient = None
    if row_gradient is not None:
        row_gradient = row_gradient.unsqueeze(-1)
        if token_gradient is None and not torch.is_grad_enabled():  # rounded to a half dtype in the same pass
            gradient = torch.empty_like(coefficient, dtype=ctx.dtype)
            torch.mul(coefficient, row_gradient, out=gradient)
        else:
            gradient = coefficient * row_gradient
    if token_gradient is not None:
        second = coefficient * token_gradient
        gradient = second if gradient is None else gradient + second
    return None if gradient is None else gradient.to(ctx.dtype), None, None, None, None, None


_surrogate.register_autograd(_backward, setup_context=_setup_context)
