"""The closed forms of the theory page, section 4, typed in as claims, and the library's derived ones, proved to be the same.

`alpha:−1`, `alpha:½` and `alpha:2` are ½ `neyman_chi2`, 2 `squared_hellinger` and ½ `pearson_chi2`: the same bounds at 2δ, δ/2
and 2δ. `renyi:α` is `alpha:α` at the radius (e^{(α−1)δ} − 1)/(α(α − 1)); with E = e^{(α−1)δ} for a variable it is algebraic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import sympy

from proofs.closed_form_proof import (
    RADIUS,
    UNIT,
    ClosedForm,
    Substitution,
    all_proved,
    closed_form_statement,
    delta,
    not_p,
    p,
    t,
    u,
    x,
)
from proofs.real_arithmetic import Implication
from proofs.statement import Method, Outcome, Statement, Status
from proofs.vajda_family import vajda_family_statement

E = sympy.Symbol("E", positive=True)
gamma = sympy.Symbol("gamma", positive=True)
_RENYI = "E = e^{(α−1)δ}, Rényi's radius (E − 1)/(α(α − 1)) of D_alpha by its definition"
_SQRT_P, _SQRT_NOT_P = sympy.sqrt(p), sympy.sqrt(not_p)


def vajda(k: sympy.Rational) -> ClosedForm:
    """`1 ± (δ/K)^{1/k}` with `K = p + p^k (1 − p)^{1−k}`, clamped."""
    distance = (delta / (p + p**k * not_p ** (1 - k))) ** (1 / k)
    substitution = None
    if not k.is_Integer:  # odds t² = (1 − p)/p and δ = K x^{2k}: no roots are left where 2k is an integer
        in_odds = 1 / (1 + t**2)
        constant = in_odds * (1 + t ** (2 * (1 - k)))
        substitution = Substitution(
            ((p, in_odds), (delta, constant * x ** (2 * k))),
            ((t, sympy.sqrt(not_p / p)), (x, (delta / (p + p**k * not_p ** (1 - k))) ** (1 / (2 * k)))),
            (sympy.Gt(t, 0, evaluate=False), sympy.Ge(x, 0, evaluate=False)),
        )
    generator = sympy.Abs(u - 1) ** k
    upper, lower = sympy.Min(1 + distance, 1 / p), sympy.Max(1 - distance, 0)
    return ClosedForm(f"vajda:{k}", generator, upper, lower, substitution=substitution)


def tv() -> ClosedForm:
    """`1 ± δ/p`, clamped."""
    return ClosedForm("tv", sympy.Abs(u - 1) / 2, sympy.Min(1 + delta / p, 1 / p), sympy.Max(1 - delta / p, 0))


def pearson_chi2() -> ClosedForm:
    """`1 ± sqrt(δ(1 − p)/p)`, clamped."""
    distance = sympy.sqrt(delta * not_p / p)
    return ClosedForm("pearson_chi2", (u - 1) ** 2, sympy.Min(1 + distance, 1 / p), sympy.Max(1 - distance, 0))


def neyman_chi2() -> ClosedForm:
    """The roots of `p(r − 1)² = δ r(1 − pr)`; never saturated."""
    root = sympy.sqrt(delta * (delta + 4 * p * not_p))
    upper, lower = ((delta + 2 * p + sign * root) / (2 * p * (1 + delta)) for sign in (1, -1))
    return ClosedForm("neyman_chi2", (u - 1) ** 2 / u, upper, lower)


def le_cam() -> ClosedForm:
    """The roots of `2p(r − 1)² = δ(r + 1)(2 − p(r + 1))`, where theorem 6 does not saturate them."""
    root = sympy.sqrt(delta * (delta + 8 * p * not_p))
    upper, lower = ((2 * p + delta * not_p + sign * root) / (p * (2 + delta)) for sign in (1, -1))
    return ClosedForm(
        "le_cam",
        (u - 1) ** 2 / (u + 1),
        sympy.Piecewise((1 / p, delta >= 2 * not_p / (1 + p)), (upper, True)),
        sympy.Piecewise((0, delta >= 2 * p / (2 - p)), (lower, True)),
    )


def squared_hellinger() -> ClosedForm:
    """`cos²(θ ∓ ψ)/p` with `p = cos²θ` and `cos ψ = 1 − δ/2`, where theorem 6 does not saturate it."""
    cosine, sine = 1 - delta / 2, sympy.sqrt(delta * (4 - delta)) / 2
    upper, lower = ((_SQRT_P * cosine + sign * _SQRT_NOT_P * sine) ** 2 / p for sign in (1, -1))
    complements = tuple((_SQRT_NOT_P * cosine - sign * _SQRT_P * sine) ** 2 / not_p for sign in (1, -1))
    return ClosedForm(
        "squared_hellinger",
        (sympy.sqrt(u) - 1) ** 2,
        sympy.Piecewise((1 / p, delta >= 2 - 2 * _SQRT_P), (upper, True)),
        sympy.Piecewise((0, delta >= 2 - 2 * _SQRT_NOT_P), (lower, True)),
        complements=complements,
    )


def hockey_stick() -> ClosedForm:
    """`min(γ + δ/p, 1/p)` and `max((1 − δ − γ(1 − p))/p, 0)`, for every γ ≥ 1."""
    generator = sympy.Max(u - gamma, 0)
    return ClosedForm(
        "hockey_stick:γ",
        generator,
        sympy.Min(gamma + delta / p, 1 / p),
        sympy.Max((1 - delta - gamma * not_p) / p, 0),
        pieces=(sympy.Integer(0), generator),
        domain=(*RADIUS, sympy.Ge(gamma, 1)),
    )


def alpha(a: sympy.Rational, known: ClosedForm, scale: sympy.Rational) -> ClosedForm:
    """`alpha:a`, whose generator is that of a known divergence divided by `scale`: the known bounds at `scale·δ`."""
    generator = (u**a - 1 - a * (u - 1)) / (a * (a - 1))
    upper, lower = (form.subs(delta, scale * delta) for form in (known.upper, known.lower))
    complements = known.complements and tuple(form.subs(delta, scale * delta) for form in known.complements)
    return ClosedForm(f"alpha:{a}", generator, upper, lower, complements=complements)


def renyi(a: sympy.Rational, of_alpha: ClosedForm) -> ClosedForm:
    """`renyi:a` in E = e^{(a−1)δ}: `alpha:a` at the radius (E − 1)/(a(a − 1))."""
    radius = (E - 1) / (a * (a - 1))
    upper, lower = (form.subs(delta, radius) for form in (of_alpha.upper, of_alpha.lower))
    complements = of_alpha.complements and tuple(form.subs(delta, radius) for form in of_alpha.complements)
    domain = (*UNIT, sympy.Ge(E, 1)) if a > 1 else (*UNIT, sympy.Gt(E, 0, evaluate=False), sympy.Le(E, 1))
    rest = ((E, 1),)
    return ClosedForm(f"renyi:{a}", of_alpha.generator, upper, lower, None, domain, radius, rest, complements=complements)


def claims() -> dict[str, tuple[ClosedForm, str]]:
    """The claims of the theory page, each with its formula for people."""
    half, two, minus = sympy.Rational(1, 2), sympy.Integer(2), sympy.Integer(-1)
    alphas = {
        minus: alpha(minus, neyman_chi2(), two),
        half: alpha(half, squared_hellinger(), half),
        two: alpha(two, pearson_chi2(), two),
    }
    rows = [
        (tv(), "1 ± δ/p, clamped to [0, 1/p]"),
        (pearson_chi2(), "1 ± √(δ(1−p)/p), clamped to [0, 1/p]"),
        (neyman_chi2(), "(δ + 2p ± √(δ² + 4δp(1−p)))/(2p(1 + δ)), the roots of p(r−1)² = δr(1−pr)"),
        (le_cam(), "(2p + δ(1−p) ± √(δ² + 8δp(1−p)))/(p(2 + δ)), saturated for δ ≥ 2(1−p)/(1+p) and δ ≥ 2p/(2−p)"),
        (squared_hellinger(), "cos²(θ ∓ ψ)/p with p = cos²θ, cos ψ = 1 − δ/2, saturated for δ ≥ 2 − 2√p and δ ≥ 2 − 2√(1−p)"),
        (hockey_stick(), "min(γ + δ/p, 1/p) and max((1 − δ − γ(1−p))/p, 0), for all γ ≥ 1"),
        *(
            (vajda(sympy.Rational(k)), f"1 ± (δ/(p + p^k (1−p)^(1−k)))^(1/k) with k = {k}, clamped")
            for k in ("1", "3/2", "2", "3", "4")
        ),
        (alphas[minus], "the bounds of neyman_chi2 at 2δ"),
        (alphas[half], "the bounds of squared_hellinger at δ/2"),
        (alphas[two], "the bounds of pearson_chi2 at 2δ"),
        (renyi(half, alphas[half]), "the bounds of alpha:½ at the radius 4(1 − e^{−δ/2})"),
        (renyi(two, alphas[two]), "the bounds of alpha:2 at the radius (e^δ − 1)/2"),
    ]
    return {claim.name: (claim, formula) for claim, formula in rows}


_DERIVED = {  # spec of the library: the claim that it must equal, and what is put for the claim's parameters
    "tv": "tv",
    "pearson_chi2": "pearson_chi2",
    "neyman_chi2": "neyman_chi2",
    "le_cam": "le_cam",
    "squared_hellinger": "squared_hellinger",
    "vajda:1": "vajda:1",
    "vajda:1.5": "vajda:3/2",
    "vajda:3": "vajda:3",
    "vajda:4": "vajda:4",
    "alpha:-1": "alpha:-1",
    "alpha:0.5": "alpha:1/2",
    "alpha:2": "alpha:2",
    "renyi:0.5": "renyi:1/2",
    "renyi:2": "renyi:2",
    "hockey_stick:1.2": "hockey_stick:γ",
}


def same_function(claim: ClosedForm, upper: sympy.Expr, lower: sympy.Expr) -> Iterator[Implication]:
    """That two given bounds are those of a claim, over its whole domain."""
    for side, typed, given in (("upper", claim.upper, upper), ("lower", claim.lower, lower)):
        implication = Implication(f"{side} bounds equal", claim.domain, sympy.Eq(typed, given, evaluate=False))
        yield claim.substitution.applied(implication) if claim.substitution else implication


def _derived_bounds(spec: str) -> tuple[sympy.Expr, sympy.Expr]:
    """The library's closed forms in the symbols of this package."""
    from bandtheory import derive
    from bandtheory.closed_form_search import symbols

    derivation = derive(spec)
    if derivation.upper is None or derivation.lower is None:
        raise ValueError(f"no closed form was derived for {spec}")
    theirs = symbols()
    return tuple(form.subs({theirs[0]: p, theirs[3]: delta}) for form in (derivation.upper, derivation.lower))


