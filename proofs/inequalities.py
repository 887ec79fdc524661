"""Theorem 11: inequalities between divergences, which nest their bands, and what is proved over whole boxes of (p, δ).

An inequality `f ≤ h` between generators, tilted to their minimum 0 at 1, holds for the divergences of any number of tokens.
Three ways to prove one for all u > 0:

    algebraic     z3 decides it
    calculus      D = h − f times a positive factor vanishes at 1, and its derivative, which is algebraic, has the sign of u − 1
    convexity     f ≤ f(0)(1 − u) on (0, 1] and f ≤ f'(∞)(u − 1) on [1, ∞), chord and asymptote of a convex f with f(1) = 0

The others are for two outcomes, (p, 1 − p) and (q, 1 − q), which is all that a band needs (theorem 1). The statements of
`band_brackets` about divergences without a closed form follow them in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import sympy

from proofs import band_brackets
from proofs.closed_form_proof import all_proved
from proofs.real_arithmetic import Implication, decide, fails_at
from proofs.statement import Method, Outcome, Statement, Status

u, p, q = sympy.symbols("u p q", positive=True)
_ALL_RATIOS = (sympy.Gt(u, 0, evaluate=False),)
_TWO_OUTCOMES = (sympy.Gt(p, 0, evaluate=False), sympy.Lt(p, 1), sympy.Gt(q, 0, evaluate=False), sympy.Lt(q, 1))
_TRIED = tuple(
    sympy.Rational(text) for text in ("1/1000", "1/10", "2/5", "3/5", "9/10", "999/1000", "1001/1000", "2", "7", "500")
)


def tilted(name: str) -> sympy.Expr:
    """The library's generator of a divergence with its minimum 0 at 1, in this module's u."""
    from bandtheory import divergence
    from bandtheory.expressions import symbol

    return divergence(name).tilted.subs(symbol(), u)


def algebraic(difference: sympy.Expr, hypotheses: tuple[sympy.Basic, ...], seconds: float) -> Outcome:
    """`difference ≥ 0` by z3."""
    return all_proved(iter((Implication("difference ≥ 0", hypotheses, sympy.Ge(difference, 0, evaluate=False)),)), seconds)


def calculus(
    difference: sympy.Expr,
    variable: sympy.Symbol,
    zero: sympy.Expr,
    hypotheses: tuple[sympy.Basic, ...],
    seconds: float,
    factor: sympy.Expr = sympy.S.One,
) -> Outcome:
    """`difference ≥ 0`: times a positive factor it is 0 at `zero`, falls before it and rises after it.

    What cannot be shown is refuted if the difference is negative in 50 digits at one of a few points, and open otherwise.
    """
    scaled = difference * factor
    slope = sympy.simplify(sympy.diff(scaled, variable))
    steps = (
        Implication("factor > 0", hypotheses, sympy.Gt(factor, 0, evaluate=False)),
        Implication(
            "rises after its zero", (*hypotheses, sympy.Ge(variable, zero, evaluate=False)), sympy.Ge(slope, 0, evaluate=False)
        ),
        Implication(
            "falls before it", (*hypotheses, sympy.Le(variable, zero, evaluate=False)), sympy.Le(slope, 0, evaluate=False)
        ),
    )
    at_zero = sympy.simplify(scaled.subs(variable, zero))
    outcome = Outcome(Status.OPEN, f"the difference is {at_zero} at {variable} = {zero}, not 0")
    if at_zero == 0:
        outcome = all_proved(iter(steps), seconds)
        if outcome.status == Status.PROVED:
            return Outcome(Status.PROVED, f"0 at {variable} = {zero}; the slope of (difference · {factor}) is {slope}")
    claim = Implication("difference ≥ 0", hypotheses, sympy.Ge(difference, 0, evaluate=False))
    point = next((point for point in _points(difference) if fails_at(claim, point)), None)
    if point is None:
        return Outcome(Status.OPEN, outcome.detail)
    return Outcome(Status.REFUTED, "negative at " + ", ".join(f"{symbol} = {value}" for symbol, value in point.items()))


def _points(expression: sympy.Expr) -> Iterator[dict[sympy.Symbol, sympy.Rational]]:
    """Points at which a failed proof looks for a counter-example; p and q get different values."""
    symbols = sorted(expression.free_symbols, key=str)
    for shift in range(len(_TRIED)):
        for i in range(len(_TRIED)):
            yield {symbol: _TRIED[(i + k * shift) % len(_TRIED)] for k, symbol in enumerate(symbols)}


def below_total_variation(generator: sympy.Expr, constant: sympy.Expr, seconds: float) -> Outcome:
    """`f(u) ≤ constant·|u − 1|` for a convex f with f(1) = 0: the constant is at least f(0) and f'(∞)."""
    if sympy.simplify(generator.subs(u, 1)) != 0:
        return Outcome(Status.OPEN, "f(1) is not 0")
    ends = {"f(0)": sympy.limit(generator, u, 0, "+"), "f'(∞)": sympy.limit(sympy.expand(generator) / u, u, sympy.oo)}
    for label, end in ends.items():
        gap = sympy.simplify(constant - end)
        if gap.is_negative:
            return Outcome(Status.REFUTED, f"{label} = {end} > {constant}")
        if not gap.is_nonnegative:
            return Outcome(Status.OPEN, f"{label} = {end} against {constant}")
    convex = Implication("f'' ≥ 0", _ALL_RATIOS, sympy.Ge(sympy.simplify(sympy.diff(generator, u, 2)), 0, evaluate=False))
    outcome = decide(convex, seconds)
    if outcome.status != Status.PROVED:
        return Outcome(Status.OPEN, outcome.detail)
    return Outcome(Status.PROVED, f"f'' ≥ 0, f(0) = {ends['f(0)']}, f'(∞) = {ends[chr(102) + chr(39) + '(∞)']}")


