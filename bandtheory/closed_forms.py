"""Stable evaluation of the closed forms that `closed_form_search` finds, in log space, for numpy and torch alike.

All is written for the upper bound in terms of `v = 1 − c`: `log r = log(1 + v (1 − p)/p)` and `log c = log(1 − v)`. The lower
bound of a token is the complement ratio c of its mirror image (theorem 5), so each side evaluates only what it needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bandtheory.array_code import Array, lambdify
from bandtheory.closed_form_search import Monomials, PowerForm, QuadraticForm, monomials, symbols
from bandtheory.radius import Radius
from bandtheory.reduction import Probability, softplus


class ClosedForm:
    """A closed form compiled for one array namespace, numpy or torch."""

    def __init__(self, form: PowerForm | QuadraticForm, xp: Any = np) -> None:
        self.xp = xp
        self.form = form
        if isinstance(form, PowerForm):
            self.exponent, self.scale, self.offset = float(form.exponent), monomials(form.scale), monomials(form.offset)
        else:
            p, m, _, delta = symbols()
            self.upper_coefficients = lambdify(xp, (p, m, delta), (*form.shifted, form.discriminant))
            self.lower_coefficients = lambdify(xp, (p, m, delta), (*form.coefficients, *form.shifted[1:], form.discriminant))

    def log_ratio(self, prob: Probability, radius: Radius) -> Array:
        """`log r` of the upper bound, at most `log 1/p`."""
        xp = self.xp
        if isinstance(self.form, PowerForm):
            log_v = self._log_v(prob, radius)
        else:
            a, b, k, discriminant = self.upper_coefficients(prob.p, prob.not_p, radius.value)
            s = self._root(a, b, k, discriminant, -self.form.sign)
            s = xp.where(discriminant < 0, 1.0, xp.clip(s, None, 1.0))
            log_v = xp.log(s if self.form.power == 1 else s * (2 - s))
        return xp.minimum(softplus(xp, log_v + prob.log_not_p - prob.log_p), -prob.log_p)

    def log_complement(self, prob: Probability, radius: Radius) -> tuple[Array, Array]:
        """`log c` at the upper bound, −∞ where it saturates, and c (or its root) before its clamp at 0.

        Where the latter is small against 1, c is the difference of two nearly equal numbers.
        """
        xp = self.xp
        if isinstance(self.form, PowerForm):
            v = xp.exp(self._log_v(prob, radius))
            margin = 1 - v
            return xp.log1p(-xp.minimum(v, xp.ones_like(v))), margin
        a, b, k, b_shifted, k_shifted, discriminant = self.lower_coefficients(prob.p, prob.not_p, radius.value)
        kappa = self._root(a, b, k, discriminant, self.form.sign)
        s = self._root(a, b_shifted, k_shifted, discriminant, -self.form.sign)
        log_kappa = xp.where(s < 0.5, xp.log1p(-xp.clip(s, None, 0.5)), xp.log(xp.clip(kappa, 0.0, None)))
        beyond = discriminant < 0
        log_c = xp.where(beyond, -np.inf, self.form.power * log_kappa)
        return log_c, xp.where(beyond & (kappa > 0), -1.0, kappa)

    def _log_v(self, prob: Probability, radius: Radius) -> Array:
        """`log v = log((δ + L)/K)/k`: sums of positive monomials, so their logarithms have no cancellation and no overflow."""
        log_radius = radius.log
        if self.offset:
            log_radius = _log_add(self.xp, log_radius + 0 * prob.log_p, self._log_sum(self.offset, prob))
        return (log_radius - self._log_sum(self.scale, prob)) / self.exponent

    def _log_sum(self, terms: Monomials, prob: Probability) -> Array:
        logs = [_log_monomial(term, prob) for term in terms]
        return functools.reduce(lambda x, y: _log_add(self.xp, x, y), logs)

    def _root(self, a: Array, b: Array, k: Array, discriminant: Array, sign: int) -> Array:
        """`(−b + sign·√discriminant)/(2a)`, as `2k/(−b − sign·√discriminant)` where the numerator would cancel."""
        xp = self.xp
        b = b + 0.0  # no −0.0
        half = -(b + xp.copysign(xp.sqrt(xp.clip(discriminant, 0.0, None)), b)) / 2
        return xp.where(b < 0 if sign > 0 else b >= 0, half / a, k / half)


def _log_monomial(monomial: Sequence[float], prob: Probability) -> Array:
    coefficient, i, j = monomial
    total = math.log(coefficient) + 0 * prob.log_p if not i else math.log(coefficient) + i * prob.log_p
    return total + j * prob.log_not_p if j else total


def _log_add(xp: Any, x: Array, y: Array) -> Array:
    """`log(eˣ + eʸ)`; a third of the time of numpy's own. Two −∞ do not occur: the monomials are positive."""
    return xp.maximum(x, y) + xp.log1p(xp.exp(-xp.abs(x - y)))