def _in_exponential(form: sympy.Expr, a: sympy.Rational) -> sympy.Expr:
    """`e^{q δ}` as a power of E = e^{(a−1)δ}."""
    return form.replace(sympy.exp, lambda exponent: E ** (sympy.cancel(exponent / delta) / (a - 1)))


def _prove_derived(spec: str, name: str, seconds: float) -> Outcome:
    claim, _ = claims()[name]
    upper, lower = _derived_bounds(spec)
    if name.startswith("renyi"):
        order = sympy.Rational(name.partition(":")[2])
        upper, lower = _in_exponential(upper, order), _in_exponential(lower, order)
    if claim.name == "hockey_stick:γ":
        value = sympy.Rational(spec.partition(":")[2])
        claim = ClosedForm(spec, claim.generator, *(form.subs(gamma, value) for form in (claim.upper, claim.lower)))
    return all_proved(same_function(claim, upper, lower), seconds)


def _derived_statement(spec: str, name: str) -> Statement:
    return Statement(
        f"{spec} derived closed form",
        f"∀ p ∈ (0, 1), δ ≥ 0: derive({spec!r}).upper and .lower are the bounds proved for {name}",
        rf"The derived closed forms of {_typewriter(spec)} are those proved above.",
        Method.DECISION,
        (f"{name} closed form", "z3 (nonlinear real arithmetic)", "sympy (polynomial normal forms)"),
        partial(_prove_derived, spec, name),
    )


