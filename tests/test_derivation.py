"""What sympy derives, against the theory page and against hand calculation."""

from __future__ import annotations

import pytest
import sympy

import bandtheory as bt
from bandtheory.closed_form_search import PowerForm, QuadraticForm, bernstein, closed_form, symbols
from bandtheory.divergence import FDivergence, divergence

p, m, r, delta = symbols()
BETWEEN = {p: sympy.Rational(3, 10), delta: sympy.Rational(1, 50)}
CLOSED = (
    "tv",
    "pearson_chi2",
    "neyman_chi2",
    "squared_hellinger",
    "le_cam",
    "vajda:1.5",
    "vajda:3",
    "hockey_stick:1.2",
    "hockey_stick:2",
    "renyi:0.5",
)


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
        ("neyman_chi2", sympy.oo, 1),
        ("le_cam", 1, 1),
        ("jensen_shannon", sympy.log(2) / 2, sympy.log(2) / 2),
        ("jeffreys", sympy.oo, sympy.oo),
        ("symmetric_chi2", sympy.oo, sympy.oo),
        ("vajda:1", 1, 1),
        ("vajda:1.5", 1, sympy.oo),
        ("alpha:-0.5", sympy.oo, sympy.Rational(2, 3)),
        ("alpha:0.25", 4, sympy.Rational(4, 3)),
        ("alpha:3", sympy.Rational(1, 3), sympy.oo),
        ("hockey_stick:1.2", 0, 1),
        ("hockey_stick:1", 0, 1),
    ],
)
def test_value_at_zero_and_recession_slope(name: str, at_zero: sympy.Expr, recession: sympy.Expr) -> None:
    limits = bt.derive(name).limits
    assert sympy.simplify(limits.value_at_zero - at_zero) == 0 or limits.value_at_zero == at_zero
    assert sympy.simplify(limits.recession_slope - recession) == 0 or limits.recession_slope == recession


def test_limits_of_the_skew_jensen_shannon_divergence() -> None:
    limits, weight = bt.derive("skew_jensen_shannon:0.1").limits, sympy.Rational(1, 10)
    assert sympy.N(limits.value_at_zero + (1 - weight) * sympy.log(1 - weight), 30) == pytest.approx(0, abs=1e-28)
    assert sympy.N(limits.recession_slope + weight * sympy.log(weight), 30) == pytest.approx(0, abs=1e-28)


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


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_closed_form_satisfies_the_constraint_at_a_point(name: str, side: str) -> None:
    derived = bt.derive(name)
    ratio = inside(getattr(derived, side))
    constraint = (derived.constraint.lhs - derived.constraint.rhs).subs(r, ratio)
    assert abs(sympy.N(constraint.subs(BETWEEN), 60, maxn=400)) < 1e-50


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "(u-1)*log(u)", "(u**3-1-3*(u-1))/6"])
def test_no_closed_form_is_claimed_where_there_is_none(name: str) -> None:
    derived = bt.derive(name)
    assert derived.form is derived.upper is derived.lower is None
    assert "roots of the constraint" in str(derived)


def test_shapes_of_closed_forms() -> None:
    m = symbols()[1]
    three_halves = sympy.Rational(3, 2)
    assert closed_form(divergence("vajda:1.5")) == PowerForm(three_halves, m + m**three_halves / sympy.sqrt(p), sympy.S.Zero)
    assert closed_form(divergence("hockey_stick:1.2")) == PowerForm(sympy.S.One, m, p / 5)
    assert isinstance(closed_form(divergence("squared_hellinger")), QuadraticForm)


@pytest.mark.parametrize("name", [*CLOSED, "alpha:-1", "alpha:0.5", "alpha:2", "renyi:2", "vajda:60", "hockey_stick:1000000"])
def test_every_family_with_a_closed_form_gets_it(name: str) -> None:
    assert bt.derive(name).form is not None


def test_the_hockey_stick_reads_as_in_the_theory() -> None:
    # upper = γ + δ/p, lower = (1 − δ − γ(1 − p))/p
    derived, gamma = bt.derive("hockey_stick:1.2"), sympy.Rational(6, 5)
    assert sympy.simplify(inside(derived.upper) - (gamma + delta / p)) == 0
    assert sympy.simplify(inside(derived.lower) - (1 - delta - gamma * (1 - p)) / p) == 0


def test_the_vajda_family_reads_as_in_the_theory() -> None:
    derived = bt.derive("vajda:3")
    move = (delta / (p + p**3 * (1 - p) ** -2)) ** sympy.Rational(1, 3)
    assert sympy.simplify((inside(derived.upper) - 1 - move).subs(BETWEEN)) == 0
    assert sympy.simplify((inside(derived.lower) - 1 + move).subs(BETWEEN)) == 0


def test_renyi_shows_its_own_radius() -> None:
    # (e^{(α−1)δ} − 1)/(α(α − 1)) at α = 2
    derived = bt.derive("renyi:2")
    assert sympy.simplify(derived.constraint.rhs - (sympy.exp(delta) - 1) / 2) == 0
    upper = 1 + sympy.sqrt((1 - p) / p * (sympy.exp(delta) - 1))
    assert sympy.simplify((inside(derived.upper) - upper).subs(BETWEEN)) == 0
    # as p → 1 the whole KL-like limit: lower = exp(−δ) at α = 1/2, since Σ √(pq) = e^{−δ/2}
    assert bt.derive("renyi:0.5").limits.lower_at_one == sympy.exp(-delta)


def test_signs_and_order_are_those_of_a_paper() -> None:
    text = str(bt.derive("le_cam"))
    assert "2 - p" in text
    assert "u - 1" in text
    assert "-p + 1" not in text


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
