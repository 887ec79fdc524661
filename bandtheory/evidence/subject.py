"""What is on trial: a divergence, a function that claims its bounds, and the violations that are found."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import mpmath
import numpy as np
from numpy.typing import NDArray

from bandtheory.divergence import FDivergence, unchecked_divergence
from bandtheory.evidence.definition import Definition, definition
from bandtheory.evidence.wording import divergence_in_python, places, screen

if TYPE_CHECKING:
    from bandtheory.evidence.conic import Conic

Floats = NDArray[np.float64]
LogBounds = Callable[[Floats, float], tuple[Floats, Floats]]  # (logp, δ) ↦ (log lower, log upper), arrays of one shape

_MOST_KNOWN = 20_000
TOLERANCE = 1e-10  # relative error of a log-bound that the library promises


class Counterexample(AssertionError):
    """A property that does not hold; `str()` is one screen: theorem, p and δ, expected, got, a line that reproduces it."""


class Violation(Exception):
    """A failed check. Its text is made only when asked for: the expected value costs a bisection, and shrinking meets hundreds.

    Args:
        statement: what does not hold.
        place: the inputs, one line.
        evidence: makes the further (label, text) rows.
        code: statements of Python that reproduce it.
    """

    def __init__(
        self, statement: str, place: str, evidence: Callable[[], Sequence[tuple[str, str]]], code: Sequence[str]
    ) -> None:
        super().__init__(statement)
        self.statement, self.place, self.evidence, self.code = statement, place, evidence, code

    def text(self, subject: Subject, theorem: str) -> str:
        """The whole counter-example."""
        f = subject.divergence
        of = f"f(u) = {f.generator}" if f.name == f.expression else f"{f.name}, f(u) = {f.generator}"
        if f.radius != "delta":
            of += f", F(δ) = {f.f_radius}"
        rows = [("divergence", of), ("at", self.place), *self.evidence()]
        return screen(f"{theorem}: {self.statement}", rows, self.code)


@dataclass(frozen=True)
class Subject:
    """A divergence and the function whose bounds are to be those of its bands.

    Attributes:
        divergence: whose generator defines the truth.
        log_bounds: `(logp, δ) ↦ (log_lower, log_upper)`, logp a float64 array of one dimension, nats.
        setup: statements of Python that come before the call.
        call: the call itself, with `{logp}` and `{delta}` to be filled in.
        tolerance: largest relative error of a log-bound that is accepted.
        conic: the generator as a convex cvxpy expression, for one that cannot be translated; see `solve_convex`.
    """

    divergence: FDivergence
    log_bounds: LogBounds
    setup: tuple[str, ...]
    call: str
    tolerance: float = TOLERANCE
    conic: Conic | None = None
    _known: dict[tuple[float, float], tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

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
        """The claimed log-bounds of one token; NaN is a violation. Asked for once: several properties draw the same inputs."""
        if (logp, delta) not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[logp, delta] = self.tokens([logp], delta)[0]
        return self._known[logp, delta]

    def tokens(self, logp: Sequence[float], delta: float) -> list[tuple[float, float]]:
        """The claimed (log lower, log upper) of a few tokens from one call; NaN is a violation."""
        lower, upper = self.arrays(np.array(logp, dtype=np.float64), delta)
        for token, pair in zip(logp, zip(lower, upper, strict=True), strict=True):
            if np.isnan(pair[0]) or np.isnan(pair[1]):
                self.fail("the bounds are numbers", [token], delta, [("got", f"log lower {pair[0]}, log upper {pair[1]}")])
        return [(float(low), float(high)) for low, high in zip(lower, upper, strict=True)]

    def code(self, logp: Sequence[float] | Floats, delta: float) -> tuple[str, ...]:
        """Statements of Python that print the claimed bounds."""
        return (*self.setup, self.call.format(logp=[float(x) for x in logp], delta=delta))

    def line(self, logp: Sequence[float] | Floats, delta: float) -> str:
        """The same as one line."""
        return "; ".join(self.code(logp, delta))

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
        raise Violation(statement, place, evidence if callable(evidence) else lambda: evidence, self.code(logp, delta))


def subject(
    divergence: str | FDivergence,
    log_bounds: LogBounds | None = None,
    tolerance: float = TOLERANCE,
    conic: Conic | None = None,
) -> Subject:
    """Put a divergence on trial, by default with the library's own bounds.

    Args:
        divergence: a name, an expression (a faulty generator is not refused here), or an FDivergence.
        log_bounds: another function to be judged, `(logp, δ) ↦ (log_lower, log_upper)`.
        tolerance: largest relative error of a log-bound that is accepted.
        conic: the generator as a convex cvxpy expression of the ratios, for one that cannot be translated.

    Raises:
        TypeError: log_bounds or conic cannot be called.
    """
    for name, given in (("log_bounds", log_bounds), ("conic", conic)):
        if given is not None and not callable(given):
            raise TypeError(f"{name} must be a function, got {type(given).__name__}")
    f = divergence if isinstance(divergence, FDivergence) else unchecked_divergence(divergence)
    if log_bounds is not None:
        return Subject(f, log_bounds, *_own_call(log_bounds), tolerance, conic)

    def library(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        from bandtheory.bounds import log_bounds  # the code on trial, not a part of the evidence

        lower, upper = log_bounds(logp=logp, divergence=f, delta=delta)
        return lower, upper

    setup, spec = divergence_in_python(f)
    call = f"print(bt.log_bounds(logp={{logp}}, divergence={spec}, delta={{delta!r}}))"
    return Subject(f, library, ("import bandtheory as bt", *setup), call, tolerance, conic)


def _own_call(function: Any) -> tuple[tuple[str, ...], str]:
    """An import, or a run of the file, where that finds the function again, and the call of it; else the bare call."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "log_bounds")
    name = name if re.fullmatch(r"\w+", name) else "log_bounds"
    found = sys.modules.get(module)
    setup: tuple[str, ...] = ("import numpy as np",)
    if getattr(found, name, None) is function:
        path = str(getattr(found, "__file__", None) or "")
        if getattr(found, "__loaded_from_path__", False) or (module == "__main__" and Path(path).is_file()):
            setup = ("import numpy as np, runpy", f"{name} = runpy.run_path({_shown(path)!r})[{name!r}]")
        elif module != "__main__" and all(part.isidentifier() for part in module.split(".")):
            setup = (*setup, f"from {module} import {name}")
    call = f"print({name}(np.array({{logp}}), {{delta!r}}))"
    return setup, call


def _shown(path: str) -> str:
    """Relative to the working directory where the file lies in it."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def interval(subject: Subject, log_bound: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """The values that a claimed log-bound stands for, `y (1 ± tolerance)`, in increasing order."""
    ends = [mpmath.mpf(log_bound) * (1 + sign * mpmath.mpf(subject.tolerance)) for sign in (-1, 1)]
    return min(ends), max(ends)
