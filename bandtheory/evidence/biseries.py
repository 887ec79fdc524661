"""Power series in two variables: truncated series in s whose coefficients are truncated series in t.

    a(t, s) = Σ_{k<m} a_k(t) s^k

Coefficients are `arb_series` or `arb`, so that everything is an enclosure. Functions follow from their differential equations
in s: `(e^a)' = a' e^a`, `a (log a)' = a'`, `a (a^α)' = α a' a^α`. What a generator compiled over `evidence.series` asks of a
series is here, so the same source runs on both.
"""

from __future__ import annotations

from typing import Any

from flint import arb, arb_series

from bandtheory.evidence.series import expm1 as expm1_of_series

Coefficient = Any  # arb or arb_series


class BiSeries:
    """The series with the coefficients of s⁰, s¹, …; operations keep as many."""

    def __init__(self, parts: list[Coefficient]) -> None:
        self.parts = parts

    def __getitem__(self, k: int) -> Coefficient:
        return self.parts[k]

    def __len__(self) -> int:
        return len(self.parts)

    def __neg__(self) -> BiSeries:
        return BiSeries([-a for a in self.parts])

    def __add__(self, other: BiSeries | Coefficient) -> BiSeries:
        if isinstance(other, BiSeries):
            return BiSeries([a + b for a, b in zip(self.parts, other.parts, strict=True)])
        return BiSeries([self.parts[0] + other, *self.parts[1:]])

    __radd__ = __add__

    def __sub__(self, other: Any) -> BiSeries:
        found: BiSeries = self + (-other)
        return found

    def __rsub__(self, other: Any) -> BiSeries:
        found: BiSeries = -self + other
        return found

    def __mul__(self, other: Any) -> BiSeries:
        if not isinstance(other, BiSeries):
            return BiSeries([a * other for a in self.parts])
        a, b = self.parts, other.parts
        return BiSeries([_sum(a[j] * b[k - j] for j in range(k + 1)) for k in range(len(a))])

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BiSeries:
        if not isinstance(other, BiSeries):
            return BiSeries([a / other for a in self.parts])
        b, found = other.parts, list[Coefficient]()
        for k, a in enumerate(self.parts):
            found.append(_less(a, (b[j] * found[k - j] for j in range(1, k + 1))) / b[0])
        return BiSeries(found)

    def __rtruediv__(self, other: Any) -> BiSeries:
        return BiSeries([other + 0 * self.parts[0], *(0 * a for a in self.parts[1:])]) / self

    def __pow__(self, exponent: Any) -> BiSeries:
        """A power of a positive series, or one with an integer exponent ≥ 0."""
        if isinstance(exponent, int):
            found = BiSeries([1 + 0 * self.parts[0], *(0 * a for a in self.parts[1:])])
            for _ in range(exponent):
                found = found * self
            return found
        return self._power(exponent)

    def exp(self) -> BiSeries:
        a, found = self.parts, [self.parts[0].exp()]
        for k in range(1, len(a)):
            found.append(_sum(j * a[j] * found[k - j] for j in range(1, k + 1)) / k)
        return BiSeries(found)

    def log(self) -> BiSeries:
        a, found = self.parts, [self.parts[0].log()]
        for k in range(1, len(a)):
            found.append(_less(a[k], (j * found[j] * a[k - j] / k for j in range(1, k))) / a[0])
        return BiSeries(found)

    def sqrt(self) -> BiSeries:
        return self._power(arb(1) / 2)

    def _power(self, exponent: arb) -> BiSeries:
        a = self.parts
        found = [a[0].sqrt() if exponent == arb(1) / 2 else a[0] ** exponent]
        for k in range(1, len(a)):
            found.append(_sum((exponent * j - (k - j)) * a[j] * found[k - j] for j in range(1, k + 1)) / (k * a[0]))
        return BiSeries(found)


def constant_term(a: BiSeries) -> arb:
    found: arb = a[0][0]
    return found


def narrowed(a: BiSeries, enclosure: arb) -> BiSeries:
    """The same with a second enclosure of its constant term."""
    near = constant_term(a).intersection(enclosure)
    return BiSeries([arb_series([near, *a[0].coeffs()[1:]], prec=a[0].prec), *a.parts[1:]])


def expm1(a: BiSeries) -> BiSeries:
    """e^a − 1, without cancellation in the constant term."""
    found = a.exp()
    return BiSeries([expm1_of_series(a[0]), *found.parts[1:]])


def _sum(terms: Any) -> Coefficient:
    found = None
    for term in terms:
        found = term if found is None else found + term
    return found


def _less(first: Coefficient, terms: Any) -> Coefficient:
    for term in terms:
        first = first - term
    return first
