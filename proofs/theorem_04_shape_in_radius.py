"""Theorem 4: `upper` is non-decreasing and concave in δ, `lower` non-increasing and convex: the argument by mixtures.

If Q₀ is within δ₀ and Q₁ within δ₁, then `(1 − t) Q₀ + t Q₁` is a policy within `(1 − t) δ₀ + t δ₁`, for any number of tokens.
"""

from __future__ import annotations

from typing import Any

import sympy

from proofs.notation import ATTAINED, CONVEX, Z3, f, p, t
from proofs.statement import Method, Statement
from proofs.steps import Tangent, Term, combination, identity, implication, in_steps
from proofs.theorem_01_reduction import OTHERS, P, i

first, second = sympy.IndexedBase("u"), sympy.IndexedBase("v")  # ratios of the other tokens in Q₀ and Q₁
first_own, second_own = sympy.symbols("u_a v_a", real=True)
radii = sympy.symbols("delta_0 delta_1", real=True)


def _mean(a: Any, b: Any) -> Any:
    return (1 - t) * a + t * b


def _divergence(own: Any, others: Any) -> sympy.Expr:
    return p * f(own) + sympy.Sum(P[i] * f(others), OTHERS)


def mixture(radius: Any = None) -> Statement:
    """A mixture of two feasible policies is feasible for the mixed radius; `radius(t, δ₀, δ₁)` is the one that is claimed."""
    radius = _mean(*radii) if radius is None else radius(t, *radii)
    spent = [_divergence(first_own, first[i]), _divergence(second_own, second[i])]
    own, others = _mean(first_own, second_own), _mean(first[i], second[i])
    weights = (1 - t, t)
    slack = [radii[k] - spent[k] for k in (0, 1)]
    terms = [Term((weights[k], slack[k])) for k in (0, 1)]
    terms += [Term((weights[k], p), Tangent((first_own, second_own)[k], own)) for k in (0, 1)]
    terms += [Term((weights[k], P[i]), Tangent((first, second)[k][i], others), OTHERS) for k in (0, 1)]
    total = {
        sympy.Sum(P[i] * first[i], OTHERS): 1 - p * first_own,
        sympy.Sum(P[i] * second[i], OTHERS): 1 - p * second_own,
    }
    return Statement(
        name="theorem 4: mixtures",
        statement="∀ n, P, t ∈ [0, 1]: D_f(Q₀‖P) ≤ δ₀ and D_f(Q₁‖P) ≤ δ₁ ⟹ D_f((1 − t)Q₀ + tQ₁‖P) ≤ (1 − t)δ₀ + tδ₁",
        latex=r"If $D_f(Q_0\,\|\,P)\le\delta_0$ and $D_f(Q_1\,\|\,P)\le\delta_1$, then "
        r"$D_f((1-t)Q_0+tQ_1\,\|\,P)\le(1-t)\delta_0+t\delta_1$ for $t\in[0,1]$, for any number of tokens.",
        method=Method.SYMBOLIC,
        rests_on=(CONVEX, "linearity of finite sums"),
        prove=in_steps(
            combination(
                "radius − D = mean of the slacks + gaps of tangents",
                radius - _divergence(own, others),
                terms,
                [t, 1 - t, p, P[i], *slack],
            ),
            identity("the mixture sums to 1", p * own + sympy.Sum(P[i] * others, OTHERS), 1, total),
        ),
        derivation=r"With $w_0=1-t$, $w_1=t$ and $\bar u=(1-t)u+tv$ for the ratios $u$ of $Q_0$ and $v$ of $Q_1$, "
        r"\[ \sum_k w_k\delta_k-D=\sum_k w_k(\delta_k-D_k)+\sum_iP_i\sum_k w_k\,[f(u^{(k)}_i)-f(\bar u_i)-f'(\bar "
        r"u_i)(u^{(k)}_i-\bar u_i)]\ge0. \]",
    )


def value_function(side: str, turned: bool = False) -> Statement:
    """Concavity of `upper` and convexity of `lower` in δ; `turned` claims the reverse inequality."""
    sign = 1 if side == "upper" else -1
    # the extreme ratios at δ₀ and δ₁, which are attained, and at (1 − t) δ₀ + t δ₁; g at the first two and at their mean
    at_first, at_second, at_mean = sympy.symbols("b_0 b_1 b_t", real=True)
    g_first, g_second, g_mean = sympy.symbols("g_0 g_1 g_t", real=True)
    attained = [g_first <= radii[0], g_second <= radii[1]]
    mixed = g_mean <= _mean(g_first, g_second)
    extreme = sympy.Implies(g_mean <= _mean(*radii), sign * _mean(at_first, at_second) <= sign * at_mean)
    wider = sympy.Implies(g_first <= radii[1], sign * at_first <= sign * at_second)
    claim = sign * at_mean >= sign * _mean(at_first, at_second)
    if turned:
        claim = sign * at_mean <= sign * _mean(at_first, at_second)
    words = "concave" if sign > 0 else "convex"
    tex = rf"\mathrm{{{side}}}"
    order = ("≥", r"\ge") if sign > 0 else ("≤", r"\le")
    return Statement(
        name=f"theorem 4: {side} is {words} and {'non-decreasing' if sign > 0 else 'non-increasing'} in δ",
        statement=f"{side}((1 − t)δ₀ + tδ₁) {order[0]} (1 − t) {side}(δ₀) + t {side}(δ₁);  δ₀ ≤ δ₁ ⟹ {side}(δ₁) {order[0]} "
        f"{side}(δ₀)",
        latex=rf"${tex}((1-t)\delta_0+t\delta_1){order[1]}(1-t)\,{tex}(\delta_0)+t\,{tex}(\delta_1)$, and "
        rf"${tex}(\delta_1){order[1]}{tex}(\delta_0)$ for $\delta_0\le\delta_1$.",
        method=Method.SYMBOLIC,
        rests_on=("theorem 4: mixtures", ATTAINED, Z3),
        prove=in_steps(
            implication("no worse than the mixture", [t >= 0, t <= 1, *attained, mixed, extreme], claim),
            implication(
                "no worse than what is within a smaller radius",
                [*attained, radii[0] <= radii[1], wider],
                sign * at_first <= sign * at_second,
            ),
        ),
        derivation=r"The mixture of policies that attain the bounds at $\delta_0$ and $\delta_1$ is feasible at "
        r"$(1-t)\delta_0+t\delta_1$, and its ratio is the mixture of theirs. A larger radius has a larger feasible set.",
    )


def statements() -> list[Statement]:
    """Theorem 4."""
    return [mixture(), value_function("upper"), value_function("lower")]
