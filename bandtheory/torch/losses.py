"""The clipped policy-gradient loss under any clip rule, with what a training dashboard wants to know about it."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from bandtheory.rules import Rule
from bandtheory.torch import surrogate
from bandtheory.torch.bounds import TensorBounds, log_bound_on_side
from bandtheory.torch.implicit import Evaluation, implicit_bounds, is_implicit
from bandtheory.torch.lookup import is_tabulated
from bandtheory.torch.surrogate import LOG_RATIO_LIMIT, SurrogateSums

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]

_PLACEHOLDER_LOGP = -1.0  # what masked log-probabilities are replaced by: an ordinary value, far from every special case


class ClipStatistics(NamedTuple):
    """What the clip rule did to one batch. 0-dim tensors, detached, on the device and in the dtype of the loss.

    All have one dtype, so `torch.stack(statistics).tolist()` fetches them in a single transfer. Fractions are shares of the
    valid tokens and are 0 if there are none; ratios are those of the clamped log-ratio, hence at most e²⁰.

    Attributes:
        tokens: number of valid tokens.
        clipped_up: fraction with `A > 0` and `r > upper`, whose gradient is removed.
        clipped_down: fraction with `A < 0` and `r < lower`, whose gradient is removed.
        dual_clipped: fraction with `A < 0` and `r > dual_clip`, whose gradient is removed (0 without dual clip).
        saturated: fraction with `|log r| > 20`, whose gradient is removed whatever the rule. It should be 0: anything else
            hints that the two log-probabilities do not belong to the same token or temperature.
        ratio_mean: mean of `r`, near 1 while the old policy is the sampling policy (1 if nothing is valid).
        ratio_max: largest `r` (0 if nothing is valid).
        approximate_kl: mean of `r − 1 − log r ≥ 0`, in nats: the low-variance estimate of KL(old‖new) from samples of the old
            policy, "k3" in J. Schulman, Approximating KL divergence (2020), http://joschu.net/blog/kl-approx.html.
    """

    tokens: Tensor
    clipped_up: Tensor
    clipped_down: Tensor
    dual_clipped: Tensor
    saturated: Tensor
    ratio_mean: Tensor
    ratio_max: Tensor
    approximate_kl: Tensor


class _Batch(NamedTuple):
    """The inputs in the computing dtype and of one shape, with every masked value replaced by a harmless one."""

    valid: Tensor
    log_ratio: Tensor  # log π − log π_old, 0 where masked; the only tensor here with a gradient
    advantages: Tensor  # 0 where masked: such a token is never clipped and adds exactly 0 to the loss


class _Decision(NamedTuple):
    """What a rule does to each token. `keeps`: its gradient stays; `frozen`: the log-ratio its loss is taken at otherwise."""

    keeps: Tensor
    frozen: Tensor
    up: Tensor
    down: Tensor
    dual: Tensor


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    rule: Rule | str | TensorBounds,
    aggregation: Aggregation = "token-mean",
    dual_clip: float | None = None,
    evaluation: Evaluation = "auto",
) -> tuple[Tensor, ClipStatistics]:
    """Clipped surrogate loss of a batch of token sequences, to be minimised.

    Per token, with `r = exp(clamp(logp − old_logp, ±20))` and the rule's bounds at the old policy's probability::

        loss = −min(r·A, clip(r, lower, upper)·A)              and with dual clip c, where A < 0:   min(loss, c·|A|)

    Its gradient in `logp` is `−A·r` or 0. It is 0 iff (A > 0 and r > upper) or (A < 0 and r < lower) or (A < 0 and r > c) or
    |logp − old_logp| > 20. All four are strict: a ratio exactly on a bound keeps its gradient.

    Aggregation, over valid tokens only. A sequence is a row along the last dimension; one without a valid token does not count:

    - `"token-mean"`: mean over all tokens;
    - `"seq-mean-token-mean"`: mean over the tokens of each sequence, then over sequences;
    - `"seq-mean-token-sum"`: sum over the tokens of each sequence, then mean over sequences.

    Gradients flow to `logp` alone. Nothing valid: the loss and all gradients are 0. There is no host synchronisation and no
    data-dependent shape, so the values are not checked: NaN at a valid position gives a NaN loss and never a smaller batch.

    Args:
        logp: log-probabilities (nats) of the sampled tokens under the policy in training, `(T,)`, `(B, T)` or `(..., T)`;
            any floating dtype.
        old_logp: the same under the old policy; shape of `logp`, any floating dtype. Values slightly above 0 count as
            probability 1 in the bounds.
        advantages: shape of `logp`, or one a sequence: `(...)` or `(..., 1)`. In particular `(B,)` belongs to the rows of
            `(B, T)`, also when B = T. Any real dtype.
        mask: 1 or True for valid tokens; shape of `logp`, bool or numeric. Anything but 0 counts as 1 (fractional weights
            cannot be told from mistakes without a synchronisation). Values at masked positions are never looked at: they may
            be NaN or infinite and change neither the loss nor a gradient.
        rule: a rule, its string (`"clip:0.2,0.28"`, `"band:kl:0.05:10"`), or what `log_bounds(old_logp, rule)` returned, to
            spend the bounds once for several inner updates. Given as a rule, the bounds are computed in the dtype of the
            loss; given as bounds of a half dtype, they have its precision. Bounds must satisfy lower ≤ upper.
        aggregation: one of the three above.
        dual_clip: c > 1, or None. 3 is common, the BandPO runs used 10.
        evaluation: how it is decided whether a token is clipped; loss, gradient and statistics do not depend on it, beyond
            rounding. `"explicit"` computes both bounds of every token. `"implicit"` evaluates a band's divergence once, at the
            ratio itself (`bandtheory.torch.implicit`), and solves for the bounds of clipped tokens alone; on any device but
            the CPU, where shapes must not depend on data, for all bounds, which saves nothing. Rules without a root to save,
            given bounds and generators that overflow are evaluated explicitly whatever is asked for. `"auto"` is implicit
            where the root would be solved token by token: on the CPU, for a band without a closed form, in float64 (or in
            float32 where the bounds have no table). Ask for `"implicit"` where the radius changes at every step: it needs no
            table, and a table takes seconds.

    Returns:
        The loss, 0-dim, float64 if `logp` or `old_logp` is float64 and float32 otherwise: everything is computed in that
        dtype, so half-precision inputs lose nothing beyond their own rounding, and the gradient comes back in the dtype of
        `logp`. And the `ClipStatistics`.

    On a GPU with Triton the whole loss is one kernel (float32 and half dtypes, a rule with a table). That operator has no rule
    for the transforms of `torch.func`; under them, give the bounds instead of the rule.

    Raises:
        TypeError: an argument that is not a tensor or has a dtype not listed above; `rule` or `dual_clip` of a wrong type.
        ValueError: shapes or devices that do not belong together, an unknown rule, aggregation or evaluation, dual_clip ≤ 1.

    Sources: J. Schulman et al., arXiv 1707.06347 (clipped surrogate); D. Ye et al., arXiv 1912.09729 (dual clip);
    Q. Yu et al., arXiv 2503.14476 (token mean).
    """
    for name, value, accepted in (("aggregation", aggregation, Aggregation), ("evaluation", evaluation, Evaluation)):
        if value not in get_args(accepted):
            raise ValueError(f"{name}: {value!r} is none of {', '.join(map(repr, get_args(accepted)))}")
    if not isinstance(rule, str | Rule | TensorBounds):
        raise TypeError(f"rule: expected a rule, a rule string or TensorBounds(lower, upper), got {type(rule).__name__}")
    log_cap = _log_cap(dual_clip)
    _check_tensors(logp, old_logp, advantages, mask)
    sums = _fused(logp, old_logp, advantages, mask, rule, log_cap, evaluation)
    if sums is not None:
        return _aggregate(sums.row_loss, sums.row_tokens, aggregation), _shares(*sums[2:])
    batch = _masked(logp, old_logp, advantages, mask)
    with torch.no_grad():
        bounds = _resolve(rule, old_logp.detach(), batch, evaluation)
        decision = _decide(batch, bounds, log_cap)
        statistics = _statistics(batch, decision)
    ratio = torch.exp(torch.where(decision.keeps, batch.log_ratio, decision.frozen))
    sequence_loss = (-batch.advantages * ratio).sum(dim=-1)
    return _aggregate(sequence_loss, batch.valid.count_nonzero(dim=-1), aggregation), statistics


def _log_cap(dual_clip: float | None) -> float:
    """Logarithm of the largest ratio of a token with a negative advantage; infinite for None."""
    if dual_clip is None:
        return math.inf
    if isinstance(dual_clip, bool) or not isinstance(dual_clip, int | float):
        raise TypeError(f"dual_clip: expected a number above 1 or None, got {dual_clip!r}")
    if not 1 < dual_clip < math.inf:  # false for NaN as well
        raise ValueError(f"dual_clip: {dual_clip!r} is not a finite number above 1")
    return math.log(dual_clip)


def _check_tensors(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> None:
    """Refuse what is wrong with types, dtypes, shapes and devices; values are out of reach without a synchronisation."""
    for name, tensor in (("logp", logp), ("old_logp", old_logp), ("advantages", advantages), ("mask", mask)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if tensor.device != logp.device:
            raise ValueError(f"{name}: is on device {tensor.device}, but logp is on {logp.device}")
    for name, tensor in (("logp", logp), ("old_logp", old_logp)):
        if not tensor.is_floating_point():
            raise TypeError(f"{name}: expected a floating-point dtype, got {tensor.dtype}")
    if advantages.is_complex() or advantages.dtype == torch.bool:
        raise TypeError(f"advantages: expected a floating-point or integer dtype, got {advantages.dtype}")
    if mask.is_complex():
        raise TypeError(f"mask: expected a bool or real numeric dtype, got {mask.dtype}")
    if logp.ndim == 0:
        raise ValueError("logp: a 0-dim tensor has no sequence; expected shape (T,), (B, T) or (..., T)")
    for name, tensor in (("old_logp", old_logp), ("mask", mask)):
        if tensor.shape != logp.shape:
            raise ValueError(f"{name}: shape {tuple(tensor.shape)} is not that of logp, {tuple(logp.shape)}")
    per_sequence = tuple(logp.shape[:-1])
    accepted = (tuple(logp.shape), per_sequence, (*per_sequence, 1))
    if tuple(advantages.shape) not in accepted:
        raise ValueError(f"advantages: shape {tuple(advantages.shape)} is none of {', '.join(map(str, accepted))}")


def _fused(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    rule: Rule | str | TensorBounds,
    log_cap: float,
    evaluation: Evaluation,
) -> SurrogateSums | None:
    """All sums by the Triton kernel, where it runs and the rule has a table; None where the loss is computed eagerly."""
    if torch.float64 in (logp.dtype, old_logp.dtype) or isinstance(rule, TensorBounds):
        return None
    text = rule if isinstance(rule, str) else str(rule)
    if not surrogate.available(logp.device) or evaluation == "implicit" or not is_tabulated(text):
        return None
    length = logp.shape[-1]
    per_token = advantages.shape == logp.shape
    return surrogate.surrogate_sums(
        logp.reshape(-1, length),
        old_logp.reshape(-1, length),
        advantages.reshape(-1, length if per_token else 1),
        mask.reshape(-1, length),
        text,
        log_cap,
    )


def _masked(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> _Batch:
    """Replace what is masked before any arithmetic: 0·∞ in the backward pass is NaN, so masking the loss comes too late."""
    dtype = torch.float64 if torch.float64 in (logp.dtype, old_logp.dtype) else torch.float32
    valid = mask if mask.dtype == torch.bool else mask != 0
    # Subtraction may see garbage: its derivative is 1 whatever the values are, and `where` sends 0 into it.
    log_ratio = torch.where(valid, logp.to(dtype) - old_logp.detach().to(dtype), 0.0)
    per_token = advantages.detach().to(dtype)
    if per_token.ndim < logp.ndim:
        per_token = per_token.unsqueeze(-1)
    return _Batch(valid, log_ratio, torch.where(valid, per_token, 0.0))


def _resolve(rule: Rule | str | TensorBounds, old_logp: Tensor, batch: _Batch, evaluation: Evaluation) -> TensorBounds:
    """Bounds of a rule in the computing dtype, or given bounds once they fit the batch. Anything may stand where masked.

    Implicit bounds are infinite where they do not matter; what is made of them is the same.
    """
    dtype = batch.log_ratio.dtype
    if not isinstance(rule, TensorBounds):
        # An ordinary value where masked: no rule then meets garbage, or a special case for nothing.
        old_logp = torch.where(batch.valid, old_logp.to(dtype), _PLACEHOLDER_LOGP)
        if not is_implicit(evaluation, str(rule), dtype, old_logp.device.type):
            # of the two bounds a token is compared with one: see `_decide`
            bound = log_bound_on_side(old_logp, batch.advantages > 0, rule)
            return TensorBounds(bound, bound)
        # only a token that moves on in the direction of its advantage can be clipped by a bound
        matters = batch.advantages.sign() * batch.log_ratio > 0
        log_ratio = batch.log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        return implicit_bounds(torch.where(matters, log_ratio, 0.0), old_logp, rule)
    for name, bound in (("lower", rule.lower), ("upper", rule.upper)):
        if not isinstance(bound, Tensor) or not bound.is_floating_point():
            got = bound.dtype if isinstance(bound, Tensor) else type(bound).__name__
            raise TypeError(f"rule.{name}: expected a floating-point tensor of log-ratios, got {got}")
        if bound.shape != old_logp.shape:
            raise ValueError(f"rule.{name}: shape {tuple(bound.shape)} is not that of logp, {tuple(old_logp.shape)}")
        if bound.device != old_logp.device:
            raise ValueError(f"rule.{name}: is on device {bound.device}, but logp is on {old_logp.device}")
    return TensorBounds(rule.lower.to(dtype), rule.upper.to(dtype))


def _decide(batch: _Batch, bounds: TensorBounds, log_cap: float) -> _Decision:
    """Compare log-ratios with explicit bounds.

    `frozen` is made of minima and maxima, which hand on NaN from either side, so that a NaN bound gives a NaN loss. A token
    that is NaN itself keeps its gradient, which is NaN then: many trainers look at the gradient norm only. (torch.clamp would
    make it 0.)
    """
    positive, negative = batch.advantages > 0, batch.advantages < 0
    clamped = batch.log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    frozen = torch.where(
        positive,
        torch.minimum(clamped, bounds.upper),
        torch.maximum(clamped, bounds.lower).clamp(max=log_cap),
    )
    unclipped = frozen == batch.log_ratio
    keeps = unclipped | ~batch.valid | batch.log_ratio.isnan() | batch.advantages.isnan()
    return _Decision(
        keeps=keeps,
        frozen=frozen,
        up=positive & (clamped > bounds.upper),
        down=negative & (clamped < bounds.lower),
        dual=negative & (clamped > log_cap),
    )


def _aggregate(sequence_loss: Tensor, lengths: Tensor, aggregation: Aggregation) -> Tensor:
    """A mean of sums over sequences, see `policy_loss`. Empty means are 0 by a divisor of at least 1."""
    if aggregation == "token-mean":
        return sequence_loss.sum() / lengths.sum().clamp(min=1)
    if aggregation == "seq-mean-token-mean":
        sequence_loss = sequence_loss / lengths.clamp(min=1)
    return sequence_loss.sum() / lengths.count_nonzero().clamp(min=1)


def _statistics(batch: _Batch, decision: _Decision) -> ClipStatistics:
    """Masked tokens have log-ratio 0 and advantage 0, so they drop out of every count and sum by themselves."""
    log_ratio = batch.log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    excess = torch.expm1(log_ratio)  # r − 1: as exp(x) − 1 − x, the KL has no correct digit in float32 below x = 3e-4
    # Known from the shape, so no synchronisation; amax refuses an empty tensor.
    empty = log_ratio.numel() == 0
    return _shares(
        batch.valid.count_nonzero().to(log_ratio.dtype),
        decision.up.count_nonzero(),
        decision.down.count_nonzero(),
        decision.dual.count_nonzero(),
        (batch.log_ratio.abs() > LOG_RATIO_LIMIT).count_nonzero(),
        excess.sum(),
        log_ratio.new_full((), -math.inf) if empty else log_ratio.masked_fill(~batch.valid, -math.inf).amax(),
        (excess - log_ratio).clamp(min=0).sum(),
    )


def _shares(
    tokens: Tensor, up: Tensor, down: Tensor, dual: Tensor, saturated: Tensor, excess: Tensor, log_ratio_max: Tensor, kl: Tensor
) -> ClipStatistics:
    """Statistics from sums over the valid tokens."""
    divisor = tokens.clamp(min=1)
    return ClipStatistics(
        tokens=tokens,
        clipped_up=up / divisor,
        clipped_down=down / divisor,
        dual_clipped=dual / divisor,
        saturated=saturated / divisor,
        ratio_mean=1 + excess / divisor,
        ratio_max=log_ratio_max.exp(),
        approximate_kl=kl / divisor,
    )
