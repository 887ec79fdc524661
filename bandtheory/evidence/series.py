"""Taylor models of `g(p, r) − δ` along a curve of log-ratios: a polynomial with ball coefficients that holds every value.

    g(p, r) = p f(r) + (1 − p) f(c),   p = e^{−x},   r = e^y,   c = (1 − p r)/(1 − p) = expm1(y − x)/expm1(−x)

x and y are polynomials in s ∈ [−1, 1]. With h(s) = g − δ, Taylor's theorem in Lagrange's form says

    h(s) = Σ_{k<n} h_k(0) s^k + h_n(ξ) s^n   for some ξ in [−1, 1],   h_k(ξ) = the k-th Taylor coefficient of h at ξ

so the coefficients at 0, and an enclosure of the last one over all ξ, prove what is asked of h. Both come out of power series
arithmetic: the generator is evaluated on truncated power series, once with the expansion around 0 and once with the expansion
around the ball of all ξ. Nothing is differentiated symbolically, and cancellation is a matter of bits.

`abs`, `max` and `min` take a branch only where it is the same for the whole ball, and f is asked for positive arguments only:
anything else raises `Undecided`, and a smaller interval may do. So h is smooth wherever a model of it exists. Of a constant
term alone, which asks for no smoothness, both branches are enclosed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import sympy
from flint import arb, arb_poly, arb_series, ctx

from bandtheory.ball import ball_function
from bandtheory.divergence import FDivergence
from bandtheory.expressions import symbol

EVERYWHERE = arb_poly([arb(0, 1), 1])  # ξ + s for all ξ in [−1, 1]


class Undecided(ArithmeticError):
    """A branch that is not the same, or an argument that is not positive, for all numbers in a ball."""


class SeriesGenerator(NamedTuple):
    """A generator on power series: `of(u) = f(u)`, `of_log(y) = f(e^y)`, and `per_ratio(y) = e^{−y} f(e^y)`.

    Where y is large, `e^y per_ratio(y)` is `f(e^y)` without the cancellation between its terms.
    """

    of: Callable[[Any], Any]
    of_log: Callable[[Any], Any]
    per_ratio: Callable[[Any], Any]


@lru_cache(maxsize=64)
def series_generator(divergence: FDivergence) -> SeriesGenerator:
    """The compiled generator; cached."""
    u, y, v = symbol(), sympy.Symbol("y", real=True), sympy.Symbol("v", positive=True)
    f = divergence.generator
    forms = ((f, u), (f.subs(u, sympy.exp(y)), y), (_adjoint(f, u, v).subs(v, sympy.exp(-y)), y))
    return SeriesGenerator(*(ball_function(form, argument, namespace=NAMESPACE) for form, argument in forms))


def _adjoint(f: sympy.Expr, u: sympy.Symbol, v: sympy.Symbol) -> sympy.Expr:
    """`v f(1/v)`, without quotients inside of logarithms."""

    def one_fraction(term: sympy.Expr) -> sympy.Expr:
        return term.func(*map(sympy.together, term.args))

    form = (v * f.subs(u, 1 / v)).replace(lambda term: isinstance(term, sympy.log | sympy.Abs), one_fraction)
    return sympy.expand(sympy.expand_log(form, force=True))  # all logarithms here are of positive numbers


def taylor_model(generator: SeriesGenerator, radius: arb, x: arb_poly, y: arb_poly, order: int) -> tuple[list[arb], arb]:
    """Coefficients `h_0(0), …, h_{n−1}(0)` at the working precision, and the enclosure of `h_n` on [−1, 1], of g − δ.

    Args:
        generator: of the divergence.
        radius: the ball of δ (of `D_f`) at the working precision.
        x: −log p as a polynomial in s.
        y: log r, likewise.
        order: n.

    Raises:
        Undecided: no model on this interval with these bits.
    """
    total = y - x  # of polynomials, as nearly nothing is left of it near saturation
    with series_length(order):
        near = _curve(*(_series(a, order) for a in (x, y, total)))
        terms = _excess(generator, radius, near)
    with series_length(order + 1):
        wide = _curve(*(_series(a(EVERYWHERE), order + 1) for a in (x, y, total)))
        wide = wide._replace(c=_narrowed(wide.c, near.c))
        last = _excess(generator, radius, wide)
    if terms.prec < order or last.prec <= order:  # terms that a division lost
        raise Undecided
    return [terms[k] for k in range(order)], last[order]


@contextmanager
def series_length(length: int) -> Iterator[None]:
    """Let flint keep so many terms of a power series."""
    before = ctx.cap
    ctx.cap = length
    try:
        yield
    finally:
        ctx.cap = before


def _series(polynomial: arb_poly, length: int) -> arb_series:
    return arb_series(polynomial, prec=length)


class _Curve(NamedTuple):
    """p, 1 − p, log r and c as power series."""

    p: arb_series
    rest: arb_series
    y: arb_series
    c: arb_series


def _curve(x: arb_series, y: arb_series, total: arb_series) -> _Curve:
    """From x, y and y − x."""
    rest = -expm1(-x)
    if not rest[0] > 0:
        raise Undecided
    return _Curve((-x).exp(), rest, y, -expm1(total) / rest)


def _narrowed(wide: arb_series, near: arb_series) -> arb_series:
    """A series around all ξ made narrower by the series around 0.

    The k-th coefficients at ξ are those of the polynomial `Σ_{j<n} a_j(0) s^j + a_n s^n` at ξ, with a_n a ball of all a_n(ξ):
    Taylor's theorem for the k-th derivative. A ratio of two wide balls is much wider than that.
    """
    order = near.prec
    model = arb_poly([near[k] for k in range(order)] + [wide[order]])(EVERYWHERE)
    pairs = ((wide[k], model[k]) for k in range(order + 1))
    return arb_series([a.intersection(b) if a.is_finite() and b.is_finite() else a for a, b in pairs], prec=order + 1)


def _excess(generator: SeriesGenerator, radius: arb, curve: _Curve) -> arb_series:
    """g − δ."""
    p, rest, y, c = curve
    if not c[0] > 0:
        raise Undecided
    try:
        excess: arb_series = p * generator.of_log(y) + rest * generator.of(c) - radius
        return excess
    except (ValueError, ZeroDivisionError) as error:  # flint's words for a divisor that may be 0
        raise Undecided from error


def expm1(x: arb_series) -> arb_series:
    """e^x − 1, without cancellation in the constant term."""
    terms = x.exp().coeffs()
    return arb_series([x[0].expm1(), *terms[1:]], prec=x.prec)


def _constant(x: Any) -> arb:
    """The constant term: a number stands for itself."""
    while not isinstance(x, arb):
        x = x[0]
    return x


def _magnitude(x: Any) -> Any:
    return x * _sign(x)


def _sign(x: Any) -> arb:
    at = _constant(x)
    if at > 0:
        return arb(1)
    if at < 0:
        return arb(-1)
    if _is_number(x) and at.is_finite():
        return arb(0, 1)
    raise Undecided


def _is_number(x: Any) -> bool:
    """Whether there is nothing but a constant term, so that a ball of branches encloses the value."""
    while not isinstance(x, arb):
        if (x.prec if isinstance(x, arb_series) else len(x)) > 1:
            return False
        x = x[0]
    return True


def _step(x: Any, *_: Any) -> arb:
    return (1 + _sign(x)) / 2


def _maximum(first: Any, *others: Any) -> Any:
    for other in others:
        first = _larger(first, other)
    return first


def _minimum(first: Any, *others: Any) -> Any:
    for other in others:
        first = -_larger(-first, -other)
    return first


def _larger(first: Any, second: Any) -> Any:
    difference = first - second
    sign = _sign(difference)
    if abs(sign) == 1:
        return first if sign > 0 else second
    return second + difference * arb(0.5, 0.5)  # anything between the two


def _power(x: Any, n: int) -> Any:
    return x**n


def _root(x: Any, exponent: arb) -> Any:
    """`x**exponent` where it is smooth."""
    if not _constant(x) > 0:
        raise Undecided
    return x**exponent


NAMESPACE: dict[str, Callable[..., Any]] = {
    "_log": lambda x: x.log(),
    "_exp": lambda x: x.exp(),
    "_sqrt": lambda x: x.sqrt(),
    "_magnitude": _magnitude,
    "_sign": _sign,
    "_step": _step,
    "_maximum": _maximum,
    "_minimum": _minimum,
    "_even_power": _power,
    "_odd_power": _power,
    "_root": _root,
}
