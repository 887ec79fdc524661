"""What sympy derives, against the theory page and against hand calculation."""

from __future__ import annotations

import pytest
import sympy

import bandtheory as bt
from bandtheory.closed_form_search import PowerForm, QuadraticForm, bernstein, closed_form, symbols
from bandtheory.divergence import FDivergence, divergence

p, m, r, delta = symbols()
BETWEEN = {p: sympy.Rational(3, 10), delta: sympy.Rational(1, 50)}


def inside(bound: sympy.Piecewise) -> sympy.Expr:
    """The branch of a closed form that does not saturate."""
    return bound.args[-1].expr if isinstance(bound, sympy.Piecewise) else bound


@pytest.mark.parametrize(
    ("name", "at_zero", "recession"),
    [
        ("kl", sympy.oo, 0),
        ("reverse_kl", 0, sympy.oo),
        ("tv", sympy.Rational(1, 2), sympy.Rational(1, 2)),
        ("pearson_chi2", 1, sympy.oo),
        ("squared_hellinger", 1, 1),
        ("(u-1)**2/(u+1)", 1, 1),
        ("(u-1)**2*(u+1)/u", sympy.oo, sympy.oo),
        ("max(u-1.2, 0)", 0, 1),
    ],
)
def test_value_at_zero_and_recession_slope(name: str, at_zero: sympy.Expr, recession: sympy.Expr) -> None:
    limits = bt.derive(name).limits
    assert limits.value_at_zero == at_zero
    assert limits.recession_slope == recession


@pytest.mark.parametrize(
    ("name", "upper", "lower"),
    [
        ("tv", 1 + delta / p, 1 - delta / p),
        ("pearson_chi2", 1 + sympy.sqrt(delta * (1 - p) / p), 1 - sympy.sqrt(delta * (1 - p) / p)),
    ],
)
def test_textbook_closed_forms(name: str, upper: sympy.Expr, lower: sympy.Expr) -> None:
    derived = bt.derive(name)
    assert sympy.simplify((inside(derived.upper) - upper).subs(BETWEEN)) == 0
    assert sympy.simplify((inside(derived.lower) - lower).subs(BETWEEN)) == 0


def test_hellinger_is_a_rotation_by_a_fixed_angle() -> None:
    # p = cos²θ, q = cos²φ and cos(θ − φ) = 1 − δ/2
    derived = bt.derive("squared_hellinger")
    theta, step = sympy.acos(sympy.sqrt(p)), sympy.acos(1 - delta / 2)
    for bound, angle in ((derived.upper, theta - step), (derived.lower, theta + step)):
        difference = (inside(bound) - sympy.cos(angle) ** 2 / p).subs(BETWEEN)
        assert abs(sympy.N(difference, 40)) < 1e-35


def test_hellinger_saturates_and_its_root_does_not_come_back() -> None:
    # beyond saturation the squared root would rise again: the missing clamp
    derived = bt.derive("squared_hellinger")
    assert derived.lower.subs({p: sympy.Rational(1, 10), delta: sympy.Rational(1, 2)}) == 0
    assert derived.upper.subs({p: sympy.Rational(9, 10), delta: 1}) == sympy.Rational(10, 9)


@pytest.mark.parametrize("name", ["tv", "pearson_chi2", "squared_hellinger", "(u-1)**2/u", "(u-1)**2/(u+1)", "abs(u-1)**3"])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_closed_form_satisfies_the_constraint_symbolically_at_a_point(name: str, side: str) -> None:
    derived = bt.derive(name)
    ratio = inside(getattr(derived, side))
    constraint = (derived.constraint.lhs - derived.constraint.rhs).subs(r, ratio)
    assert sympy.simplify(constraint.subs(BETWEEN)) == 0


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "(u-1)*log(u)", "(u**3-1-3*(u-1))/6"])
def test_no_closed_form_is_claimed_where_there_is_none(name: str) -> None:
    derived = bt.derive(name)
    assert derived.form is derived.upper is derived.lower is None
    assert "roots of the constraint" in str(derived)


