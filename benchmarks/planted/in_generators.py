"""Faults of generators: not convex somewhere, not 0 at 1, not defined everywhere, or with limits that somebody typed in.

A dent is a bump `h` on a convex `f` that is narrow enough for `h''` to win: with `x = log u`, `u² f'' = f_xx − f_x`, and
`h = a exp(−(x/w)²)` has `h_xx = −2a/w²` at its top.
"""

from __future__ import annotations

from typing import Any

import sympy

from bandtheory.divergence import FDivergence, divergence
from benchmarks.planted.fault import Fault, Trial, in_generator

NOT_CONVEX, NOT_ZERO, UNDEFINED, LIMIT = (
    "non-convex generator",
    "f(1) is not 0",
    "generator not defined",
    "wrong f(0) or f'(inf)",
)

CONCAVE = (
    in_generator(
        "concave kink at u = 1000",
        NOT_CONVEX,
        "-log(u) - max(u - 1000, 0)/2000",
        "the slope falls from −0.001 to −0.0015 at u = 1000",
        "a tail glued on with the wrong sign",
    ),
    in_generator(
        "logarithm clamped at 1e-8",
        NOT_CONVEX,
        "-max(log(u), -18.4)",
        "constant below u = 1e-8: a concave kink",
        "an eps that keeps the logarithm finite",
    ),
    in_generator(
        "logarithm clamped at e^3",
        NOT_CONVEX,
        "u*min(log(u), 3)",
        "the slope falls from 4 to 3 at u = e³",
        "log-ratios clamped against overflow",
    ),
    in_generator(
        "dent at u = 1e-8",
        NOT_CONVEX,
        "-log(u) + 0.05*exp(-25*log(u*10**8)**2)",
        "concave within 10 % of u = 1e-8",
        "a term meant to regularise small ratios",
    ),
    in_generator(
        "dent at u = 3e-5",
        NOT_CONVEX,
        "u*log(u)*(1 + 0.01*exp(-100*log(u/3*10**5)**2))",
        "concave near u = 3e-5",
        "a correction fitted to data",
    ),
    in_generator(
        "dent at u = 1.5",
        NOT_CONVEX,
        "(u - 1)**2 + exp(-(1000*(u - 1.5))**2)/10**5",
        "concave within 1e-3 of u = 1.5, by a term of 1e-5",
        "a correction fitted to data",
    ),
    in_generator(
        "dent at u = 1000",
        NOT_CONVEX,
        "(u - 1)**2*(1 + 0.02*exp(-100*log(u/1000)**2))",
        "concave near u = 1000, by a factor of at most 1.02",
        "a correction fitted to data",
    ),
    in_generator(
        "dent at u = 2e12",
        NOT_CONVEX,
        "u*log(u)*(1 + 0.1*exp(-100*log(u/2/10**12)**2))",
        "concave near u = 2e12",
        "a smooth switch between two branches",
    ),
    in_generator(
        "clipped square", NOT_CONVEX, "min((u - 1)**2, 9)", "constant for u ≥ 4: a concave kink", "a penalty with a cap"
    ),
    in_generator(
        "squared log-ratio", NOT_CONVEX, "log(u)**2/2", "concave for u > e", "an estimator of KL taken for a divergence"
    ),
    in_generator("sign forgotten", NOT_CONVEX, "sqrt(u) - 1", "concave everywhere", "the affinity instead of 1 − affinity"),
    in_generator(
        "hinge with a ceiling",
        NOT_CONVEX,
        "max(u - 1, 0) - max(u - 5, 0)",
        "constant for u ≥ 5: a concave kink",
        "a ratio clipped inside the penalty",
    ),
    in_generator("odd power", NOT_CONVEX, "(u - 1)**3", "concave for u < 1", "abs forgotten in Vajda's family"),
    in_generator(
        "exponent below 1", NOT_CONVEX, "abs(u - 1)**0.9", "concave on either side of 1", "a parameter below its range"
    ),
    in_generator(
        "two wells", NOT_CONVEX, "(u - 1)**2*(u - 3)**2", "concave between the wells", "a product of two convex functions"
    ),
    in_generator(
        "bounded quotient", NOT_CONVEX, "(u - 1)**2/(u**2 + 1)", "concave for large u", "normalised by q² + p² instead of q + p"
    ),
)

