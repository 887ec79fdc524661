"""Polynomials over the reals with roots adjoined under hypotheses: what z3 is given in place of radicals and quotients.

    φ^{a/b} = φ^n y^m    with y ≥ 0, y^b = φ,    once φ ≥ 0 is proved (φ > 0 where the exponent is negative)

Every sign that a step needs, of a radicand's factor or of a denominator, is a question to z3 under the facts so far. One that
it does not answer ends the step with `Undecided`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy.core.relational import Relational

from proofs.z3_translation import Translation

_LEMMA_SECONDS = 3.0  # for one sign; the statement itself may use all that is left
_GLANCE_SECONDS = 0.15
Point = dict[sympy.Symbol, sympy.Rational]


class Undecided(Exception):
    """A step that could not be decided: the statement stays open unless a counter-example is found."""


class Clock:
    """What is left of a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; raises Undecided when there are none."""
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise Undecided("out of time")
        return remaining


@dataclass
class Field:
    """Polynomials with roots adjoined, under hypotheses: `roots` holds `(y, b, φ)` with y ≥ 0 and y^b = φ ≥ 0."""

    clock: Clock
    facts: list[Relational] = field(default_factory=list)
    roots: list[tuple[sympy.Symbol, int, sympy.Expr]] = field(default_factory=list)
    signs: dict[sympy.Expr, int] = field(default_factory=dict)
    translation: Translation = field(default_factory=Translation)

    def assume(self, relation: Relational) -> None:
        """Add a hypothesis; where it is not defined, it is not decided."""
        self.facts.append(self.polynomial(relation))
        self.signs.clear()

    def assume_all(self, relations: Sequence[Any]) -> bool:
        """Assume them in an order in which each is defined by those before it; False if they contradict each other."""
        waiting = sorted(conjuncts(relations), key=_difficulty)
        if sympy.false in waiting:
            return False
        while waiting:
            later, reason = [], Undecided()
            for relation in waiting:
                try:
                    self.assume(relation)
                except Undecided as undecided:
                    later, reason = [*later, relation], undecided
            if len(later) == len(waiting):  # what is known so far may already be contradictory
                if self.search(None, _LEMMA_SECONDS)[0] == "unsat":
                    return False
                raise reason
            waiting = later
        return self.search(None, _LEMMA_SECONDS)[0] != "unsat"

    def polynomial(self, relation: Relational) -> Relational:
        """The same relation as `N ⋛ 0` with a polynomial N."""
        numerator, denominator = self.fraction(relation.lhs - relation.rhs)
        constant, factors = sympy.factor_list(denominator)
        sign = 1 if constant > 0 else -1
        for factor, power in factors:
            of_factor = self.sign(factor)
            if abs(of_factor) != 2:
                raise Undecided(f"the sign of the denominator {factor}")
            sign *= -1 if of_factor < 0 and power % 2 else 1
        return relation.func(self.reduced(sign * numerator), 0, evaluate=False)

    def fraction(self, expression: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
        """Numerator and denominator, polynomials in the symbols and the roots."""
        return sympy.fraction(sympy.cancel(sympy.together(self.rational(expression))))

    def rational(self, expression: sympy.Expr) -> sympy.Expr:
        """The expression as a rational function of the symbols and the roots; a denominator must be proved different from 0."""
        if expression.is_Symbol or expression.is_Rational:
            return expression
        if expression.is_Add or expression.is_Mul:
            return expression.func(*(self.rational(argument) for argument in expression.args))
        if expression.is_Pow and expression.exp.is_Rational:
            base = self.rational(expression.base)
            if not expression.exp.is_Integer:
                return self.power(base, expression.exp)
            if expression.exp < 0:
                self.nonzero(base)
            return base**expression.exp
        raise Undecided(f"{expression} is not algebraic")

    def nonzero(self, base: sympy.Expr) -> None:
        """Prove that a rational function of the symbols and roots has no zero; polynomial denominators were seen before."""
        numerator = sympy.numer(sympy.cancel(sympy.together(base)))
        if any(abs(self.sign(factor)) != 2 for factor, _ in sympy.factor_list(self.reduced(numerator))[1]):
            raise Undecided(f"whether {numerator} ≠ 0")

    def power(self, base: sympy.Expr, exponent: sympy.Rational) -> sympy.Expr:
        """`base^exponent`, factor by factor where every sign is known, else as one root of a polynomial proved to be ≥ 0."""
        numerator, denominator = sympy.fraction(sympy.cancel(sympy.together(base)))
        parts = [(sympy.Integer(1), exponent)]
        overall = 1
        for polynomial, sense in ((numerator, 1), (denominator, -1)):
            constant, factors = self.factors(polynomial)
            if constant == 0 and exponent > 0:
                return sympy.Integer(0)
            overall *= 1 if constant > 0 else -1
            parts.append((abs(constant), sense * exponent))
            for factor, power in factors:
                sign = self.sign(factor)
                if sign == 0 or (abs(sign) == 1 and sense * exponent < 0):
                    return self.whole_power(numerator, denominator, exponent)
                overall *= -1 if sign < 0 and power % 2 else 1
                parts.append((factor if sign > 0 else -factor, sense * power * exponent))
        if overall < 0:
            return self.whole_power(numerator, denominator, exponent)
        return sympy.Mul(*(self.root(factor, power) for factor, power in parts))

    def factors(self, polynomial: sympy.Expr) -> tuple[sympy.Rational, list[tuple[sympy.Expr, int]]]:
        """Constant and factors with multiplicities; squares are looked for before the relations of the roots hide them."""
        constant, factors = sympy.factor_list(polynomial)
        if any(power > 1 and not factor.is_Symbol for factor, power in factors):
            return constant, factors
        return sympy.factor_list(self.reduced(polynomial))  # type: ignore[no-any-return]

    def whole_power(self, numerator: sympy.Expr, denominator: sympy.Expr, exponent: sympy.Rational) -> sympy.Expr:
        """`(N/D)^{a/b} = ((N D^{b−1})^{1/b}/D)^a`, for a > 0."""
        radicand = self.reduced(numerator * denominator ** (exponent.q - 1))
        denominator_sign = self.sign(denominator)
        if exponent < 0 or denominator_sign != 2 or self.sign(radicand) < 1:
            raise Undecided(f"the sign of the radicand {numerator}/({denominator})")
        return (self.root(radicand, sympy.Rational(1, exponent.q)) / denominator) ** exponent.p

    def root(self, factor: sympy.Expr, exponent: sympy.Rational) -> sympy.Expr:
        """`φ^{a/b}` for φ known to be ≥ 0: the integer part of the exponent stays, the rest is a power of a root."""
        whole, degree = sympy.floor(exponent), exponent.q
        if degree == 1 or (factor.is_number and (factor**exponent).is_Rational):
            return factor**exponent
        for known, known_degree, radicand in self.roots:
            if radicand == factor and known_degree % degree == 0:
                return factor**whole * known ** (int((exponent - whole) * known_degree))
        symbol = sympy.Dummy(f"y{len(self.roots)}", nonnegative=True)
        self.roots.append((symbol, int(degree), factor))
        return factor**whole * symbol ** int((exponent - whole) * degree)

    def reduced(self, polynomial: sympy.Expr) -> sympy.Expr:
        """The polynomial modulo the relations `y^b = φ`, latest root first."""
        result = sympy.expand(polynomial)
        for symbol, degree, radicand in reversed(self.roots):
            if result.has(symbol):
                result = sympy.expand(sympy.rem(result, symbol**degree - radicand, symbol))
        return result

    def sign(self, polynomial: sympy.Expr) -> int:
        """2 if it is proved > 0, 1 if ≥ 0, −1 if ≤ 0, −2 if < 0, and 0 if neither."""
        if polynomial.is_number:
            return 2 * int(sympy.sign(polynomial))
        if polynomial not in self.signs:
            self.signs[polynomial] = self._sign(self.reduced(polynomial))
        return self.signs[polynomial]

    def _sign(self, polynomial: sympy.Expr) -> int:
        orders = ((2, sympy.Gt), (-2, sympy.Lt), (1, sympy.Ge), (-1, sympy.Le))
        for seconds in (_GLANCE_SECONDS, _LEMMA_SECONDS):  # one of the four is often much harder than the others
            for sign, order in orders:
                if self.entails(order(polynomial, 0, evaluate=False), seconds):
                    return sign
        return 0

    def entails(self, relation: Relational, seconds: float) -> bool:
        """Whether z3 finds the negation of a polynomial relation unsatisfiable."""
        return self.search(relation, seconds)[0] == "unsat"

    def search(self, relation: Relational | None, seconds: float) -> tuple[str, Point]:
        """Look for a point where the facts hold and a polynomial relation fails: z3's answer, and the point."""
        import z3

        translate = self.translation
        solver = z3.SolverFor("QF_NRA", ctx=translate.context)
        solver.set("timeout", max(int(1000 * min(seconds, self.clock.left())), 1))
        for fact in self.facts:
            solver.add(translate(fact))
        for symbol, degree, radicand in self.roots:
            root = translate(symbol)
            solver.add(root >= 0, z3.Product([root] * degree) == translate(radicand))
        if relation is not None:
            solver.add(z3.Not(translate(relation)))
        answer = str(solver.check())
        if answer != "sat":
            return answer, {}
        model = solver.model()
        symbols = {s for r in (*self.facts, relation) if r is not None for s in r.free_symbols}
        letters = [symbol for symbol in symbols if not isinstance(symbol, sympy.Dummy)]
        return answer, {s: _value(model.eval(translate(s), model_completion=True)) for s in letters}


def _value(value: Any) -> sympy.Rational:
    """A z3 number as a rational, algebraic ones to 40 digits."""
    import z3

    if z3.is_algebraic_value(value):
        value = value.approx(40)
    return sympy.Rational(value.numerator_as_long(), value.denominator_as_long())


def _difficulty(relation: Any) -> tuple[int, int]:
    """Ranges of single symbols first, then what has no roots."""
    if relation in (sympy.true, sympy.false):
        return 0, 0
    return sum(not power.exp.is_Integer for power in relation.atoms(sympy.Pow)), relation.count_ops()


def conjuncts(relations: Sequence[Any]) -> Iterator[Any]:
    """The single relations of a list of relations, conjunctions and `True`."""
    for relation in relations:
        if isinstance(relation, sympy.And):
            yield from conjuncts(relation.args)
        elif relation not in (True, sympy.true):
            yield relation
