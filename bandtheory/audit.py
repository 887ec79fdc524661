"""What would each clipping rule have done to these tokens: how many clipped, and how much of the policy gradient removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bandtheory.audit_report import AuditReport, Bins, RuleAudit
from bandtheory.tokens import LOGP_SLACK, AuditError, TokenChunk, TokenData

if TYPE_CHECKING:
    from bandtheory.rules import Rule

__all__ = ["BIN_EDGES", "LOGP_SLACK", "AuditError", "AuditReport", "Bins", "RuleAudit", "audit", "example_path"]

BIN_EDGES = (0.0, 0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Old-probability bins `[0, .01), [.01, .1), …, [.8, 1]`."""

MAX_LOG_RATIO = 20.0
"""`policy_loss` clamps the log-ratio to ±20: outside there is no gradient, so such a token has no mass."""


def audit(
    source: str | PathLike[str] | Mapping[str, ArrayLike],
    rules: Sequence[Rule | str],
    *,
    chunk_tokens: int = 2**20,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Which tokens each rule clips, `(A > 0 and r > upper) or (A < 0 and r < lower)`, and what share of the gradient that is.

    With `p = exp(old_logp)` and `r = exp(new_logp − old_logp)`, the gradient of the unclipped surrogate `Σ r·A` is
    `Σ A·r·∇log π`, and a clipped token loses its term. The mass of a token is the size of that coefficient,

        mass = |A|·r    (0 where |log r| > 20, because policy_loss clamps the log-ratio there),

    each valid token counting alike (the token-mean aggregation). `removed_share = Σ_clipped mass / Σ mass`.

    Args:
        source: an npz or safetensors file, or a mapping of arrays. `old_logp, new_logp`: `(B, T)` or `(N,)`, any float type,
            nats. `advantage` (or `advantages`): `(B,)`, `(B, 1)`, `(B, T)` or `(N,)`. `mask`: 0 or 1, the shape of `old_logp`;
            without it every token is valid. Log-probabilities up to 1e-3 above 0 count as 0 (rounding). Masked positions are
            never looked at. A file is read once, forward, whatever its size.
        rules: rule objects or strings, such as `["clip:0.2,0.28", "band:kl:0.05:10"]`.
        chunk_tokens: positions held at a time; peak memory is some hundred bytes each.
        progress: called as `progress(done, total)` positions after each chunk.

    Raises:
        AuditError: what is wrong with the file, an array or a value.
        RuleError: a rule string that does not parse.
    """
    parsed = [_parse(rule) for rule in ([rules] if isinstance(rules, str) else rules)]
    if not parsed:
        raise AuditError("rules is empty; accepted: at least one rule, such as 'clip:0.2,0.28'")
    if isinstance(chunk_tokens, bool) or not isinstance(chunk_tokens, int | np.integer) or chunk_tokens < 1:
        raise AuditError(f"chunk_tokens is {chunk_tokens!r}; accepted: an integer of at least 1")
    total, tallies = _Total(), [_Tally(rule) for rule in parsed]
    done = 0
    with TokenData(source) as data:
        for chunk in data.chunks(int(chunk_tokens)):
            _add(chunk, total, tallies)
            done += chunk.positions
            if progress is not None:
                progress(done, data.positions)
    if not total.tokens.any():
        raise AuditError(f"{data.label}: mask has no valid position; accepted: at least one")
    if not np.isfinite(total.mass.sum()):
        raise AuditError(f"{data.label}: the sum of |advantage|·ratio overflows; accepted: advantages far below 1e300")
    bins = Bins(BIN_EDGES, _ints(total.tokens), _floats(total.mass))
    return AuditReport(data.label, data.shape, bins, total.beyond_clamp, tuple(tally.row(bins) for tally in tallies))


def example_path() -> Path:
    """The bundled example: one step of SmolLM2-135M-Instruct on one-digit sums; origin and licence in `data/README.md`."""
    return Path(str(files("bandtheory").joinpath("data", "chain_sum_tokens.npz")))


class _Total:
    def __init__(self) -> None:
        self.tokens = np.zeros(len(BIN_EDGES) - 1, np.int64)
        self.mass = np.zeros(len(BIN_EDGES) - 1)
        self.beyond_clamp = 0


class _Tally:
    """Running sums of one rule; first index 0 is up, 1 is down."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.clipped = np.zeros((2, len(BIN_EDGES) - 1), np.int64)
        self.removed = np.zeros((2, len(BIN_EDGES) - 1))
        self.upper = np.array([np.inf, -np.inf])  # smallest and largest log-bound
        self.lower = np.array([np.inf, -np.inf])

    def row(self, bins: Bins) -> RuleAudit:
        with np.errstate(over="ignore"):
            (tightest_upper, widest_upper), (widest_lower, tightest_lower) = np.exp(self.upper), np.exp(self.lower)
        up, down = self.clipped
        removed_up, removed_down = self.removed
        return RuleAudit(
            str(self.rule), bins, _ints(up), _ints(down), _floats(removed_up), _floats(removed_down),
            float(widest_upper), float(tightest_upper), float(widest_lower), float(tightest_lower),
        )  # fmt: skip


def _add(chunk: TokenChunk, total: _Total, tallies: list[_Tally]) -> None:
    if not chunk.old_logp.size:
        return
    count = len(BIN_EDGES) - 1
    log_ratio = chunk.new_logp - chunk.old_logp
    inside = np.abs(log_ratio) <= MAX_LOG_RATIO
    with np.errstate(over="ignore"):  # an overflow is reported at the end
        mass = np.where(inside, np.abs(chunk.advantage) * np.exp(np.minimum(log_ratio, MAX_LOG_RATIO)), 0.0)
    bins = np.clip(np.searchsorted(BIN_EDGES, np.exp(chunk.old_logp), side="right") - 1, 0, count - 1)
    total.tokens += np.bincount(bins, minlength=count)
    total.mass += np.bincount(bins, mass, minlength=count)
    total.beyond_clamp += int(inside.size - np.count_nonzero(inside))
    for tally in tallies:
        bounds = tally.rule.log_bounds(chunk.old_logp)
        up = (chunk.advantage > 0) & (log_ratio > bounds.upper)
        down = (chunk.advantage < 0) & (log_ratio < bounds.lower)
        for side, clipped in enumerate((up, down)):
            where = np.flatnonzero(clipped)
            tally.clipped[side] += np.bincount(bins[where], minlength=count)
            tally.removed[side] += np.bincount(bins[where], mass[where], minlength=count)
        for extremes, values in ((tally.upper, bounds.upper), (tally.lower, bounds.lower)):
            extremes[0] = np.minimum(extremes[0], values.min())
            extremes[1] = np.maximum(extremes[1], values.max())


def _parse(rule: Rule | str) -> Rule:
    if not isinstance(rule, str):
        return rule
    from bandtheory.rules import parse

    return parse(rule)


def _ints(values: NDArray[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _floats(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
