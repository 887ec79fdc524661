"""From sympy to z3: statements about roots, quotients, absolute values and cases, decided over the reals without sampling.

z3's decision procedure (nlsat) wants polynomials. A relation between algebraic expressions becomes one in four steps, each of
which is itself decided under the hypotheses, never assumed:

    cases       |x|, max, min and piecewise split the statement in two, with the condition as a further hypothesis
    roots       x^{a/b}: the radicand is factored, each factor φ has its sign proved, and φ^{1/b} becomes y ≥ 0, y^b = φ
    quotients   the denominator has its sign proved and is multiplied out
    relations   y^b is replaced by φ wherever it occurs, so that identities become 0 = 0

then the negation of the statement must be unsatisfiable, and the hypotheses must not contradict each other. A model of the
negation is a counter-example only if the original statement fails there in 50 digits; what z3 cannot decide in the time left
is open. The cases are here, the other steps in `adjoined_roots`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import sympy
from sympy.core.relational import Relational

from proofs.adjoined_roots import Clock, Field, Point, Undecided, conjuncts
from proofs.statement import Outcome, Status

DIGITS = 50
_KINKS = (sympy.Abs, sympy.Max, sympy.Min, sympy.Piecewise)


@dataclass(frozen=True)
class Implication:
    """`hypotheses ⟹ conclusion`, for all real values of the symbols in them.

    Conclusions are sympy relations, or conjunctions of them, between algebraic expressions; hypotheses likewise.
    """

    what: str
    hypotheses: tuple[Any, ...]
    conclusion: Any


def cases(hypotheses: tuple[Any, ...], conclusion: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The same implication as several without `Abs`, `Max`, `Min` and `Piecewise`, by distinction of cases."""
    holder = next((r for r in (*hypotheses, conclusion) if r.has(*_KINKS)), None)
    if holder is None:
        yield hypotheses, conclusion
        return
    node = next(
        n for n in sympy.preorder_traversal(holder) if isinstance(n, _KINKS) and not any(a.has(*_KINKS) for a in n.args)
    )
    for condition, value in _alternatives(node):
        split = {node: value}
        yield from cases(
            (*(h.xreplace(split) for h in hypotheses), *conjuncts([condition])),
            conclusion.xreplace(split),
        )


def _alternatives(node: sympy.Expr) -> Iterator[tuple[Any, sympy.Expr]]:
    """Conditions that exclude nothing, and the value of the node under each."""
    if isinstance(node, sympy.Abs):
        yield sympy.Ge(node.args[0], 0, evaluate=False), node.args[0]
        yield sympy.Lt(node.args[0], 0, evaluate=False), -node.args[0]
    elif isinstance(node, sympy.Piecewise):
        earlier: list[Any] = []
        for value, condition in node.args:
            yield sympy.And(*earlier, condition, evaluate=False), value
            if condition != sympy.true and not isinstance(condition, Relational):
                raise Undecided(f"a case with the condition {condition}")
            earlier.append(sympy.Not(condition))
    else:
        order = sympy.Ge if isinstance(node, sympy.Max) else sympy.Le
        first, rest = node.args[0], node.func(*node.args[1:])
        yield order(first, rest, evaluate=False), first
        yield sympy.Not(order(first, rest, evaluate=False)), rest


def decide(implication: Implication, seconds: float) -> Outcome:
    """Prove an implication for all reals, or refute it by a point, or leave it open."""
    clock = Clock(seconds)
    candidates: list[Point] = []
    reason = "the hypotheses contradict each other"
    try:
        possible = False
        for hypotheses, conclusion in cases(tuple(conjuncts(implication.hypotheses)), implication.conclusion):
            context = Field(clock)
            if not context.assume_all(hypotheses):
                continue
            possible = True
            point = _counter_example(context, conclusion)
            if point is not None:
                candidates.append(point)
                reason = "z3 has a model of the negation, but it does not fail in digits"
                break
        else:
            if possible:
                return Outcome(Status.PROVED, implication.what)
    except Undecided as undecided:
        reason = str(undecided)
    for point in itertools.chain(candidates, _grid(implication)):
        if fails_at(implication, point):
            where = ", ".join(f"{s} = {sympy.N(v, 8)}" for s, v in sorted(point.items(), key=lambda item: item[0].name))
            return Outcome(Status.REFUTED, f"{implication.what}: fails at {where}")
    return Outcome(Status.OPEN, f"{implication.what}: {reason}")


def _counter_example(context: Field, conclusion: Any) -> Point | None:
    """None where the conclusion is proved from the facts of the context, else z3's counter-example."""
    for relation in conjuncts([conclusion]):
        if relation == sympy.false:
            return context.search(None, context.clock.left())[1]
        answer, point = context.search(context.polynomial(relation), context.clock.left())
        if answer == "unknown":
            raise Undecided(f"z3 could not decide {relation}")
        if answer == "sat":
            return point
    return None


def fails_at(implication: Implication, point: Point) -> bool:
    """Whether in 50 digits every hypothesis holds at the point and the conclusion clearly does not (or is not real)."""
    if not all(_margin(hypothesis, point) >= 0 for hypothesis in conjuncts(implication.hypotheses)):
        return False
    return any(_margin(relation, point) < -sympy.Float("1e-25") for relation in conjuncts([implication.conclusion]))


def _margin(relation: Any, point: Point) -> sympy.Expr:
    """How far a relation holds (≥ 0) or fails (< 0) at a point; −∞ where it is not defined over the reals."""
    if relation in (sympy.true, sympy.false):
        return sympy.Integer(0) if relation == sympy.true else -sympy.oo
    difference = sympy.N((relation.lhs - relation.rhs).subs(point), DIGITS)
    if not difference.is_real or not difference.is_finite:
        return -sympy.oo
    if relation.rel_op == "==":
        return -abs(difference)
    if relation.rel_op == "!=":
        return abs(difference) or sympy.Integer(-1)
    margin = -difference if relation.rel_op in ("<", "<=") else difference
    return margin if margin != 0 or "=" in relation.rel_op else sympy.Integer(-1)


@cache
def _grid_values() -> tuple[sympy.Rational, ...]:
    return tuple(sympy.Rational(Fraction(text)) for text in ("1/97", "3/10", "1/2", "4/5", "13/10", "3", "29"))


def _grid(implication: Implication) -> Iterator[Point]:
    """Points at which a statement that could not be decided is tried; they can refute it and never prove it."""
    symbols = sorted(
        {s for relation in conjuncts([*implication.hypotheses, implication.conclusion]) for s in relation.free_symbols},
        key=lambda symbol: symbol.name,
    )
    for values in itertools.islice(itertools.product(_grid_values(), repeat=len(symbols)), 400):
        yield dict(zip(symbols, values, strict=True))
