"""Theorem 9 at work: whether a ratio has left its band takes one evaluation of the divergence, and no root.

With r the new over the old probability, p the old probability, c = (1 − r p)/(1 − p) the ratio of everything else and
`g(p, r) = p f(r) + (1 − p) f(c)`,

    r > upper  ⟺  r > 1 and (g(p, r) > δ or r p > 1 or r > cap),        r < lower  ⟺  r < 1 and g(p, r) > δ.

The sign of an advantage says which side matters, so `g` is evaluated once a token, and not at all for a token that moves back
towards r = 1. The value of the clipped loss does need the bound, of the tokens that are clipped and of no other. On the CPU
only those are solved; elsewhere a shape may not depend on data, all tokens are solved, and the root is not saved.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bandtheory.bounds import log_bounds as numpy_log_bounds
from bandtheory.closed_form_search import closed_form
from bandtheory.divergence import divergence
from bandtheory.engine import BLOCK
from bandtheory.evaluation import evaluator
from bandtheory.radius import f_radius
from bandtheory.reduction import Probability
from bandtheory.rules import Band, RelaxedBand, Rule, parse
from bandtheory.torch.bounds import TensorBounds, log_bounds
from bandtheory.torch.formulas import host_bounds
from bandtheory.torch.lookup import contiguous_like, is_tabulated
from bandtheory.torch.tracing import constant

Evaluation = Literal["auto", "explicit", "implicit"]


@constant
def is_implicit(evaluation: Evaluation, rule: str, dtype: torch.dtype, device: str) -> bool:
    """Whether the loss decides about clipping by `g` rather than by bounds, for tensors of a dtype on a type of device.

    Never where there is no root to save (constant rules, DCPO) or `g` is not accurate for every ratio (`exp(u)`). Otherwise
    `"auto"` says yes where bounds are roots found one by one: on the CPU, without a closed form, and in float64 or where
    float32 has no table. Looking up a table costs about as much as evaluating `g`.
    """
    band = _band(parse(rule))
    if evaluation == "explicit" or band is None:
        return False
    resolved = divergence(band.divergence)
    if not evaluator(resolved).everywhere:
        return False
    return evaluation == "implicit" or (
        device == "cpu" and closed_form(resolved) is None and (dtype == torch.float64 or not is_tabulated(rule))
    )


def _band(rule: Rule) -> Band | None:
    """The band in a rule, if there is one."""
    return rule.band if isinstance(rule, RelaxedBand) else rule if isinstance(rule, Band) else None


def implicit_bounds(log_ratio: Tensor, old_logp: Tensor, rule: Rule | str) -> TensorBounds:
    """The bounds of a rule where a log-ratio is beyond them, infinite where it is not.

    Args:
        log_ratio: log r, finite, any shape. 0 says that the token does not matter: it is within every band.
        old_logp: log-probabilities (nats) under the old policy, of the same shape and dtype.
        rule: a band or a relaxed band of a divergence with `evaluator(…).everywhere`, or its string.

    Returns:
        `TensorBounds` without gradient, of the dtype of log_ratio: lower is −∞ unless r < lower, upper is ∞ unless r > upper.
        The divergence alone decides; a bound that rounding put on the other side of the ratio is moved to the float next to it.
    """
    text = rule if isinstance(rule, str) else str(rule)
    return TensorBounds(*_implicit_bounds(log_ratio.detach(), old_logp.detach(), text))


@torch.library.custom_op("bandtheory::implicit_bounds", mutates_args=())
def _implicit_bounds(log_ratio: Tensor, old_logp: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    bounds_of = _of_the_clipped if log_ratio.device.type == "cpu" else _of_every_token
    return bounds_of(log_ratio.contiguous(), old_logp.contiguous(), rule)


def _of_the_clipped(log_ratio: Tensor, old_logp: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Test the tokens that matter, a block that stays in cache at a time, and solve for those that are outside."""
    ratios, logps, test = log_ratio.reshape(-1), old_logp.reshape(-1), band_test(rule)
    lower, upper = torch.full_like(ratios, -math.inf), torch.full_like(ratios, math.inf)
    blocks = torch.split(ratios.nonzero().squeeze(-1), BLOCK)
    clipped = torch.cat([block[test(ratios[block].double(), logps[block].double())] for block in blocks])
    # Solved, not looked up: these are few, and a radius that changes at every step then never needs a table.
    bounds = TensorBounds(*(side.to(ratios.dtype) for side in host_bounds(logps[clipped].double().clamp(max=0.0), rule)))
    lower[clipped], upper[clipped] = _beyond(ratios[clipped], bounds)
    return lower.reshape(log_ratio.shape), upper.reshape(log_ratio.shape)


