"""Mutations: each takes bounds that are right and returns bounds that are wrong in one way, whatever the divergence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.planted.fault import Floats, LogBounds, Mutation, library

Edit = Callable[[Floats, float, Floats], Floats]  # (logp, δ, right log-bound) ↦ wrong log-bound
Where = Callable[[Floats, float], Floats]  # (logp, δ) ↦ mask


def log_rest(logp: Floats) -> Floats:
    """log(1 − p), below 0 also where p is next to 0."""
    with np.errstate(divide="ignore"):
        rest = np.where(logp > -0.7, np.log(-np.expm1(logp)), np.log1p(-np.exp(logp)))
    return np.minimum(rest, -1e-300)


def radius(change: Callable[[float], float]) -> Mutation:
    """Another radius than the one that was asked for."""
    return lambda right: lambda logp, delta: right(logp, change(delta))


def instead(divergence: str, change: Callable[[float], float] = float) -> Mutation:
    """The bounds of another divergence, at another radius if so wished."""
    return lambda right: radius(change)(library(divergence))


def sides(lower: Edit | None = None, upper: Edit | None = None) -> Mutation:
    """One side or both changed, given the right value."""

    def mutation(right: LogBounds) -> LogBounds:
        def wrong(logp: Floats, delta: float) -> tuple[Floats, Floats]:
            low, high = right(logp, delta)
            with np.errstate(all="ignore"):
                return lower(logp, delta, low) if lower else low, upper(logp, delta, high) if upper else high

        return wrong

    return mutation


def both(edit: Edit) -> Mutation:
    """The same change on either side."""
    return sides(edit, edit)


def only_where(where: Where, mutation: Mutation) -> Mutation:
    """A mutation confined to a part of the inputs."""

    def confined(right: LogBounds) -> LogBounds:
        wrong = mutation(right)

        def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
            mask = np.broadcast_to(where(logp, delta), logp.shape)
            (low, high), (wrong_low, wrong_high) = right(logp, delta), wrong(logp, delta)
            return np.where(mask, wrong_low, low), np.where(mask, wrong_high, high)

        return bounds

    return confined


def tokens(change: Callable[[Floats], Floats]) -> Mutation:
    """The bounds of other tokens: log p is changed on the way in."""
    return lambda right: lambda logp, delta: right(np.minimum(change(logp), 0.0), delta)


def limit_from(threshold: float) -> Mutation:
    """The limit p → 1 for every token with log p above the threshold."""
    certain = tokens(lambda logp: np.full_like(logp, -1e-300))
    return only_where(lambda logp, delta: logp > threshold, certain)


def exchanged(right: LogBounds) -> LogBounds:
    """The bounds of 1 − p."""
    return lambda logp, delta: right(log_rest(logp), delta)


def swapped(right: LogBounds) -> LogBounds:
    """The two sides returned in the other order."""
    return lambda logp, delta: right(logp, delta)[::-1]


def reciprocal(right: LogBounds) -> LogBounds:
    """The lower bound taken for 1/upper, as of a fixed clip in log-ratios."""

    def wrong(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        upper = right(logp, delta)[1]
        return -upper, upper

    return wrong


def symmetric(right: LogBounds) -> LogBounds:
    """The upper bound taken for 2 − lower, cut at 1/p."""

    def wrong(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        lower = right(logp, delta)[0]
        return lower, np.minimum(np.log1p(-np.expm1(lower)), -logp)

    return wrong


def digits(mantissa: int) -> Callable[[Floats], Floats]:
    """Rounding to a mantissa of so many bits: 24 is float32, 8 is bfloat16."""

    def rounded(values: Floats) -> Floats:
        fraction, exponent = np.frexp(values)
        return np.asarray(np.ldexp(np.round(np.ldexp(fraction, mantissa)), exponent - mantissa))

    return rounded


def rounded_results(mantissa: int) -> Mutation:
    """Ratios stored in a shorter format."""
    rounding = digits(mantissa)
    return both(lambda logp, delta, value: np.log(rounding(np.exp(value))))


def clamped_probability(eps: float) -> Mutation:
    """p clamped to [eps, 1 − eps]."""
    return tokens(lambda logp: np.clip(logp, np.log(eps), np.log1p(-eps)))


def through_probability(right: LogBounds) -> LogBounds:
    """p formed as exp(log p) in float32, and its logarithm taken again."""

    def forth_and_back(logp: Floats) -> Floats:
        p = np.exp(logp).astype(np.float32)
        return np.log(np.clip(p, np.float32(1e-38), np.float32(1 - 6e-8)).astype(np.float64))

    return tokens(forth_and_back)(right)


def off_by(relative: float, where: Where | None = None) -> Mutation:
    """Both log-bounds too far out by a relative error."""
    change = both(lambda logp, delta, value: value * (1 + relative))
    return change if where is None else only_where(where, change)


class RemembersTokens:
    """Results kept by token, although they depend on the radius too."""

    def __init__(self, right: LogBounds) -> None:
        self.right = right
        self.known: dict[bytes, tuple[Floats, Floats]] = {}

    def __call__(self, logp: Floats, delta: float) -> tuple[Floats, Floats]:
        return self.known.setdefault(logp.tobytes(), self.right(logp, delta))


class LagsBehind:
    """The radius of the call before, as from an option that takes effect one call too late."""

    def __init__(self, right: LogBounds) -> None:
        self.right = right
        self.radius: float | None = None

    def __call__(self, logp: Floats, delta: float) -> tuple[Floats, Floats]:
        last, self.radius = self.radius or delta, delta
        return self.right(logp, last)


def overwrites_its_input(right: LogBounds) -> LogBounds:
    """The caller's array is used as a workspace."""

    def wrong(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        lower, upper = right(logp, delta)
        np.negative(upper, out=logp)
        return lower, upper

    return wrong


def long_arrays(change: Callable[[LogBounds, Floats, float], tuple[Floats, Floats]], least: int = 4096) -> Mutation:
    """Another path for arrays of at least so many tokens."""

    def mutation(right: LogBounds) -> LogBounds:
        return lambda logp, delta: change(right, logp, delta) if logp.size >= least else right(logp, delta)

    return mutation


def table(right: LogBounds, logp: Floats, delta: float) -> tuple[Floats, Floats]:
    """Straight lines between 256 nodes in log(−log p): first guesses handed out as results."""
    nodes = np.linspace(np.log(-logp.max()), np.log(-logp.min()), 256)
    at = np.log(-logp)
    lower, upper = (np.interp(at, nodes, side) for side in right(-np.exp(nodes), delta))
    return lower, upper


def sorted_by_token(right: LogBounds, logp: Floats, delta: float) -> tuple[Floats, Floats]:
    """Sorted for speed, and not put back."""
    return right(np.sort(logp), delta)


def last_block_stale(right: LogBounds, logp: Floats, delta: float) -> tuple[Floats, Floats]:
    """Tokens after the last whole block of 16,384 keep what the block before them left in the buffer."""
    lower, upper = (np.array(side) for side in right(logp, delta))
    whole = logp.size // 16_384 * 16_384
    rest = logp.size - whole
    for side in (lower, upper):
        side[whole:] = side[whole - rest : whole] if whole else side[:rest]
    return lower, upper


def one_for_all(right: LogBounds, logp: Floats, delta: float) -> tuple[Floats, Floats]:
    """The bounds of the mean log-probability for every token of the array."""
    lower, upper = right(np.array([logp.mean()]), delta)
    return np.full_like(logp, lower[0]), np.full_like(logp, upper[0])
