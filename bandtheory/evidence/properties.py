"""The properties every band must have, as hypothesis tests that anyone can run on a divergence.

In a test file of one's own, three lines show each property as a test:

    import pytest
    from bandtheory.evidence.properties import band_properties

    @pytest.mark.parametrize("holds", band_properties("(u - 1)**2/u"))
    def test_band(holds):
        holds()

pytest shows each under a name that holds the divergence, as in `test_band[kl-upper_bound]`, so several suites can stand in one
list: `[*band_properties("kl"), *band_properties("vajda:3")]`. An `FDivergence` of one's own, bounds of one's own and a conic
form are given in the same call; `docs/divergence_template.py` has all of it.

A property that fails raises a `Counterexample`: which theorem, the smallest p and δ found, expected and got to the digits that
differ, and a line of Python that reproduces it.
"""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky, Unsatisfiable

from bandtheory.convexity import convexity_fault
from bandtheory.divergence import FDivergence
from bandtheory.evidence import agreement, laws
from bandtheory.evidence.conic import Conic, ConvexUnavailable, conic_form
from bandtheory.evidence.definition import Unresolved
from bandtheory.evidence.strategies import (
    increasing_radii,
    log_probabilities,
    log_probability_pairs,
    log_uniform,
    radii,
    simplices,
)
from bandtheory.evidence.subject import TOLERANCE, Counterexample, LogBounds, Subject, Violation, subject

__all__ = ["PROPERTIES", "BandProperty", "Counterexample", "Outcome", "Property", "Subject", "band_properties", "subject"]

SIDES = st.sampled_from(("upper", "lower"))
SHRINKS = 60  # attempts to make a counter-example smaller, times the weight of its property; hypothesis alone may take minutes
LONGEST_NAME = 40  # characters of a divergence in the name of a test
ERROR, SHARE = "relative error of the log-bound", "of what that error allows"


@dataclass(frozen=True)
class Property:
    """One theorem as a law over a subject, with the inputs it is tried on.

    Attributes:
        name, theorem: for reports.
        law: called with the subject and one drawn input; returns the deviation, raises a violation.
        inputs: strategies by argument name.
        over: the inputs in words.
        unit: unit of the deviation.
        weight: share of the examples that this property gets; costly ones get few.
        alone: the same where there is no convex program for which it would be a second opinion; None: no difference.
        missing: why it does not apply to a subject, or None.
    """

    name: str
    theorem: str
    law: Callable[..., float]
    inputs: Mapping[str, st.SearchStrategy[Any]]
    over: str
    unit: str = ERROR
    weight: float = 1.0
    alone: float | None = None
    missing: Callable[[Subject], str | None] = field(default=lambda _: None)

    def search(self, on_trial: Subject, options: settings, seed: int | None = None) -> Outcome:
        """Let hypothesis look for a counter-example, and shrink it."""
        weight = self.weight if self.alone is None or not _no_conic_form(on_trial) else self.alone
        outcome = Outcome(self, on_trial, most_shrinks=round(SHRINKS * min(1, weight)))

        def attempt(inputs: dict[str, Any]) -> None:
            outcome.record(inputs)

        test = given(st.fixed_dictionaries(dict(self.inputs)))(attempt)
        test = settings(
            options,
            max_examples=max(1, round(options.max_examples * weight)),
            phases=(Phase.generate, Phase.shrink),
            database=None,  # hypothesis would keep the examples of all properties as those of one test
            deadline=None,
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )(test)
        try:
            (test if seed is None else seeded(seed)(test))()
        except (Violation, _Enough, Unsatisfiable):
            pass  # the outcome has the smallest violation; unsatisfiable: no input in range, and the outcome counts none
        except Flaky:
            outcome.smallest = None
            outcome.counterexample = f"{self.theorem}: the bounds differ between two calls with the same arguments"
        if outcome.smallest:
            outcome.counterexample = outcome.smallest[1].text(on_trial, self.theorem)
        return outcome


