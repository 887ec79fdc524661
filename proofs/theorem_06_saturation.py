"""Theorem 6: `upper = 1/p` iff `p f(1/p) + (1 − p) f(0) ≤ δ`; `lower = 0` iff `p f(0) + (1 − p) f(1/(1 − p)) ≤ δ`."""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import ATTAINED, Z3, complement, delta, divergence, f, p, proper
from proofs.statement import Method, Statement
from proofs.steps import identity, implication, in_steps

ZERO = sympy.Integer(0)


def saturation(side: str, claim: Any = None, end: Any = None) -> Statement:
    """The bound is at the end of `[0, 1/p]` iff the divergence there is within the radius; `claim` is its claimed value."""
    upper = side == "upper"
    end = (1 / p if upper else ZERO) if end is None else end
    if claim is None:
        claim = p * f(1 / p) + (1 - p) * f(ZERO) if upper else p * f(ZERO) + (1 - p) * f(1 / (1 - p))
    bound, at_bound, at_end = sympy.symbols("b g_b g_end", real=True)
    last = 1 / p if upper else ZERO
    within = [proper(p), bound >= 0, bound * p <= 1]
    attained = at_bound <= delta
    same = sympy.Implies(sympy.Eq(bound, last), sympy.Eq(at_bound, at_end))  # g is a function
    extreme = sympy.Implies(at_end <= delta, last <= bound if upper else last >= bound)  # no feasible point is beyond the bound
    word = "1/p" if upper else "0"
    formula = "p f(1/p) + (1 − p) f(0)" if upper else "p f(0) + (1 − p) f(1/(1 − p))"
    in_latex = r"p f(1/p)+(1-p)f(0)" if upper else r"p f(0)+(1-p)f(1/(1-p))"
    return Statement(
        name=f"theorem 6: saturation, {side} bound",
        statement=f"{side} = {word}  ⟺  {formula} ≤ δ",
        latex=rf"$\mathrm{{{side}}}={word}$ if and only if ${in_latex}\le\delta$.",
        method=Method.SYMBOLIC,
        rests_on=(ATTAINED, Z3),
        prove=in_steps(
            identity("c at that end", complement(p, end), ZERO if upper else 1 / (1 - p)),
            identity("g at that end", divergence(p, end), claim),
            implication("it is the last r with 0 ≤ r and 0 ≤ c", within, bound <= last if upper else bound >= last),
            implication(
                "both directions", [*within, attained, same, extreme], sympy.Equivalent(sympy.Eq(bound, last), at_end <= delta)
            ),
        ),
        derivation=rf"At $r={word}$ one has $c={'0' if upper else '1/(1-p)'}$ and $g(p,r)={in_latex}$. The bound is the "
        rf"extreme point of "
        r"$\{r\in[0,1/p]:g(p,r)\le\delta\}$ and belongs to it: it is the end of the interval if and only if that end belongs "
        r"to the set.",
    )


def statements() -> list[Statement]:
    """Theorem 6."""
    return [saturation("upper"), saturation("lower")]
