"""What `bandtheory.torch.selftest` compares the tensor operation with, none of it code that the operation runs.

Bounds of a band: enclosures in ball arithmetic, from the generator and the radius. Bounds of other rules: their formulas in 50
digits. The clipped loss and its gradient: autograd through the formula in float64. A check returns what it found, in words, or
raises `Failure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, get_args

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bandtheory.evidence.certificate import certify
from bandtheory.high_precision import digits
from bandtheory.rules import AdaptiveClip, Band, RatioClip, RelaxedBand, parse
from bandtheory.terminal import UsageError
from bandtheory.torch import log_bounds, policy_loss
from bandtheory.torch.losses import Aggregation

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
RANDOM_TOKENS = 16  # of a dtype; certificates of more would take longer than all else but the tables
COPIES = 103  # each token stands at many positions of the tensor, so that every lane, block and tail of a kernel meets it
SEQUENCES, TOKENS = 8, 16  # of the batch whose loss is checked

Floats = NDArray[np.float64]
Job = Callable[[], str]  # returns what it found, or raises: `Failure`, or whatever a broken installation raises


class Failure(Exception):
    """A check that does not hold; the message says where."""


@dataclass(frozen=True)
class Check:
    """One row of the report."""

    name: str
    passed: bool
    detail: str


class Interval(NamedTuple):
    """Ends between which the exact bounds lie, log-ratios in float64; NaN where there is no bound."""

    low: Floats
    high: Floats


def outcome(name: str, job: Job) -> Check:
    """A check that raises has failed: what a broken installation raises is not known beforehand."""
    try:
        return Check(name, True, job())
    except Failure as failure:
        return Check(name, False, str(failure))
    except Exception as error:
        return Check(name, False, f"raised {type(error).__name__}: {str(error).partition(chr(10))[0][:300]}")


# --- bounds ------------------------------------------------------------------------------------------------------------------


def bounds_job(rule: str, device: torch.device, seed: int) -> str:
    """Both bounds of a rule in every dtype against what is certain about them."""
    found = []
    for dtype in DTYPES:
        tokens, accepted, largest = sample(dtype, seed), tolerance(dtype, device), 0.0
        unit = f"relative {_short(dtype)}" if dtype == torch.float64 else f"ulp {_short(dtype)}"
        bounds = log_bounds(tokens.repeat(COPIES).to(device), rule)
        for side, bound, interval in zip(("lower", "upper"), bounds, expected(rule, tokens), strict=True):
            rows = bound.cpu().reshape(COPIES, len(tokens))
            distances = deviation(rows, interval)
            copy, at = np.unravel_index(int(distances.argmax()), distances.shape)
            largest = max(largest, float(distances[copy, at]))
            if largest > accepted:
                where = f"{side} bound at logp = {tokens[at].item()!r}: got {rows[copy, at].item()!r}"
                exact = f"exact in [{interval.low[at]}, {interval.high[at]}]"
                raise Failure(f"{where}, {exact}; {largest:.2g} {unit} away, accepted {accepted:g}")
        found.append(f"{largest:.2g} {unit}")
    return f"off by at most {', '.join(found)}"


def sample(dtype: torch.dtype, seed: int) -> Tensor:
    """Log-probabilities of a dtype: random over ten decades, and hostile."""
    random = -(10.0 ** np.random.default_rng(seed).uniform(-8, math.log10(104), RANDOM_TOKENS))
    denormal = -torch.finfo(dtype).smallest_normal / 4
    hostile = [0.0, -0.0, denormal, -math.inf, math.nan, 1e-3, -104.0, 1e38, -1e38]
    return torch.tensor([*random, *hostile], dtype=torch.float64).to(dtype)


def expected(rule: str, tokens: Tensor) -> tuple[Interval, Interval]:
    """Intervals that hold the exact lower and upper log-bounds. A token above 0 counts as 0, and NaN has none."""
    given = np.asarray(tokens.double().numpy(), dtype=np.float64)
    unknown = np.isnan(given)
    logp = np.where(unknown, -1.0, np.minimum(given, 0.0))
    match parse(rule):
        case Band() as band:
            lower, upper = _certified(band, logp)
        case RelaxedBand() as relaxed:
            lower, upper = _certified(relaxed.band, logp)
            lower = Interval(*(np.minimum(end, math.log1p(-relaxed.low)) for end in lower))
            upper = Interval(*(np.minimum(np.maximum(end, math.log1p(relaxed.high)), _log_cap(relaxed)) for end in upper))
        case RatioClip(low, high):
            lower, upper = (Interval(end, end) for end in np.log1p([-low, high])[:, None] + 0 * unknown)
        case AdaptiveClip() as adaptive:
            lower, upper = (Interval(end, end) for end in _adaptive(adaptive, logp))
        case other:
            raise UsageError(f"rule {str(other)!r} bounds nothing; accepted: clip, dcpo, band and relaxed")
    lower, upper = (Interval(*(np.where(unknown, math.nan, end) for end in interval)) for interval in (lower, upper))
    return lower, upper


def _certified(band: Band, logp: Floats) -> tuple[Interval, Interval]:
    """Enclosures from the generator. The claim only starts the search: enclosures are narrow whatever is claimed."""
    found = []
    for side, claim in (("lower", -1.0), ("upper", 1.0)):
        certificates: Any = certify(logp, log_ratio=claim, divergence=band.divergence, delta=band.delta, side=side)
        found.append(Interval(*certificates.log_enclosure))
    return found[0], Interval(*(np.minimum(end, _log_cap(band)) for end in found[1]))


def _log_cap(rule: Band | RelaxedBand) -> float:
    return math.inf if rule.max_ratio is None else math.log(rule.max_ratio)


def _adaptive(rule: AdaptiveClip, logp: Floats) -> tuple[Floats, Floats]:
    """`½ + ½√max(1 − 4 low/p, 0)` and `min(½ + ½√(1 + 4 high/p), cap)` as a paper prints them, in 50 digits."""
    half = mpmath.mpf(1) / 2
    lower, upper = [], []
    with digits(50):
        for value in logp.tolist():
            inverse = mpmath.exp(-mpmath.mpf(value))
            lower.append(float(mpmath.log(half + half * mpmath.sqrt(max(1 - 4 * rule.low * inverse, 0)))))
            upper.append(float(mpmath.log(min(half + half * mpmath.sqrt(1 + 4 * rule.high * inverse), rule.max_ratio))))
    return np.array(lower), np.array(upper)


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """Accepted deviation: units in the last place, relative for float64."""
    if dtype == torch.float64:
        return 1e-9
    return 1.0 if dtype != torch.float32 else 4.0 if device.type == "cuda" else 2.0


def deviation(values: Tensor, interval: Interval) -> Floats:
    """How far values are from an interval: relative in float64, else by how many numbers of the dtype they are beyond it.

    Values of shape (…, n) are compared with n intervals. NaN is 0 away from NaN, and anything else infinitely far.
    """
    value = np.asarray(values.double().numpy(), dtype=np.float64)
    if values.dtype == torch.float64:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            beyond = np.maximum(np.maximum(interval.low - value, value - interval.high), 0)
            distance = np.where(beyond > 0, beyond / np.minimum(abs(interval.low), abs(interval.high)), 0.0)
        distance = np.where(
            (value == interval.low) | (value == interval.high), 0.0, np.where(np.isnan(distance), np.inf, distance)
        )
    else:
        low, high = (rank(torch.from_numpy(end).to(values.dtype)) for end in interval)
        distance = np.maximum(np.maximum(low - rank(values), rank(values) - high), 0).astype(np.float64)
    unknown, wanted = np.isnan(value), np.isnan(interval.low)
    return np.where(unknown | wanted, np.where(unknown & wanted, 0.0, np.inf), distance)


def rank(values: Tensor) -> NDArray[np.int64]:
    """The place of each value among all numbers of its dtype, of 16 or 32 bits: neighbours differ by 1, both zeros are 0."""
    width = 8 * values.element_size()
    bits = values.contiguous().view({16: torch.int16, 32: torch.int32}[width]).to(torch.int64).numpy()
    return np.where(bits < 0, -(bits & (2 ** (width - 1) - 1)), bits)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- loss and gradient -------------------------------------------------------------------------------------------------------


def loss_job(rule: str, device: torch.device) -> str:
    """`policy_loss` and its gradient, every aggregation, against autograd through the formula in float64."""
    worst = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        batch, bounds = _batch(rule, dtype)
        mask = batch["mask"]
        spoiled = {key: torch.where(mask, value, math.nan).to(device) for key, value in batch.items() if key != "mask"}
        for aggregation, dual_clip in product(get_args(Aggregation), (None, 3.0)):
            placed: dict[str, Any] = {**spoiled, "logp": spoiled["logp"].clone().requires_grad_(), "mask": mask.to(device)}
            loss, _ = policy_loss(**placed, rule=rule, aggregation=aggregation, dual_clip=dual_clip)
            loss.backward()  # type: ignore[no-untyped-call]
            ours, wanted = (loss.detach(), placed["logp"].grad), _plain_loss(batch, bounds, aggregation, dual_clip)
            for what, value, exact in zip(("loss", "gradient"), ours, wanted, strict=True):
                accepted = 1e-5 if what == "loss" else max(1e-5, torch.finfo(dtype).eps)
                error = float((value.cpu().double() - exact).abs().max() / exact.abs().max())
                if not error <= accepted:  # true for NaN as well
                    case = f"{_short(dtype)}, {aggregation}, dual_clip {dual_clip}"
                    raise Failure(f"{what} off by {error:.1e} of its largest entry, accepted {accepted:.1e} ({case})")
                worst = max(worst, error if dtype == torch.float32 else 0.0)
    return f"off by at most {worst:.1e} of the largest entry (float32), in every aggregation"


def _batch(rule: str, dtype: torch.dtype) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
    """Sequences with ratios on both sides of the bounds, and the exact bounds; what is too close to one to tell is masked."""
    random = torch.Generator().manual_seed(0)
    shape = (SEQUENCES, TOKENS)
    old = (-6 * torch.rand(shape, generator=random, dtype=torch.float64)).to(dtype)
    new = (old.double() + 0.8 * torch.randn(shape, generator=random, dtype=torch.float64)).to(dtype)
    advantages = torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)
    mask = torch.rand(shape, generator=random) < 0.8
    mask[3] = False
    lower, upper = (torch.from_numpy(interval.low).reshape(old.shape) for interval in expected(rule, old.flatten()))
    for bound in (lower, upper, torch.full_like(lower, math.log(3.0))):
        mask &= (new.double() - old.double() - bound).abs() > 1e-4
    return {"logp": new, "old_logp": old, "advantages": advantages, "mask": mask}, (lower, upper)


def _plain_loss(
    batch: Mapping[str, Tensor], bounds: tuple[Tensor, Tensor], aggregation: Aggregation, dual_clip: float | None
) -> tuple[Tensor, Tensor]:
    """`−min(r·A, clip(r)·A)`, at most `c·|A|` where A < 0, averaged as its name says; and its gradient."""
    logp, advantages = batch["logp"].double().requires_grad_(), batch["advantages"].double()
    ratio = torch.exp(logp - batch["old_logp"].double())
    clipped = torch.minimum(torch.maximum(ratio, bounds[0].exp()), bounds[1].exp())
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, dual_clip * advantages.abs()), loss)
    mask = batch["mask"]
    if aggregation == "token-mean":
        total = loss[mask].mean()
    else:
        rows = [row[valid] for row, valid in zip(loss, mask, strict=True) if valid.any()]
        total = torch.stack([row.mean() if aggregation == "seq-mean-token-mean" else row.sum() for row in rows]).mean()
    (gradient,) = torch.autograd.grad(total, logp)
    return total.detach(), gradient
