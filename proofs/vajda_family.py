"""The closed form of the whole family `vajda:k`, f(u) = |u − 1|^k, for an undetermined real k ≥ 1.

Both moves are proportional: |c − 1| = p|r − 1|/(1 − p). Hence g is homogeneous in the distance w = |r − 1|,

    g = K w^k,    K = p + p^k (1 − p)^{1−k},    w = (δ/K)^{1/k},

and strictly increasing in w, so that w passes the end of the simplex exactly where δ passes the level of theorem 6 and clamping
the form is the saturation. Exponents stay symbols throughout: sympy's rules for powers of positive numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from proofs.statement import Method, Outcome, Statement, Status

p, m, delta, w = sympy.symbols("p m delta w", positive=True)  # m = 1 − p
k = sympy.Symbol("k", positive=True)
UPPER = sympy.Min(1 + (delta / (p + p**k * m ** (1 - k))) ** (1 / k), 1 / p)
LOWER = sympy.Max(1 - (delta / (p + p**k * m ** (1 - k))) ** (1 / k), 0)
_POINTS = tuple(
    {p: sympy.Rational(a, 10), m: 1 - sympy.Rational(a, 10), delta: sympy.Rational(d, 100), k: sympy.Rational(e, 3)}
    for a, d, e in ((3, 7, 4), (6, 2, 8), (2, 1, 5))
)


@dataclass(frozen=True)
class Claim:
    """Bounds in p, m = 1 − p, δ > 0 and k, each a form clamped to its end of the simplex."""

    upper: sympy.Expr = UPPER
    lower: sympy.Expr = LOWER

    def prove(self, seconds: float) -> Outcome:
        """Constraint with equality, side of 1, and clamping at the level of theorem 6, for both bounds."""
        for side, claim, sign, end in (("upper", self.upper, 1, 1 / p), ("lower", self.lower, -1, sympy.Integer(0))):
            clamp = sympy.Min if sign > 0 else sympy.Max
            forms = [a for a in claim.args if a != end]
            # one form and the end, and nothing else: a third argument could be the one that counts
            clamped = isinstance(claim, clamp) and len(claim.args) == 2 and len(forms) == 1
            form = forms[0] if clamped else None
            if form is None:
                return self._unclamped(side, claim, end)
            distance = sympy.expand(sign * (form - 1))
            if not distance.is_positive:
                return self._failure(f"{side} on its side of 1", distance, lambda value: value > 0)
            excess = _normal(_g(distance) - delta)
            if excess != 0:
                return self._failure(f"g(p, {side}) = δ", excess, lambda value: value == 0)
        if not sympy.simplify(sympy.diff(_g(w), w) / w ** (k - 1)).is_positive:
            return Outcome(Status.OPEN, "g increasing in the distance from 1 was not shown")
        return Outcome(Status.PROVED, "|c − 1| = p|r − 1|/(1 − p); g = K w^k; equality on each side of 1; ∂g/∂w > 0")

    def _unclamped(self, side: str, claim: sympy.Expr, end: sympy.Expr) -> Outcome:
        """At δ = 10⁶ the bound is the end of the simplex; a claim that is not has been refuted."""
        for point in _POINTS:
            value = claim.subs({**point, delta: 10**6})
            if abs(sympy.N(value - end.subs(point), 40)) > 1e-20:
                return Outcome(
                    Status.REFUTED, f"{side} is not clamped to [0, 1/p]: {sympy.N(value, 8)} at p = {point[p]}, δ = 1e6"
                )
        return Outcome(Status.OPEN, f"{side} is not a form clamped to [0, 1/p]")

    def _failure(self, what: str, expression: sympy.Expr, holds: object) -> Outcome:
        """Refuted by a point where it fails in 40 digits, else open."""
        for point in _POINTS:
            value = sympy.N(expression.subs(point), 40)
            if not value.is_real or (abs(value) > 1e-20 and not holds(value)):  # type: ignore[operator]
                where = ", ".join(f"{symbol} = {point[symbol]}" for symbol in (p, delta, k))
                return Outcome(Status.REFUTED, f"{what}: fails at {where}")
        return Outcome(Status.OPEN, f"{what}: sympy could not decide it")


def _g(distance: sympy.Expr) -> sympy.Expr:
    """g at |r − 1| = distance, where |c − 1| = p·distance/(1 − p)."""
    return p * distance**k + m * (p * distance / m) ** k


def _normal(expression: sympy.Expr) -> sympy.Expr:
    return sympy.simplify(sympy.powsimp(sympy.expand_power_base(expression)))


def vajda_family_statement(claim: Claim | None = None) -> Statement:
    """The statement for all real k ≥ 1 at once."""
    return Statement(
        "vajda:k closed form",
        "∀ real k ≥ 1, p ∈ (0, 1), δ > 0: the band of |u − 1|^k is 1 ± (δ/(p + p^k (1−p)^{1−k}))^{1/k}, clamped to [0, 1/p]",
        r"For every real $k \ge 1$ the band of $|u - 1|^k$ is "
        r"$1 \pm \bigl(\delta/(p + p^k (1-p)^{1-k})\bigr)^{1/k}$, clamped to $[0, 1/p]$.",
        Method.SYMBOLIC,
        ("theorem 2 (g convex in r)", "sympy (powers of positive numbers)"),
        (claim or Claim()).prove,
        r"$|c - 1| = p|r - 1|/(1-p)$, so $g = K w^k$ with $w = |r - 1|$ and $K = p + p^k (1-p)^{1-k}$; $g = \delta$ gives "
        r"$w = (\delta/K)^{1/k}$, and $\partial g/\partial w = k K w^{k-1} > 0$ makes clamping the saturation.",
    )
