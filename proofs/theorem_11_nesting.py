"""Theorem 11: `D_outer ≤ φ(D_inner)` with φ non-decreasing nests the bands, `Band_inner(δ) ⊆ Band_outer(φ(δ))`.

Here is that step, and what holds for an undetermined f or any number of tokens. The inequalities between two given divergences
are in `inequalities.py`. Bands only need those between two outcomes (theorem 1).
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import ATTAINED, Z3, delta, f, x
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, implication, in_steps

ZERO, ONE = sympy.Integer(0), sympy.Integer(1)


def nesting(side: str, turned: bool = False) -> Statement:
    """The step from an inequality between divergences to the bands; `turned` claims the opposite inclusion."""
    sign = 1 if side == "upper" else -1
    inner, outer, image, radius = sympy.symbols("g_inner g_outer φ(g_inner) φ(δ)", real=True)
    bound, wide = sympy.symbols("b_inner b_outer", real=True)
    given = [inner <= delta, outer <= image, sympy.Implies(inner <= delta, image <= radius)]
    extreme = sympy.Implies(outer <= radius, sign * bound <= sign * wide)
    claim = sign * bound >= sign * wide if turned else sign * bound <= sign * wide
    relation = "≤" if sign > 0 else "≥"
    return Statement(
        name=f"theorem 11: nesting, {side} bound",
        statement=f"D_outer ≤ φ(D_inner), φ non-decreasing  ⟹  Band_inner(δ) ⊆ Band_outer(φ(δ)), {side}_inner {relation} "
        f"{side}_outer",
        latex=r"If $D_{\mathrm{outer}}\le\varphi(D_{\mathrm{inner}})$ with $\varphi$ non-decreasing, then "
        rf"$\mathrm{{Band}}_{{\mathrm{{inner}}}}(\delta)\subseteq\mathrm{{Band}}_{{\mathrm{{outer}}}}(\varphi(\delta))$; here "
        rf"for the {side} bound.",
        method=Method.SYMBOLIC,
        rests_on=(ATTAINED, Z3),
        prove=in_steps(
            implication("what is feasible for the inner is for the outer", given, outer <= radius),
            implication("so the outer bound is no nearer to 1", [*given, extreme], claim),
        ),
        derivation=r"\[ g_{\mathrm{inner}}(p,r)\le\delta\ \Longrightarrow\ "
        r"g_{\mathrm{outer}}(p,r)\le\varphi(g_{\mathrm{inner}}(p,r))\le\varphi(\delta). \]",
    )


def by_total_variation(factor: Any = 1) -> Statement:
    """`D_f ≤ (f(0) + f'(∞)) TV` for every f and any number of tokens; `factor` multiplies the right side."""
    n = sympy.Symbol("n", integer=True, positive=True)
    i = sympy.Symbol("i", integer=True, positive=True)
    P, u, up, down = (sympy.IndexedBase(letter) for letter in ("P", "u", "up", "down"))
    tokens = (i, 1, n)
    steepest, variation = sympy.symbols("f'(∞) TV", real=True)
    normal = {f(ONE): ZERO}
    moved = {u[i]: 1 + up[i] - down[i]}
    total = {sympy.Sum(P[i] * u[i], tokens): ONE, sympy.Sum(P[i], tokens): ONE}
    sums = {sympy.Sum(P[i] * up[i], tokens): variation, sympy.Sum(P[i] * down[i], tokens): variation}
    below, above = f(ZERO) * (1 - x) - f(x), steepest * (x - 1) - f(x)
    slack = f(ZERO) * down[i] + steepest * up[i] - f(u[i])

    return Statement(
        name="theorem 11: D_f ≤ (f(0) + f'(∞)) TV",
        statement="∀ f, any number of tokens:  D_f ≤ (f(0) + f'(∞)) TV;  TV = Σ P (u − 1)⁺ = Σ P (1 − u)⁺",
        latex=r"$D_f\le(f(0)+f'(\infty))\,\mathrm{TV}$ for every $f$ and any number of tokens.",
        method=Method.SYMBOLIC,
        rests_on=(
            "f convex, f(1) = 0",
            "f(u) ≤ (u − 1) f'(∞) for u ≥ 1 (theorem 7: limit of g for p → 1, with r = 1)",
            "u − 1 = up − down with up = (u − 1)⁺, down = (1 − u)⁺, one of which is 0",
            "linearity of finite sums",
        ),
        prove=in_steps(
            combination(
                "f(u) ≤ f(0)(1 − u) for u ≤ 1",
                below,
                [Term((1 - x,), Tangent(ZERO, x)), Term((x,), Tangent(ONE, x))],
                [x, 1 - x],
                normal,
            ),
            identity("the slack f(0) down + f'(∞) up − f(u) for u ≤ 1", _slack_at(slack, u[i], up[i], down[i], 1 - x), below),
            identity("and for u ≥ 1", _slack_at(slack, u[i], up[i], down[i], 1 - x, above=True), above),
            identity("Σ P up = Σ P down", sympy.Sum(P[i] * (u[i] - 1), tokens), 0, total),
            identity("as u − 1 = up − down", (u[i] - 1).subs(moved), up[i] - down[i]),
            combination(
                "(f(0) + f'(∞)) TV − D_f is a sum of slacks",
                factor * (f(ZERO) + steepest) * variation - sympy.Sum(P[i] * f(u[i]), tokens),
                [Term((P[i], slack), over=tokens)],
                [P[i], slack],
                sums,
            ),
        ),
        derivation=r"Chords from $0$ to $1$ and from $1$ on: $f(u)\le(1-u)f(0)$ for $u\le1$, $f(u)\le(u-1)f'(\infty)$ for "
        r"$u\ge1$; and $\sum P_i(u_i-1)^+=\sum P_i(1-u_i)^+=\mathrm{TV}$.",
    )


def _slack_at(slack: Any, ratio: Any, up: Any, down: Any, fall: Any, above: bool = False) -> Any:
    """The slack of one token that falls by `fall` (or, `above`, rises by `−fall`): the other of its two moves is 0."""
    moves = {up: -fall, down: ZERO} if above else {up: ZERO, down: fall}
    return slack.subs({ratio: 1 - fall, **moves}, simultaneous=True)


def kl_and_chi_square(shift: Any = 1) -> Statement:
    """`KL(Q‖P) ≤ log(1 + χ²)` for any number of tokens, by the tangent of log at 1 + χ²; `shift` is the claimed 1."""
    n = sympy.Symbol("n", integer=True, positive=True)
    i = sympy.Symbol("i", integer=True, positive=True)
    P, u = sympy.IndexedBase("P"), sympy.IndexedBase("u")
    chi = sympy.Symbol("chi", real=True)  # χ²
    tokens = (i, 1, n)
    m = shift + chi
    sums = {
        sympy.Sum(P[i] * u[i] ** 2, tokens): 1 + chi,
        sympy.Sum(P[i] * u[i], tokens): ONE,
        sympy.Sum(P[i], tokens): ONE,
    }
    slack = sympy.log(m) + (u[i] - m) / m - sympy.log(u[i])
    kl = sympy.Sum(P[i] * u[i] * sympy.log(u[i]), tokens)
    return Statement(
        name="theorem 11: KL(Q‖P) ≤ log(1 + χ²), any number of tokens",
        statement="∀ n: KL(Q‖P) ≤ log(1 + χ²), χ² = Σ(q − p)²/p, so Band_pearson_chi2(δ) ⊆ Band_reverse_kl(log(1 + δ))",
        latex=r"$\mathrm{KL}(Q\,\|\,P)\le\log(1+\chi^2)$ with $\chi^2=\sum(q-p)^2/p$, for any number of tokens.",
        method=Method.SYMBOLIC,
        rests_on=("log concave: log u ≤ log m + (u − m)/m", "linearity of finite sums", "theorem 11: nesting"),
        prove=in_steps(
            identity("Σ P u² = 1 + χ²", sympy.Sum(P[i] * (u[i] - 1) ** 2, tokens), chi, sums),
            combination(
                "log m − KL is a sum of gaps of the tangent of log",
                sympy.log(m) - kl,
                [Term((P[i], u[i], slack), over=tokens)],
                [P[i], u[i], slack],
                sums,
            ),
        ),
        derivation=r"With $m=1+\chi^2=\sum P_iu_i^2$: $\log m-\sum P_iu_i\log u_i=\sum P_iu_i\,[\log m+\tfrac{u_i-m}{m}-\log "
        r"u_i]\ge0$.",
    )


def statements() -> list[Statement]:
    """Theorem 11, but for the inequalities between two given divergences."""
    return [nesting("upper"), nesting("lower"), by_total_variation(), kl_and_chi_square()]