def bounded_logarithm(moment: sympy.Expr, seconds: float) -> Outcome:
    """`q log(q/p) + (1 − q) log((1 − q)/(1 − p)) ≤ log M`, from log x ≤ x − 1 and M ≥ Σ q²/p.

    With x = (q/p)/M: Σ q log(q/p) − log M = Σ q log x ≤ Σ q (x − 1) = (Σ q²/p)/M − 1 ≤ 0.
    """
    outcome = calculus(u - 1 - sympy.log(u), u, sympy.Integer(1), _ALL_RATIOS, seconds / 2)
    if outcome.status != Status.PROVED:
        return outcome
    second_moment = q**2 / p + (1 - q) ** 2 / (1 - p)
    enough = Implication("M ≥ Σ q²/p", _TWO_OUTCOMES, sympy.Ge(moment, second_moment, evaluate=False))
    enough_outcome = decide(enough, seconds / 2)
    if enough_outcome.status != Status.PROVED:
        return Outcome(Status.OPEN, enough_outcome.detail)
    return Outcome(Status.PROVED, "log x ≤ x − 1 for all x > 0, summed with weights q; M ≥ Σ q²/p")


def pointwise(inner: str, outer: str, inner_factor: sympy.Expr, outer_factor: sympy.Expr, seconds: float) -> Outcome:
    """`inner_factor·f_inner ≤ outer_factor·f_outer` for all u > 0, algebraic generators by name."""
    difference = outer_factor * tilted(outer) - inner_factor * tilted(inner)
    return algebraic(difference, _ALL_RATIOS, seconds)


def by_calculus(inner: str, outer: str, factor: sympy.Expr, seconds: float) -> Outcome:
    """`f_inner ≤ f_outer` for all u > 0, by the slope of (f_outer − f_inner)·factor."""
    return calculus(tilted(outer) - tilted(inner), u, sympy.Integer(1), _ALL_RATIOS, seconds, factor)


def pinsker(constant: sympy.Expr, seconds: float) -> Outcome:
    """`constant·(p − q)² ≤ KL` for two outcomes, in q: the slope of the difference has the factor q − p."""
    kl = p * sympy.log(p / q) + (1 - p) * sympy.log((1 - p) / (1 - q))
    return calculus(kl - constant * (p - q) ** 2, q, p, _TWO_OUTCOMES, seconds)


def hellinger_above_tv(coefficient: sympy.Expr, seconds: float) -> Outcome:
    """`TV² ≤ H²(1 − coefficient·H²)` for two outcomes."""
    hellinger = 2 - 2 * sympy.sqrt(p * q) - 2 * sympy.sqrt((1 - p) * (1 - q))
    return algebraic(hellinger * (1 - coefficient * hellinger) - (p - q) ** 2, _TWO_OUTCOMES, seconds)


def _log_of_pearson(seconds: float) -> Outcome:
    return bounded_logarithm(1 + (p - q) ** 2 / (p * (1 - p)), seconds)


def _jensen_shannon(seconds: float) -> Outcome:
    return below_total_variation(tilted("jensen_shannon"), sympy.log(2) / 2, seconds)


_ONE, _HALF, _TWO = sympy.Integer(1), sympy.Rational(1, 2), sympy.Integer(2)
_Z3 = ("z3 (nonlinear real arithmetic)", "sympy (polynomial normal forms)")
_SLOPES = (*_Z3, "sympy (derivatives)")
_ANY = "any number of tokens"
_PAIR = "two outcomes, by theorem 1"
_Row = tuple[str, str, str, str, Method, tuple[str, ...], Callable[[float], Outcome]]


