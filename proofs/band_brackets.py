"""What the bands without a closed form look like over a whole box of (p, δ): exploration margin, monotonicity, PPO's clip.

With the move in the scale of the complement, r = 1 + v(1 − p)/p and c = 1 − v for v ∈ [0, 1], and the small-radius law

    w = sqrt(2δp/((1 − p) f''(1))),        W = sqrt(2δ(1 − p)/(p f''(1))) = w at 1 − p        (theorem 7)

constants κ < K are proved to bracket the bounds over the box:

    κ min(W, (1 − p)/p) ≤ upper − 1 ≤ K(W + δ(1 − p)/p)    and, by the mirror,    κ min(W, 1) ≤ 1 − lower ≤ K(W + δ)

Over a piece [p₁, p₂] × [δ₁, δ₂] the constraint G(p, v) = g(p, r) lies between its values at corners: it increases in v (theorem
2) and does not increase in p at fixed v (theorem 3 in the mirror), and w increases in p and in δ. Existence and uniqueness of
the bound follow from g(p, lo) ≤ δ ≤ g(p, hi) with g continuous, convex and 0 at r = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import sympy

from proofs.boxes import Axis, Ends, expression_enclosure, positive_over
from proofs.closed_form_proof import all_proved
from proofs.real_arithmetic import Implication
from proofs.statement import Method, Outcome, Statement, Status

SMALL = Fraction(1, 10**6)
P_AXIS = Axis("p", SMALL, 1 - SMALL, "logit")
DELTA_AXIS = Axis("δ", Fraction(1, 1000), Fraction(1), "log")
MOVE_AXIS = Axis("v", Fraction(1, 20), Fraction(19, 20), "logit")
BOX = "p ∈ [1e-6, 1 − 1e-6], δ ∈ [1e-3, 1]"
_ARB = ("flint (ball arithmetic)",)


@dataclass(frozen=True)
class Bracket:
    """A divergence without closed form, and what is claimed of its band.

    `below`, `above` are κ and K. `threshold`: at δ = 0.05 the upper bound exceeds 1.2 for p up to the first fraction and not
    from the second on, which is None where it exceeds 1.2 for practically all p that admit a ratio of 1.2.
    """

    name: str
    below: Fraction
    above: Fraction
    threshold: tuple[Fraction, Fraction | None]


def _bracket(name: str, below: str, above: str, low: str, high: str | None) -> Bracket:
    return Bracket(name, Fraction(below), Fraction(above), (Fraction(low), None if high is None else Fraction(high)))


BRACKETS = (
    _bracket("kl", "0.69", "1", "0.670731", "0.670732"),
    _bracket("reverse_kl", "0.8", "1", "0.691273", "0.691274"),
    _bracket("jensen_shannon", "0.75", "2.8", "0.826477", "0.826478"),
    _bracket("jeffreys", "0.73", "1", "0.546199", "0.546200"),
    _bracket("symmetric_chi2", "0.68", "1", "0.389956", "0.389957"),
    _bracket("alpha:-0.5", "0.65", "1.5", "0.661229", "0.661230"),
    _bracket("alpha:3", "0.125", "1.25", "0.740407", "0.740408"),
    _bracket("skew_jensen_shannon:0.1", "0.8", "4.2", "0.83", None),
    _bracket("skew_jensen_shannon:0.7", "0.73", "3.9", "0.827140", "0.827141"),
)


def generator(name: str) -> tuple[sympy.Symbol, sympy.Expr]:
    """The symbol u and f(u) of a divergence of the library."""
    from bandtheory import divergence
    from bandtheory.expressions import symbol

    return symbol(), divergence(name).generator


def curvature_at_one(name: str) -> sympy.Expr:
    """f''(1)."""
    u, f = generator(name)
    return sympy.diff(f, u, 2).subs(u, 1)


class Constraint:
    """G(p, v) = p f(1 + v(1 − p)/p) + (1 − p) f(1 − v) and w(p, δ) at exact points, as balls."""

    def __init__(self, name: str) -> None:
        from bandtheory.ball import ball_function, exact

        u, f = generator(name)
        self.f: Callable[[Any], Any] = ball_function(f, u)
        self.exact = exact
        self.curvature = curvature_at_one(name)

    def G(self, p: Fraction, v: Any) -> Any:
        """The constraint's left side; v a ball in (0, 1)."""
        ratio = self.exact((1 - p) / p)
        return self.exact(p) * self.f(1 + v * ratio) + self.exact(1 - p) * self.f(1 - v)

    def w(self, p: Fraction, delta: Fraction) -> Any:
        """The small-radius law of v."""
        return (self.exact(2 * delta * p / (1 - p)) / self.exact(self.curvature)).sqrt()


