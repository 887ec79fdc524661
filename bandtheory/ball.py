"""Ball arithmetic for expressions: sympy in, enclosures out.

A ball `[m ± ρ]` (flint's `arb`) stands for all real numbers in it, and an operation on balls returns a ball that holds every
possible result. So what comes out of `ball_function` holds the exact value of the expression for all arguments in the balls
that went in, whatever the precision. Constants are made anew on each call at the precision of that moment: 1/3 and π are balls.

- `abs`, `max` and `min` of a ball across their switch are the hull of their branches; so are the slopes that a derivative has
  on both sides of a kink: `sign` of a ball that touches 0 is [−1, 1], and the step function is [0, 1].
- What is not defined on all of a ball is not finite: `log` or a negative power of one that touches 0, a root of one that goes
  below 0. Comparisons with such a ball are False in either direction: callers treat it as "unknown", and ask again with more
  bits or a smaller ball. A root or positive power of a base that cannot be negative (u, |x|, max(x, 0), ...) may touch 0.

Trusted: flint's arb, and that sympy keeps an expression's value when it builds or differentiates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from flint import arb, ctx, fmpq
from sympy.printing.printer import Printer

from bandtheory.divergence import FDivergence

LIMIT_DOUBT = 1e-29  # relative radius for a limit that sympy did not find and `FDivergence` read from values far out


class BallError(ValueError):
    """An expression that has no ball function: the message names the part."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with so many bits inside the `with` block; nested blocks and exceptions restore what was before."""
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def exact(x: float | int | Fraction | sympy.Rational) -> arb:
    """A ball of a number: radius 0 for an integer or a float (±inf too); a fraction is rounded to the working precision."""
    if isinstance(x, Fraction):
        return _ratio(x.numerator, x.denominator)
    if isinstance(x, sympy.Rational):
        return _ratio(int(x.p), int(x.q))
    return arb(float(x) if isinstance(x, float) else x)  # float: numpy's float64 is one, and unknown to flint


def interval(low: arb | float | Fraction, high: arb | float | Fraction) -> arb:
    """The smallest ball (a few units in the last place aside) that holds all of [low, high]."""
    ends = [end if isinstance(end, arb) else exact(end) for end in (low, high)]
    return ends[0].union(ends[1])


def hull(x: arb) -> tuple[float, float]:
    """The nearest floats that enclose a ball; (−inf, inf) for one that is not a number."""
    return (-math.inf, math.inf) if x.is_nan() else (float_below(x), float_above(x))


def float_below(x: arb) -> float:
    """The largest float that no number in the ball lies below."""
    end = x.lower()
    near = float(end) + 0.0  # not −0.0
    return near if arb(near) <= end else math.nextafter(near, -math.inf)


def float_above(x: arb) -> float:
    """The smallest float that no number in the ball lies above."""
    return 0.0 - float_below(-x)


def limits(divergence: FDivergence) -> tuple[arb, arb]:
    """Balls of `f(0)` and `f'(∞)`, at the working precision; +inf where the limit is.

    A limit that `FDivergence` could only read from values far out comes with the radius `LIMIT_DOUBT`, which is not proved.
    """
    return _limit(divergence.value_at_zero), _limit(divergence.recession_slope)


