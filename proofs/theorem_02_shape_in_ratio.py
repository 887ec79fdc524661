"""Theorem 2: `g(p, ·)` is convex with minimum 0 at `r = 1`, and `g_rr = p f''(r) + p²/(1 − p) f''(c)`."""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import CONVEX, complement, curvature, divergence, f, p, r, t
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, in_steps

ONE = sympy.Integer(1)


def second_derivative(claim: Any = None) -> Statement:
    """`g_rr`, where f is twice differentiable."""
    here, others = curvature(r), curvature(complement(p, r))
    claim = p * here + p**2 / (1 - p) * others if claim is None else claim
    return Statement(
        name="theorem 2: second derivative",
        statement="∂²g/∂r² = p f''(r) + p²/(1 − p) f''(c) ≥ 0",
        latex=r"$\partial^2 g/\partial r^2=p f''(r)+\frac{p^2}{1-p}f''(c)\ge0$.",
        method=Method.SYMBOLIC,
        rests_on=("f twice differentiable, f'' ≥ 0",),
        prove=in_steps(
            identity("differentiated twice", sympy.diff(divergence(p, r), r, 2), claim),
            combination("a sum of products of quantities ≥ 0", claim, _parts(claim), [p, 1 - p, here, others]),
        ),
        derivation=r"\[ \frac{\partial c}{\partial r}=-\frac{p}{1-p},\qquad \frac{\partial g}{\partial "
        r"r}=p\,(f'(r)-f'(c)),\qquad\frac{\partial^2 g}{\partial r^2}=p f''(r)+\frac{p^2}{1-p}f''(c). \]",
    )


def _parts(total: sympy.Expr) -> list[Term]:
    return [Term((part,)) for part in sympy.Add.make_args(total)]


def convexity(chord: Any = None) -> Statement:
    """Chords lie above the graph, for every convex f; `chord` is the claimed upper bound in (t, g₀, g₁)."""
    ends = sympy.symbols("r_0 r_1", real=True)
    middle = (1 - t) * ends[0] + t * ends[1]
    values = [divergence(p, end) for end in ends]
    chord = (1 - t) * values[0] + t * values[1] if chord is None else chord(t, *values)
    weights = (1 - t, t)
    terms = [Term((p, w), Tangent(end, middle)) for w, end in zip(weights, ends, strict=True)]
    terms += [
        Term((1 - p, w), Tangent(complement(p, end), complement(p, middle))) for w, end in zip(weights, ends, strict=True)
    ]
    return Statement(
        name="theorem 2: convexity in r",
        statement="∀ p ∈ (0, 1), t ∈ [0, 1]:  g(p, (1 − t) r₀ + t r₁) ≤ (1 − t) g(p, r₀) + t g(p, r₁)",
        latex=r"$g(p,(1-t)r_0+t r_1)\le(1-t)\,g(p,r_0)+t\,g(p,r_1)$ for $t\in[0,1]$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX,),
        prove=in_steps(
            combination("a sum of four gaps of tangents", chord - divergence(p, middle), terms, [p, 1 - p, t, 1 - t])
        ),
        derivation=r"With $r_t=(1-t)r_0+tr_1$, $c_t=c(r_t)=(1-t)c_0+tc_1$ and weights $w_0=1-t$, $w_1=t$, the difference is "
        r"\[ \sum_{k=0,1}w_k\bigl\{p\,[f(r_k)-f(r_t)-f'(r_t)(r_k-r_t)]+(1-p)[f(c_k)-f(c_t)-f'(c_t)(c_k-c_t)]\bigr\}\ge0. \]",
    )


def minimum(at: Any = ONE, least: Any = 0) -> Statement:
    """`g ≥ 0 = g(p, 1)`."""
    normal = {f(ONE): sympy.Integer(0)}
    g = divergence(p, r)
    terms = [Term((p,), Tangent(r, ONE)), Term((1 - p,), Tangent(complement(p, r), ONE))]
    return Statement(
        name="theorem 2: minimum",
        statement="∀ p, r:  g(p, r) ≥ 0 = g(p, 1)",
        latex=r"$g(p,r)\ge0=g(p,1)$.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX, "f(1) = 0"),
        prove=in_steps(
            identity("the value at r = 1", divergence(p, sympy.sympify(at)), least, normal),
            combination("nothing is below it", g - least, terms, [p, 1 - p], normal),
        ),
        derivation=r"\[ g(p,r)=p\,[f(r)-f(1)-f'(1)(r-1)]+(1-p)[f(c)-f(1)-f'(1)(c-1)]\ge0, \]"
        r"since $p\,(r-1)+(1-p)(c-1)=0$ and $f(1)=0$.",
    )


def statements() -> list[Statement]:
    """Theorem 2."""
    return [second_derivative(), convexity(), minimum()]
