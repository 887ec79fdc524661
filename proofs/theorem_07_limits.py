"""Theorem 7: the limits of the band for p → 1, p → 0 and δ → 0, for an undetermined f.

With `h(r) = f(r) + (1 − r) f'(∞)`:  `g(p, r)` grows to `h(r)` as p → 1, for every r < 1.

- p → 1: `lower → ℓ`, where `h(ℓ) = δ`; `upper → 1`.
- p → 0: `q = p·upper → 1 − ℓ`, by the mirror. If f'(∞) = ∞, q → 0, but slower than p, as `upper → ∞` for every f.
- δ → 0 with f''(1) > 0: `(r − 1)²/δ → 2(1 − p)/(p f''(1))`.

Limits are those of formulas (by sympy) and of polynomials in quantities with known limits (by continuity).
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import CONVEX, Z3, c, complement, curvature, delta, divergence, f, p, proper, r, x
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, implication, in_steps, limit, passage

ONE, HALF = sympy.Integer(1), sympy.Rational(1, 2)
RECESSION = "f(u)/u → f'(∞) as u → ∞"
recession = sympy.Symbol("f'(∞)", real=True)
mean_slope = sympy.Symbol("φ", real=True)  # f(c)/c
small, gap = sympy.symbols("epsilon v", positive=True)


def limit_of_divergence(claim: Any = None) -> Statement:
    """`g(p, r) → h(r)` from below as p → 1."""
    claim = f(r) + (1 - r) * recession if claim is None else claim
    far = sympy.Symbol("u", real=True)
    inverse = sympy.Symbol("1/u", real=True)
    chord = (c - r) * f(far) + (far - c) * f(r) - (far - r) * f(c)
    divided = (c - r) * mean_slope + (1 - c * inverse) * f(r) - (1 - r * inverse) * f(c)
    chord_gap = f(r) + recession * (c - r) - f(c)
    common = {c: complement(p, r)}
    return Statement(
        name="theorem 7: limit of g for p → 1",
        statement="∀ r ∈ [0, 1):  g(p, r) ≤ h(r) and g(p, r) → h(r) as p → 1, where h(r) = f(r) + (1 − r) f'(∞)",
        latex=r"For $0\le r<1$: $g(p,r)\le h(r)$ and $g(p,r)\to h(r)$ as $p\to1$, where $h(r)=f(r)+(1-r)f'(\infty)$.",
        method=Method.LIMIT,
        rests_on=(CONVEX, RECESSION, "f'(∞) finite, else h = ∞"),
        prove=in_steps(
            identity("g = p f(r) + (1 − r p) f(c)/c", p * f(r) + (1 - p) * f(c), p * f(r) + (1 - r * p) * f(c) / c, common),
            limit("c → ∞", complement(1 - small, 1 - gap), small, 0, sympy.oo),
            passage("so g → h", p * f(r) + (1 - r * p) * mean_slope, {p: ONE, mean_slope: recession}, claim),
            combination(
                "for r < c < u, f(c) is below the chord",
                chord,
                [Term((c - r,), Tangent(far, c)), Term((far - c,), Tangent(r, c))],
                [c - r, far - c],
            ),
            identity("the same divided by u", chord / far, divided.subs({mean_slope: f(far) / far, inverse: 1 / far})),
            passage("so f(c) ≤ f(r) + f'(∞)(c − r)", divided, {inverse: 0, mean_slope: recession}, chord_gap),
            combination(
                "so g ≤ h", claim - divergence(p, r), [Term((1 - p, chord_gap.subs(common)))], [1 - p, chord_gap.subs(common)]
            ),
        ),
        derivation=r"\[ g(p,r)=p f(r)+(1-rp)\,\frac{f(c)}{c},\qquad c=\frac{1-rp}{1-p}\to\infty,\qquad \frac{f(c)}{c}\to "
        r"f'(\infty); \]"
        r"\[ h(r)-g(p,r)=(1-p)\,[f(r)+f'(\infty)(c-r)-f(c)]\ge0, \] as no chord of a convex function is steeper than "
        r"$f'(\infty)$.",
    )


def bounds_at_one(inside: bool = True) -> Statement:
    """`lower → ℓ = min{r : h(r) ≤ δ}` and `upper → 1`; without `inside` it is claimed that r < ℓ is eventually in the band."""
    low, g_low, g_here, h = sympy.symbols("lower g_lower g_r h", real=True)
    s = sympy.Symbol("s", real=True)  # a subgradient of g(p, ·) at r
    convex = [g_low >= g_here + s * (low - r), g_here + s * (1 - r) <= 0]
    beyond = [proper(p), r < 1, g_here > delta, delta >= 0, g_low <= delta, low <= 1, *convex]
    return Statement(
        name="theorem 7: the band for p → 1",
        statement="p → 1:  lower → ℓ with ℓ = min{r ∈ [0, 1]: f(r) + (1 − r) f'(∞) ≤ δ}, and upper → 1",
        latex=r"As $p\to1$: $\mathrm{lower}\to\ell=\min\{r\in[0,1]:f(r)+(1-r)f'(\infty)\le\delta\}$ and $\mathrm{upper}\to1$.",
        method=Method.LIMIT,
        rests_on=("theorem 2: convexity in r", "theorem 7: limit of g for p → 1", "the definition of a limit", Z3),
        prove=in_steps(
            implication("r = ℓ is in every band, so lower ≤ ℓ", [g_here <= h, h <= delta], g_here <= delta),
            implication("r < ℓ is below the band once g(p, r) > δ", beyond, low > r if inside else low <= r),
            limit("upper lies between 1 and 1/p", 1 / p, p, 1, 1, "-"),
        ),
        derivation=r"Since $g\le h$, $\mathrm{lower}(p)\le\ell$ for every $p$. If $r<\ell$ then $h(r)>\delta$, so "
        r"$g(p,r)>\delta$ for $p$ near 1; as $g(p,\cdot)$ is convex with $g(p,1)=0$, such an $r$ lies below the band. Finally "
        r"$1\le\mathrm{upper}\le1/p$.",
    )


def mass_at_zero(claim: Any = None) -> Statement:
    """`q = p·upper` tends to the solution of `q f'(∞) + f(1 − q) = δ` as p → 0."""
    q, low, lowest = sympy.symbols("q lower ℓ", real=True)
    claim = q * recession + f(1 - q) if claim is None else claim(q)
    return Statement(
        name="theorem 7: the band for p → 0",
        statement="p → 0:  q = p·upper → 1 − ℓ, which solves q f'(∞) + f(1 − q) = δ",
        latex=r"As $p\to0$: $q=p\cdot\mathrm{upper}\to1-\ell$, which solves $q f'(\infty)+f(1-q)=\delta$.",
        method=Method.LIMIT,
        rests_on=("theorem 5: mirror, upper bound", "theorem 7: the band for p → 1", "f'(∞) finite and δ within reach"),
        prove=in_steps(
            identity("p·upper, by the mirror", p * ((1 - (1 - p) * low) / p), 1 - (1 - p) * low),
            passage("its limit", 1 - (1 - p) * low, {p: 0, low: lowest}, 1 - lowest),
            identity("h(1 − q)", (f(r) + (1 - r) * recession).xreplace({r: 1 - q}), claim),
        ),
        derivation=r"\[ p\cdot\mathrm{upper}(p)=1-(1-p)\,\mathrm{lower}(1-p)\to1-\ell,\qquad h(1-q)=f(1-q)+q f'(\infty). \]",
    )


def slower_than_probability(factor: Any = 2) -> Statement:
    """`upper → ∞` as p → 0 for every f and δ > 0: each r is in the band as soon as `p (f(r) + 2 (r − 1) f(½)) ≤ δ`."""
    reach = f(r) + factor * (r - 1) * f(HALF)
    common = {c: complement(p, r)}
    near = [Term((1 - p, 2 * (1 - c)), Tangent(HALF, c)), Term((1 - p, 2 * c - 1), Tangent(ONE, c))]
    terms = [Term(tuple(factor.subs(common) for factor in term.factors), _put(term.tangent, common)) for term in near]
    allowed = [quantity.subs(common) for quantity in (1 - p, 1 - c, 2 * c - 1)]
    K, g = sympy.symbols("K g", real=True)
    return Statement(
        name="theorem 7: upper → ∞ for p → 0",
        statement="∀ r > 1, p ≤ 1/(2r − 1):  g(p, r) ≤ p [f(r) + 2(r − 1) f(½)], so upper → ∞ for p → 0, δ > 0: p·upper may "
        "vanish, but slower than p",
        latex=r"For $r>1$ and $p\le1/(2r-1)$: $g(p,r)\le p\,[f(r)+2(r-1)f(\tfrac12)]$; so $\mathrm{upper}\to\infty$ as "
        r"$p\to0$, for every $f$ and $\delta>0$.",
        method=Method.LIMIT,
        rests_on=(CONVEX, "f(1) = 0", Z3),
        prove=in_steps(
            implication(
                "½ ≤ c ≤ 1",
                [proper(p), r > 1, p * (2 * r - 1) <= 1, sympy.Eq(p * r + (1 - p) * c, 1)],
                sympy.And(2 * c >= 1, c <= 1),
            ),
            combination(
                "f(c) is below the chord from ½ to 1", p * reach - divergence(p, r), terms, allowed, {f(ONE): sympy.Integer(0)}
            ),
            implication("r is in the band for small p", [proper(p), p * K <= delta, g <= p * K], g <= delta),
        ),
        derivation=r"For $\tfrac12\le c\le1$ convexity gives $f(c)\le2(1-c)f(\tfrac12)+(2c-1)f(1)$, and $(1-p)(1-c)=p(r-1)$. "
        r"So every $r$ is feasible for all small $p$.",
    )


def _put(tangent: Tangent | None, values: dict[Any, Any]) -> Tangent:
    assert tangent is not None
    return Tangent(tangent.at, tangent.seen_from.subs(values))


def small_radius(squared: Any = None) -> Statement:
    """`(r − 1)²/δ → 2(1 − p)/(p f''(1))` as δ → 0; `squared` is the claimed limit."""
    squared = 2 * (1 - p) / (p * curvature(ONE)) if squared is None else squared
    second = p / (1 - p) * curvature(ONE)
    rest = sympy.Symbol("ω", real=True)  # of Taylor's formula, which vanishes with x
    scale = {
        "p": sympy.Symbol("p", positive=True),
        "k": sympy.Symbol("k", positive=True),
        "d": sympy.Symbol("δ", positive=True),
    }
    return Statement(
        name="theorem 7: the band for δ → 0",
        statement="f''(1) > 0, δ → 0:  (r − 1)²/δ → 2(1 − p)/(p f''(1)), that is r − 1 ≈ ±√(2δ(1 − p)/(p f''(1)))",
        latex=r"If $f''(1)>0$, then $r-1\sim\pm\sqrt{2\delta(1-p)/(p f''(1))}$ for both bounds as $\delta\to0$.",
        method=Method.LIMIT,
        rests_on=(
            "f convex, twice differentiable at 1 with f''(1) > 0",
            "Taylor's formula with remainder x² ω/2, ω → 0 as x → 0",
            "f(1) = 0",
            "r → 1 as δ → 0, as g(p, ·) has its only zero at 1",
            "the bound is not saturated for small δ (theorem 6), so g(p, r) = δ",
        ),
        prove=in_steps(
            identity("g_r(p, 1) = 0", sympy.diff(divergence(p, r), r).subs(r, 1)),
            identity("g_rr(p, 1) = p/(1 − p) f''(1)", sympy.diff(divergence(p, r), r, 2).subs(r, 1), second),
            identity("so δ/(r − 1)² = (g_rr(p, 1) + ω)/2", (x**2 * (second + rest) / 2) / x**2, (second + rest) / 2),
            passage("its limit", (second + rest) / 2, {rest: 0}, 1 / squared),
            identity(
                "the root",
                sympy.sqrt(2 * scale["d"] * (1 - scale["p"]) / (scale["p"] * scale["k"])) ** 2 / scale["d"],
                squared.subs({p: scale["p"], curvature(ONE): scale["k"]}),
            ),
        ),
        derivation=r"\[ g(p,1)=0,\quad g_r(p,1)=p\,(f'(1)-f'(1))=0,\quad g_{rr}(p,1)=\frac{p}{1-p}f''(1),\]"
        r"\[ \delta=g(p,r)=\frac{(r-1)^2}{2}\Bigl(\frac{p}{1-p}f''(1)+o(1)\Bigr). \]",
    )


_RADIUS = sympy.Symbol("delta", positive=True)
_WRITTEN_OUT = {
    # generator, f'(∞), the claimed limit ℓ of lower
    "kl": (lambda a: -sympy.log(a), 0, sympy.exp(-_RADIUS), "lower → e^{−δ} for p → 1, p·upper → 1 − e^{−δ} for p → 0"),
    "tv": (lambda a: sympy.Abs(a - 1) / 2, HALF, 1 - _RADIUS, "lower → 1 − δ for p → 1, p·upper → δ for p → 0 (δ ≤ 1)"),
}


def example(name: str, lowest: Any = None) -> Statement:
    """The limits that the theory page writes out solve their equations; `lowest` is the claimed ℓ."""
    generator, steepest, known, words = _WRITTEN_OUT[name]
    lowest = known if lowest is None else lowest
    mass = 1 - lowest
    return Statement(
        name=f"theorem 7: limits of {name}, written out",
        statement=f"{name}:  {words}",
        latex=rf"For {name}: $\ell={sympy.latex(known)}$, and $q=1-\ell$.",
        method=Method.SYMBOLIC,
        rests_on=("theorem 7: the band for p → 1", "theorem 7: the band for p → 0"),
        prove=in_steps(
            identity("h(ℓ) = δ", generator(lowest) + (1 - lowest) * steepest, _RADIUS),
            identity("q f'(∞) + f(1 − q) = δ", mass * steepest + generator(1 - mass), _RADIUS),
        ),
    )


def statements() -> list[Statement]:
    """Theorem 7 for an undetermined f."""
    general = [limit_of_divergence(), bounds_at_one(), mass_at_zero(), slower_than_probability(), small_radius()]
    return [*general, *(example(name) for name in _WRITTEN_OUT)]