def ball_function(
    expressions: sympy.Expr | Sequence[sympy.Expr], *symbols: sympy.Symbol, namespace: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """A function of balls that encloses one expression, or a list of several that share their common parts.

    Args:
        expressions: numbers, `+ * / **` with constant exponents, log, exp, sqrt, Abs, Max, Min, sign, Heaviside, pi, E in the
            symbols; what sympy makes of a generator of `bandtheory.expressions` and of its first derivative.
        symbols: the arguments, in order.
        namespace: functions that replace those of the same name in `_NAMESPACE`, for arguments that are not `arb`.

    Returns:
        `(arb, ...) ↦ arb`, or `↦ [arb, ...]` for a list. Arguments must be `arb`; see `exact` and `interval`.

    Raises:
        BallError: a function or symbol that is not in the list.

    Example:
        >>> import sympy
        >>> u = sympy.Symbol("u", positive=True)
        >>> with precision(128):
        ...     value = ball_function(u * sympy.log(u), u)(exact(Fraction(1, 3)))
        >>> hull(value)
        (-0.36620409622270325, -0.3662040962227032)
    """
    given = [_marked(e) for e in ([expressions] if isinstance(expressions, sympy.Basic) else expressions)]
    printer = _BallPrinter(symbols)
    for expression in given:
        printer.doprint(expression)  # refuses what has no ball function
    body = given[0] if isinstance(expressions, sympy.Basic) else given
    # the source consists of what _BallPrinter prints, and that of numbers, names of _NAMESPACE and names that lambdify chose
    modules = [_NAMESPACE | dict(namespace or {})]
    function: Callable[..., Any] = sympy.lambdify(symbols, body, modules=modules, printer=_BallPrinter(None), cse=True)
    return function


def slope(expression: sympy.Expr, symbol: sympy.Symbol) -> sympy.Expr:
    """`d expression / d symbol`; at a kink its ball function gives the hull of the slopes on both sides."""
    result = sympy.diff(expression, symbol)
    if result.has(sympy.Derivative, sympy.DiracDelta, sympy.Subs):
        raise BallError(f"{expression} has a kink and no derivative that is a function")
    return result


class _Root(sympy.Function):  # type: ignore[misc]  # sympy has no annotations
    """A power with a base that is not negative and a positive exponent that is no integer: printed as `_root`."""


def _marked(expression: sympy.Expr) -> sympy.Expr:
    """The expression with its `_Root`s: the names that stand for common parts do not say that a base cannot be negative."""

    def is_root(node: sympy.Basic) -> bool:
        plain = isinstance(node, sympy.Pow) and node.exp.is_number and node.base != sympy.E and not node.exp.is_integer
        return plain and bool(node.base.is_nonnegative and node.exp.is_positive)

    return expression.replace(is_root, lambda node: _Root(node.base, node.exp))


def _limit(value: sympy.Expr) -> arb:
    if value == sympy.oo:
        return arb.pos_inf()
    if value.has(sympy.Float):
        near = arb(float(value))
        return arb(near, (1 + abs(near)) * max(LIMIT_DOUBT, 2.0**-52))
    result: arb = _constant(value)()
    return result


@lru_cache(maxsize=256)
def _constant(value: sympy.Expr) -> Callable[[], Any]:
    return ball_function(value)


def _ratio(numerator: int, denominator: int) -> arb:
    return _rounded(numerator, denominator, ctx.prec)


@lru_cache(maxsize=1024)
def _rounded(numerator: int, denominator: int, bits: int) -> arb:
    """A quotient at the precision in force, `bits`: generators ask for the same few again and again."""
    return arb(fmpq(numerator, denominator))


def _magnitude(x: arb) -> arb:
    """|x|; [0, max |x|] where x has both signs (flint's own abs would keep the negative part)."""
    if x >= 0:
        return x
    if x <= 0:
        return -x
    return arb(0).union(x.abs_upper()) if x.is_finite() else arb.nan()


def _sign(x: arb) -> arb:
    if x > 0:
        return arb(1)
    if x < 0:
        return arb(-1)
    return arb(0, 1)


def _step(x: arb, *_: Any) -> arb:
    if x > 0:
        return arb(1)
    if x < 0:
        return arb(0)
    return arb(0).union(arb(1))


def _maximum(first: arb, *others: arb) -> arb:
    for other in others:
        first = first.max(other)
    return first


def _minimum(first: arb, *others: arb) -> arb:
    for other in others:
        first = first.min(other)
    return first


def _even_power(x: arb, n: int) -> arb:
    return _magnitude(x) ** n


def _odd_power(x: arb, n: int) -> arb:
    """x**n, monotone; flint's own power of a ball with midpoint 0 is not a number."""
    if x > 0 or x < 0:
        return x**n
    return (x.lower() ** n).union(x.upper() ** n)


def _root(x: arb, y: arb) -> arb:
    """`x**y` for an x that is not negative and y > 0: monotone, so it is known where rounding made the ball touch 0."""
    if x > 0 or x.is_nan():
        return x**y
    top = x.upper()
    return arb(0).union(top**y) if top > 0 else arb(0)


_NAMESPACE: dict[str, Any] = {
    "_integer": arb,
    "_ratio": _ratio,
    "_pi": arb.pi,
    "_e": arb.const_e,
    "_log": arb.log,
    "_exp": arb.exp,
    "_sqrt": arb.sqrt,
    "_magnitude": _magnitude,
    "_sign": _sign,
    "_step": _step,
    "_maximum": _maximum,
    "_minimum": _minimum,
    "_even_power": _even_power,
    "_odd_power": _odd_power,
    "_root": _root,
}


class _BallPrinter(Printer):  # type: ignore[misc]
    """Prints an expression as Python over `_NAMESPACE`; with symbols given, refuses all others."""

    def __init__(self, symbols: Sequence[sympy.Symbol] | None) -> None:
        super().__init__()
        self.symbols = None if symbols is None else set(symbols)

    def emptyPrinter(self, expr: Any) -> str:
        raise BallError(
            f"{expr} ({type(expr).__name__}) has no ball function; accepted: + * / **, log, exp, sqrt, abs, max, min"
        )

    def _call(self, name: str, arguments: Sequence[Any]) -> str:
        return f"{name}({', '.join(self._print(argument) for argument in arguments)})"

    def _print_Symbol(self, expr: Any) -> str:
        if self.symbols is not None and expr not in self.symbols:
            raise BallError(f"unknown symbol {expr}; accepted: {', '.join(sorted(map(str, self.symbols))) or 'none'}")
        return str(expr.name)

    _print_Dummy = _print_Symbol

    def _print_Integer(self, expr: Any) -> str:
        return f"_integer({int(expr)})"

    def _print_Rational(self, expr: Any) -> str:
        return f"_ratio({int(expr.p)}, {int(expr.q)})"

    def _print_Float(self, expr: Any) -> str:
        return self._print_Rational(sympy.Rational(expr))  # the binary number that it is

    def _print_Pi(self, expr: Any) -> str:
        return "_pi()"

    def _print_Exp1(self, expr: Any) -> str:
        return "_e()"

    def _print_Add(self, expr: Any) -> str:
        return "(" + " + ".join(self._print(term) for term in expr.args) + ")"

    def _print_Mul(self, expr: Any) -> str:
        if expr.args[0] == -1:
            return f"(-{self._print(sympy.Mul(*expr.args[1:], evaluate=False) if len(expr.args) > 2 else expr.args[1])})"
        below = [f for f in expr.args if f.is_Pow and f.exp.is_Number and f.exp.is_negative and f.base != sympy.E]
        above = [self._print(factor) for factor in expr.args if factor not in below] or ["_integer(1)"]
        under = [self._print(sympy.Pow(f.base, -f.exp, evaluate=False) if f.exp != -1 else f.base) for f in below]
        return "(" + " * ".join(above) + (f" / ({' * '.join(under)})" if under else "") + ")"

    def _print_Pow(self, expr: Any) -> str:
        base, exponent = expr.base, expr.exp
        if base == sympy.E:
            return self._call("_exp", [exponent])
        if not exponent.is_number:
            raise BallError(f"{expr}: the exponent must be a constant")
        if exponent == -1:
            return f"(1 / {self._print(base)})"
        if exponent.is_Integer:
            if exponent < 0:
                return f"(1 / {self._print(sympy.Pow(base, -exponent, evaluate=False))})"
            parity = "even" if exponent % 2 == 0 else "odd"
            return f"_{parity}_power({self._print(base)}, {int(exponent)})"
        if exponent == sympy.Rational(1, 2):
            return self._call("_sqrt", [base])
        return f"({self._print(base)} ** {self._print(exponent)})"

    def _print__Root(self, expr: Any) -> str:
        return self._call("_root", expr.args)

    def _print_log(self, expr: Any) -> str:
        return self._call("_log", expr.args)

    def _print_exp(self, expr: Any) -> str:
        return self._call("_exp", expr.args)

    def _print_Abs(self, expr: Any) -> str:
        return self._call("_magnitude", expr.args)

    def _print_Max(self, expr: Any) -> str:
        return self._call("_maximum", expr.args)

    def _print_Min(self, expr: Any) -> str:
        return self._call("_minimum", expr.args)

    def _print_sign(self, expr: Any) -> str:
        return self._call("_sign", expr.args)

    def _print_Heaviside(self, expr: Any) -> str:
        return self._call("_step", expr.args[:1])
