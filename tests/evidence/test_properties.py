"""The property suite: it accepts true bands, and refutes each kind of wrong one with a small counter-example in words."""

from __future__ import annotations

import math
import unittest
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings

from bandtheory.bounds import log_bounds
from bandtheory.divergence import FDivergence, divergence
from bandtheory.evidence.definition import definition
from bandtheory.evidence.properties import PROPERTIES, Counterexample, band_properties, subject
from bandtheory.evidence.strategies import (
    divergences,
    increasing_radii,
    log_probabilities,
    log_probability_pairs,
    probabilities,
    radii,
    simplices,
)
from bandtheory.evidence.wording import ROWS, WIDTH, python_lines, screen

Pair = tuple[np.ndarray, np.ndarray]
Bounds = Callable[[np.ndarray, float], Pair]

TRUE_BANDS = ("tv", "(u-1)**2/u", "renyi:3")


def library(name: str) -> Bounds:
    def bounds(logp: np.ndarray, delta: float) -> Pair:
        lower, upper = log_bounds(logp=logp, divergence=name, delta=delta)
        return lower, upper

    return bounds


def cases(specs: tuple[str, ...]) -> list[object]:
    return [pytest.param(holds, id=str(holds)) for spec in specs for holds in band_properties(spec)]


@pytest.mark.parametrize("holds", cases(TRUE_BANDS))
def test_true_bands(holds: Callable[[], None]) -> None:
    try:
        holds()
    except unittest.SkipTest as reason:
        assert str(reason)  # a property that does not apply says why


def flipped_sign(logp: np.ndarray, delta: float) -> Pair:
    """tv with 1 − δ/p where the upper bound has 1 + δ/p."""
    p = np.exp(logp)
    with np.errstate(all="ignore"):
        return np.where(p > delta, np.log1p(-delta / p), -np.inf), np.log(np.maximum(1 - delta / p, 0))


def missing_clamp(logp: np.ndarray, delta: float) -> Pair:
    """Pearson's closed form without min(…, 1/p)."""
    lower, _ = library("pearson_chi2")(logp, delta)
    return lower, np.log1p(np.sqrt(delta * -np.expm1(logp) / np.exp(logp)))


def unclamped_hellinger(logp: np.ndarray, delta: float) -> Pair:
    """cos²(θ − φ) without keeping the angle in [0, π/2]: past saturation the bound turns round."""
    p, angle = np.exp(logp), np.arccos(np.clip(1 - delta / 2, -1, 1))
    theta = np.arccos(np.sqrt(p))
    with np.errstate(divide="ignore"):
        return np.log(np.cos(theta + angle) ** 2 / p), np.log(np.cos(theta - angle) ** 2 / p)


def swapped(logp: np.ndarray, delta: float) -> Pair:
    lower, upper = library("kl")(logp, delta)
    return upper, lower


def p_for_its_complement(logp: np.ndarray, delta: float) -> Pair:
    return library("kl")(np.minimum(np.log(-np.expm1(logp)), -1e-300), delta)


def doubled_radius(logp: np.ndarray, delta: float) -> Pair:
    return library("kl")(logp, 2 * delta)


def halved_radius(logp: np.ndarray, delta: float) -> Pair:
    return library("kl")(logp, delta / 2)


def radius_not_transformed(logp: np.ndarray, delta: float) -> Pair:
    """Rényi's δ taken for a radius of the alpha divergence."""
    return library("alpha:3")(logp, delta)


def square_root_of_the_radius(logp: np.ndarray, delta: float) -> Pair:
    return library("renyi:0.5")(logp, math.sqrt(delta))


def bisection_to_1e_6(logp: np.ndarray, delta: float) -> Pair:
    """As published: bisection in ratio space, stopped at the absolute tolerance 1e-6."""

    def one(x: float) -> tuple[float, float]:
        p = math.exp(x)
        if p >= 1 - 1e-15 or p < 1e-15:
            return tuple(float(side[0]) for side in library("kl")(np.array([x]), delta))

        def g(r: float) -> float:
            return -p * math.log(r) - (1 - p) * math.log(max((1 - r * p) / (1 - p), 1e-300))

        ends = []
        for inside, outside in ((1.0, 1e-12), (1.0, 1 / p)):
            while abs(outside - inside) > 1e-6:
                middle = (inside + outside) / 2
                inside, outside = (middle, outside) if g(middle) <= delta else (inside, middle)
            ends.append(math.log(inside))
        return ends[0], ends[1]

    both = [one(float(x)) for x in logp]
    return np.array([b[0] for b in both]), np.array([b[1] for b in both])


