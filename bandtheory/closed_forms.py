"""Stable evaluation of the closed forms that `derivation` finds, in log space, for numpy and torch alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bandtheory.array_code import Array, lambdify
from bandtheory.closed_form_search import PowerForm, QuadraticForm, symbols
from bandtheory.reduction import Probability, softplus


class ClosedFormValue(NamedTuple):
    """Log-ratios of the token and of its complement for the upper bound; `margin` is the complement before its clamp at 0.

    Where |margin| is small against 1, c is the difference of two nearly equal numbers.
    """

    log_r: Array
    log_c: Array
    margin: Array


class ClosedForm:
    """A closed form compiled for one array namespace: `(probability, δ) ↦ ClosedFormValue`."""

    def __init__(self, form: PowerForm | QuadraticForm, xp: Any = np) -> None:
        self.xp = xp
        self.form = form
        if isinstance(form, QuadraticForm):
            p, m, _, delta = symbols()
            coefficients = (*form.coefficients, *form.shifted[1:], form.discriminant)
            self.coefficients = lambdify(xp, (p, m, delta), coefficients)

    def __call__(self, prob: Probability, delta: Array, log_delta: Array) -> ClosedFormValue:
        if isinstance(self.form, PowerForm):
            return self._power(self.form, prob, log_delta)
        return self._quadratic(self.form, prob, delta)

    def _power(self, form: PowerForm, prob: Probability, log_delta: Array) -> ClosedFormValue:
        """`v = 1 − c = (δ/K)^{1/k}`: a sum of positive monomials, so its logarithm has no cancellation and no overflow."""
        xp = self.xp
        terms = [np.log(c) + i * prob.log_p + j * prob.log_not_p for c, i, j in form.monomials]
        log_constant = terms[0]
        for term in terms[1:]:
            log_constant = xp.logaddexp(log_constant, term)
        log_v = (log_delta - log_constant) / form.exponent
        margin = -xp.expm1(log_v)
        saturated = margin <= 0
        log_c = xp.log1p(-xp.exp(xp.where(saturated, -np.inf, log_v)))
        return self._clamped(prob, log_v, log_c, margin, saturated)

    def _quadratic(self, form: QuadraticForm, prob: Probability, delta: Array) -> ClosedFormValue:
        """Both `κ` and `s = 1 − κ` by the root formula without cancellation; each is used where it is the smaller one."""
        xp = self.xp
        a, b, k, b_shifted, k_shifted, discriminant = self.coefficients(prob.p, prob.not_p, delta)
        root = xp.sqrt(xp.where(discriminant > 0, discriminant, 0.0))
        kappa = self._root(a, b, k, root, form.sign)
        s = self._root(a, b_shifted, k_shifted, root, -form.sign)
        saturated = (kappa <= 0) | (discriminant < 0)
        log_kappa = xp.where(s < 0.5, xp.log1p(-xp.where(s < 0.5, s, 0.0)), xp.log(xp.where(kappa > 0, kappa, 1.0)))
        log_v = xp.log(s if form.power == 1 else s * (2 - s))
        return self._clamped(prob, log_v, form.power * log_kappa, kappa, saturated)

    def _root(self, a: Array, b: Array, k: Array, root: Array, sign: int) -> Array:
        """`(−b + sign·root)/(2a)`, as `2k/(−b − sign·root)` where the numerator would cancel."""
        xp = self.xp
        direct = sign * b <= 0
        numerator = xp.where(direct, -b + sign * root, 2 * k)
        denominator = xp.where(direct, 2 * a, -b - sign * root)
        return numerator / denominator

    def _clamped(self, prob: Probability, log_v: Array, log_c: Array, margin: Array, saturated: Array) -> ClosedFormValue:
        """`r = 1 + v (1 − p)/p`; where the bound saturates, `r = 1/p` and `c = 0`."""
        xp = self.xp
        log_r = softplus(xp, log_v + prob.log_not_p - prob.log_p)
        return ClosedFormValue(
            xp.where(saturated, -prob.log_p, log_r),
            xp.where(saturated, -np.inf, log_c),
            xp.where(saturated & (margin > 0), -1.0, margin),
        )
