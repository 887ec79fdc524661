"""The conic form of a generator: the same function, convex by the rules of cvxpy, or a statement of what is missing."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import sympy

from bandtheory.catalogue import examples
from bandtheory.divergence import FDivergence, divergence
from bandtheory.evidence.conic import ConvexUnavailable, conic_form
from bandtheory.evidence.convex import solve_convex
from bandtheory.expressions import symbol

PARAMETERS = (
    *(f"vajda:{k}" for k in ("1", "1.0001", "7.3", "60")),
    *(f"alpha:{a}" for a in ("-5", "0.001", "0.999", "1.5", "10.7")),
    *(f"renyi:{a}" for a in ("0.001", "1.5")),
    *(f"hockey_stick:{c}" for c in ("1", "5")),
    *(f"skew_jensen_shannon:{w}" for w in ("0.01", "0.3", "0.9")),
)
TYPED = (
    "(u - 1)**2/(2*u + 3)",  # affine² / affine
    "(1 - u)/(1 + u)",  # affine / affine
    "exp(abs(u - 1)) - 1",
    "exp(u*log(u)) - 1",
    "u**3 - 1 - 3*(u - 1)",
    "max(abs(u - 1) - 0.2, 0)",
    "log(exp(u - 1)/2 + exp(1 - u)/2)",
    "sqrt(1 + (u - 1)**2) - 1",
    "(u - 1)*log((1 + u)/2)",
    "(u - 1)**2/sqrt(u)",
)


@pytest.mark.parametrize("spec", [*examples(), *PARAMETERS, *TYPED])
def test_the_conic_form_is_convex_and_has_the_values_of_the_generator(spec: str) -> None:
    points = (0.25, 1.0, 2.5, 7.0)
    form = conic_form(divergence(spec))(cp.Variable(4, value=np.array(points)))
    generator = divergence(spec).generator
    expected = [float(sympy.N(generator.subs(symbol(), sympy.Rational(point)), 30)) for point in points]
    assert form.is_convex()
    assert np.allclose(form.value, expected, rtol=1e-12, atol=2e-13)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("spec", [*PARAMETERS, *TYPED])
def test_the_conic_program_is_solved(spec: str, side: str) -> None:
    assert solve_convex([0.2, 0.1, 0.3, 0.4], 0, spec, 0.05, side).status == "optimal"


@pytest.mark.parametrize(
    ("generator", "term"),
    [
        ("log(u)**2 + 2*u*log(u)", r"the term log\(u\)\*\*2"),
        ("(sqrt(u) - 1)**4", r"the term -4\*u\*\*\(3/2\)"),
    ],
)
def test_an_unavailable_form_names_the_term_what_is_accepted_and_what_to_supply(generator: str, term: str) -> None:
    with pytest.raises(ConvexUnavailable, match=rf"{term} in f\(u\) = .* Accepted: .* Supply conic=.* Fenchel certificate"):
        conic_form(FDivergence("mine", generator))


def test_a_supplied_form_takes_the_place_of_the_missing_one() -> None:
    # (√u − 1)⁴ is the square of a non-negative convex function, which cvxpy has to be told
    def fourth(ratios: cp.Expression) -> cp.Expression:
        return cp.square(cp.pos(ratios - 2 * cp.sqrt(ratios) + 1))

    solution = solve_convex([0.3, 0.5, 0.2], 0, "(sqrt(u) - 1)**4", 0.001, conic=fourth)
    assert solution.status == "optimal"