class _Enough(BaseException):
    """Ends a search; not an Exception, which hypothesis would take for a failure of the property."""


@dataclass
class Outcome:
    """What a search met: how many inputs, the worst deviation, those a solver could not decide, and the counter-example."""

    tried_on: Property
    subject: Subject
    tried: int = 0
    worst: float = 0.0
    unresolved: list[str] = field(default_factory=list)
    counterexample: str | None = None
    smallest: tuple[tuple[int, str], Violation] | None = None
    shrinks: int = 0
    most_shrinks: int = SHRINKS

    def record(self, inputs: dict[str, Any]) -> None:
        """Try one input; of the violations keep the one whose inputs are the shortest to write down."""
        if self.smallest:
            self.shrinks += 1
            if self.shrinks > self.most_shrinks:
                raise _Enough
        try:
            deviation = self.tried_on.law(self.subject, **inputs)
        except Violation as violation:
            size = (len(repr(inputs)), repr(inputs))
            if self.smallest is None or size < self.smallest[0]:
                self.smallest = (size, violation)
            raise
        except Unresolved as reason:
            self.unresolved.append(str(reason))
            return
        self.tried += 1
        self.worst = max(self.worst, deviation)


def _no_conic_form(on_trial: Subject) -> str | None:
    if on_trial.conic is not None:
        return None
    try:
        conic_form(on_trial.divergence)
    except ConvexUnavailable as error:
        return str(error)
    return None


def _no_saturation(on_trial: Subject) -> str | None:
    return None if on_trial.truth.at_zero < float("inf") else "f(0) = ∞: neither bound saturates"


def _no_curvature(on_trial: Subject) -> str | None:
    return "f has no second derivative at 1, or it is 0" if on_trial.truth.curvature is None else None


def _no_nesting(on_trial: Subject) -> str | None:
    return None if agreement.nestings(on_trial.divergence) else "theorem 11 names no inequality for this divergence"


_TOKEN: dict[str, st.SearchStrategy[Any]] = {"logp": log_probabilities(), "delta": radii()}
_EVERYWHERE = "log p in [−700, −1e-300], δ in [1e-12, 100]"

PROPERTIES: tuple[Property, ...] = (
    Property("order", "theorem 2", laws.order, _TOKEN, _EVERYWHERE),
    Property("upper bound", "theorem 1", laws.upper, _TOKEN, _EVERYWHERE, weight=2),
    Property("lower bound", "theorem 1", laws.lower, _TOKEN, _EVERYWHERE, weight=2),
    Property(
        "saturation",
        "theorem 6",
        laws.saturation,
        {"logp": log_probabilities(-50.0, -1e-13), "side": SIDES, "digits": st.integers(1, 12), "above": st.booleans()},
        "δ within 10 % to 1e-12 of the saturation level",
        missing=_no_saturation,
    ),
    Property("mirror", "theorem 5", laws.mirror, {**_TOKEN, "logp": log_probabilities(low=-690.0)}, _EVERYWHERE, SHARE),
    Property(
        "shape in p",
        "theorem 3",
        laws.shape_in_p,
        {"pair": log_probability_pairs(), "delta": radii()},
        "pairs of log p",
        SHARE,
        weight=0.6,
    ),
    Property(
        "shape in delta",
        "theorem 4",
        laws.shape_in_delta,
        {"logp": log_probabilities(), "deltas": increasing_radii(3)},
        "triples of δ",
        SHARE,
        weight=0.6,
    ),
    Property("limit p -> 0", "theorem 7", laws.limit_at_zero, {"delta": radii()}, "p = e^−700", "relative, in log", 0.2),
    Property("limit p -> 1", "theorem 7", laws.limit_at_one, {"delta": radii()}, "p = 1 − 1e-300", "relative, in log", 0.2),
    Property(
        "small radius",
        "theorem 7",
        laws.small_radius,
        {"logp": log_probabilities(-10.0, -1e-4), "delta": radii(high=1e-4)},
        "p in [5e-5, 1 − 1e-4], δ ≤ 1e-4",
        "of the next term",
        0.3,
        missing=_no_curvature,
    ),
    Property(
        "nesting",
        "theorem 11",
        agreement.nesting,
        {**_TOKEN, "delta": radii(high=10.0), "which": st.integers(0, 23)},
        _EVERYWHERE,
        weight=0.3,
        missing=_no_nesting,
    ),
    Property(
        "array",
        "every theorem",
        agreement.elementwise,
        {"seed": st.integers(0, 2**32 - 1), "size": st.sampled_from((3, 40_000, 1, 17, 70_000)), "delta": radii()},
        "arrays of 1 to 70,000 tokens, some of them alike",
        weight=0.04,
    ),
    Property(
        "convex program",
        "theorem 1",
        agreement.convex,
        {"policy": simplices(), "action": st.integers(0, 7), "delta": log_uniform(1e-6, 10.0), "side": SIDES},
        "policies of 2 to 8 tokens with masses from 1e-8",
        "relative, beyond the enclosure",
        0.15,
        missing=_no_conic_form,
    ),
    Property(
        "certificate",
        "theorem 1",
        agreement.certificate,
        {**_TOKEN, "side": SIDES},
        f"{_EVERYWHERE}; Fenchel dual in balls",
        weight=0.2,
        alone=2.0,
    ),
)


