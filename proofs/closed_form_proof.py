"""What makes a formula the band's bound, as implications for `real_arithmetic`: a closed form goes in, a statement comes out.

With `ρ` the radius, `level = p f(1/p) + (1 − p) f(0)` of theorem 6 and `v(p, δ)` the claimed upper bound:

    pieces        f = f₊ on [1, ∞) and f = f₋ on (0, 1], the two branches used below
    saturated     level ≤ ρ  ⟹  v = 1/p
    side          level > ρ  ⟹  v ≥ 1
    simplex       level > ρ  ⟹  v ≤ 1/p
    equality      level > ρ  ⟹  p f₊(v) + (1 − p) f₋((1 − p v)/(1 − p)) = ρ
    at rest       ρ = 0 and v < s ≤ 1/p  ⟹  p f(s) + (1 − p) f((1 − p s)/(1 − p)) > 0

For ρ > 0, g(p, 1) = 0 < ρ = g(p, v) and convexity (theorem 2) make g > ρ beyond v: the claim is the bound. At ρ = 0, where f
may be flat around 1, the last line says so directly. The lower bound likewise, with the ends exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy

from proofs.real_arithmetic import Clock, Implication, Undecided, decide
from proofs.statement import Method, Outcome, Statement, Status

p, s, t = (sympy.Symbol(name, positive=True) for name in "pst")
delta, x = (sympy.Symbol(name, nonnegative=True) for name in ("delta", "x"))
u = sympy.Symbol("u", positive=True)
not_p = 1 - p
UNIT = (sympy.Gt(p, 0, evaluate=False), sympy.Lt(p, 1))
RADIUS = (*UNIT, sympy.Ge(delta, 0, evaluate=False))


@dataclass(frozen=True)
class Substitution:
    """A change of variables that turns roots into polynomials: `old = new(variables)` over a domain, and its inverse.

    That every old point is reached is proved: `new(inverse(old)) = old`, and the inverse lies in the domain.
    """

    values: tuple[tuple[sympy.Symbol, sympy.Expr], ...]
    inverse: tuple[tuple[sympy.Symbol, sympy.Expr], ...]
    domain: tuple[sympy.Basic, ...]

    def applied(self, implication: Implication) -> Implication:
        """The implication in the new variables."""
        values = dict(self.values)
        hypotheses = (h.subs(values, simultaneous=True) for h in implication.hypotheses)
        conclusion = implication.conclusion.subs(values, simultaneous=True)
        return Implication(implication.what, (*self.domain, *hypotheses), conclusion)

    def reaches(self, domain: tuple[sympy.Basic, ...]) -> Iterator[Implication]:
        """That the change of variables leaves nothing out."""
        back = dict(self.inverse)
        for old, value in self.values:
            yield Implication(f"{old} is reached", domain, sympy.Eq(value.subs(back, simultaneous=True), old))
        for condition in self.domain:
            inside = condition.func(condition.lhs.subs(back), condition.rhs.subs(back), evaluate=False)
            yield Implication("the new variables in their domain", domain, inside)


@dataclass(frozen=True)
class ClosedForm:
    """A claimed pair of bounds.

    Attributes:
        name: of the divergence, with its parameters.
        generator: f(u).
        upper, lower: the claims, in p, δ and the parameters.
        pieces: f₋ and f₊; None resolves each |·| of the generator by its sign at ½ and 2.
        domain: the ranges of all symbols.
        radius: the radius of D_f that δ (or the variable in its place) stands for.
        rest: the value of that variable at which the radius is 0.
        complements: (1 − p v)/(1 − p) of the two claims in another shape, proved to be the same; a help for roots of roots.
        substitution: another help.
    """

    name: str
    generator: sympy.Expr
    upper: sympy.Expr
    lower: sympy.Expr
    pieces: tuple[sympy.Expr, sympy.Expr] | None = None
    domain: tuple[sympy.Basic, ...] = RADIUS
    radius: sympy.Expr = delta
    rest: tuple[tuple[sympy.Symbol, int], ...] = ((delta, 0),)
    complements: tuple[sympy.Expr, sympy.Expr] | None = None
    substitution: Substitution | None = None

    def branches(self) -> tuple[sympy.Expr, sympy.Expr]:
        """f₋ and f₊."""
        return self.pieces or (_branch(self.generator, sympy.Rational(1, 2)), _branch(self.generator, sympy.Integer(2)))

    def obligations(self) -> Iterator[Implication]:
        """Everything to be proved, in reading order."""
        below, above = self.branches()
        conditions = self.domain[2:]
        unit = (sympy.Gt(u, 0, evaluate=False), sympy.Le(u, 1), *conditions)
        yield Implication("f₋ on (0, 1]", unit, _equal(self.generator, below))
        yield Implication("f₊ on [1, ∞)", (sympy.Ge(u, 1), *conditions), _equal(self.generator, above))
        if self.substitution:
            yield from self.substitution.reaches(self.domain)
        for upper in (True, False):
            for implication in self._side(upper, below, above):
                rest = implication.what.endswith("at rest")
                yield self.substitution.applied(implication) if self.substitution and not rest else implication

    def _side(self, upper: bool, below: sympy.Expr, above: sympy.Expr) -> Iterator[Implication]:
        side, claim, end = ("upper", self.upper, 1 / p) if upper else ("lower", self.lower, sympy.Integer(0))
        here, there = (above, below) if upper else (below, above)  # the branch of r, the branch of c
        c = (1 - p * claim) / not_p
        at_zero = below.subs(u, 0)
        free = self.domain
        if at_zero.is_finite is not False:
            level = p * here.subs(u, end) + not_p * there.subs(u, (1 - p * end) / not_p)
            free = (*self.domain, sympy.Gt(level, self.radius, evaluate=False))
            saturated = (*self.domain, sympy.Le(level, self.radius, evaluate=False))
            yield Implication(f"{side}, saturated", saturated, _equal(claim, end))
        yield Implication(f"{side}, side of 1", free, (sympy.Ge if upper else sympy.Le)(claim, 1, evaluate=False))
        yield Implication(f"{side}, simplex", free, (sympy.Le if upper else sympy.Ge)(claim, end, evaluate=False))
        if self.complements:
            other = self.complements[0 if upper else 1]
            yield Implication(f"{side}, complement", free, _equal(c, other))
            c = other
        yield Implication(f"{side}, equality", free, _equal(p * here.subs(u, claim) + not_p * there.subs(u, c), self.radius))
        yield self._at_rest(side, claim, here, there)

    def _at_rest(self, side: str, claim: sympy.Expr, here: sympy.Expr, there: sympy.Expr) -> Implication:
        rest = dict(self.rest)
        start = claim.subs(rest)
        ranges = [condition for condition in self.domain if not condition.has(*rest)]
        beyond = (sympy.Gt(s, start, evaluate=False), sympy.Lt(s, 1 / p, evaluate=False))
        if side == "lower":
            beyond = (sympy.Lt(s, start, evaluate=False), sympy.Gt(s, 0, evaluate=False))
        g = p * here.subs(u, s) + not_p * there.subs(u, (1 - p * s) / not_p)
        return Implication(f"{side}, at rest", (*ranges, *beyond), sympy.Gt(g, 0, evaluate=False))


def _equal(left: sympy.Expr, right: sympy.Expr) -> sympy.Eq:
    return sympy.Eq(left, right, evaluate=False)


def _branch(generator: sympy.Expr, point: sympy.Rational) -> sympy.Expr:
    """The generator with each |·| resolved by its sign at a point; that this is right on the whole side is proved later."""
    return generator.replace(
        lambda node: isinstance(node, sympy.Abs), lambda node: node.args[0] * (-1 if node.args[0].subs(u, point) < 0 else 1)
    )


def all_proved(implications: Iterator[Implication], seconds: float) -> Outcome:
    """Decide one implication after the other, within the time for all; the first that is not proved is the outcome."""
    clock = Clock(seconds)
    proved = 0
    for implication in implications:
        try:
            outcome = decide(implication, clock.left())
        except Undecided as undecided:
            return Outcome(Status.OPEN, f"{implication.what}: {undecided}")
        if outcome.status != Status.PROVED:
            return outcome
        proved += 1
    return Outcome(Status.PROVED, f"{proved} implications, each with its negation unsatisfiable")


def closed_form_statement(claim: ClosedForm, statement: str, latex: str) -> Statement:
    """The statement that a claimed pair of bounds is the band, for all p and δ and all parameters in their range."""
    return Statement(
        f"{claim.name} closed form",
        statement,
        latex,
        Method.DECISION,
        ("theorem 2 (g convex in r)", "z3 (nonlinear real arithmetic)", "sympy (polynomial normal forms)"),
        lambda seconds: all_proved(claim.obligations(), seconds),
    )