def _monotone_radius(seconds: float) -> Outcome:
    """δ ↦ (e^{(α−1)δ} − 1)/(α(α − 1)) is 0 at 0 and increasing, for every α > 0, α ≠ 1: its slope is e^{(α−1)δ}/α."""
    a = sympy.Symbol("a", positive=True)
    radius = (sympy.exp((a - 1) * delta) - 1) / (a * (a - 1))
    slope = sympy.simplify(sympy.diff(radius, delta))
    proved = radius.subs(delta, 0) == 0 and slope.is_positive
    return Outcome(Status.PROVED if proved else Status.OPEN, f"value 0 at δ = 0, slope {slope}")


def _typewriter(name: str) -> str:
    return rf"\texttt{{{name.replace('_', chr(92) + '_').replace('γ', '$' + chr(92) + 'gamma$')}}}"


def _latex(claim: ClosedForm) -> str:
    order = claim.name.partition(":")[2]
    variable = rf", with $E = e^{{({order} - 1)\delta}}$" if claim.upper.has(E) else ""
    return (
        rf"The band of {_typewriter(claim.name)} for all $p \in (0, 1)$, $\delta \ge 0${variable}: "
        rf"\[ \mathrm{{upper}} = {sympy.latex(claim.upper)} \] \[ \mathrm{{lower}} = {sympy.latex(claim.lower)} \]"
    )


def statements() -> list[Statement]:
    """Every closed form of section 4, and every derived one."""
    result = [
        closed_form_statement(claim, f"∀ p ∈ (0, 1), δ ≥ 0: the band of {name} is {formula}", _latex(claim))
        for name, (claim, formula) in claims().items()
    ]
    # they are proved in E: that E stands for the radius is not a step of the proof
    result = [replace(s, rests_on=(*s.rests_on, _RENYI)) if s.name.startswith("renyi:") else s for s in result]
    result.append(vajda_family_statement())
    result.append(
        Statement(
            "renyi radius",
            "∀ α > 0, α ≠ 1, δ ≥ 0: (e^{(α−1)δ} − 1)/(α(α − 1)) is 0 at δ = 0 and increasing in δ",
            r"$(e^{(\alpha-1)\delta} - 1)/(\alpha(\alpha - 1))$ is $0$ at $\delta = 0$ and increasing, "
            r"for $\alpha > 0$, $\alpha \ne 1$.",
            Method.SYMBOLIC,
            ("sympy (signs of expressions)",),
            _monotone_radius,
        )
    )
    return result + [_derived_statement(spec, name) for spec, name in _DERIVED.items()]
