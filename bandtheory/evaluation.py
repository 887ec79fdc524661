"""Stable evaluation of a generator in log space, with its accuracy measured rather than assumed.

The band only ever needs the tilted generator `f̃(u) = f(u) − s(u − 1) ≥ 0` (same divergence, minimum at 1) on both sides of 1,
so it is compiled as two functions of one variable `x = log u ≤ 0`:

    below:  A(x) = f̃(eˣ)                      for arguments u = eˣ ≤ 1
    above:  B(x) = f̃°(eˣ),  f°(w) = w f(1/w)  for arguments u = e⁻ˣ ≥ 1, since f̃(u) = u f̃°(1/u)

`log A` and its derivative never overflow: the power `e^{−a x}` that A grows with is split off symbolically. Near x = 0, where
the textbook expression cancels, a Taylor polynomial in x takes over. (In x = log u the series of the usual generators
converge to radius π or everywhere; in u − 1 only to 1.) Which formula is used where is decided by comparing candidates with
60-digit arithmetic on a grid; the worst relative error found is kept as `accuracy`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from bandtheory import expressions
from bandtheory.array_code import Array, lambdify
from bandtheory.divergence import MAX_TERMS, FDivergence, expanded_size, settle_kinks, tame
from bandtheory.high_precision import digits

if TYPE_CHECKING:
    import sympy

_DIGITS = 60
_DEGREE = 18
MAX_WILD_TERMS = 20  # of an expression with high powers or long numbers that is expanded
_DIFFERENCES = (None, "of powers from 1", "of powers from integer powers")  # written with expm1
_SWITCH_POINTS = (0.7, 0.5, 0.35, 0.25, 0.15, 0.08, 0.03, 0.01, 0.0)


@dataclass(frozen=True)
class HalfGenerator:
    """`A` or `B` of the module's docstring as code.

    Attributes:
        growth: `a ≥ 0` with `A(x) = e^{−a x} Â(x)`, where `Â` has no power growth.
        scaled, scaled_slope: sympy expressions for `Â` and `dÂ/dx` in the symbols x, U = eˣ, T = eˣ − 1.
        order, leading: `A(x) ~ leading · |x|^order` for x → 0; order 0 for a generator that is flat there.
        series: `A(x) = |x|^order Σ series[k] x^k` for `|x| < switch`.
        switch: where the series hands over to the expression; 0 when the expression is accurate everywhere.
        accuracy: worst relative error of `A` on the grid of `_grid()`.
        everywhere: the grid was covered to its end, where eˣ has underflowed; if not, the accuracy holds for x ≥ −700 or less.
        vanishes: `A` is identically 0 (a generator that is flat on this side).
    """

    growth: float
    scaled: sympy.Expr
    scaled_slope: sympy.Expr
    order: float
    leading: float
    series: tuple[float, ...]
    switch: float
    accuracy: float
    everywhere: bool = True
    vanishes: bool = False

    def code(self, xp: Any) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
        """`(x, U, T) ↦ (log A, d log A / dx)` in the array namespace `xp` (numpy or torch), elementwise for x < 0."""
        if self.vanishes:
            return lambda x, U, T: (xp.full_like(x, -np.inf), xp.zeros_like(x))
        expression = lambdify(xp, _symbols(), (self.scaled, self.scaled_slope))
        growth, order, series, switch = self.growth, self.order, self.series, self.switch

        def direct(x: Array, U: Array, T: Array) -> tuple[Array, Array]:
            value, slope = expression(x, U, T)
            return xp.log(value) - growth * x, slope / value - growth

        if not switch:
            return direct

        def evaluate(x: Array, U: Array, T: Array) -> tuple[Array, Array]:
            log_value, elasticity = direct(x, U, T)
            polynomial, derivative = _horner(series, xp.where(x > -switch, x, -switch))
            small = x > -switch
            log_small = order * xp.log(-x) + xp.log(polynomial)
            return (
                xp.where(small, log_small, log_value),
                xp.where(small, order / x + derivative / polynomial, elasticity),
            )

        return evaluate


@dataclass(frozen=True)
class Evaluator:
    """Both halves of a tilted generator, and the constants that the limits of a band need (floats, nats)."""

    below: HalfGenerator
    above: HalfGenerator
    value_at_zero: float  # f̃(0)
    recession_slope: float  # f̃'(∞)
    curvature: float  # f''(1); inf for a kink at 1, 0 for a generator that is flat there

    @property
    def smooth(self) -> bool:
        """Whether neither half has a kink of its own (one at u = 1, between the halves, does not count)."""
        import sympy

        return not any(half.scaled.has(sympy.Abs, sympy.Max, sympy.Min) for half in (self.below, self.above))

    @property
    def everywhere(self) -> bool:
        """Whether the evaluation is accurate for every log-ratio, not only within the range of doubles."""
        return self.accuracy < 1e-9 and self.below.everywhere and self.above.everywhere

    @property
    def flat(self) -> bool:
        """Whether `f̃ = 0` in a neighbourhood of 1, so that the band of radius 0 is more than the point 1."""
        return self.below.order == 0 and self.above.order == 0

    @property
    def accuracy(self) -> float:
        """Worst relative error of `f̃` found on the grid."""
        return max(self.below.accuracy, self.above.accuracy)


@functools.lru_cache(maxsize=128)
def evaluator(divergence: FDivergence) -> Evaluator:
    """Compile a divergence. Takes a few tenths of a second; cached."""
    import sympy

    u = expressions.symbol()
    below = _compile(settle_kinks(divergence.tilted))
    above = _compile(u * settle_kinks(divergence.tilted, above=True).subs(u, 1 / u))
    slope = divergence.slope_at_one
    curvature = _curvature(below, above)
    return Evaluator(
        below,
        above,
        float(sympy.N(divergence.value_at_zero + slope)),
        float(sympy.N(divergence.recession_slope - slope)),
        curvature,
    )


@functools.lru_cache(maxsize=1)
def _symbols() -> tuple[sympy.Symbol, sympy.Symbol, sympy.Symbol]:
    import sympy

    return sympy.Symbol("x", real=True), sympy.Symbol("U", positive=True), sympy.Symbol("T", real=True)


def _horner(coefficients: Sequence[float], x: Array) -> tuple[Array, Array]:
    """A polynomial and its derivative."""
    value = coefficients[-1] + 0 * x
    derivative = 0 * x
    for coefficient in coefficients[-2::-1]:
        derivative = derivative * x + value
        value = value * x + coefficient
    return value, derivative


def _compile(expression: sympy.Expr) -> HalfGenerator:
    """Choose, among algebraic rewritings and switch points, what agrees best with high precision."""
    import mpmath
    import sympy

    u = expressions.symbol()
    f = sympy.lambdify(u, expression, "mpmath")

    def exact(x: Any) -> Any:
        return mpmath.mpf(f(mpmath.exp(x)))

    with digits(_DIGITS):
        reference: list[Any] = []
        for x in _grid():
            if reference and reference[-1] > mpmath.mpf(10) ** 30_000_000:
                break  # faster than any power, as exp(u): beyond here only "larger than any radius" matters
            reference.append(exact(x))
        if all(value == 0 for value in reference):
            zero = sympy.Integer(0)
            return HalfGenerator(0.0, zero, zero, 0.0, 0.0, (), 0.0, 0.0, vanishes=True)
        growth = _growth(exact) if len(reference) == len(_grid()) else Fraction(0)
        order, leading = _order(exact)
        fits = [_series(exact, order, radius) for radius in (1.0, 0.1)]
        reference_scaled = [
            float(v * mpmath.exp(growth.numerator * mpmath.mpf(x) / growth.denominator))
            for v, x in zip(reference, _grid(), strict=False)
        ]
    best: HalfGenerator | None = None
    forms = _rewritings(expression * u**growth)
    trials = list(itertools.product(forms, _DIFFERENCES[:2] if _is_small(expression) else _DIFFERENCES[:1]))
    if _is_small(expression):
        trials += [(form, _DIFFERENCES[2]) for form in forms]  # last: it takes more operations than the others
    for candidate, differences in trials:
        value, slope = _in_log_space(candidate, differences)
        errors = _relative_errors(value, slope, reference_scaled)
        switch, accuracy, series = min(
            (_best_switch(errors, order, fit, reference) for fit in fits), key=lambda choice: choice[1]
        )
        if best is None or accuracy < 0.5 * best.accuracy:
            best = HalfGenerator(
                float(growth),
                value,
                slope,
                order,
                leading,
                _trimmed(series, switch),
                switch,
                accuracy,
                len(reference) == len(_grid()),
            )
        if accuracy < 2e-15:
            break
    assert best is not None
    return best


def _rewritings(expression: sympy.Expr) -> list[sympy.Expr]:
    """Algebraically equal forms, most literal first; which is accurate is measured."""
    import sympy

    literal = sympy.expand_log(expression, force=True)
    small = _is_small(literal)
    literal = sympy.powsimp(literal) if small else literal
    forms = [literal, _absorb_power(literal)]
    if small:
        expanded = sympy.powsimp(sympy.expand(literal))
        forms += [expanded, _absorb_power(expanded)]
        if tame(literal):
            forms[2:2] = [sympy.factor(expanded)]
            forms += [sympy.cancel(expanded)]
    return list(dict.fromkeys(forms))


def _is_small(expression: sympy.Expr) -> bool:
    """Whether rearranging it takes sympy well under a second."""
    return expanded_size(expression) <= (MAX_TERMS if tame(expression) else MAX_WILD_TERMS)


def _absorb_power(expression: sympy.Expr) -> sympy.Expr:
    """`u max(a, b)` → `max(u a, u b)`, and the like for `min` and `abs`: valid since u > 0, and finite where 1/u is not."""
    import sympy

    u = expressions.symbol()
    kinks = (sympy.Max, sympy.Min, sympy.Abs)

    def absorb(product: sympy.Mul) -> sympy.Expr:
        power = sympy.Mul(*(a for a in product.args if a.as_base_exp()[0] == u))
        kink = next(a for a in product.args if isinstance(a, kinks))
        rest = product / power / kink
        return rest * kink.func(*(sympy.expand(power * a) for a in kink.args))

    return expression.replace(lambda e: isinstance(e, sympy.Mul) and any(isinstance(a, kinks) for a in e.args), absorb)


def _in_log_space(expression: sympy.Expr, differences: str | None) -> tuple[sympy.Expr, sympy.Expr]:
    """An expression in u and its derivative in x = log u, written in x, U = eˣ and T = eˣ − 1.

    With `differences`, powers `U^k` become `1 + expm1(k x)`, or with the integer n nearest to k `U^n (1 + expm1((k − n) x))`,
    so that what cancels does so symbolically: constants, or u against u^0.999999.
    """
    import sympy
    from sympy.codegen.cfunctions import expm1, log1p

    u = expressions.symbol()
    x, U, T = _symbols()

    def factored_log(argument: sympy.Expr) -> sympy.Expr:
        return sympy.log(
            sympy.factor(sympy.together(argument)) if tame(argument) and expanded_size(argument) <= MAX_TERMS else argument
        )

    def shifted_log(argument: sympy.Expr) -> sympy.Expr:
        at_one = argument.subs(T, 0)
        if not (at_one.is_positive and argument.has(T)):
            return sympy.log(argument)
        return sympy.log(at_one) + log1p(_expand(argument / at_one - 1))

    def rewrite(e: sympy.Expr) -> sympy.Expr:
        e = sympy.expand_log(e.replace(sympy.log, factored_log), force=True).subs(sympy.log(u), x)
        e = e.subs(u, 1 + T).replace(sympy.log, shifted_log)
        e = e.xreplace({1 + T: U, 2 + T: 1 + U})
        if not differences:
            return e
        nearest = differences == _DIFFERENCES[2]

        def shifted(power: sympy.Expr) -> sympy.Expr:
            whole = sympy.floor(power.exp + sympy.Rational(1, 2)) if nearest else sympy.Integer(0)
            return U**whole * (1 + expm1((power.exp - whole) * x))

        expanded = _expand(e.replace(lambda n: n.is_Pow and n.base == U, shifted))
        if not nearest:
            return expanded
        differences_, rest = expanded.as_independent(expm1, as_Add=True)[::-1]
        return differences_ + _expand(rest.subs(U, 1 + T))

    value = rewrite(expression)
    slope = sympy.diff(value, x) + _expand(U * (sympy.diff(value, U) + sympy.diff(value, T)))
    return value, slope


def _expand(expression: sympy.Expr) -> sympy.Expr:
    """Expanded, unless that would take long."""
    import sympy

    return sympy.expand(expression) if expanded_size(expression) <= MAX_TERMS else expression


@functools.lru_cache(maxsize=1)
def _grid() -> tuple[float, ...]:
    """Values of x < 0 at which accuracy is measured: 12 decades below 1, out to e⁻⁷⁰⁰, and where eˣ underflows to 0."""
    near = -np.logspace(-12, 0, 97)
    far = -np.concatenate([np.linspace(1.05, 10, 60), np.geomspace(10, 700, 40), (800.0, 2000.0, 8000.0)])
    return tuple(map(float, np.concatenate([near, far])))


def _growth(exact: Callable[[Any], Any]) -> Fraction:
    """`a` in `A(x) ~ C e^{−a x} |x|^b`: the second difference of log A over x = −2000, −4000, −8000 is free of C and b."""
    import mpmath

    logs = [mpmath.log(exact(mpmath.mpf(-2000 * k))) for k in (1, 2, 4)]
    slope = (logs[2] - 2 * logs[1] + logs[0]) / 2000
    return Fraction(str(mpmath.nstr(slope, 12))).limit_denominator(1000)


def _order(exact: Callable[[Any], Any]) -> tuple[float, float]:
    """`order` and `leading` of `A(x) ~ leading · |x|^order` at x → 0⁻."""
    import mpmath

    near = mpmath.mpf("-1e-15")
    if not (exact(near) > 0 and exact(2 * near) > 0):
        return 0.0, 0.0
    order = float(mpmath.nint(1000 * mpmath.log(exact(2 * near) / exact(near), 2)) / 1000)
    return order, float(exact(near) / abs(near) ** order)


def _series(exact: Callable[[Any], Any], order: float, radius: float) -> tuple[float, ...]:
    """Coefficients of `A(x)/|x|^order` from a 60-digit fit at Chebyshev nodes of [−radius, 0]; none for a fractional order."""
    import mpmath

    if not order or order != round(order):
        return ()
    nodes = [-radius * (1 - mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * (_DEGREE + 1)))) / 2 for k in range(_DEGREE + 1)]
    matrix = mpmath.matrix([[node**j for j in range(_DEGREE + 1)] for node in nodes])
    values = mpmath.matrix([exact(node) / (-node) ** order for node in nodes])
    return tuple(float(c) for c in mpmath.lu_solve(matrix, values))


def _trimmed(series: Sequence[float], switch: float) -> tuple[float, ...]:
    """The coefficients that count for `|x| < switch`."""
    if not switch:
        return ()
    sizes = [abs(c) * switch**k for k, c in enumerate(series)]
    return tuple(series[: max(k for k, size in enumerate(sizes) if size > 1e-18 * sizes[0]) + 1])


def _relative_errors(value: sympy.Expr, slope: sympy.Expr, reference: Sequence[float]) -> np.ndarray:
    """Error of `value` per grid point; infinite where it, or for x ≥ −700 its slope, is not a number."""
    x = np.array(_grid()[: len(reference)])
    target = np.array(reference)
    with np.errstate(all="ignore"):
        values, slopes = lambdify(np, _symbols(), (value, slope))(x, np.exp(x), np.expm1(x))
        error = np.abs(values - target) / np.abs(target)
    error = np.where(values == target, 0.0, error)
    return np.where(np.isnan(error) | (np.isfinite(target) & ~np.isfinite(slopes) & (x >= -700)), np.inf, error)


def _best_switch(
    errors: np.ndarray, order: float, series: Sequence[float], reference: Sequence[Any]
) -> tuple[float, float, Sequence[float]]:
    """The switch point with the smallest worst error, that error, and the series."""
    import mpmath

    if not series:
        return 0.0, float(np.max(errors)), series
    x = np.array(_grid()[: len(reference)])
    scaled = np.array([float(v / mpmath.mpf(-y) ** order) for v, y in zip(reference, map(float, x), strict=True)])
    with np.errstate(all="ignore"):
        series_errors = np.abs(_horner(series, x)[0] - scaled) / np.abs(scaled)
    series_errors = np.where(np.isnan(series_errors), np.inf, series_errors)
    worst = [(float(np.max(np.where(x > -switch, series_errors, errors))), switch) for switch in _SWITCH_POINTS]
    accuracy, switch = min(worst, key=lambda pair: (pair[0] > 2 * min(w for w, _ in worst), pair[1]))
    return switch, accuracy, series


def _curvature(below: HalfGenerator, above: HalfGenerator) -> float:
    """`f''(1)` from the local orders: finite and positive only for a quadratic minimum."""
    if below.order == 2 and above.order == 2:
        return 2 * below.leading
    return float("inf") if 0 < max(below.order, above.order) < 2 else 0.0
