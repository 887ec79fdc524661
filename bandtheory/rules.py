"""Clip rules: which interval of ratios a token may move in, given its old probability.

Rule strings: `none`; `clip:ε₋,ε₊` (`clip` is 0.2,0.2, `clip_higher` is 0.2,0.28); `dcpo[:ε₋,ε₊[:CAP]]` (CAP 10 when omitted);
`band:NAME[:PARAM]:δ[:CAP]` and `relaxed:NAME[:PARAM]:δ[:CAP[:ε₋,ε₊]]` (no cap when omitted, ε 0.2,0.28), where NAME is a
catalogue name or an expression in `u`. `parse(str(rule)) == rule`, with every field.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bandtheory.bounds import DOUBT, Bounds, log_bounds
from bandtheory.catalogue import BY_NAME
from bandtheory.divergence import divergence as find_divergence


class RuleError(ValueError):
    """A rule string or a rule's parameter that is not accepted; the message names it and what is."""


@dataclass(frozen=True)
class NoClip:
    """No clipping: the bounds are 0 and ∞."""

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        return _constant(logp, -math.inf, math.inf, "constant")

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class RatioClip:
    """PPO's and GRPO's clip: `1 − low ≤ r ≤ 1 + high` (arXiv 1707.06347; unequal sides: DAPO, arXiv 2503.14476)."""

    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        _require(0 <= self.low <= 1, self, "low", "a number in [0, 1]")
        _require(0 <= self.high < math.inf, self, "high", "a finite number ≥ 0")

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        return _constant(logp, *self.log_interval, "constant")

    @property
    def log_interval(self) -> tuple[float, float]:
        """The two log-ratios, the same for every token."""
        return math.log1p(-self.low) if self.low < 1 else -math.inf, math.log1p(self.high)

    def __str__(self) -> str:
        return f"clip:{_text(self.low)},{_text(self.high)}"


@dataclass(frozen=True)
class AdaptiveClip:
    """DCPO's clip: `½ + ½√max(1 − 4 low/p, 0) ≤ r ≤ min(½ + ½√(1 + 4 high/p), max_ratio)` (arXiv 2509.02333)."""

    low: float = 0.16
    high: float = 0.20
    max_ratio: float = 10.0

    def __post_init__(self) -> None:
        _require(0 <= self.low < math.inf, self, "low", "a finite number ≥ 0")
        _require(0 <= self.high < math.inf, self, "high", "a finite number ≥ 0")
        _require(self.max_ratio >= 1, self, "max_ratio", "a ratio ≥ 1")

    def log_bounds(self, logp: ArrayLike) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape."""
        with np.errstate(over="ignore", divide="ignore"):
            return Bounds(*self.log_bounds_in(np, _checked(logp)), "closed form")

    def log_bounds_in(self, xp: Any, logp: Any) -> tuple[Any, Any]:
        """The formula in an array namespace (numpy or torch); `4ε/p` is formed in the exponent."""
        low, high = (math.log(4 * epsilon) if epsilon else 0.0 for epsilon in (self.low, self.high))
        # ½ + ½√(1 + x) − 1 as x/(2 + 2√(1 + x)), which keeps its digits for small x; beyond 1e30 the 1 does not count
        down = xp.exp(low - logp)
        down = xp.where(down < 1, down, 1.0)
        lower = xp.log1p(-down / (2 + 2 * xp.sqrt(1 - down)))
        up = xp.exp(xp.where(high - logp < 70.0, high - logp, 70.0))
        upper = xp.log1p(up / (2 + 2 * xp.sqrt(1 + up)))
        upper = xp.where(high - logp < 70.0, upper, (high - logp) / 2 - math.log(2))
        cap = math.log(self.max_ratio)
        lower, upper = (side if epsilon else xp.zeros_like(side) for side, epsilon in ((lower, self.low), (upper, self.high)))
        return lower, xp.where(upper < cap, upper, cap)

    def __str__(self) -> str:
        cap = "" if self.max_ratio == 10 else f":{_text(self.max_ratio)}"
        return f"dcpo:{_text(self.low)},{_text(self.high)}{cap}"


@dataclass(frozen=True)
class Band:
    """The band of an f-divergence of radius δ (nats), its upper bound capped at `max_ratio` (arXiv 2603.04918)."""

    divergence: str = "kl"
    delta: float = 0.05
    max_ratio: float | None = None

    def __post_init__(self) -> None:
        _require(0 <= self.delta < math.inf, self, "delta", "a finite radius ≥ 0 (nats)")
        _require(self.max_ratio is None or self.max_ratio >= 1, self, "max_ratio", "a ratio ≥ 1, or None for no cap")
        object.__setattr__(self, "divergence", find_divergence(self.divergence).name)  # as the catalogue spells it
        if self.max_ratio == math.inf:
            object.__setattr__(self, "max_ratio", None)

    def log_bounds(self, logp: ArrayLike, *, doubt: float = DOUBT) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape; `doubt` as in `bandtheory.log_bounds`."""
        return log_bounds(logp=logp, divergence=self.divergence, delta=self.delta, max_ratio=self.max_ratio, doubt=doubt)

    def __str__(self) -> str:
        cap = "" if self.max_ratio is None else f":{_text(self.max_ratio)}"
        return f"band:{self.divergence}:{_text(self.delta)}{cap}"