@dataclass(frozen=True)
class BandProperty:
    """One property bound to a subject: call it to test it. pytest takes its `__name__` as the test's name."""

    law: Property | None
    subject: Subject

    @property
    def name(self) -> str:
        """Of the property, as a report has it."""
        return self.law.name if self.law else "generator"

    @property
    def __name__(self) -> str:
        return f"{_short(self.subject.divergence.name)}-{re.sub('[^a-z0-9]+', '_', self.name)}"

    def __str__(self) -> str:
        return f"{self.subject.divergence.name}: {self.name}"

    def __call__(self) -> None:
        """Search with hypothesis' current profile.

        Raises:
            Counterexample: with the smallest one found.
            unittest.SkipTest: the property does not apply to this divergence, or no solver could decide any example.
        """
        __tracebackhide__ = True
        if self.law is None:
            fault = convexity_fault(self.subject.divergence)
            if fault:
                raise Counterexample(f"the generator of {self.subject.divergence.name!r}: {fault}")
            return
        reason = self.law.missing(self.subject)
        if reason:
            raise unittest.SkipTest(reason)
        outcome = self.law.search(self.subject, settings())
        if outcome.counterexample:
            raise Counterexample(outcome.counterexample)
        if not outcome.tried:
            raise unittest.SkipTest("; ".join(outcome.unresolved[:1]) or "no input in range")


def _short(name: str) -> str:
    """A divergence in a test's name: an expression without blanks, of at most `LONGEST_NAME` characters."""
    dense = re.sub(r"\s+", "", name)
    return dense if len(dense) <= LONGEST_NAME else f"{dense[: LONGEST_NAME - 3]}..."


def band_properties(
    divergence: str | FDivergence,
    log_bounds: LogBounds | None = None,
    tolerance: float = TOLERANCE,
    *,
    conic: Conic | None = None,
) -> list[BandProperty]:
    """The suite of a divergence, to be called one by one or given to `pytest.mark.parametrize`.

    Args:
        divergence: a name (`"kl"`, `"vajda:3"`), an expression in u, or an FDivergence.
        log_bounds: the function on trial, `(logp, δ) ↦ (log_lower, log_upper)`; by default the library's.
        tolerance: largest relative error of a log-bound that is accepted.
        conic: the generator as a convex cvxpy expression of the ratios, where it cannot be translated; see `solve_convex`.

    Returns:
        The generator's own test first. If that fails it is the only one: the others would mean nothing.
    """
    on_trial = subject(divergence, log_bounds, tolerance, conic)
    generator = BandProperty(None, on_trial)
    if convexity_fault(on_trial.divergence):
        return [generator]
    return [generator, *(BandProperty(p, on_trial) for p in PROPERTIES)]
