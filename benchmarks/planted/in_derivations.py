"""Faults of what sympy is said to have derived from generators that are right: theorems 6 and 7, and closed forms.

A fault replaces fields of the `Derivation` that `verify` looks at; the bounds on trial remain the library's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from bandtheory.closed_form_search import symbols
from bandtheory.derivation import Derivation, Saturation
from benchmarks.planted.fault import in_derivation

PART = "closed form valid in part of the range"
P, M, R, DELTA = symbols()
Q = sympy.Symbol("q", positive=True)


def _interior(form: Any) -> Any:
    """A closed form without its saturation."""
    return form.args[-1].expr if isinstance(form, sympy.Piecewise) else form


def _limits(derived: Derivation, **changes: Any) -> dict[str, Any]:
    return {"limits": replace(derived.limits, **changes)}


def _saturation(derived: Derivation, **changes: Any) -> dict[str, Any]:
    return {"saturation": replace(derived.saturation, **changes)}


def _turned_round(derived: Derivation) -> dict[str, Any]:
    sides = derived.saturation
    return {"saturation": Saturation(*(sympy.Ge(side.lhs, side.rhs) for side in (sides.upper, sides.lower)))}


CONDITIONS = (
    in_derivation(
        "lower saturation without its second term",
        "tv",
        lambda d: _saturation(d, lower=sympy.Le(P / 2, DELTA)),
        "p f(0) ≤ δ",
        "the other tokens forgotten",
    ),
    in_derivation(
        "saturation of the two sides exchanged",
        "pearson_chi2",
        lambda d: {"saturation": Saturation(d.saturation.lower, d.saturation.upper)},
        "the condition of the other side",
        "the mirror applied twice",
    ),
    in_derivation(
        "saturation turned round", "le_cam", _turned_round, "level ≥ δ for level ≤ δ", "an inequality read backwards"
    ),
    in_derivation(
        "saturation at half the radius",
        "squared_hellinger",
        lambda d: _saturation(d, upper=sympy.Le(d.saturation.upper.lhs, DELTA / 2)),
        "level ≤ δ/2",
        "another normalisation on one side of the equation",
    ),
    in_derivation(
        "always saturated",
        "neyman_chi2",
        lambda d: _saturation(d, lower=sympy.true),
        "lower = 0 for every δ",
        "f(0) taken for 0",
    ),
    in_derivation(
        "never saturated",
        "hockey_stick:2",
        lambda d: _saturation(d, upper=sympy.false),
        "upper < 1/p for every δ",
        "f(0) taken for ∞",
    ),
    in_derivation(
        "constraint with p and 1 − p exchanged",
        "kl",
        lambda d: {"constraint": sympy.Eq(d.constraint.lhs.subs(P, 1 - P), DELTA)},
        "the constraint of 1 − p",
        "the weights in the wrong order",
    ),
    in_derivation(
        "constraint at twice the radius",
        "jeffreys",
        lambda d: {"constraint": sympy.Eq(d.constraint.lhs, 2 * DELTA)},
        "g = 2δ",
        "another normalisation on one side of the equation",
    ),
    in_derivation(
        "lower limit 1 − δ",
        "kl",
        lambda d: _limits(d, lower_at_one=1 - DELTA),
        "1 − δ for e^−δ as p → 1",
        "a series cut off",
    ),
    in_derivation(
        "mass 1 as p → 0",
        "squared_hellinger",
        lambda d: _limits(d, mass_at_zero=sympy.Integer(1)),
        "p upper → 1",
        "a limit taken twice",
    ),
    in_derivation(
        "equation of the limit without f'(∞)",
        "jensen_shannon",
        lambda d: _limits(d, lower_equation=sympy.Eq(d.limits.lower_equation.lhs - (1 - R) * sympy.log(2) / 2, DELTA)),
        "f(r) = δ for f(r) + (1 − r) f'(∞) = δ as p → 1",
        "0·f(0/0) = 0 applied where it does not hold",
    ),
    in_derivation(
        "equation of the mass with f(0)",
        "skew_jensen_shannon:0.1",
        lambda d: _limits(d, mass_equation=sympy.Eq(d.limits.mass_equation.lhs + Q * d.limits.value_at_zero, DELTA)),
        "a term q f(0) too many as p → 0",
        "the two limits confused",
    ),
)

FORMS = (
    in_derivation(
        "no saturation",
        "tv",
        lambda d: {"upper": _interior(d.upper), "lower": _interior(d.lower)},
        "1 ± δ/p beyond the simplex",
        "the formula as it stands",
        PART,
    ),
    in_derivation(
        "no saturation",
        "squared_hellinger",
        lambda d: {"upper": _interior(d.upper)},
        "turns back where the bound is 1/p",
        "the formula as it stands",
        PART,
    ),
    in_derivation(
        "p → 0 only",
        "vajda:3",
        lambda d: {"upper": sympy.Min(1 + (DELTA / P) ** sympy.Rational(1, 3), 1 / P)},
        "pᵏ(1 − p)^{1−k} forgotten",
        "pᵏ ≪ p",
        PART,
    ),
    in_derivation(
        "p < 0.99 only",
        "pearson_chi2",
        lambda d: {"upper": sympy.Piecewise((d.upper, sympy.Rational(99, 100) > P), (1 / P, True))},
        "1/p above p = 0.99",
        "a limit used too early",
        PART,
    ),
    in_derivation(
        "p > 1e-6 only",
        "hockey_stick:1.2",
        lambda d: {"upper": sympy.Piecewise((d.upper, sympy.Rational(1, 10**6) < P), (1 / P, True))},
        "1/p below p = 1e-6",
        "a limit used too early",
        PART,
    ),
    in_derivation(
        "δ < 1 only",
        "neyman_chi2",
        lambda d: {"lower": sympy.Piecewise((d.lower, DELTA < 1), (sympy.Integer(0), True))},
        "0 for δ ≥ 1",
        "the lower bound taken to saturate",
        PART,
    ),
    in_derivation(
        "1/upper below",
        "le_cam",
        lambda d: {"lower": 1 / d.upper},
        "lower = 1/upper",
        "a symmetric divergence",
        "swapped sides",
    ),
    in_derivation(
        "other root", "neyman_chi2", lambda d: {"upper": d.lower}, "the lower root on both sides", "a sign copied", "wrong root"
    ),
    in_derivation(
        "constant as a double",
        "vajda:1.5",
        lambda d: {"upper": 1 + (_interior(d.upper) - 1) * (1 + sympy.Float(2.0**-52, 30))},
        "off by 2^−52 and without saturation",
        "a floating-point number in a symbolic form",
    ),
)

DERIVATION_FAULTS = (*CONDITIONS, *FORMS)
