"""Theorem 5: `lower(p) = [1 − (1 − p) upper(1 − p)]/p`, and the same with the roles exchanged.

The token with probability p and ratio r leaves `c = (1 − r p)/(1 − p)` to the rest. Seen from the rest, which has probability
1 − p and ratio c, it is the token that is scaled by r. So `r ↦ c` carries the band at p onto the band at 1 − p, upside down.
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import Z3, complement, divergence, p, proper, r
from proofs.statement import Method, Statement
from proofs.steps import identity, implication, in_steps


def exchange(image: Any = None) -> Statement:
    """`g(1 − p, c) = g(p, r)`, and `r ↦ c` is its own inverse up to p ↔ 1 − p; `image` is the claimed c."""
    image = complement(p, r) if image is None else image
    return Statement(
        name="theorem 5: exchange of the two outcomes",
        statement="g(1 − p, c) = g(p, r) for c = (1 − r p)/(1 − p), and (1 − c (1 − p))/p = r",
        latex=r"$g(1-p,c)=g(p,r)$ for $c=(1-rp)/(1-p)$, and $r=(1-c\,(1-p))/p$.",
        method=Method.SYMBOLIC,
        rests_on=("nothing about f",),
        prove=in_steps(
            identity("r is the complement of c", complement(1 - p, image), r),
            identity("the divergence is the same", divergence(1 - p, image), divergence(p, r)),
        ),
        derivation=r"\[ g(1-p,c)=(1-p)f(c)+p\,f\Bigl(\frac{1-c\,(1-p)}{p}\Bigr)=(1-p)f(c)+p f(r)=g(p,r). \]",
    )


def mirror(which: str, formula: Any = None) -> Statement:
    """One bound at p from the other at 1 − p, `b`; `formula(p, b)` is the claimed one."""
    other = "upper" if which == "lower" else "lower"
    sign = 1 if which == "upper" else -1
    bound = sympy.Symbol(other, real=True)
    formula = (1 - (1 - p) * bound) / p if formula is None else formula(p, bound)
    image = complement(p, r)
    extreme = sign * (complement(p, r) - bound) >= 0  # c is on the inner side of the other bound, as it is in the band at 1 − p
    return Statement(
        name=f"theorem 5: mirror, {which} bound",
        statement=f"{which}(p) = [1 − (1 − p) {other}(1 − p)]/p",
        latex=rf"$\mathrm{{{which}}}(p)=[1-(1-p)\,\mathrm{{{other}}}(1-p)]/p$.",
        method=Method.SYMBOLIC,
        rests_on=("theorem 5: exchange of the two outcomes", Z3),
        prove=in_steps(
            identity("r ↦ c turns the order round", sympy.diff(image, r), -p / (1 - p)),
            identity("it maps 0 to 1/(1 − p)", image.subs(r, 0), 1 / (1 - p)),
            identity("and 1/p to 0", image.subs(r, 1 / p), 0),
            implication("no r of the band is beyond", [proper(p), extreme], sign * (formula - r) >= 0),
            identity("and it is in the band: its image is the other bound", complement(p, formula), bound),
        ),
        derivation=r"The map $r\mapsto c$ decreases, carries $[0,1/p]$ onto $[0,1/(1-p)]$ and the band at $p$ onto the band "
        r"at $1-p$. "
        rf"So it carries $\mathrm{{{which}}}(p)$ to $\mathrm{{{other}}}(1-p)$; solve $c(r)=\mathrm{{{other}}}(1-p)$ for $r$.",
    )


def statements() -> list[Statement]:
    """Theorem 5."""
    return [exchange(), mirror("lower"), mirror("upper")]