def one_over_p_below_1e_6(logp: np.ndarray, delta: float) -> Pair:
    lower, upper = library("kl")(logp, delta)
    return lower, np.where(logp < math.log(1e-6), -logp, upper)


def float32(logp: np.ndarray, delta: float) -> Pair:
    lower, upper = library("tv")(logp, delta)
    return lower.astype(np.float32), upper.astype(np.float32)


def neighbours(logp: np.ndarray, delta: float) -> Pair:
    """Right for one token; in an array every token gets the bounds of the first."""
    lower, upper = library("tv")(logp[:1], delta)
    return np.full_like(logp, lower[0]), np.full_like(logp, upper[0])


def capped(logp: np.ndarray, delta: float) -> Pair:
    lower, upper = library("pearson_chi2")(logp, delta)
    return lower, np.minimum(upper, math.log(10))


def never_saturates(logp: np.ndarray, delta: float) -> Pair:
    lower, upper = library("tv")(logp, delta)
    return np.maximum(lower, -40.0), upper


def narrow_hellinger(logp: np.ndarray, delta: float) -> Pair:
    """½ (√u − 1)² taken for (√u − 1)², the wrong way round: half of the radius."""
    return library("squared_hellinger")(logp, delta / 2)


def raises(logp: np.ndarray, delta: float) -> Pair:
    raise ZeroDivisionError("p is 0")


def not_a_number(logp: np.ndarray, delta: float) -> Pair:
    return np.full_like(logp, np.nan), -logp


WRONG = [
    (flipped_sign, "tv", {"order", "upper bound"}),
    (missing_clamp, "pearson_chi2", {"order", "saturation"}),
    (unclamped_hellinger, "squared_hellinger", {"saturation", "shape in delta"}),
    (swapped, "kl", {"order", "upper bound", "certificate"}),
    (p_for_its_complement, "kl", {"lower bound", "shape in p"}),
    (doubled_radius, "kl", {"limit p -> 1", "small radius", "convex program", "certificate"}),
    (radius_not_transformed, "renyi:3", {"upper bound", "saturation", "small radius"}),
    (square_root_of_the_radius, "renyi:0.5", {"limit p -> 1", "limit p -> 0"}),
    (halved_radius, "kl", {"limit p -> 0"}),
    (bisection_to_1e_6, "kl", {"lower bound"}),
    (one_over_p_below_1e_6, "kl", {"upper bound", "shape in p"}),
    (float32, "tv", {"upper bound", "lower bound"}),
    (neighbours, "tv", {"array"}),
    (capped, "pearson_chi2", {"upper bound", "mirror"}),
    (never_saturates, "tv", {"saturation"}),
    (narrow_hellinger, "squared_hellinger", {"nesting"}),
    (raises, "tv", {"order"}),
    (not_a_number, "tv", {"order"}),
]


def refute(name: str, spec: str, bounds: Bounds) -> str | None:
    law = next(law for law in PROPERTIES if law.name == name)
    return law.search(subject(spec, bounds), settings(max_examples=50, database=None), seed=0).counterexample


@pytest.mark.parametrize(
    ("bounds", "spec", "name"),
    [
        pytest.param(bounds, spec, name, id=f"{bounds.__name__}: {name}")
        for bounds, spec, names in WRONG
        for name in sorted(names)
    ],
)
def test_each_of_these_properties_refutes_the_wrong_bounds(bounds: Bounds, spec: str, name: str) -> None:
    text = refute(name, spec, bounds)
    assert text
    lines = text.splitlines()
    assert len(lines) <= ROWS
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith(("theorem", "every theorem"))
    assert f"print({bounds.__name__}(" in text


