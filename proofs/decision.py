"""z3's nonlinear real arithmetic as a judge of implications written in sympy.

    hypotheses ⟹ claim   for all real values of the letters

is proved if z3 finds `hypotheses ∧ ¬claim` unsatisfiable, refuted by a solution of it, and open if z3 gives up. Values of the
undetermined convex function are letters like any other; what is known of them stands in the hypotheses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import z3

from proofs.statement import Outcome, Status
from proofs.z3_translation import Translation

_DIGITS = 6  # of the numbers of a counter-example


def decide(hypotheses: Sequence[Any], claim: Any, seconds: float) -> Outcome:
    """Whether the hypotheses imply the claim; hypotheses that contradict each other prove nothing.

    Divisions in the hypotheses and the claim must be by something that the hypotheses keep from 0: z3 lets `1/0` be anything.
    """
    translate = Translation()
    given = [translate(hypothesis) for hypothesis in map(sympy.sympify, hypotheses)]
    denied = z3.Not(translate(sympy.sympify(claim)))
    answer, model = _solve(translate, [*given, denied], seconds)
    if answer == z3.sat:
        return Outcome(Status.REFUTED, f"counter-example: {_values(translate, model)}")
    if answer == z3.unknown:
        return Outcome(Status.OPEN, f"z3 gave up within {seconds:g} s")
    if _solve(translate, given, seconds)[0] == z3.unsat:
        return Outcome(Status.OPEN, "the hypotheses contradict each other")
    return Outcome(Status.PROVED, "z3")


def _solve(translate: Translation, formulas: list[Any], seconds: float) -> tuple[Any, Any]:
    solver = z3.Solver(ctx=translate.context)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.add(*formulas)
    answer = solver.check()
    return answer, solver.model() if answer == z3.sat else None


def _values(translate: Translation, model: Any) -> str:
    """The letters of a counter-example with their values, irrational ones to a few digits."""

    def number(unknown: Any) -> str:
        value = model.eval(unknown, model_completion=True)
        return value.as_decimal(_DIGITS) if z3.is_algebraic_value(value) else str(value)

    return ", ".join(f"{name} = {number(unknown)}" for name, unknown in sorted(translate.unknowns.items()))