NOT_ZERO_AT_ONE = (
    in_generator("1e-12 at u = 1", NOT_ZERO, "(u - 1)**2 + 1/10**12", "f(1) = 1e-12", "an eps added for numerical safety"),
    in_generator("constant forgotten", NOT_ZERO, "u*log(u) - u", "f(1) = −1", "the + 1 of u log u − u + 1 forgotten"),
    in_generator("affinity", NOT_ZERO, "-2*sqrt(u)", "f(1) = −2", "the + 2 forgotten"),
    in_generator("e to ten digits", NOT_ZERO, "exp(u) - 2.718281828*u", "f(1) = 4.6e-10", "a constant typed from memory"),
    in_generator(
        "log 2 to nine digits",
        NOT_ZERO,
        "(u*log(u/(u + 1)) - log(u + 1))/2 + 0.693147181*(u + 1)/2",
        "f(1) = 4.4e-10",
        "a constant typed from memory, in Jensen–Shannon",
    ),
)

NOT_DEFINED = (
    in_generator(
        "logarithm shifted",
        UNDEFINED,
        "-log(u - 0.001) + log(0.999)",
        "not real for u ≤ 0.001",
        "ratios taken to be bounded below",
    ),
    in_generator("pole at u = 1000", UNDEFINED, "1/(1000 - u) - 1/999", "a pole at u = 1000", "a barrier against large ratios"),
)


def _with_limits(name: str, **limits: Any) -> FDivergence:
    """A divergence whose author typed `value_at_zero` or `recession_slope` in by hand, as an object from a file may.

    Its class is its own, so that no cache takes it for the divergence that it should be.
    """
    f = divergence(name)
    typed: type[FDivergence] = type("TypedLimits", (FDivergence,), {**limits, "__module__": __name__})
    return typed(f.name, f.expression, f.title, f.parameters, f.radius)


def _typed(name: str, what: str, value: Any, wrong: str, why: str) -> Fault:
    symbol = "f(0)" if what == "value_at_zero" else "f'(inf)"
    return Fault(f"{name}: {symbol} = {value}", LIMIT, name, wrong, why, lambda: Trial(_with_limits(name, **{what: value})))


ZERO, SLOPE = "value_at_zero", "recession_slope"
LIMITS = (
    _typed("tv", ZERO, sympy.Integer(1), "f(0) = 1 instead of ½", "the limit of |u − 1|"),
    _typed("kl", ZERO, sympy.Rational(921, 50), "f(0) = 18.42 instead of ∞", "−log of an eps of 1e-8"),
    _typed("reverse_kl", ZERO, -sympy.exp(-1), "f(0) = −1/e instead of 0", "the minimum of u log u taken for its limit"),
    _typed("squared_hellinger", SLOPE, sympy.oo, "f'(∞) = ∞ instead of 1", "lim f instead of lim f(u)/u"),
    _typed("pearson_chi2", SLOPE, sympy.Integer(10**6), "f'(∞) = 10⁶ instead of ∞", "f(u)/u at u = 10⁶"),
    _typed("jensen_shannon", ZERO, sympy.log(2), "f(0) = log 2 instead of ½ log 2", "the ½ of the definition forgotten"),
    _typed("le_cam", SLOPE, sympy.Integer(0), "f'(∞) = 0 instead of 1", "lim f'' instead of lim f(u)/u"),
    _typed("alpha:-0.5", ZERO, sympy.Integer(-2), "f(0) = 1/α although α < 0, instead of ∞", "the limit of α > 0"),
    _typed("hockey_stick:2", SLOPE, sympy.Integer(-1), "f'(∞) = 1 − γ instead of 1", "f(1 + u) − γ read off"),
    _typed(
        "skew_jensen_shannon:0.1",
        ZERO,
        -sympy.log(sympy.Rational(1, 10)) / 10,
        "f(0) = −λ log λ, which is f'(∞)",
        "the two limits exchanged",
    ),
    _typed(
        "jensen_shannon",
        ZERO,
        sympy.Rational(3465735903, 10**10),
        "f(0) right to ten digits only",
        "a limit evaluated numerically and typed in",
    ),
)

GENERATOR_FAULTS = (*CONCAVE, *NOT_ZERO_AT_ONE, *NOT_DEFINED, *LIMITS)