def test_shapes_of_closed_forms() -> None:
    assert closed_form(divergence("abs(u-1)**1.5")) == PowerForm(
        1.5, ((1.0, 0.0, 1.0), (1.0, -0.5, 1.5)), closed_form(divergence("abs(u-1)**1.5")).complement
    )
    assert isinstance(closed_form(divergence("squared_hellinger")), QuadraticForm)


def test_a_closed_form_is_accepted_only_if_it_satisfies_the_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    import bandtheory.closed_form_search as search

    def flipped(*arguments: object) -> QuadraticForm | None:
        form = genuine(*arguments)
        return form and QuadraticForm(
            form.power, form.sign, form.coefficients, form.shifted, form.discriminant, 2 - form.complement
        )

    genuine = search._as_quadratic
    monkeypatch.setattr(search, "_as_quadratic", flipped)
    assert search.closed_form.__wrapped__(FDivergence("planted", "(u-1)**2/u")) is None


@pytest.mark.parametrize(
    ("name", "mass", "lower"),
    [
        ("kl", 1 - sympy.exp(-delta), sympy.exp(-delta)),
        ("tv", delta, 1 - delta),
        ("pearson_chi2", 0, 1),
        ("squared_hellinger", delta - delta**2 / 4, (1 - delta / 2) ** 2),
    ],
)
def test_limits(name: str, mass: sympy.Expr, lower: sympy.Expr) -> None:
    limits = bt.derive(name).limits
    at = {delta: sympy.Rational(1, 20)}
    assert sympy.simplify(sympy.sympify(limits.mass_at_zero).subs(at) - sympy.sympify(mass).subs(at)) == 0
    assert sympy.simplify(sympy.sympify(limits.lower_at_one).subs(at) - sympy.sympify(lower).subs(at)) == 0


def test_limits_saturate() -> None:
    # tv cannot exceed 1: at δ = 1 the whole simplex is in reach
    limits = bt.derive("tv").limits
    assert limits.mass_at_zero.subs(delta, 1) == 1
    assert limits.lower_at_one.subs(delta, 1) == 0


@pytest.mark.parametrize(
    ("name", "upper_level", "lower_level"),
    [("tv", 1 - p, p), ("pearson_chi2", (1 - p) / p, p / (1 - p)), ("reverse_kl", -sympy.log(p), -sympy.log(1 - p))],
)
def test_saturation_levels(name: str, upper_level: sympy.Expr, lower_level: sympy.Expr) -> None:
    saturation = bt.derive(name).saturation
    for relation, level in ((saturation.upper, upper_level), (saturation.lower, lower_level)):
        assert sympy.simplify((relation.lhs - relation.rhs - (level - delta)).subs(p, sympy.Rational(3, 10))) == 0


def test_kl_never_saturates() -> None:
    assert bt.derive("kl").saturation.upper == bt.derive("kl").saturation.lower == sympy.false


def test_bernstein_form_of_the_neyman_discriminant() -> None:
    # δ²(p − m)² + 4pm(1 + δ)δ has a difference of like terms; on p + m = 1 it is a sum of positive ones
    form = bernstein((delta * (p - m)) ** 2 + 4 * p * m * (1 + delta) * delta)
    assert sympy.expand(form - (delta**2 * p**2 + (2 * delta**2 + 4 * delta) * p * m + delta**2 * m**2)) == 0


def test_latex_is_an_alignment_with_every_statement() -> None:
    latex = bt.derive("tv").latex()
    assert latex.startswith("\\begin{align*}")
    assert latex.count("\\colon") == len(bt.derive("tv").statements())


def test_awkward_exponents_do_not_hang() -> None:
    # clearing the root u^(123/1000) would raise to the thousandth power
    derived = bt.derive("(u**0.123 - 1 - 0.123*(u-1))/(0.123*(0.123-1))")
    assert derived.form is derived.limits.mass_at_zero is None
    assert derived.limits.value_at_zero == sympy.Rational(1000, 123)
