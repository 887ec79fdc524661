"""Theorem 8: a ratio clip allows a token the margin `Δ⁺ = ε p`, a band one that is larger by a factor of order `p^{−1/2}`.

For δ → 0 the margin is `p (upper − 1) ~ sqrt(2 δ p (1 − p)/f''(1))` (theorem 7). For a fixed δ there is an inequality: if
`f(u) ≤ K (u − 1)²` between c and r, with `f` shifted by a multiple of u − 1 such that f'(1) = 0, then

    upper ≥ 1 + sqrt(δ (1 − p)/(K p)),

provided that this r and its c lie where the hypothesis holds.
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import Z3, complement, delta, divergence, f, p, proper, r, u
from proofs.statement import Method, Statement
from proofs.steps import Term, combination, identity, implication, in_steps, limit

K, b = sympy.symbols("K b", real=True)
ONE, HALF = sympy.Integer(1), sympy.Rational(1, 2)
probability, radius, stiffness, epsilon = sympy.symbols("p delta k epsilon", positive=True)  # k = f''(1)


def fixed_clip(margin: Any = None) -> Statement:
    """The largest increase of a probability under a ratio clip."""
    margin = epsilon * p if margin is None else margin
    return Statement(
        name="theorem 8: margin of a ratio clip",
        statement="r ≤ 1 + ε:  Δ⁺ = p (1 + ε) − p = ε p",
        latex=r"For $r\le1+\varepsilon$ the margin is $\Delta^+=\varepsilon p$.",
        method=Method.SYMBOLIC,
        rests_on=("nothing about f",),
        prove=in_steps(identity("the margin", p * (1 + epsilon) - p, margin)),
    )


def growth(exponent: Any = HALF) -> Statement:
    """The margin of the band over that of the clip, times a power of p, tends to a positive number as p → 0."""
    band = probability * sympy.sqrt(2 * radius * (1 - probability) / (probability * stiffness))
    ratio = band / (epsilon * probability)
    return Statement(
        name="theorem 8: growth of the margin",
        statement="f''(1) > 0, δ → 0:  Δ⁺ ~ √(2δp(1 − p)/f''(1)), and (Δ⁺/εp)·p^{1/2} → √(2δ/f''(1))/ε > 0 as p → 0",
        latex=r"If $f''(1)>0$, the margin for $\delta\to0$ is $\Delta^+\sim\sqrt{2\delta p(1-p)/f''(1)}$, and "
        r"$p^{1/2}\cdot\Delta^+/(\varepsilon p)\to\sqrt{2\delta/f''(1)}/\varepsilon$ as $p\to0$.",
        method=Method.LIMIT,
        rests_on=("theorem 7: the band for δ → 0", "p → 0 in the leading term of δ → 0"),
        prove=in_steps(
            identity("the margin", band, sympy.sqrt(2 * radius * probability * (1 - probability) / stiffness)),
            limit(
                "its growth",
                sympy.simplify(ratio * probability**exponent),
                probability,
                0,
                sympy.sqrt(2 * radius / stiffness) / epsilon,
            ),
        ),
        derivation=r"\[ \Delta^+=p\,(\mathrm{upper}-1)\sim p\sqrt{\frac{2\delta(1-p)}{p f''(1)}}=\sqrt{\frac{2\delta "
        r"p(1-p)}{f''(1)}},\qquad\frac{\Delta^+}{\varepsilon p}=\frac1\varepsilon\sqrt{\frac{2\delta(1-p)}{p f''(1)}}. \]",
    )


def quadratic_bound(step: Any = None) -> Statement:
    """`upper ≥ 1 + b` with `b² = δ (1 − p)/(K p)`; `step` is the claimed b²."""
    square = delta * (1 - p) / (K * p) if step is None else step
    common = complement(p, r)
    slack = [K * (a - 1) ** 2 - f(a) for a in (r, common)]
    g = sympy.Symbol("g", real=True)
    at_most = K * p * (r - 1) ** 2 / (1 - p)
    domain = [proper(p), K > 0, delta > 0, b > 0]
    return Statement(
        name="theorem 8: margin at a fixed radius",
        statement="f(u) ≤ K(u − 1)² on [c, r] with r = 1 + √(δ(1 − p)/(Kp)) ≤ 1/p  ⟹  upper ≥ r and Δ⁺ ≥ √(δp(1 − p)/K)",
        latex=r"If $f(u)\le K(u-1)^2$ on $[c,r]$ for $r=1+\sqrt{\delta(1-p)/(Kp)}\le1/p$, then $\mathrm{upper}\ge r$ and "
        r"$\Delta^+\ge\sqrt{\delta p(1-p)/K}$.",
        method=Method.SYMBOLIC,
        rests_on=("f(u) ≤ K(u − 1)² between c and r, after adding a multiple of u − 1", Z3),
        prove=in_steps(
            combination(
                "g ≤ K p (r − 1)²/(1 − p)",
                at_most - divergence(p, r),
                [Term((p, slack[0])), Term((1 - p, slack[1]))],
                [p, 1 - p, *slack],
            ),
            implication("so r is feasible", [*domain, sympy.Eq(b**2, square), g * (1 - p) <= K * p * b**2], g <= delta),
            identity("the margin squared", (p**2) * square, delta * p * (1 - p) / K),
            implication(
                "it passes ε p for small p",
                [*domain, epsilon > 0, sympy.Eq(b**2, square), K * epsilon**2 * p < delta * (1 - p)],
                b > epsilon,
            ),
        ),
        derivation=r"\[ g(p,r)\le K\,[p(r-1)^2+(1-p)(c-1)^2]=\frac{K p\,(r-1)^2}{1-p}=\delta. \]",
    )


# shifted by a multiple of u − 1 to f'(1) = 0
_SHIFTED = {"kl": u - 1 - sympy.log(u), "reverse_kl": u * sympy.log(u) - u + 1}


def below_parabola(name: str, constant: Any = ONE) -> Statement:
    """`f(u) ≤ K (u − 1)²` for u ≥ ½: the difference vanishes at 1, and its derivative has the sign of u − 1."""
    difference = constant * (u - 1) ** 2 - _SHIFTED[name]
    logarithm = sympy.Symbol("L", real=True)
    sloping = sympy.expand(u * (u - 1) * sympy.diff(difference, u)).subs(sympy.log(u), logarithm)
    known = [logarithm <= u - 1, u * logarithm >= u - 1]  # 1 − 1/u ≤ log u ≤ u − 1
    return Statement(
        name=f"theorem 8: {name} below a parabola",
        statement=f"{name}, shifted to f'(1) = 0:  f(u) ≤ (u − 1)² for all u ≥ ½, so K = 1 if c ≥ ½",
        latex=rf"For {name.replace('_', ' ')}, shifted to $f'(1)=0$: $f(u)\le(u-1)^2$ for $u\ge\tfrac12$.",
        method=Method.SYMBOLIC,
        rests_on=("a function with derivative ≥ 0 grows", "1 − 1/u ≤ log u ≤ u − 1", Z3),
        prove=in_steps(
            identity("equality at u = 1", difference.subs(u, 1)),
            implication("the derivative has the sign of u − 1", [2 * u > 1, sympy.Ne(u, 1), *known], sloping > 0),
        ),
    )


def statements() -> list[Statement]:
    """Theorem 8."""
    return [fixed_clip(), growth(), quadratic_bound(), *(below_parabola(name) for name in _SHIFTED)]