def test_a_correct_function_of_ones_own_passes_the_whole_suite() -> None:
    def total_variation(logp: np.ndarray, delta: float) -> Pair:
        with np.errstate(all="ignore"):
            move = np.exp(np.log(delta) - logp)
            lower = np.where(move < 1, np.log1p(-move), -np.inf)
            return lower, np.minimum(np.log1p(move), -logp)

    for holds in band_properties("tv", total_variation):
        if holds.name not in (
            "small radius",
            "lower bound",
            "mirror",
            "saturation",
            "certificate",
        ):  # 1 − δ/p cancels near δ = p
            holds()


def test_the_counterexample_is_small_and_shows_the_digits_that_differ() -> None:
    # kl with δ doubled, at the plainest inputs: r = 2.5116 has −p log r − (1 − p) log c = −0.3388 + 1.3388 = 1 for p = 1/e
    assert refute("upper bound", "kl", doubled_radius) == "\n".join(
        [
            "theorem 1: g(p, upper) = δ: the claimed bound is outside the band",
            "  divergence  kl, f(u) = -log(u)",
            "  at          p = 0.367879 (logp = -1.0), delta = 1.0",
            "  expected    log upper = 0.9209227",
            "  got         log upper = 0.9848264",
            "  there       g = 2.0, δ = 1.0",
            "  reproduce",
            "import numpy as np",
            f"from {__name__} import doubled_radius",
            "print(doubled_radius(np.array([-1.0]), 1.0))",
        ]
    )


def test_the_library_is_named_in_the_line_that_reproduces_its_bounds() -> None:
    line = subject("(u-1)**2/u").line([-1.0], 0.5)
    assert line == 'import bandtheory as bt; print(bt.log_bounds(logp=[-1.0], divergence="(u-1)**2/u", delta=0.5))'


ROWS_OF_CODE = [
    divergence("kl"),
    divergence("renyi:3"),
    divergence("skew_jensen_shannon:0.7"),
    FDivergence("typed", "(u - 1)**2/(1 + u/2 + u**2/3 + u**3/4 + sqrt(u)/5) + (u - 1)**2/(1/2 + u/2) + (u - 1)**2"),
    FDivergence("mine", "abs(u - 1)**k/c", parameters=(("k", Fraction(3, 2)), ("c", Fraction(2)))),
    FDivergence("distance", "(sqrt(u) - 1)**2", radius="delta**2"),
]


