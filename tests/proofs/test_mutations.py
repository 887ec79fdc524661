"""False statements: every one must come out refuted or open. Each is a true one with a sign, a factor or a case changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sympy

from bandtheory.derivation import Limits, derive
from proofs import closed_forms, inequalities, vajda_family
from proofs import theorem_01_reduction as one
from proofs import theorem_02_shape_in_ratio as two
from proofs import theorem_03_shape_in_probability as three
from proofs import theorem_04_shape_in_radius as four
from proofs import theorem_05_mirror as five
from proofs import theorem_06_saturation as six
from proofs import theorem_07_limits as seven
from proofs import theorem_07_limits_of_catalogue as seven_derived
from proofs import theorem_08_exploration as eight
from proofs import theorem_09_gradient as nine
from proofs import theorem_10_ratio_clip as ten
from proofs import theorem_11_nesting as eleven
from proofs.closed_form_proof import ClosedForm, closed_form_statement
from proofs.closed_form_proof import delta as radius
from proofs.closed_form_proof import p as probability
from proofs.notation import c, complement, curvature, delta, divergence, f, p, r, slope, x
from proofs.statement import Outcome, Statement, Status

SECONDS = 3.0
u_a, lam, nu = one.own, one.scale, one.shift
ONE, HALF = sympy.Integer(1), sympy.Rational(1, 2)
difference = slope(r) - slope(c)
g = divergence(p, r)

_radius, _r, _q = (sympy.Symbol(letter, positive=True) for letter in ("delta", "r", "q"))  # those of `derive`
_W = next(a for a in vajda_family.UPPER.args if a != 1 / vajda_family.p) - 1
_EDGE = vajda_family.delta / 1000


def _third(upper: Any = None, lower: Any = None) -> Statement:
    """The bounds of `vajda:k` with a third argument to their clamp."""
    family = vajda_family.Claim()
    if upper is not None:
        family = replace(family, upper=sympy.Min(family.upper, upper))
    if lower is not None:
        family = replace(family, lower=sympy.Max(family.lower, lower))
    assert len(family.upper.args) + len(family.lower.args) == 5
    return vajda_family.vajda_family_statement(family)


FALSE: dict[str, Callable[[], Statement]] = {
    # 1: exact reduction
    "the others are scaled by 1 − r p": lambda: one.reduction(p * f(u_a) + (1 - p) * f(1 - u_a * p)),
    "n tokens: twice the divergence": lambda: one.reduction(2 * divergence(p, u_a)),
    "n tokens: p and 1 − p exchanged": lambda: one.reduction(divergence(1 - p, u_a)),
    "conjugate: plus f": lambda: one.fenchel_young(x * slope(x) + f(x)),
    "conjugate: without f": lambda: one.fenchel_young(x * slope(x)),
    "weak duality: − ν": lambda: one.weak_duality("upper", lambda a, b: lam * delta - nu + lam * (p * a + (1 - p) * b)),
    "weak duality: without λδ": lambda: one.weak_duality("upper", lambda a, b: nu + lam * (p * a + (1 - p) * b)),
    "weak duality: p and 1 − p exchanged": lambda: one.weak_duality(
        "lower", lambda a, b: lam * delta + nu + lam * ((1 - p) * a + p * b)
    ),
    "weak duality: half the radius": lambda: one.weak_duality(
        "lower", lambda a, b: lam * delta / 2 + nu + lam * (p * a + (1 - p) * b)
    ),
    "multiplier: a factor 2": lambda: one.no_gap("upper", 2 / difference),
    "multiplier: of the other side": lambda: one.no_gap("lower", 1 / difference),
    "multiplier: sum of slopes": lambda: one.no_gap("upper", 1 / (slope(r) + slope(c))),
    "shift: a sign": lambda: one.no_gap("upper", None, slope(c) / difference),
    "shift: the slope at r": lambda: one.no_gap("lower", None, slope(r) / difference),
    "gap: δ + g": lambda: one.no_gap("upper", None, None, (delta + g) / difference),
    "optimality: slack with weight 2": lambda: one.optimality("upper", 2),
    "optimality: slack with weight −1": lambda: one.optimality("lower", -1),
    # 2: shape in r
    "g_rr: a sign": lambda: two.second_derivative(p * curvature(r) - p**2 / (1 - p) * curvature(complement(p, r))),
    "g_rr: p for p²": lambda: two.second_derivative(p * curvature(r) + p / (1 - p) * curvature(complement(p, r))),
    "g_rr: (1 − p)²": lambda: two.second_derivative(p * curvature(r) + p**2 / (1 - p) ** 2 * curvature(complement(p, r))),
    "chord: ends exchanged": lambda: two.convexity(lambda t, a, b: t * a + (1 - t) * b),
    "chord: half": lambda: two.convexity(lambda t, a, b: ((1 - t) * a + t * b) / 2),
    "minimum at r = 2": lambda: two.minimum(at=2),
    "minimum 1": lambda: two.minimum(least=1),
    # 3: shape in p
    "∂g/∂p: a sign": lambda: three.bregman(-sympy.diff(g, p)),
    "∂g/∂p: the slope at r": lambda: three.bregman(f(r) - f(complement(p, r)) - slope(r) * (r - complement(p, r))),
    "r − c: a sign": lambda: three.bregman(None, (1 - r) / (1 - p)),
    "g decreases in p": lambda: three.monotone(divergence(p, r) - divergence(three.larger, r)),
    "upper grows in p": lambda: three.nested_bands("upper", grows=True),
    "lower falls in p": lambda: three.nested_bands("lower", grows=True),
    # 4: shape in δ
    "mixture: within half the radius": lambda: four.mixture(lambda t, a, b: ((1 - t) * a + t * b) / 2),
    "mixture: within the first radius": lambda: four.mixture(lambda t, a, b: a),
    "upper convex in δ": lambda: four.value_function("upper", turned=True),
    "lower concave in δ": lambda: four.value_function("lower", turned=True),
    # 5: mirror
    "exchange: c = (1 − r p)/p": lambda: five.exchange((1 - r * p) / p),
    "mirror: without 1/p": lambda: five.mirror("lower", lambda p, b: 1 - (1 - p) * b),
    "mirror: a sign": lambda: five.mirror("upper", lambda p, b: (1 + (1 - p) * b) / p),
    "mirror: p for 1 − p": lambda: five.mirror("lower", lambda p, b: (1 - p * b) / p),
    # 6: saturation
    "saturation: f(0) left out": lambda: six.saturation("upper", p * f(1 / p)),
    "saturation: sides exchanged": lambda: six.saturation("lower", p * f(1 / p) + (1 - p) * f(sympy.Integer(0))),
    "saturation: at 1/(1 − p)": lambda: six.saturation("upper", None, 1 / (1 - p)),
    # 7: limits
    "p → 1: r for 1 − r": lambda: seven.limit_of_divergence(f(r) + r * seven.recession),
    "p → 1: f'(∞) left out": lambda: seven.limit_of_divergence(f(r)),
    "p → 1: r < ℓ is in the band": lambda: seven.bounds_at_one(inside=False),
    "p → 0: f(1 + q)": lambda: seven.mass_at_zero(lambda q: q * seven.recession + f(1 + q)),
    "p → 0: half the chord": lambda: seven.slower_than_probability(factor=1),
    "δ → 0: a factor 2": lambda: seven.small_radius((1 - p) / (p * curvature(ONE))),
    "δ → 0: p and 1 − p exchanged": lambda: seven.small_radius(2 * p / ((1 - p) * curvature(ONE))),
    "kl: lower → e^δ": lambda: seven.example("kl", sympy.exp(sympy.Symbol("delta", positive=True))),
    "tv: lower → 1 − 2δ": lambda: seven.example("tv", 1 - 2 * sympy.Symbol("delta", positive=True)),
    "derived limits: twice the radius": lambda: _derived("tv", lower_equation=_doubled("tv")),
    "derived limits: of the wrong divergence": lambda: seven_derived.limits_of("kl", derive("tv").limits),
    "derived limits: finite for infinite slope": lambda: seven_derived.limits_of("reverse_kl", derive("tv").limits),
    "derived limits: infinite for finite slope": lambda: seven_derived.limits_of("tv", derive("reverse_kl").limits),
    "derived limits: a wrong solution": lambda: _derived(
        "squared_hellinger", lower_at_one=derive("le_cam").limits.lower_at_one
    ),
    "derived limits: pearson, lower ½": lambda: _derived("pearson_chi2", lower_at_one=HALF),
    "derived limits: pearson, mass ½": lambda: _derived("pearson_chi2", mass_at_zero=HALF),
    "derived limits: pearson, a root 0 as well": lambda: _derived("pearson_chi2", lower_equation=_equal(_r * (_r - 1), 0)),
    "derived limits: pearson, a root −½ as well": lambda: _derived("pearson_chi2", lower_equation=_equal(_r**2 - _r / 2, HALF)),
    "derived limits: pearson, q² = q": lambda: _derived("pearson_chi2", mass_equation=_equal(_q**2, _q)),
    "derived limits: tv, a false saturated branch": lambda: _derived(
        "tv", lower_at_one=sympy.Piecewise((7, _radius >= ONE / 10), (1 - _radius, True))
    ),
    "derived limits: tv, saturated at ½": lambda: _derived(
        "tv", lower_at_one=sympy.Piecewise((HALF, _radius >= 1), (1 - _radius, True))
    ),
    "derived limits: tv, saturated too early": lambda: _derived(
        "tv", mass_at_zero=sympy.Piecewise((1, _radius >= HALF), (_radius, True))
    ),
    "derived limits: tv, lower never saturated": lambda: _derived("tv", lower_at_one=1 - _radius),
    "derived limits: tv, mass never saturated": lambda: _derived("tv", mass_at_zero=_radius),
    "derived limits: Jensen-Shannon, mass δ": lambda: _derived("jensen_shannon", mass_at_zero=_radius),
    "derived limits: Jensen-Shannon, both": lambda: _derived("jensen_shannon", lower_at_one=1 - _radius, mass_at_zero=_radius),
    "derived limits: kl, mass δ alone": lambda: _derived("kl", lower_at_one=None, mass_at_zero=_radius),
    "derived limits: kl, saturated at 1": lambda: _derived(
        "kl", lower_at_one=sympy.Piecewise((0, _radius >= 1), (sympy.exp(-_radius), True))
    ),
    "derived limits: kl, a root ½ as well": lambda: _derived("kl", lower_equation=_times("kl", _r - HALF)),
    "derived limits: kl, f(0) = 1": lambda: _derived("kl", value_at_zero=ONE),
    "derived limits: tv, f'(∞) = 1": lambda: _derived("tv", recession_slope=ONE),
    # 8: exploration margin
    "clip: margin ε": lambda: eight.fixed_clip(eight.epsilon),
    "margin: grows like 1/p": lambda: eight.growth(ONE),
    "margin: does not grow": lambda: eight.growth(sympy.Integer(0)),
    "margin: a factor 2": lambda: eight.quadratic_bound(2 * delta * (1 - p) / (eight.K * p)),
    "kl below half a parabola": lambda: eight.below_parabola("kl", HALF / 2),
    "reverse_kl below half a parabola": lambda: eight.below_parabola("reverse_kl", HALF / 2),
    # 9: gradient
    "gradient: A left out": lambda: nine.gradient(sympy.Or(r > nine.high, r < nine.low)),
    "gradient: sides exchanged": lambda: nine.gradient(
        sympy.Or(sympy.And(nine.A < 0, r > nine.high), sympy.And(nine.A > 0, r < nine.low))
    ),
    "test: g alone": lambda: nine.decided_by_divergence("upper", lambda r, g, delta: g > delta),
    "test: g ≥ δ": lambda: nine.decided_by_divergence("lower", lambda r, g, delta: sympy.And(r < 1, g >= delta)),
    "test: the other side of 1": lambda: nine.decided_by_divergence("upper", lambda r, g, delta: sympy.And(r < 1, g > delta)),
    "mask: whatever the advantage": lambda: nine.mask(lambda A, r, g, delta: g <= delta),
    "mask: twice the radius": lambda: nine.mask(
        lambda A, r, g, delta: sympy.Or(g <= 2 * delta, sympy.And(A >= 0, r <= 1), sympy.And(A <= 0, r >= 1))
    ),
    # 10: ratio clipping
    "hockey stick: upper = γ + 1": lambda: ten.ratio_clip(ten.gamma + 1),
    "hockey stick: upper = 1": lambda: ten.ratio_clip(ONE),
    "hockey stick: for p ≤ 2/γ": lambda: ten.ratio_clip(None, p * ten.gamma <= 2),
    "hockey stick: not saturated": lambda: ten.saturated(ten.gamma),
    "hockey stick: lower without its end at 0": lambda: ten.lower_end((1 - ten.gamma * (1 - p)) / p),
    # 11: nesting
    "nesting turned round, upper": lambda: eleven.nesting("upper", turned=True),
    "nesting turned round, lower": lambda: eleven.nesting("lower", turned=True),
    "D_f ≤ ½(f(0) + f'(∞)) TV": lambda: eleven.by_total_variation(HALF),
    "KL ≤ log(½ + χ²)": lambda: eleven.kl_and_chi_square(HALF),
    "KL ≥ 3 TV²": lambda: _inequality(lambda seconds: inequalities.pinsker(sympy.Integer(3), seconds)),
    "TV² ≤ H²(1 − H²/2)": lambda: _inequality(lambda seconds: inequalities.hellinger_above_tv(HALF, seconds)),
    # closed forms
    "tv: 2δ/p": lambda: _closed(closed_forms.tv(), upper=sympy.Min(1 + 2 * radius / probability, 1 / probability)),
    "tv: no end at 0": lambda: _closed(closed_forms.tv(), lower=1 - radius / probability),
    "pearson: without 1 − p": lambda: _closed(
        closed_forms.pearson_chi2(), upper=sympy.Min(1 + sympy.sqrt(radius / probability), 1 / probability)
    ),
    "le_cam: sides exchanged": lambda: _closed(
        closed_forms.le_cam(), upper=closed_forms.le_cam().lower, lower=closed_forms.le_cam().upper
    ),
    "neyman: p and 1 − p exchanged": lambda: _closed(
        closed_forms.neyman_chi2(), upper=closed_forms.neyman_chi2().upper.subs(probability, 1 - probability)
    ),
    # a third argument that sympy cannot compare with the others, so that it stays
    **{f"vajda:k: upper also below {other}": partial(_third, upper=other) for other in (1 + _W**2, 1 + _W**3, 1 + _EDGE)},
    **{f"vajda:k: lower also above {other}": partial(_third, lower=other) for other in (1 - _W**2, 1 - _W**3, 1 - _EDGE)},
    "hockey stick: γ left out": lambda: _closed(
        closed_forms.hockey_stick(), upper=sympy.Min(1 + radius / probability, 1 / probability)
    ),
}


def _derived(name: str, **changed: Any) -> Statement:
    """What `derive` says of the limits, with something changed."""
    limits: Limits = replace(derive(name).limits, **changed)
    return seven_derived.limits_of(name, limits)


def _equal(left: Any, right: Any) -> sympy.Eq:
    return sympy.Eq(left, right, evaluate=False)


def _times(name: str, factor: sympy.Expr) -> sympy.Eq:
    """The equation of the lower limit with both sides multiplied, which adds a root."""
    equation = derive(name).limits.lower_equation
    return _equal(equation.lhs * factor, equation.rhs * factor)


def _doubled(name: str) -> sympy.Eq:
    equation = derive(name).limits.lower_equation
    return sympy.Eq(equation.lhs, 2 * equation.rhs)


def _closed(claim: ClosedForm, **changed: Any) -> Statement:
    return closed_form_statement(replace(claim, **changed), "", "")


def _inequality(prove: Callable[[float], Outcome]) -> Statement:
    return replace(eleven.nesting("upper"), prove=prove)


def test_there_are_at_least_twenty() -> None:
    assert len(FALSE) >= 20


@pytest.mark.parametrize("label", FALSE)
def test_a_false_statement_is_not_proved(label: str) -> None:
    result = FALSE[label]().run(SECONDS)
    assert result.status in (Status.REFUTED, Status.OPEN), result.detail
    assert "Error" not in result.detail  # it fails as a claim, and not because the proof broke down