def _of_every_token(log_ratio: Tensor, old_logp: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """The same on any device, without a shape that depends on data: the price is every token's root."""
    outside = band_test(rule)(log_ratio.double(), old_logp.double())
    return _beyond(torch.where(outside, log_ratio, 0.0), log_bounds(old_logp, rule))


def _beyond(log_ratio: Tensor, bounds: TensorBounds) -> tuple[Tensor, Tensor]:
    """The bound that each log-ratio is beyond, on the side of 0 from it; infinite on the other side, and for 0."""
    inwards = torch.nextafter(log_ratio, torch.zeros_like(log_ratio))
    lower = torch.where(log_ratio < 0, torch.maximum(bounds.lower, inwards), -math.inf)
    upper = torch.where(log_ratio > 0, torch.minimum(bounds.upper, inwards), math.inf)
    return lower, upper


@_implicit_bounds.register_fake
def _(log_ratio: Tensor, old_logp: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    band_test(rule)  # a faulty rule is refused while tracing, not when the graph first runs
    return contiguous_like(log_ratio), contiguous_like(log_ratio)


@_implicit_bounds.register_vmap
def _(info: Any, in_dims: Any, log_ratio: Tensor, old_logp: Tensor, rule: str) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    first, second = (
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip((log_ratio, old_logp), in_dims, strict=False)
    )
    return _implicit_bounds(first, second, rule), (0, 0)


@functools.lru_cache(maxsize=256)
def band_test(rule: str) -> BandTest:
    """The test of a band or of a relaxed band, compiled once."""
    return BandTest(parse(rule))


class BandTest:
    """`(log r, log p) ↦ whether r is outside the bounds of a rule`, float64 tensors on any device, NaN nowhere.

    Everything that depends only on the rule is a Python number here, and no decision depends on the data.
    """

    def __init__(self, rule: Rule) -> None:
        band = _band(rule)
        if band is None:
            raise TypeError(f"rule: expected a band or a relaxed band, got {rule}")
        resolved = divergence(band.divergence)
        compiled = evaluator(resolved)
        self.above, self.below = compiled.above.code(torch), compiled.below.code(torch)
        with np.errstate(divide="ignore"):
            self.log_at_zero = float(np.log(compiled.value_at_zero))
            self.log_radius = float(f_radius(resolved, np.array([band.delta])).log[0])
        self.pointlike = band.delta == 0 and not compiled.flat  # r = 1 alone; g of a power may underflow next to it
        self.cap = math.inf if band.max_ratio is None else math.log(band.max_ratio)
        # what a relaxed band lets through whatever g is; a plain band only the point 1
        self.interval = rule.clip.log_interval if isinstance(rule, RelaxedBand) else (0.0, 0.0)
        limits = numpy_log_bounds(logp=[-math.inf, 0.0], divergence=resolved, delta=band.delta)
        self.absent, self.certain = np.stack([limits.lower, limits.upper], axis=1).tolist()

    def __call__(self, log_ratio: Tensor, logp: Tensor) -> Tensor:
        outside = log_ratio != 0 if self.pointlike else self._leaves_band(log_ratio, logp)
        low, high = self.interval
        return (outside & ((log_ratio < low) | (log_ratio > high))) | (log_ratio > self.cap)

    def _leaves_band(self, log_ratio: Tensor, logp: Tensor) -> Tensor:
        """The band without its cap."""
        inside = (logp < 0) & (logp > -math.inf)
        log_p = torch.where(inside, logp, -1.0)
        outside = ~(self._log_g(log_ratio, log_p) <= self.log_radius)  # an overflow (NaN) is above every radius
        outside |= log_ratio + log_p > 0  # r p > 1
        for edge, (lower, upper) in ((logp == -math.inf, self.absent), (logp >= 0, self.certain)):
            outside = torch.where(edge, (log_ratio < lower) | (log_ratio > upper), outside)
        return outside

    def _log_g(self, log_ratio: Tensor, log_p: Tensor) -> Tensor:
        """`log g(p, r)` for the tilted generator; of the token and its complement, one has a ratio above 1, the other below."""
        log_p, log_not_p, _, _ = Probability.from_log(torch, log_p)
        # c − 1, and log c from it or, where c is far from 1, from 1 − r p
        excess = -torch.expm1(log_ratio) * torch.exp(log_p - log_not_p)
        far = torch.log(-torch.expm1(log_ratio + log_p)) - log_not_p
        log_c = torch.where(torch.abs(excess) < 0.5, torch.log1p(excess), far)

        rises = log_ratio > 0
        growing, shrinking = torch.where(rises, log_ratio, log_c), torch.where(rises, log_c, log_ratio)
        log_above, _ = self.above(-growing, torch.exp(-growing), torch.expm1(-growing))
        log_below, _ = self.below(shrinking, torch.exp(shrinking), torch.expm1(shrinking))
        log_below = torch.where(shrinking == -math.inf, self.log_at_zero, log_below)
        weights = torch.where(rises, log_p, log_not_p), torch.where(rises, log_not_p, log_p)
        return torch.logaddexp(weights[0] + growing + log_above, weights[1] + log_below)