def prove_below(name: str, factor: Fraction, seconds: float) -> Outcome:
    """`G(p, κ min(w, 1)) ≤ δ` over the box: the bound is at least there."""
    constraint = Constraint(name)

    def margin(piece: Sequence[Ends]) -> Any:
        (p_low, p_high), (delta_low, delta_high) = piece
        move = constraint.exact(factor) * constraint.w(p_high, delta_high).min(constraint.exact(1))
        return constraint.exact(delta_low) - constraint.G(p_low, move)

    return positive_over((P_AXIS, DELTA_AXIS), margin, seconds, strict=False)


def prove_above(name: str, factor: Fraction, seconds: float) -> Outcome:
    """`G(p, K(w + δ)) ≥ δ` wherever K(w + δ) < 1: the bound is at most there."""
    constraint = Constraint(name)

    def move(p: Fraction, delta: Fraction) -> Any:
        return constraint.exact(factor) * (constraint.w(p, delta) + constraint.exact(delta))

    def margin(piece: Sequence[Ends]) -> Any:
        (p_low, p_high), (delta_low, delta_high) = piece
        return constraint.G(p_high, move(p_low, delta_low)) - constraint.exact(delta_high)

    def beyond_the_simplex(piece: Sequence[Ends]) -> bool:
        return bool(move(piece[0][0], piece[1][0]) >= 1)

    return positive_over((P_AXIS, DELTA_AXIS), margin, seconds, strict=False, skip=beyond_the_simplex)


def prove_bracket(name: str, below: Fraction, above: Fraction, seconds: float) -> Outcome:
    """Both sides, one after the other."""
    return _both(partial(prove_below, name, below), partial(prove_above, name, above), seconds)


def _both(first: Callable[[float], Outcome], second: Callable[[float], Outcome], seconds: float) -> Outcome:
    outcomes = []
    for prove in (first, second):
        outcome = prove(seconds / 2)
        if outcome.status != Status.PROVED:
            return outcome
        outcomes.append(outcome)
    return Outcome(Status.PROVED, "; ".join(outcome.detail for outcome in outcomes))


def prove_threshold(
    name: str, ratio: Fraction, delta: Fraction, low: Fraction, high: Fraction | None, seconds: float
) -> Outcome:
    """`g(p, ratio) < δ` for p up to `low`, and `> δ` from `high` up to 0.83."""
    u, f = generator(name)
    p = sympy.Symbol("p", positive=True)
    r, radius = sympy.Rational(ratio), sympy.Rational(delta)
    g = p * f.subs(u, r) + (1 - p) * f.subs(u, (1 - r * p) / (1 - p))
    inside = Axis("p", SMALL, low, "logit")
    exceeds = partial(positive_over, (inside,), expression_enclosure(radius - g, (p,)))
    if high is None:
        return exceeds(seconds)
    outside = Axis("p", high, Fraction(83, 100), "logit")
    return _both(exceeds, partial(positive_over, (outside,), expression_enclosure(g - radius, (p,))), seconds)


def prove_monotone(name: str, seconds: float) -> Outcome:
    """`∂g/∂r = p(f'(r) − f'(c)) > 0` and `∂g/∂p = f(r) − f(c) − f'(c)(r − c) > 0` over a box of (p, v)."""
    u, f = generator(name)
    p, v = sympy.symbols("p v", positive=True)
    slope = sympy.diff(f, u)
    r, c = 1 + v * (1 - p) / p, 1 - v
    in_r = expression_enclosure(slope.subs(u, r) - slope.subs(u, c), (p, v))
    in_p = expression_enclosure((f.subs(u, r) - f.subs(u, c)) * p / v - slope.subs(u, c), (p, v))
    axes = (P_AXIS, MOVE_AXIS)
    return _both(partial(positive_over, axes, in_r), partial(positive_over, axes, in_p), seconds)


