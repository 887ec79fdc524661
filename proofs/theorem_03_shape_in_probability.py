"""Theorem 3: `∂g/∂p = f(r) − f(c) − f'(c)(r − c) ≥ 0`, a Bregman divergence; so the band narrows as p grows."""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import ATTAINED, CONVEX, Z3, complement, delta, divergence, f, p, r, slope
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, implication, in_steps

larger = sympy.Symbol("p'", real=True)


def bregman(claim: Any = None, step: Any = None) -> Statement:
    """The derivative in p; `step` is the claimed value of `r − c`."""
    common = complement(p, r)
    claim = f(r) - f(common) - slope(common) * (r - common) if claim is None else claim
    step = (r - 1) / (1 - p) if step is None else step
    return Statement(
        name="theorem 3: Bregman divergence",
        statement="∂g/∂p = f(r) − f(c) − f'(c)(r − c) ≥ 0, where r − c = (r − 1)/(1 − p)",
        latex=r"$\partial g/\partial p=f(r)-f(c)-f'(c)(r-c)\ge0$, where $r-c=(r-1)/(1-p)$.",
        method=Method.SYMBOLIC,
        rests_on=("f convex and differentiable",),
        prove=in_steps(
            identity("r − c", r - common, step),
            identity("the derivative", sympy.diff(divergence(p, r), p), claim),
            combination("it is the gap of a tangent", claim, [Term((1,), Tangent(r, common))], []),
        ),
        derivation=r"\[ \frac{\partial c}{\partial p}=\frac{1-r}{(1-p)^2}=-\frac{r-c}{1-p},\qquad\frac{\partial g}{\partial "
        r"p}=f(r)-f(c)+(1-p)f'(c)\frac{\partial c}{\partial p}=f(r)-f(c)-f'(c)(r-c). \]",
    )


def monotone(claim: Any = None) -> Statement:
    """The same without derivatives: `g(p', r) ≥ g(p, r)` for p < p', a combination of two tangents at c(p)."""
    claim = divergence(larger, r) - divergence(p, r) if claim is None else claim
    common, beyond = complement(p, r), complement(larger, r)
    terms = [Term((larger - p,), Tangent(r, common)), Term((1 - larger,), Tangent(beyond, common))]
    return Statement(
        name="theorem 3: monotone in p",
        statement="∀ p < p', 0 ≤ r ≤ 1/p':  g(p, r) ≤ g(p', r)",
        latex=r"$g(p,r)\le g(p',r)$ for $p<p'$ and $0\le r\le1/p'$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX,),
        prove=in_steps(combination("two gaps of the tangent at c(p)", claim, terms, [larger - p, 1 - larger])),
        derivation=r"With $c=c(p)$ and $c'=c(p')$, $(1-p)\,c=(p'-p)\,r+(1-p')\,c'$, hence "
        r"\[ g(p',r)-g(p,r)=(p'-p)[f(r)-f(c)-f'(c)(r-c)]+(1-p')[f(c')-f(c)-f'(c)(c'-c)]\ge0. \]",
    )


def nested_bands(side: str, grows: bool = False) -> Statement:
    """`Band(p') ⊆ Band(p)` for p < p', so `upper` is non-increasing and `lower` non-decreasing; `grows` claims the opposite."""
    sign = 1 if side == "upper" else -1
    bound, narrow = sympy.symbols("b b'", real=True)  # at p and at p', where it is attained
    at_smaller, at_larger = sympy.symbols("g_p g_p'", real=True)  # g(p, b') and g(p', b')
    domain = [p > 0, p < larger, larger < 1, narrow >= 0]
    attained = [at_larger <= delta, narrow * larger <= 1]
    theorem = at_smaller <= at_larger
    extreme = sympy.Implies(sympy.And(at_smaller <= delta, narrow * p <= 1), sign * narrow <= sign * bound)
    words = "non-increasing" if sign > 0 else "non-decreasing"
    claim = sign * narrow >= sign * bound if grows else sign * narrow <= sign * bound
    return Statement(
        name=f"theorem 3: {side} is {words} in p",
        statement=f"∀ f, δ, p < p':  Band(p') ⊆ Band(p), so {side}(p') {'≤' if sign > 0 else '≥'} {side}(p)",
        latex=rf"For every $f$, $\delta$ and $p<p'$ the band at $p'$ lies in the band at $p$, so $\mathrm{{{side}}}$ is "
        rf"{words} in $p$.",
        method=Method.SYMBOLIC,
        rests_on=("theorem 3: monotone in p", ATTAINED, Z3),
        prove=in_steps(
            implication(
                "the bound at p' is feasible at p",
                [*domain, *attained, theorem],
                sympy.And(at_smaller <= delta, narrow * p <= 1),
            ),
            implication("so the bound at p is no nearer to 1", [*domain, *attained, theorem, extreme], claim),
        ),
        derivation=r"If $g(p',r)\le\delta$ then $g(p,r)\le g(p',r)\le\delta$, and $r\le1/p'\le1/p$: what is feasible at $p'$ "
        r"is feasible at $p$.",
    )


def statements() -> list[Statement]:
    """Theorem 3."""
    return [bregman(), monotone(), nested_bands("upper"), nested_bands("lower")]
