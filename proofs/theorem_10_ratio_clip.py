"""Theorem 10: ratio clipping is a band: `hockey_stick:γ`, `f(u) = max(u − γ, 0)`, at radius 0 has `upper = γ` if p ≤ 1/γ."""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import Z3, c, p, proper, r
from proofs.statement import Method, Statement
from proofs.steps import implication, in_steps

gamma, bound = sympy.symbols("gamma b", real=True)


def _generator(value: Any) -> sympy.Expr:
    return sympy.Max(value - gamma, 0)


def _divergence(ratio: Any, common: Any) -> sympy.Expr:
    return p * _generator(ratio) + (1 - p) * _generator(common)


def _domain(ratio: Any, common: Any) -> list[Any]:
    """`c` as a letter of its own: p r + (1 − p) c = 1."""
    return [proper(p), ratio >= 0, common >= 0, sympy.Eq(p * ratio + (1 - p) * common, 1)]


def ratio_clip(upper: Any = None, only_if: Any = None) -> Statement:
    """The largest ratio at radius 0; `upper` is the claimed one, `only_if` the claimed condition on p."""
    upper = gamma if upper is None else upper
    condition = p * gamma <= 1 if only_if is None else only_if
    given = [gamma >= 1, condition]
    return Statement(
        name="theorem 10: ratio clipping is a band",
        statement="∀ γ ≥ 1, p ≤ 1/γ:  the band of hockey_stick:γ at radius 0 has upper = γ; with γ = 1 + ε it is PPO's upper "
        "clip",
        latex=r"For $\gamma\ge1$ and $p\le1/\gamma$, the band of $f(u)=\max(u-\gamma,0)$ at radius $0$ has "
        r"$\mathrm{upper}=\gamma$.",
        method=Method.DECISION,
        rests_on=(Z3,),
        prove=in_steps(
            implication("γ leaves the others c ≥ 0", [*given, proper(p), sympy.Eq(p * upper + (1 - p) * c, 1)], c >= 0),
            implication("γ is in the band", [*given, *_domain(bound, c), sympy.Eq(bound, upper)], _divergence(bound, c) <= 0),
            implication("nothing beyond is", [*given, *_domain(r, c), _divergence(r, c) <= 0], r <= upper),
        ),
        derivation=r"Both terms of $g=p\max(r-\gamma,0)+(1-p)\max(c-\gamma,0)$ are $\ge0$, so $g\le0$ if and only if "
        r"$r\le\gamma$ and $c\le\gamma$. At $r=\gamma\ge1$, $c\le1\le\gamma$; and $c\ge0$ because $p\gamma\le1$.",
    )


def saturated(limit: Any = None) -> Statement:
    """For p ≥ 1/γ all of the probability is in reach."""
    limit = 1 / p if limit is None else limit
    return Statement(
        name="theorem 10: beyond p = 1/γ",
        statement="∀ γ ≥ 1, p ≥ 1/γ:  at radius 0, upper = 1/p",
        latex=r"For $\gamma\ge1$ and $p\ge1/\gamma$: $\mathrm{upper}=1/p$ at radius $0$.",
        method=Method.DECISION,
        rests_on=(Z3,),
        prove=in_steps(
            implication(
                "1/p is in the band",
                [gamma >= 1, p * gamma >= 1, proper(p), sympy.Eq(bound, limit), sympy.Eq(p * bound + (1 - p) * c, 1)],
                sympy.And(_divergence(bound, c) <= 0, c >= 0),
            ),
            implication("it is the end of the simplex", _domain(r, c), r <= limit),
        ),
    )


def lower_end(claim: Any = None) -> Statement:
    """`lower = max((1 − γ(1 − p))/p, 0)` at radius 0: what the others leave at most γ times theirs."""
    claim = sympy.Max((1 - gamma * (1 - p)) / p, 0) if claim is None else claim
    given = [gamma >= 1]
    return Statement(
        name="theorem 10: its lower end",
        statement="∀ γ ≥ 1, p:  at radius 0, lower = max((1 − γ(1 − p))/p, 0)",
        latex=r"At radius $0$, $\mathrm{lower}=\max((1-\gamma(1-p))/p,\,0)$.",
        method=Method.DECISION,
        rests_on=(Z3,),
        prove=in_steps(
            implication(
                "it is in the simplex", [*given, proper(p), sympy.Eq(bound, claim)], sympy.And(bound >= 0, bound * p <= 1)
            ),
            implication("it is in the band", [*given, *_domain(bound, c), sympy.Eq(bound, claim)], _divergence(bound, c) <= 0),
            implication("nothing below is", [*given, *_domain(r, c), _divergence(r, c) <= 0], r >= claim),
        ),
        derivation=r"The others need $c\le\gamma$, that is $r\ge(1-\gamma(1-p))/p$.",
    )


def statements() -> list[Statement]:
    """Theorem 10."""
    return [ratio_clip(), saturated(), lower_end()]