@dataclass(frozen=True)
class RelaxedBand:
    """The BandPO paper's ablation: `min(lower, 1 − low) ≤ r ≤ max(upper, 1 + high)`, upper capped at `max_ratio`."""

    divergence: str = "kl"
    delta: float = 0.05
    max_ratio: float | None = None
    low: float = 0.2
    high: float = 0.28

    def __post_init__(self) -> None:
        _ = self.clip
        object.__setattr__(self, "divergence", self.band.divergence)
        object.__setattr__(self, "max_ratio", self.band.max_ratio)

    @property
    def band(self) -> Band:
        return Band(self.divergence, self.delta, self.max_ratio)

    @property
    def clip(self) -> RatioClip:
        return RatioClip(self.low, self.high)

    def log_bounds(self, logp: ArrayLike, *, doubt: float = DOUBT) -> Bounds:
        """Log-ratio bounds for old log-probabilities (nats) of any shape; `doubt` as in `bandtheory.log_bounds`."""
        band = self.band.log_bounds(logp, doubt=doubt)
        low, high = self.clip.log_interval
        cap = math.inf if self.max_ratio is None else math.log(self.max_ratio)
        return Bounds(np.minimum(band.lower, low), np.minimum(np.maximum(band.upper, high), cap), band.evidence)

    def __str__(self) -> str:
        text = "relaxed" + str(self.band).removeprefix("band")
        if (self.low, self.high) == (0.2, 0.28):
            return text
        cap = ":inf" if self.max_ratio is None else ""
        return f"{text}{cap}:{_text(self.low)},{_text(self.high)}"


Rule = NoClip | RatioClip | AdaptiveClip | Band | RelaxedBand
ALIASES = {"clip": "clip:0.2,0.2", "clip_higher": "clip:0.2,0.28", "dcpo": "dcpo:0.16,0.2", "relaxed": "relaxed:kl:0.05:10"}
_FORMS = (
    "none, clip[:low,high], clip_higher, dcpo[:low,high[:cap]], band:NAME[:PARAM]:delta[:cap], "
    "relaxed[:NAME[:PARAM]:delta[:cap[:low,high]]]"
)


def parse(text: str) -> Rule:
    """A rule from its string, such as `"band:kl:0.05:10"`.

    Raises:
        RuleError: an unknown rule (the nearest is suggested) or a parameter that is missing, not a number or out of range.
        DivergenceError, ExpressionError: a band of an unknown or faulty divergence.
    """
    if not isinstance(text, str):
        raise RuleError(f"rule must be a string such as 'band:kl:0.05:10', got {type(text).__name__}")
    stripped = text.strip()
    kind, _, rest = ALIASES.get(stripped, stripped).partition(":")
    if kind not in _PARSERS:
        near = difflib.get_close_matches(kind, [*_PARSERS, *ALIASES], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RuleError(f"unknown rule {text!r}; {hint}accepted: {_FORMS}")
    return _PARSERS[kind](text, rest)


def _parse_none(text: str, rest: str) -> Rule:
    if rest:
        raise RuleError(f"rule {text!r}: none takes no parameter")
    return NoClip()


def _interval(text: str, rest: str) -> tuple[float, float]:
    parts = rest.split(",")
    if len(parts) != 2:
        raise RuleError(f"rule {text!r}: expected two numbers 'low,high' after the colon, got {rest!r}")
    return _number(text, parts[0]), _number(text, parts[1])


def _band_parameters(text: str, rest: str) -> tuple[str, float, float | None]:
    name, *numbers = rest.split(":")
    family = BY_NAME.get(name.strip())
    form, parameter = "NAME:delta or NAME:delta:cap", ""
    if family is not None and family.parameter is not None:
        form = f"{family.pattern}:delta or {family.pattern}:delta:cap"
        parameter, numbers = (f":{numbers[0]}", numbers[1:]) if numbers else ("", [])
    if not name or not 1 <= len(numbers) <= 2:
        raise RuleError(f"rule {text!r}: expected {form} after the first colon, got {rest!r}")
    return name.strip() + parameter, _number(text, numbers[0]), _number(text, numbers[1]) if len(numbers) == 2 else None


def _parse_adaptive(text: str, rest: str) -> Rule:
    interval, colon, cap = rest.partition(":")
    return AdaptiveClip(*_interval(text, interval), *([_number(text, cap)] if colon else []))


def _parse_relaxed(text: str, rest: str) -> Rule:
    body, colon, interval = rest.rpartition(":")
    if colon and "," in interval:
        return RelaxedBand(*_band_parameters(text, body), *_interval(text, interval))
    return RelaxedBand(*_band_parameters(text, rest))


_PARSERS: dict[str, Callable[[str, str], Rule]] = {
    "none": _parse_none,
    "clip": lambda text, rest: RatioClip(*_interval(text, rest)),
    "dcpo": _parse_adaptive,
    "band": lambda text, rest: Band(*_band_parameters(text, rest)),
    "relaxed": _parse_relaxed,
}


def _text(value: float) -> str:
    """The shortest decimal that reads back as the same number."""
    return repr(float(value)).removesuffix(".0")


def _number(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise RuleError(f"rule {text!r}: {part!r} is not a number") from None


def _require(condition: bool, rule: Any, name: str, accepted: str) -> None:
    if not condition:
        names = [field.name for field in fields(rule)]
        assert name in names
        raise RuleError(f"{type(rule).__name__}: {name} = {getattr(rule, name)!r} is not {accepted}")


def _checked(logp: ArrayLike) -> np.ndarray:
    """Log-probabilities as float64; NaN and positive values are refused by the same check as `bandtheory.log_bounds`."""
    from bandtheory.bounds import log_probability

    return log_probability(None, logp)[0]


def _constant(logp: ArrayLike, lower: float, upper: float, evidence: str) -> Bounds:
    shape = _checked(logp).shape
    return Bounds(np.full(shape, lower), np.full(shape, upper), evidence)
