"""Theorem 9: the gradient of `min(r A, clip(r, lower, upper) A)` needs no root.

The objective is `r A` or a constant, with `lower ≤ 1 ≤ upper`; which of them is decided by one evaluation of g, as

    r > upper ⟺ r > 1 and g(p, r) > δ,    r < lower ⟺ r < 1 and g(p, r) > δ.

Corollary: a mask that drops a token when the divergence between the two-outcome policies (p, 1 − p) and (q, 1 − q) exceeds δ in
the direction of its advantage has the same gradient.
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import ATTAINED, Z3, delta, divergence, f, p, r
from proofs.statement import Method, Statement
from proofs.steps import identity, implication, in_steps, tangents

A, low, high = sympy.symbols("A lower upper", real=True)
ORDER = [low >= 0, low <= 1, high >= 1, r >= 0]
BEYOND_UPPER, BEYOND_LOWER = sympy.And(A > 0, r > high), sympy.And(A < 0, r < low)
BEYOND = sympy.Or(BEYOND_UPPER, BEYOND_LOWER)
SOURCE = "https://arxiv.org/abs/2602.04879"


def objective() -> sympy.Expr:
    """`min(r A, clip(r, lower, upper) A)`."""
    return sympy.Min(r * A, sympy.Min(sympy.Max(r, low), high) * A)


def gradient(beyond: Any = None) -> Statement:
    """Where the objective is `r A` and where it is constant; `beyond` is the claimed set where the gradient vanishes."""
    beyond = BEYOND if beyond is None else beyond
    value = objective()
    parameter = sympy.Symbol("theta", real=True)
    log_policy, old = sympy.Function("L")(parameter), sympy.Symbol("L_old", real=True)
    ratio = sympy.exp(log_policy - old)
    return Statement(
        name="theorem 9: the gradient",
        statement="∇ min(rA, clip(r, lower, upper)A) = A r ∇log π, or 0 iff (A > 0 and r > upper) or (A < 0 and r < lower), "
        "for A ≠ 0",
        latex=r"For $A\ne0$, off the kinks $r\in\{\mathrm{lower},\mathrm{upper}\}$: "
        r"$\nabla\min(rA,\mathrm{clip}(r,\mathrm{lower},\mathrm{upper})A)$ is $0$ if $A>0$, $r>\mathrm{upper}$ or $A<0$, "
        r"$r<\mathrm{lower}$, and $A\,r\,\nabla\log\pi$ otherwise.",
        method=Method.SYMBOLIC,
        rests_on=("lower ≤ 1 ≤ upper", "log π differentiable", "off the kinks r = lower and r = upper", Z3),
        prove=in_steps(
            implication("it is r A elsewhere", [*ORDER, sympy.Not(beyond)], sympy.Eq(value, r * A)),
            implication("it is upper·A beyond", [*ORDER, beyond, A > 0], sympy.Eq(value, high * A)),
            implication("it is lower·A beyond", [*ORDER, beyond, A < 0], sympy.Eq(value, low * A)),
            implication("with A = 0 nothing is beyond", [*ORDER, beyond], sympy.Ne(A, 0)),
            identity("∇ r A = A r ∇ log π", sympy.diff(A * ratio, parameter), A * ratio * sympy.diff(log_policy, parameter)),
        ),
        derivation=r"\[ \min(rA,\mathrm{clip}(r)A)=\begin{cases}\mathrm{upper}\cdot A&A>0,\ "
        r"r>\mathrm{upper}\\\mathrm{lower}\cdot A&A<0,\ "
        r"r<\mathrm{lower}\\rA&\text{otherwise,}\end{cases}\qquad\nabla(rA)=A\,\nabla "
        r"e^{\log\pi-\log\pi_{\mathrm{old}}}=A\,r\,\nabla\log\pi. \]",
    )


def decided_by_divergence(side: str, test: Any = None) -> Statement:
    """Whether r is beyond a bound, from g; `test(r, g, δ)` is the claimed condition.

    `g(p, ·)` is an undetermined convex function itself, f in this proof, with f(1) = 0 (theorem 2).
    """
    sign = 1 if side == "upper" else -1
    bound = high if sign > 0 else low
    one = sympy.Integer(1)
    condition = sympy.And(sign * r > sign, f(r) > delta) if test is None else test(r, f(r), delta)
    convex = [sympy.Eq(f(one), 0), *tangents(r, bound, one)]
    attained = [f(bound) <= delta, delta >= 0, sign * bound >= sign]
    extreme = sympy.Implies(f(r) <= delta, sign * r <= sign * bound)  # the bound is the last feasible ratio
    order, beyond = (">", "beyond upper") if sign > 0 else ("<", "beyond lower")
    return Statement(
        name=f"theorem 9: {beyond}, decided by g",
        statement=f"∀ r ∈ [0, 1/p]:  r {order} {side}  ⟺  r {order} 1 and g(p, r) > δ",
        latex=rf"For $r\in[0,1/p]$: $r{order}\mathrm{{{side}}}$ if and only if $r{order}1$ and $g(p,r)>\delta$.",
        method=Method.SYMBOLIC,
        rests_on=("theorem 2: convexity in r, minimum", ATTAINED, Z3),
        prove=in_steps(
            implication(
                "g convex with g(p, 1) = 0", [*convex, *attained, extreme], sympy.Equivalent(sign * r > sign * bound, condition)
            )
        ),
        derivation=rf"If $r{order}\mathrm{{{side}}}$, then $r$ is not feasible, so $g(p,r)>\delta$. Conversely, between $1$ "
        rf"and $\mathrm{{{side}}}$ "
        r"convexity gives $g(p,\cdot)\le\max(g(p,1),g(p,\mathrm{bound}))\le\delta$.",
    )


def mask(kept: Any = None) -> Statement:
    """The mask and the clip have the same gradient; `kept(A, r, g, δ)` is when the mask is claimed to keep a token."""
    g = sympy.Symbol("g", real=True)
    crossed = sympy.Or(sympy.And(A > 0, r > 1, g > delta), sympy.And(A < 0, r < 1, g > delta))
    dropped = crossed if kept is None else sympy.Not(kept(A, r, g, delta))
    theorem = [
        sympy.Equivalent(r > high, sympy.And(r > 1, g > delta)),
        sympy.Equivalent(r < low, sympy.And(r < 1, g > delta)),
    ]
    new = sympy.Symbol("q", positive=True)
    old = sympy.Symbol("p", positive=True)
    kl = old * sympy.log(old / new) + (1 - old) * sympy.log((1 - old) / (1 - new))
    band_kl = -old * sympy.log(new / old) - (1 - old) * sympy.log((1 - new) / (1 - old))  # g with f = −log u, r = q/p
    tv = (sympy.Abs(new - old) + sympy.Abs((1 - new) - (1 - old))) / 2
    band_tv = old * sympy.Abs(new - old) / old / 2 + (1 - old) * sympy.Abs(new - old) / (1 - old) / 2  # f = |u − 1|/2
    return Statement(
        name="theorem 9: divergence masks",
        statement="mask M = 0 iff the two-outcome divergence exceeds δ and (A > 0, r > 1 or A < 0, r < 1):  ∇ M r A = ∇ "
        "min(rA, clip(r)A)",
        latex=r"Let $M=0$ if the divergence between $(p,1-p)$ and $(q,1-q)$ exceeds $\delta$ and $A>0$, $r>1$ or $A<0$, "
        r"$r<1$, and $M=1$ otherwise. Then $\nabla(M r A)=\nabla\min(rA,\mathrm{clip}(r,\mathrm{lower},\mathrm{upper})A)$, "
        r"with $M$ held constant.",
        method=Method.SYMBOLIC,
        rests_on=(
            "theorem 9: the gradient",
            "theorem 9: beyond upper, beyond lower, decided by g",
            f"the masks of {SOURCE} without truncation of r",
            Z3,
        ),
        prove=in_steps(
            identity(
                "the two-outcome divergence is g", p * f(r * p / p) + (1 - p) * f((1 - r * p) / (1 - p)), divergence(p, r)
            ),
            identity("its KL is g of f = −log u", _expanded(kl), _expanded(band_kl)),
            identity("its TV is g of f = |u − 1|/2", tv, band_tv),
            implication(
                "dropped exactly where the clipped gradient vanishes", [*ORDER, *theorem], sympy.Equivalent(dropped, BEYOND)
            ),
        ),
        derivation=r"\[ M=0\iff(A>0,\ r>1,\ g>\delta)\text{ or }(A<0,\ r<1,\ g>\delta)\iff(A>0,\ r>\mathrm{upper})\text{ or "
        r"}(A<0,\ r<\mathrm{lower}). \]",
    )


def _expanded(expression: sympy.Expr) -> sympy.Expr:
    """With logs of quotients of positive quantities taken apart."""
    return sympy.expand_log(expression, force=True)


def statements() -> list[Statement]:
    """Theorem 9."""
    return [gradient(), decided_by_divergence("upper"), decided_by_divergence("lower"), mask()]
