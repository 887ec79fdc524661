"""Hypothesis strategies for the inputs of a band: log-probabilities, probabilities, policies, radii, divergences.

Each covers the whole range that the library promises, with weight on its ends, and shrinks towards a plain number: log p = −1,
δ = 1, two tokens. Numbers are drawn as mantissa times power of ten, so every decade is met.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from bandtheory.catalogue import examples
from bandtheory.divergence import FDivergence, divergence

LOWEST, HIGHEST = -700.0, -1e-300  # log-probabilities
SMALLEST_RADIUS, LARGEST_RADIUS = 1e-12, 1e2


def log_uniform(low: float, high: float) -> SearchStrategy[float]:
    """Numbers of [low, high], 0 < low < high: each decade with the same weight; shrinks towards 1, or the end nearest to it."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) - 1
    decades = st.integers(0, last) if first >= 0 else st.integers(first, min(last, 0)) | st.integers(first, last)
    mantissas = st.floats(1, 10, exclude_max=True)
    return st.builds(lambda k, m: float(min(max(m * 10.0**k, low), high)), decades, mantissas)


def log_probabilities(low: float = LOWEST, high: float = HIGHEST) -> SearchStrategy[float]:
    """`log p` in [low, high] nats: tokens of everyday probability, improbable ones, those within 1e-300 of certainty.

    And those around ½, which is its own mirror image: formulas for small p and for small 1 − p meet there.
    """
    near, far = -high, -low
    pieces = [(max(near, 0.01), min(far, 10.0)), (max(near, 1.0), far), (near, far), (max(near, 0.67), min(far, 0.72))]
    return st.one_of([log_uniform(a, b).map(lambda x: -x) for a, b in pieces if a < b])


def log_probability_pairs(low: float = LOWEST, high: float = HIGHEST) -> SearchStrategy[tuple[float, float]]:
    """Two different log-probabilities in increasing order, half of the pairs close together."""
    anywhere = st.tuples(log_probabilities(low, high), log_probabilities(low, high))
    close = st.builds(
        lambda x, shift: (x, min(max(x * (1 + shift), low), high)), log_probabilities(low, high), log_uniform(1e-9, 0.1)
    )
    return (anywhere | close).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: (min(pair), max(pair)))


def probabilities() -> SearchStrategy[float]:
    """p in (0, 1) as a double: from 1e-304 to 1 − 1e-15."""
    return log_probabilities(high=-1e-15).map(math.exp)


def radii(low: float = SMALLEST_RADIUS, high: float = LARGEST_RADIUS) -> SearchStrategy[float]:
    """δ in nats, log-uniform in [low, high], with weight on its ends and on the radii that people use."""
    usual = [delta for delta in (0.05, 0.1, 0.01, 0.2, low, high) if low <= delta <= high]
    anywhere = log_uniform(low, high)
    return st.one_of(anywhere, anywhere, anywhere, st.sampled_from(usual))


def increasing_radii(count: int) -> SearchStrategy[tuple[float, ...]]:
    """`count` different radii in increasing order, all over the range or within one decade."""
    anywhere = st.tuples(*[radii()] * count)
    factors = st.tuples(*[st.floats(1, 9)] * count)
    close = st.tuples(radii(high=10.0), factors).map(lambda drawn: tuple(drawn[0] * step for step in drawn[1]))
    return (anywhere | close).map(lambda values: tuple(sorted(values))).filter(lambda values: len(set(values)) == count)


def simplices(min_size: int = 2, max_size: int = 8, smallest: float = 1e-8) -> SearchStrategy[NDArray[np.float64]]:
    """Policies of `min_size` to `max_size` tokens with masses from about `smallest` up, shape (n,), float64, sum 1."""
    weights = st.lists(log_uniform(smallest, 1.0), min_size=min_size, max_size=max_size)
    return weights.map(lambda w: np.array(w) / math.fsum(w))


def divergences() -> SearchStrategy[FDivergence]:
    """The divergences of the catalogue, families at two values of their parameter each."""
    return st.sampled_from(examples()).map(divergence)