@pytest.mark.parametrize("f", ROWS_OF_CODE, ids=str)
def test_the_line_that_reproduces_runs_as_it_is(f: FDivergence, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(python_lines(subject(f).code([-1.0, -2.5], 0.25)))
    exec(code, {})
    printed = capsys.readouterr().out
    assert printed == f"{log_bounds(logp=[-1.0, -2.5], divergence=f, delta=0.25)}\n"
    assert all(len(line) <= WIDTH for line in code.splitlines())


def test_a_screen_holds_what_is_long() -> None:
    rows = [("divergence", "u + " * 100), ("at", "p = 0.5 " * 40), ("expected", "1" * 300), ("got", "2" * 300)]
    text = screen("theorem 1: " + "words " * 60, [*rows, ("policy", "0.1, " * 90)], ('f = "' + "u + " * 99 + '1"', "print(f)"))
    lines = text.splitlines()
    assert len(lines) <= ROWS
    assert max(map(len, lines)) <= WIDTH


def test_a_faulty_generator_leaves_one_failing_test() -> None:
    suite = band_properties("(u-1)**2*(u-3)**2")
    assert [holds.name for holds in suite] == ["generator"]
    with pytest.raises(Counterexample, match=r"not convex near u = 1\.4"):
        suite[0]()


def test_a_property_that_does_not_apply_is_skipped_with_its_reason() -> None:
    (nesting,) = (holds for holds in band_properties("(u-1)**2/u + abs(u-1)/7") if holds.name == "nesting")
    with pytest.raises(unittest.SkipTest, match="theorem 11 names no inequality"):
        nesting()


def test_pytest_shows_each_property_by_its_name() -> None:
    names = [holds.__name__ for holds in band_properties("kl")]
    assert names[:4] == ["kl-generator", "kl-order", "kl-upper_bound", "kl-lower_bound"]
    assert band_properties("vajda:3")[2].__name__ == "vajda:3-upper_bound"
    assert band_properties("(u - 1)**2 / u")[2].__name__ == "(u-1)**2/u-upper_bound"
    assert len(set(names)) == len(names)


def test_the_definition_reproduces_closed_forms() -> None:
    truth = definition(divergence("tv"))
    logp = math.log(0.25)  # p is the exponential of this double, not 1/4
    with mpmath.workdps(40):
        p = mpmath.exp(mpmath.mpf(logp))
        assert abs(truth.bound(logp, 0.0625, "upper") - mpmath.log(1 + mpmath.mpf("0.0625") / p)) < 1e-24
        assert abs(truth.bound(logp, 0.0625, "lower") - mpmath.log(1 - mpmath.mpf("0.0625") / p)) < 1e-24
    assert truth.bound(logp, 0.5, "lower") == -mpmath.inf
    assert truth.bound(logp, 2.0, "upper") == -logp


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_the_definition_transforms_a_radius(alpha: float) -> None:
    truth, plain = definition(divergence(f"renyi:{alpha}")), definition(divergence(f"alpha:{alpha}"))
    with mpmath.workdps(40):
        radius = mpmath.expm1((alpha - 1) * mpmath.mpf("0.25")) / (mpmath.mpf(alpha) * (alpha - 1))
        assert abs(truth.radius(0.25) - radius) < 1e-30
        for side in ("upper", "lower"):
            assert abs(truth.bound(-1.5, 0.25, side) - plain.bound(-1.5, radius, side)) < 1e-24
            level = truth.level(-1.5, side)
            assert abs(truth.radius(level) / plain.level(-1.5, side) - 1) < 1e-18


def test_the_definition_decides_where_sixty_digits_would_not() -> None:
    truth = definition(divergence("pearson_chi2"))
    with mpmath.workdps(400):
        bound = mpmath.log1p(mpmath.sqrt(mpmath.mpf(1e-12) * -mpmath.expm1(-1e-300) / mpmath.exp(-1e-300)))
        assert truth.holds(-1e-300, -bound * (1 - mpmath.mpf(10) ** -90), 1e-12)
        assert not truth.holds(-1e-300, -bound * (1 + mpmath.mpf(10) ** -90), 1e-12)


@pytest.mark.parametrize(
    ("spec", "at_zero", "recession", "curvature"),
    [
        ("-log(u)", math.inf, 0, 1),
        ("u*log(u)", 0, math.inf, 1),
        ("abs(u - 1)/2", 0.5, 0.5, None),
        ("(sqrt(u) - 1)**2", 1, 1, 0.5),
        ("max(u - 1.2, 0)", 0, 1, None),
        ("(u - 1)**2/u", math.inf, 1, 2),
        ("exp(u - 1) - u", math.exp(-1), math.inf, 1),
    ],
)
def test_limits_are_read_off_the_generator(spec: str, at_zero: float, recession: float, curvature: float | None) -> None:
    truth = definition(FDivergence(spec, spec))
    assert float(truth.at_zero) == at_zero
    assert float(truth.recession) == pytest.approx(recession, abs=1e-300)
    assert truth.curvature is None if curvature is None else abs(float(truth.curvature) - curvature) < 1e-12


@given(log_probabilities(), log_probability_pairs(), probabilities(), radii(), increasing_radii(3), simplices(), divergences())
def test_strategies_stay_in_their_ranges(
    logp: float,
    pair: tuple[float, float],
    p: float,
    delta: float,
    deltas: tuple[float, ...],
    policy: np.ndarray,
    drawn: FDivergence,
) -> None:
    assert -700 <= logp <= -1e-300
    assert -700 <= pair[0] < pair[1] <= -1e-300
    assert 0 < p < 1
    assert 1e-12 <= delta <= 100
    assert 1e-12 <= deltas[0] < deltas[1] < deltas[2] <= 100
    assert 2 <= policy.size <= 8
    assert policy.min() > 1e-10
    assert abs(policy.sum() - 1) < 1e-15
    assert drawn == divergence(drawn.name)
