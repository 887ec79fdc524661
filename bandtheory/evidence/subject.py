"""What is on trial: a divergence and a function that claims its bounds; and how a refuted claim is told in words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import mpmath
import numpy as np
from numpy.typing import NDArray

from bandtheory.catalogue import BY_NAME
from bandtheory.divergence import FDivergence, unchecked_divergence
from bandtheory.evidence.definition import Definition, Real, definition

Floats = NDArray[np.float64]
LogBounds = Callable[[Floats, float], tuple[Floats, Floats]]  # (logp, δ) ↦ (log lower, log upper), arrays of one shape

TOLERANCE = 1e-10  # relative error of a log-bound that the library promises


class Counterexample(AssertionError):
    """A property that does not hold; `str()` is one screen: theorem, p and δ, expected, got, a line that reproduces it."""


class Violation(Exception):
    """A failed check. Its text is made only when asked for: the expected value costs a bisection, and shrinking meets hundreds.

    Args:
        statement: what does not hold.
        place: the inputs, one line.
        evidence: makes the further (label, text) rows.
        line: a line of Python that reproduces it.
    """

    def __init__(self, statement: str, place: str, evidence: Callable[[], Sequence[tuple[str, str]]], line: str) -> None:
        super().__init__(statement)
        self.statement, self.place, self.evidence, self.line = statement, place, evidence, line

    def text(self, subject: Subject, theorem: str) -> str:
        """The whole counter-example."""
        f = subject.divergence
        of = f"f(u) = {f.generator}" if f.name == f.expression else f"{f.name}, f(u) = {f.generator}"
        rows = [("divergence", of), ("at", self.place), *self.evidence(), ("reproduce", self.line)]
        return "\n".join([f"{theorem}: {self.statement}", *(f"  {label:<11} {text}" for label, text in rows)])


@dataclass(frozen=True)
class Subject:
    """A divergence and the function whose bounds are to be those of its bands.

    Attributes:
        divergence: whose generator defines the truth.
        log_bounds: `(logp, δ) ↦ (log_lower, log_upper)`, logp a float64 array of one dimension, nats.
        call: the call in a line of Python, with `{logp}` and `{delta}` to be filled in.
        tolerance: largest relative error of a log-bound that is accepted.
    """

    divergence: FDivergence
    log_bounds: LogBounds
    call: str
    tolerance: float = TOLERANCE

    @property
    def truth(self) -> Definition:
        """The definition that claims are judged by."""
        return definition(self.divergence)

    def arrays(self, logp: Floats, delta: float) -> tuple[Floats, Floats]:
        """The claimed log-bounds of an array of tokens; a call that raises, or returns another shape, is a violation."""
        try:
            lower, upper = (np.asarray(side, dtype=np.float64) for side in self.log_bounds(logp, delta))
        except Exception as error:  # whatever the function on trial raises is a finding about it
            self.fail(f"the bounds raise {type(error).__name__}: {error}", logp[:3], delta)
        if lower.shape != logp.shape or upper.shape != logp.shape:
            shapes = f"{lower.shape} and {upper.shape} for logp of shape {logp.shape}"
            self.fail("the bounds have the shape of logp", logp[:3], delta, [("got", f"shapes {shapes}")])
        return lower, upper

    def token(self, logp: float, delta: float) -> tuple[float, float]:
        """The claimed log-bounds of one token; NaN is a violation."""
        lower, upper = self.arrays(np.array([logp]), delta)
        if np.isnan(lower[0]) or np.isnan(upper[0]):
            self.fail("the bounds are numbers", [logp], delta, [("got", f"log lower {lower[0]}, log upper {upper[0]}")])
        return float(lower[0]), float(upper[0])

    def line(self, logp: Sequence[float] | Floats, delta: float) -> str:
        """A line of Python that prints the claimed bounds."""
        return self.call.format(logp=[float(x) for x in logp], delta=delta)

    def fail(
        self,
        statement: str,
        logp: Sequence[float] | Floats,
        delta: float,
        evidence: Sequence[tuple[str, str]] | Callable[[], Sequence[tuple[str, str]]] = (),
        extra: str = "",
    ) -> NoReturn:
        """Raise the violation. All are raised from here: hypothesis sees one kind of failure and shrinks across its forms."""
        place = f"{places(logp)}, delta = {delta!r}{extra}"
        raise Violation(statement, place, evidence if callable(evidence) else lambda: evidence, self.line(logp, delta))


def subject(divergence: str | FDivergence, log_bounds: LogBounds | None = None, tolerance: float = TOLERANCE) -> Subject:
    """Put a divergence on trial, by default with the library's own bounds.

    Args:
        divergence: a name, an expression (a faulty generator is not refused here), or an FDivergence.
        log_bounds: another function to be judged, `(logp, δ) ↦ (log_lower, log_upper)`.
        tolerance: largest relative error of a log-bound that is accepted.
    """
    f = divergence if isinstance(divergence, FDivergence) else unchecked_divergence(divergence)
    if log_bounds is not None:
        return Subject(f, log_bounds, _call(log_bounds), tolerance)

    def library(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        from bandtheory.bounds import log_bounds  # the code on trial, not a part of the evidence

        lower, upper = log_bounds(logp=logp, divergence=f, delta=delta)
        return lower, upper

    spec = f.name if BY_NAME.get(f.name) and BY_NAME[f.name].generator == f.expression else f.expression
    call = f'import bandtheory as bt; print(bt.log_bounds(logp={{logp}}, divergence="{spec}", delta={{delta!r}}))'
    return Subject(f, library, call, tolerance)


def _call(function: LogBounds) -> str:
    """`from module import name; …` where that finds the function again, else the bare call."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "log_bounds")
    call = f"print({name if name.isidentifier() else 'log_bounds'}(np.array({{logp}}), {{delta!r}}))"
    found = getattr(sys.modules.get(module), name, None)
    origin = f"from {module} import {name}; " if found is function and module != "__main__" else ""
    return f"import numpy as np; {origin}{call}"


def interval(subject: Subject, log_bound: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The values that a claimed log-bound stands for, `y (1 ± tolerance)`, in increasing order."""
    ends = [mpmath.mpf(log_bound) * (1 + sign * mpmath.mpf(subject.tolerance)) for sign in (-1, 1)]
    return min(ends), max(ends)


def places(logp: Sequence[float] | Floats) -> str:
    """`p = 0.37 (logp = -1.0)` for each of a few tokens."""
    return ", ".join(f"p = {_probability(float(x))} (logp = {float(x)!r})" for x in logp)


def _probability(logp: float) -> str:
    if logp > -1e-4:
        return f"1 - {mpmath.nstr(-mpmath.expm1(logp), 5)}"
    return str(mpmath.nstr(mpmath.exp(logp), 6))


def differing(expected: Real, got: Real) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see them differ, and two more."""
    with mpmath.workdps(40):
        for digits in range(5, 26):
            texts = [str(mpmath.nstr(mpmath.mpf(x), digits)) for x in (expected, got)]
            if texts[0] != texts[1]:
                break
        return str(mpmath.nstr(mpmath.mpf(expected), digits + 2)), str(mpmath.nstr(mpmath.mpf(got), digits + 2))


def expected_and_got(name: str, expected: Real, got: Real) -> list[tuple[str, str]]:
    """The two rows of a counter-example that compare numbers."""
    first, second = differing(expected, got)
    return [("expected", f"{name} = {first}"), ("got", f"{name} = {second}")]