# Name, inequality, LaTeX, what it is for, method, what it rests on, proof.
_ROWS: tuple[_Row, ...] = (
    (
        "Pinsker",
        "TV ≤ √(KL/2): Band_kl(δ) ⊆ Band_tv(√(δ/2))",
        r"\mathrm{TV} \le \sqrt{\mathrm{KL}/2}",
        _PAIR,
        Method.SYMBOLIC,
        _SLOPES,
        partial(pinsker, _TWO),
    ),
    (
        "Le Cam below Hellinger",
        "LC/2 ≤ H²: Band_H²(δ) ⊆ Band_LC(2δ)",
        r"\mathrm{LC}/2 \le H^2",
        _ANY,
        Method.DECISION,
        _Z3,
        partial(pointwise, "le_cam", "squared_hellinger", _HALF, _ONE),
    ),
    (
        "Hellinger below Le Cam",
        "H² ≤ LC: Band_LC(δ) ⊆ Band_H²(δ)",
        r"H^2 \le \mathrm{LC}",
        _ANY,
        Method.DECISION,
        _Z3,
        partial(pointwise, "squared_hellinger", "le_cam", _ONE, _ONE),
    ),
    (
        "Hellinger below KL",
        "H² ≤ KL: Band_kl(δ) ⊆ Band_H²(δ)",
        r"H^2 \le \mathrm{KL}",
        _ANY,
        Method.SYMBOLIC,
        _SLOPES,
        partial(by_calculus, "squared_hellinger", "kl", _ONE),
    ),
    (
        "Hellinger below reverse KL",
        "H² ≤ KL(Q‖P): Band_reverse_kl(δ) ⊆ Band_H²(δ)",
        r"H^2 \le \mathrm{KL}(Q\|P)",
        _ANY,
        Method.SYMBOLIC,
        _SLOPES,
        partial(by_calculus, "squared_hellinger", "reverse_kl", 1 / u),
    ),
    (
        "Hellinger below TV",
        "H²/2 ≤ TV: Band_tv(δ) ⊆ Band_H²(2δ)",
        r"H^2/2 \le \mathrm{TV}",
        _ANY,
        Method.DECISION,
        _Z3,
        partial(pointwise, "squared_hellinger", "tv", _HALF, _ONE),
    ),
    (
        "TV below Hellinger",
        "TV ≤ √(H²(1 − H²/4)): Band_H²(δ) ⊆ Band_tv(√(δ(1 − δ/4))) for δ ≤ 2",
        r"\mathrm{TV} \le \sqrt{H^2(1 - H^2/4)}",
        _PAIR,
        Method.DECISION,
        (*_Z3, "√(δ(1 − δ/4)) increases for 0 ≤ δ ≤ 2, and H² ≤ 2"),
        partial(hellinger_above_tv, sympy.Rational(1, 4)),
    ),
    (
        "reverse KL below Pearson's logarithm",
        "KL(Q‖P) ≤ log(1 + χ²): Band_χ²(e^δ − 1) ⊆ Band_reverse_kl(δ)",
        r"\mathrm{KL}(Q\|P) \le \log(1 + \chi^2)",
        _PAIR,
        Method.SYMBOLIC,
        _SLOPES,
        _log_of_pearson,
    ),
    (
        "reverse KL below Pearson",
        "KL(Q‖P) ≤ χ²: Band_χ²(δ) ⊆ Band_reverse_kl(δ)",
        r"\mathrm{KL}(Q\|P) \le \chi^2",
        _ANY,
        Method.SYMBOLIC,
        _SLOPES,
        partial(by_calculus, "reverse_kl", "pearson_chi2", 1 / u),
    ),
    (
        "KL below Neyman",
        "KL ≤ Neyman χ²: Band_neyman(δ) ⊆ Band_kl(δ)",
        r"\mathrm{KL} \le \chi^2_N",
        _ANY,
        Method.SYMBOLIC,
        _SLOPES,
        partial(by_calculus, "kl", "neyman_chi2", _ONE),
    ),
    (
        "Jensen-Shannon below TV",
        "JS ≤ log 2 · TV: Band_tv(δ) ⊆ Band_js(δ log 2)",
        r"\mathrm{JS} \le \log 2 \cdot \mathrm{TV}",
        _ANY,
        Method.SYMBOLIC,
        ("z3 (f'' ≥ 0)", "sympy (limits)", "a convex function lies below chord and asymptote"),
        _jensen_shannon,
    ),
)


def statements() -> list[Statement]:
    """Theorem 11, then the statements over boxes."""
    inequalities = [
        Statement(
            f"theorem 11: {name}",
            f"{text} ({scope})",
            f"${latex}$ ({scope}).",
            method,
            # the steps prove the inequality; from there to the bands these lead
            (*rests_on, "theorem 11: nesting", *(("theorem 1",) if scope == _PAIR else ())),
            prove,
        )
        for name, text, latex, scope, method, rests_on, prove in _ROWS
    ]
    return inequalities + band_brackets.statements()