def prove_strictly_convex(name: str, seconds: float) -> Outcome:
    """`f''(u) > 0` for all u > 0."""
    u, f = generator(name)
    x = sympy.Symbol("u", positive=True)
    second = sympy.simplify(sympy.diff(f, u, 2).subs(u, x))
    positive = Implication("f'' > 0", (sympy.Gt(x, 0, evaluate=False),), sympy.Gt(second, 0, evaluate=False))
    return all_proved(iter((positive,)), seconds)


def _texttt(name: str) -> str:
    return rf"\texttt{{{name.replace('_', chr(92) + '_')}}}"


def _of(bracket: Bracket) -> list[Statement]:
    name, below, above = bracket.name, float(bracket.below), float(bracket.above)
    low, high = bracket.threshold
    clip = f"p ∈ [1e-6, {float(low):.6f}]: g(p, 1.2) < δ, so upper > 1.2"
    if high is not None:
        clip += f"; p ∈ [{float(high):.6f}, 0.83]: upper < 1.2"
    box_latex = r"$p \in [10^{-6}, 1 - 10^{-6}]$, $\delta \in [10^{-3}, 1]$"
    return [
        Statement(
            f"{name} strictly convex",
            "∀ u > 0: f''(u) > 0; hence ∂g/∂r > 0 for r > 1 and, where δ > 0 and it does not saturate (theorem 6), each "
            "bound is the only solution of g = δ on its side",
            rf"{_texttt(name)}: $f''(u) > 0$ for all $u > 0$.",
            Method.DECISION,
            ("z3 (nonlinear real arithmetic)", "theorem 2", "theorem 6"),
            partial(prove_strictly_convex, name),
        ),
        Statement(
            f"{name} exploration margin",
            f"{BOX}: {below:g}·min(W, (1−p)/p) ≤ upper − 1 ≤ {above:g}·(W + δ(1−p)/p) and {below:g}·min(W, 1) ≤ 1 − lower ≤ "
            f"{above:g}·(W + δ), W = √(2δ(1−p)/(p f''(1))), f''(1) = {curvature_at_one(name)}",
            rf"{_texttt(name)}, for all {box_latex}, with $W = \sqrt{{2\delta(1-p)/(p f''(1))}}$: "
            rf"${below:g}\min(W, (1-p)/p) \le \mathrm{{upper}} - 1 \le {above:g}(W + \delta(1-p)/p)$.",
            Method.BALL,
            (*_ARB, "theorem 2", "theorem 3", "theorem 5 (lower bound)"),
            partial(prove_bracket, name, bracket.below, bracket.above),
        ),
        Statement(
            f"{name} against PPO's clip",
            f"δ = 0.05, {clip}",
            rf"{_texttt(name)} at $\delta = 0.05$: $\mathrm{{upper}} > 1.2$ for $p \in [10^{{-6}}, {float(low):.6f}]$"
            + ("." if high is None else rf", and $< 1.2$ for $p \in [{float(high):.6f}, 0.83]$."),
            Method.BALL,
            (*_ARB, "theorem 2"),
            partial(prove_threshold, name, Fraction(6, 5), Fraction(1, 20), low, high),
        ),
        Statement(
            f"{name} monotone constraint",
            "p ∈ [1e-6, 1 − 1e-6], v = 1 − c ∈ [0.05, 0.95]: ∂g/∂r > 0 and ∂g/∂p > 0 for r = 1 + v(1−p)/p",
            rf"{_texttt(name)}: $\partial g/\partial r > 0$ and $\partial g/\partial p > 0$ for "
            r"$p \in [10^{-6}, 1 - 10^{-6}]$, $v = 1 - c \in [0.05, 0.95]$.",
            Method.BALL,
            _ARB,
            partial(prove_monotone, name),
        ),
    ]


def statements() -> list[Statement]:
    """Four statements for each divergence without a closed form."""
    return [statement for bracket in BRACKETS for statement in _of(bracket)]
