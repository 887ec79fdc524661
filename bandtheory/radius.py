"""The radius of the f-divergence that a radius δ stands for: itself, or Rényi's `(e^{(α−1)δ} − 1)/(α(α − 1))`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandtheory import expressions
from bandtheory.array_code import Array, lambdify
from bandtheory.divergence import FDivergence
from bandtheory.high_precision import digits

_DIGITS = 60


class Radius(NamedTuple):
    """A radius `value` of `D_f` with its logarithm, and the radius δ that was given for it."""

    given: Array
    value: Array
    log: Array

    def where(self, mask: Any) -> Radius:
        """The masked entries; a single radius, which is that of all tokens, stays single."""
        return self if self.given.size == 1 else Radius(*(field[mask] for field in self))

    def spread(self, size: int) -> Radius:
        """One entry for each of so many tokens."""
        return Radius(*(np.broadcast_to(field, (size,)) for field in self))


def f_radius(divergence: FDivergence, delta: NDArray[np.float64]) -> Radius:
    """Radii of `D_f` for an array of δ ≥ 0; the logarithm is finite for every positive δ, also where the radius overflows."""
    if divergence.radius == "delta":
        return Radius(delta, delta, np.log(delta))
    value = np.where(delta > 0, _array_code(divergence)(delta), 0.0)
    log = np.log(value)
    beyond = (delta > 0) & ~np.isfinite(log)
    if beyond.any():
        levels, index = np.unique(delta[beyond], return_inverse=True)
        log[beyond] = np.array([_log_radius(divergence, level) for level in levels])[index]
    return Radius(delta, value, log)


@functools.lru_cache(maxsize=64)
def _array_code(divergence: FDivergence) -> Callable[..., NDArray[np.float64]]:
    """`f_radius` over numpy arrays, with `1 + expm1(x)` for `exp(x)`: constants cancel here, exactly, and not there."""
    import sympy
    from sympy.codegen.cfunctions import expm1

    shifted = sympy.expand(divergence.f_radius.replace(sympy.exp, lambda x: 1 + expm1(x)))
    return lambdify(np, (expressions.radius_symbol(),), shifted)


def _log_radius(divergence: FDivergence, delta: float) -> float:
    import mpmath

    with digits(_DIGITS):
        return float(mpmath.log(precise_radius(divergence, delta)))


def precise_radius(divergence: FDivergence, delta: float) -> Any:
    """The radius of `D_f` as an mpmath number at the current precision."""
    import mpmath

    return mpmath.mpf(_mpmath_code(divergence)(mpmath.mpf(delta)))


@functools.lru_cache(maxsize=64)
def _mpmath_code(divergence: FDivergence) -> Callable[[Any], Any]:
    import sympy

    return sympy.lambdify(expressions.radius_symbol(), divergence.f_radius, "mpmath")  # type: ignore[no-any-return]
