"""FDivergence: a convex generator with what follows from it, and the lookup by name or by expression."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from bandtheory import expressions
from bandtheory.catalogue import DECLARATIONS, ParameterError, catalogue, find, number_text
from bandtheory.high_precision import digits

if TYPE_CHECKING:
    import sympy

MAX_TERMS = 200  # of an expression that sympy is asked to expand or to take limits of
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(:[^:]*)*")
_DIGITS = 400  # decimal digits at which kinks are told apart and limits read off


class DivergenceError(ValueError):
    """An unknown name, or a generator that is not a convex function with f(1) = 0."""


@dataclass(frozen=True)
class FDivergence:
    """The f-divergence `D_f(Q‖P) = Σ P_i f(Q_i / P_i)` of one generator.

    Attributes:
        name: a catalogue name, or the expression itself.
        expression: the generator `f(u)` as text, in the grammar of `bandtheory.expressions`.
        title: one line for people.
        parameters: name and exact value of what the expression uses besides `u`.
        radius: for a monotone function of `D_f`, such as Rényi's: the radius of `D_f` that a radius `delta` of it stands for,
            as text in `delta`, increasing and 0 at 0.

    Construction only parses. `check()` decides whether the generator is convex with `f(1) = 0`; `divergence(...)` calls it.
    """

    name: str
    expression: str
    title: str = ""
    parameters: tuple[tuple[str, Fraction], ...] = ()
    radius: str = "delta"

    @cached_property
    def generator(self) -> sympy.Expr:
        """`f(u)` as an exact sympy expression in `bandtheory.expressions.symbol()`."""
        return expressions.parse(self.expression, dict(self.parameters))

    @cached_property
    def f_radius(self) -> sympy.Expr:
        """The radius of `D_f` as a sympy expression in `bandtheory.expressions.radius_symbol()`; `δ` itself for most."""
        return expressions.parse(self.radius, dict(self.parameters), variable=expressions.radius_symbol())

    @property
    def spec(self) -> str:
        """Text from which `divergence()` makes an equal object: the name, or the generator written out."""
        try:
            named = unchecked_divergence(self.name) == self
        except (DivergenceError, expressions.ExpressionError):
            named = False
        return self.name if named else self.expression if not self.parameters else expressions.text(self.generator)

    @cached_property
    def tilted(self) -> sympy.Expr:
        """The same divergence with its minimum at 1: `f(u) − s (u − 1)` for a subgradient `s` at 1, so it is ≥ 0.

        Where `f` has a kink at 1, `s` is the mean of the two one-sided slopes.
        """
        return self.generator - self.slope_at_one * (expressions.symbol() - 1)

    @cached_property
    def slope_at_one(self) -> sympy.Expr:
        """A subgradient of `f` at 1 (the derivative where it exists)."""
        import sympy

        u = expressions.symbol()
        slopes = []
        for direction in (-1, 1):
            derivative = sympy.diff(self.side(direction), u)
            value = derivative.subs(u, 1)
            slopes.append(value if value.is_finite else sympy.limit(derivative, u, 1, "+-"[direction < 0]))
        return sympy.simplify((slopes[0] + slopes[1]) / 2)

    def side(self, direction: int, at: float = 1.0) -> sympy.Expr:
        """The generator just below (`direction = −1`) or just above (`+1`) the point `at`, without `abs`, `max` or `min`."""
        near = at * (1 + direction * 2.0**-40) if at else 2.0**-1000
        return resolve_kinks(self.generator, near)

    @cached_property
    def value_at_zero(self) -> sympy.Expr:
        """`f(0) = lim f(u)` for `u → 0⁺`; may be `oo`."""
        return _limit(resolve_kinks(self.generator, 2.0**-1000), at_infinity=False)

    @cached_property
    def recession_slope(self) -> sympy.Expr:
        """`f'(∞) = lim f(u)/u` for `u → ∞`; may be `oo`."""
        return _limit(resolve_kinks(self.generator, 2.0**1000) / expressions.symbol(), at_infinity=True)

    def check(self) -> FDivergence:
        """Return self if `f` is finite and convex on (0, ∞) with `f(1) = 0`.

        Tested from 1e-120 to 1e120 by `bandtheory.convexity`.

        Raises:
            DivergenceError: with the smallest offence found and its place.
        """
        from bandtheory.convexity import convexity_fault

        problem = convexity_fault(self)
        if problem:
            raise DivergenceError(f"{self.name!r} is not an f-divergence: {problem}")
        return self

    def __str__(self) -> str:
        return self.name


def _limit(expression: sympy.Expr, at_infinity: bool) -> sympy.Expr:
    """`lim expression` for u → 0⁺ or u → ∞, of a function known to have one in (−∞, ∞].

    By sympy where the expression is of ordinary size; by values at 10^±1000 and 10^±2000 where it is not (sympy's algorithm
    can take minutes on a high power of a sum).
    """
    import mpmath
    import sympy

    u = expressions.symbol()
    if expanded_size(expression) <= MAX_TERMS:
        if at_infinity:
            return sympy.limit(sympy.expand(expression), u, sympy.oo)
        return sympy.limit(expression, u, 0, "+")
    function = sympy.lambdify(u, expression, "mpmath")
    with digits(_DIGITS):
        near, far = (mpmath.mpmathify(function(mpmath.mpf(10) ** (k if at_infinity else -k))) for k in (1000, 2000))
        if abs(far - near) < mpmath.mpf(10) ** -30 * (1 + abs(far)):
            return sympy.Float(far, 60)
        return sympy.oo


def expanded_size(expression: sympy.Expr) -> int:
    """An upper bound on the number of terms after expansion, by which costly algebra is avoided on `(a + b + c)**64`."""
    sizes = [expanded_size(argument) for argument in expression.args]
    if expression.is_Add:
        return sum(sizes)
    if expression.is_Mul:
        return math.prod(sizes)
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 1:
        return math.comb(sizes[0] + int(expression.exp) - 1, int(expression.exp))
    return 1


def tame(expression: sympy.Expr) -> bool:
    """Whether sympy may factor and cancel it: neither high powers or fine roots nor numbers of many digits.

    `exp(12.3*u)` is the power 123 of `exp(u/10)`, to sympy.
    """
    import sympy

    exponents = [power.exp for power in expression.atoms(sympy.Pow) if power.exp.is_Rational]
    exponents += [number for power in expression.atoms(sympy.exp) for number in power.atoms(sympy.Rational)]
    numbers = expression.atoms(sympy.Rational)
    return all(max(abs(e.p), e.q) <= 12 for e in exponents) and all(max(abs(n.p), n.q) < 10**12 for n in numbers)


def resolve_kinks(expression: sympy.Expr, point: float) -> sympy.Expr:
    """Replace each `abs`, `max` and `min` by the branch that is active at `u = point`."""
    import sympy

    u = expressions.symbol()

    def active(node: sympy.Expr) -> sympy.Expr:
        values = [sympy.N(a.subs(u, sympy.Float(point, _DIGITS)), _DIGITS) for a in node.args]
        if isinstance(node, sympy.Abs):
            return -node.args[0] if values[0] < 0 else node.args[0]
        best = max(values) if isinstance(node, sympy.Max) else min(values)
        return node.args[values.index(best)]

    kinks = (sympy.Abs, sympy.Max, sympy.Min)
    return expression.replace(lambda node: isinstance(node, kinks), active)


def settle_kinks(expression: sympy.Expr, above: bool = False) -> sympy.Expr:
    """Resolve each `abs`, `max`, `min` that takes one branch on all of (0, 1), or of (1, ∞) if `above`; the others stay."""
    import sympy

    u = expressions.symbol()
    points = [sympy.Rational(k, 64) for k in range(1, 64)] + [sympy.Rational(1, 2**k) for k in (12, 40, 200)]
    points += [1 - sympy.Rational(1, 2**k) for k in (12, 40)]
    if above:
        points = [1 / point for point in points]

    def settle(node: sympy.Expr) -> sympy.Expr:
        arguments = node.args if isinstance(node, (sympy.Max, sympy.Min)) else (node.args[0], -node.args[0])
        select = min if isinstance(node, sympy.Min) else max
        branches = set()
        for point in points:
            values = [sympy.N(argument.subs(u, point), 40) for argument in arguments]
            branches.add(values.index(select(values)))
        return arguments[branches.pop()] if len(branches) == 1 else node

    return expression.replace(lambda node: isinstance(node, (sympy.Abs, sympy.Max, sympy.Min)), settle)


@lru_cache(maxsize=256)
def divergence(spec: str) -> FDivergence:
    """Look up a divergence by catalogue name, or make one from an expression in `u`.

    Args:
        spec: `"kl"`; with a parameter, exact as a decimal or a fraction, `"vajda:3"`, `"alpha:1/3"`; or `"u*log(u) - u + 1"`.

    Raises:
        DivergenceError: an unknown name (the nearest is suggested), a parameter out of range, or a generator that is not
            convex or not zero at 1.
        ExpressionError: text outside the grammar.
    """
    result = unchecked_divergence(spec)
    return result if result.name.partition(":")[0] in catalogue() else result.check()  # the tests check the catalogue


@lru_cache(maxsize=256)
def unchecked_divergence(spec: str) -> FDivergence:
    """As `divergence`, but a faulty generator is not refused: for `verify`, whose business it is to report the fault."""
    if not isinstance(spec, str):
        raise DivergenceError(f"divergence must be a name or an expression in u, got {type(spec).__name__}")
    text = spec.strip()
    try:
        found = find(text)
    except ParameterError as error:
        raise DivergenceError(str(error)) from None
    if found:
        declaration, value = found
        if declaration.parameter is None or value is None:
            return FDivergence(declaration.name, declaration.generator, declaration.title, radius=declaration.radius)
        parameters = ((declaration.parameter.name, value),)
        name = f"{declaration.name}:{number_text(value)}"
        return FDivergence(name, declaration.generator, declaration.title, parameters, declaration.radius)
    if _NAME.fullmatch(text) and text not in ("u", "e", "pi"):
        near = difflib.get_close_matches(text.lower().partition(":")[0], catalogue(), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = ", ".join(declaration.pattern for declaration in DECLARATIONS)
        raise DivergenceError(f"unknown divergence {text!r}; {hint}known: {known}, or an expression in u")
    result = FDivergence(text, text, "typed expression")
    _ = result.generator
    return result


def as_divergence(spec: str | FDivergence) -> FDivergence:
    """Accept a divergence object, a name or an expression wherever a divergence is asked for."""
    return spec if isinstance(spec, FDivergence) else divergence(spec)
