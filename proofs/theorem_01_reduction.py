"""Theorem 1: the problem with n tokens is the scalar one, and its dual has no gap.

Token a has probability p and ratio u_a; the other tokens, m of them, have probabilities P_i and ratios u_i:

    Σ P_i = 1 − p,    p u_a + Σ P_i u_i = 1,    D = p f(u_a) + Σ P_i f(u_i) ≤ δ.

The side σ is +1 for the largest and −1 for the smallest `Q_a = p u_a`. For λ > 0 and any ν, with the conjugate `f*`,

    σ Q_a ≤ λ δ + ν + λ [p f*((σ − ν)/λ) + (1 − p) f*(−ν/λ)],

and `λ = σ/(f'(r) − f'(c))`, `ν = −λ f'(c)` turn this into an equality at `Q_a = p r` exactly when `g(p, r) = δ`.
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import CONVEX, c, complement, delta, divergence, f, p, proper, r, slope, u, x
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, implication, in_steps

m = sympy.Symbol("m", integer=True, positive=True)
i = sympy.Symbol("i", integer=True, positive=True)
P, ratios = sympy.IndexedBase("P"), sympy.IndexedBase("u")
OTHERS = (i, 1, m)
own = sympy.Symbol("u_a", real=True)
scale, shift = sympy.symbols("lambda nu", real=True)
ENDS = "at c = 0 or r = 0, where f' may be infinite, the limits f(0) and continuity"
EQUALITIES = {sympy.Sum(P[i] * ratios[i], OTHERS): 1 - p * own, sympy.Sum(P[i], OTHERS): 1 - p}
D = p * f(own) + sympy.Sum(P[i] * f(ratios[i]), OTHERS)
ZERO_AT_ONE = {f(sympy.Integer(1)): sympy.Integer(0)}
SIDES = {"upper": 1, "lower": -1}


def reduction(least: Any = None) -> Statement:
    """`D ≥ g(p, u_a)` for all n tokens, with equality where all others are scaled by one c; `least` is the claimed minimum."""
    common = complement(p, own)
    least = divergence(p, own) if least is None else least
    jensen = Term((P[i],), Tangent(ratios[i], common), OTHERS)
    scaled = {ratios[i]: common}
    return Statement(
        name="theorem 1: reduction to two outcomes",
        statement="∀ n ≥ 2, P, Q with P_a = p, Q_a = p u_a:  D_f(Q‖P) ≥ g(p, u_a), with equality for Q_i = c P_i (i ≠ a)",
        latex=r"For all $n\ge2$ and all $P$, $Q$ with $P_a=p$ and $Q_a=p\,u_a$: $D_f(Q\,\|\,P)\ge g(p,u_a)$, with equality if "
        r"$Q_i=c\,P_i$ for all $i\ne a$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX, "linearity of finite sums", ENDS),
        prove=in_steps(
            combination("D − g is a sum of gaps of the tangent at c (Jensen)", D - least, [jensen], [P[i]], EQUALITIES),
            identity("D = g if every other ratio is c", D.xreplace(scaled), least, {sympy.Sum(P[i], OTHERS): 1 - p}),
            identity("these Q sum to 1", p * own + sympy.Sum(P[i] * common, OTHERS), 1, {sympy.Sum(P[i], OTHERS): 1 - p}),
            implication("they are ≥ 0 for 0 ≤ u_a ≤ 1/p", [proper(p), own >= 0, own * p <= 1], common >= 0),
        ),
        derivation=r"\[ D-g(p,u_a)=\sum_{i\ne a}P_i\,\bigl[f(u_i)-f(c)-f'(c)(u_i-c)\bigr]\ge0,\qquad \sum_{i\ne "
        r"a}P_i(u_i-c)=1-p\,u_a-(1-p)\,c=0. \]",
    )


def fenchel_young(conjugate: Any = None) -> Statement:
    """`f*(f'(x)) = x f'(x) − f(x)`."""
    conjugate = x * slope(x) - f(x) if conjugate is None else conjugate
    return Statement(
        name="theorem 1: Fenchel–Young equality",
        statement="∀ x: f*(f'(x)) = x f'(x) − f(x), where f*(s) = sup over u of s u − f(u)",
        latex=r"$f^*(f'(x))=x f'(x)-f(x)$, where $f^*(s)=\sup_{u\ge0}\,(s u-f(u))$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX,),
        prove=in_steps(
            combination("no u gives more", conjugate - (slope(x) * u - f(u)), [Term((1,), Tangent(u, x))], []),
            identity("u = x gives as much", slope(x) * x - f(x), conjugate),
        ),
        derivation=r"\[ \bigl[x f'(x)-f(x)\bigr]-\bigl[f'(x)\,u-f(u)\bigr]=f(u)-f(x)-f'(x)(u-x)\ge0,\quad\text{with equality "
        r"at } u=x. \]",
    )


def dual_bound(of_own: Any, of_others: Any) -> sympy.Expr:
    """`λ δ + ν + λ [p f*(s_a) + (1 − p) f*(s)]`, given the two values of `f*`."""
    return scale * delta + shift + scale * (p * of_own + (1 - p) * of_others)


def weak_duality(side: str, bound: Any = None) -> Statement:
    """No Q within the radius passes the dual bound, whatever n, P, λ > 0 and ν."""
    sign = SIDES[side]
    star_own, star = sympy.symbols("A B", real=True)  # f*(s_a) and f*(s)
    bound = dual_bound(star_own, star) if bound is None else bound(star_own, star)
    young_own = star_own + f(own) - (sign - shift) / scale * own  # ≥ 0 by the definition of f*
    young = star + f(ratios[i]) + shift / scale * ratios[i]
    what, letter = ("Q_a", "Q_a") if sign > 0 else ("−Q_a", "-Q_a")
    numerator = "1-\\nu" if sign > 0 else "-1-\\nu"
    terms = [Term((scale, delta - D)), Term((scale, p, young_own)), Term((scale, P[i], young), over=OTHERS)]
    allowed = [scale, p, P[i], delta - D, young_own, young]
    return Statement(
        name=f"theorem 1: weak duality, {side} bound",
        statement=f"∀ n, P, Q with D_f(Q‖P) ≤ δ, ∀ λ > 0, ν:  {what} ≤ λδ + ν + λ[p f*(({'' if sign > 0 else '−'}1 − ν)/λ) "
        "+ (1 − p) f*(−ν/λ)]",
        latex=rf"For all $n$, $P$, $Q$ with $D_f(Q\,\|\,P)\le\delta$, all $\lambda>0$ and $\nu$: "
        rf"${letter}\le\lambda\delta+\nu+\lambda\bigl[p "
        rf"f^*(\tfrac{{{numerator}}}{{\lambda}})+(1-p)f^*(\tfrac{{-\nu}}{{\lambda}})\bigr]$.",
        method=Method.SYMBOLIC,
        rests_on=("Young's inequality f*(s) + f(u) ≥ s u, the definition of f*", "linearity of finite sums"),
        prove=in_steps(
            combination("bound − objective = λ (δ − D) + λ Σ P_i · Young", bound - sign * p * own, terms, allowed, EQUALITIES)
        ),
        derivation=r"\[ \lambda\delta+\nu+\lambda\sum_iP_if^*(s_i)-("
        + letter
        + r")=\lambda(\delta-D)+\lambda\sum_iP_i\bigl[f^*(s_i)+f(u_i)-s_iu_i\bigr]\ge0,\quad s_i="
        + rf"\frac{{{'' if sign > 0 else '-'}[i=a]-\nu}}{{\lambda}}. \]",
    )


def no_gap(side: str, multiplier: Any = None, shift_of: Any = None, gap: Any = None) -> Statement:
    """The multipliers `λ`, `ν` make the bound equal to p r if `g(p, r) = δ`; `gap` is the claimed difference in general."""
    sign = SIDES[side]
    g = p * f(r) + (1 - p) * f(c)
    multiplier = sign / (slope(r) - slope(c)) if multiplier is None else multiplier
    shift_of = -multiplier * slope(c) if shift_of is None else shift_of
    gap = multiplier * (delta - g) if gap is None else gap
    put = {scale: multiplier, shift: shift_of}
    conjugates = [point * slope(point) - f(point) for point in (r, c)]
    bound = dual_bound(*conjugates).subs(put)
    common = {c: complement(p, r)}
    steepness = p * (r - 1) * (slope(r) - slope(c))
    shown = [Term((p,), Tangent(1, r)), Term((1 - p,), Tangent(1, c))]
    a, b, level = slope(r), slope(c), sympy.Symbol("g", real=True)
    moved = [proper(p), sign * (r - 1) > 0, level > 0, p * (r - 1) * (a - b) >= level]
    return Statement(
        name=f"theorem 1: zero duality gap, {side} bound",
        statement=f"g(p, r) = δ > 0, {'r > 1' if sign > 0 else 'r < 1'}:  λ = {'' if sign > 0 else '−'}1/(f'(r) − f'(c)) > 0 "
        f"and "
        "ν = −λ f'(c) make the dual bound equal to " + ("p r" if sign > 0 else "−p r"),
        latex=rf"If $g(p,r)=\delta>0$ and ${'r>1' if sign > 0 else 'r<1'}$, then "
        rf"$\lambda={'' if sign > 0 else '-'}1/(f'(r)-f'(c))$ is positive, and with $\nu=-\lambda f'(c)$ the dual bound "
        rf"equals ${'' if sign > 0 else '-'}p r$: no $Q$ does better.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX, "f(1) = 0", "theorem 1: Fenchel–Young equality", "z3 (nonlinear real arithmetic) for the sign of λ"),
        prove=in_steps(
            identity("(σ − ν)/λ = f'(r)", ((sign - shift) / scale).subs(put), slope(r)),
            identity("−ν/λ = f'(c)", (-shift / scale).subs(put), slope(c)),
            identity("bound − objective = λ (δ − g)", bound - sign * p * r, gap, common),
            identity("the gap vanishes at g = δ", gap.subs(delta, g)),
            combination("p (r − 1)(f'(r) − f'(c)) ≥ g", steepness - g, shown, [p, 1 - p], common | ZERO_AT_ONE),
            implication("so λ > 0", moved, sign * (a - b) > 0),
        ),
        derivation=r"\[ \lambda\delta+\nu+\lambda\bigl[p\,(r f'(r)-f(r))+(1-p)(c f'(c)-f(c))\bigr]-(\pm p "
        r"r)=\lambda\,(\delta-g(p,r)), \]"
        r"\[ p(r-1)\,(f'(r)-f'(c))-g=p\,[f(1)-f(r)-f'(r)(1-r)]+(1-p)\,[f(1)-f(c)-f'(c)(1-c)]\ge0. \]",
    )


def optimality(side: str, multiplier: Any = None) -> Statement:
    """The same without conjugates: at g = δ, `σ (p r − Q_a)` is a non-negative combination for every Q within the radius."""
    sign = SIDES[side]
    multiplier = 1 if multiplier is None else multiplier
    common = complement(p, r)
    distance = sign * (slope(r) - slope(common))  # 1/λ > 0
    claim = sign * (p * r - p * own) * distance
    slack = divergence(p, r) - D
    terms = [
        Term((multiplier, slack)),
        Term((p,), Tangent(own, r)),
        Term((P[i],), Tangent(ratios[i], common), OTHERS),
    ]
    relation, order = ("≤", r"\le ") if sign > 0 else ("≥", r"\ge ")
    return Statement(
        name=f"theorem 1: global optimality, {side} bound",
        statement=f"∀ n, P, Q with D_f(Q‖P) ≤ g(p, r), {'r > 1' if sign > 0 else 'r < 1'}, g > 0:  Q_a {relation} p r",
        latex=rf"For all $n$, $P$, $Q$ with $D_f(Q\,\|\,P)\le g(p,r)$, ${'r>1' if sign > 0 else 'r<1'}$, $g(p,r)>0$: "
        rf"$Q_a{order} p r$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX, "linearity of finite sums", "λ > 0, theorem 1: zero duality gap"),
        prove=in_steps(
            combination(
                "(p r − Q_a)(f'(r) − f'(c)) = (g − D) + p · gap at r + Σ P_i · gap at c",
                claim,
                terms,
                [p, P[i], slack],
                EQUALITIES,
            )
        ),
        derivation=r"\[ (p r-Q_a)(f'(r)-f'(c))=(g-D)+p\,[f(u_a)-f(r)-f'(r)(u_a-r)]+\sum_{i\ne "
        r"a}P_i[f(u_i)-f(c)-f'(c)(u_i-c)]\ge0. \]",
    )


def statements() -> list[Statement]:
    """Theorem 1, in the order of its argument."""
    both = [make(side) for make in (weak_duality, no_gap, optimality) for side in SIDES]
    return [reduction(), fenchel_young(), *both]
