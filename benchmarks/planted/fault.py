"""What a planted fault is: the declaration of one mistake that somebody could make, and how it is put on trial.

A fault stands in one of three places. In a generator, whose text or whose limits are wrong; in the bounds, which then are those
of another set than the band; or in what was derived from a generator that is right. The suite is told none of this: it meets a
divergence and a function, as it would meet a user's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bandtheory.derivation import Derivation
from bandtheory.divergence import FDivergence

Floats = NDArray[np.float64]
LogBounds = Callable[[Floats, float], tuple[Floats, Floats]]
Mutation = Callable[[LogBounds], LogBounds]  # of bounds that are right into bounds that are not

KINDS = (
    "non-convex generator",
    "f(1) is not 0",
    "generator not defined",
    "wrong f(0) or f'(inf)",
    "wrong derivation",
    "closed form valid in part of the range",
    "wrong root",
    "swapped sides",
    "missing saturation",
    "wrong limit",
    "absolute tolerance",
    "loss of precision",
    "p and 1 - p exchanged",
    "radius rescaled",
    "another divergence",
    "arrays and state",
    "not a number",
    "error just above the promise",
)


@dataclass(frozen=True)
class Trial:
    """What `verify` is given.

    Attributes:
        divergence: a name, an expression or an object.
        log_bounds: the bounds on trial; None for the library's.
        derivation: makes a wrong derivation of the right one; None to leave it.
    """

    divergence: str | FDivergence
    log_bounds: LogBounds | None = None
    derivation: Callable[[Derivation], Derivation] | None = None


@dataclass(frozen=True)
class Fault:
    """One planted mistake, or in the control group one correct subject that looks unusual.

    Attributes:
        name: unique, for people.
        kind: one of `KINDS`; "control" in the control group.
        divergence: a catalogue name, or the expression of a generator that is itself the fault.
        wrong: what is wrong, and where.
        why: how somebody comes to write it.
        plant: makes the trial; called anew for each run, so that state kept between calls starts afresh.
    """

    name: str
    kind: str
    divergence: str
    wrong: str
    why: str
    plant: Callable[[], Trial]


def library(divergence: str | FDivergence) -> LogBounds:
    """The library's own bounds of a divergence, as material for mutations; the evidence never sees them."""

    def bounds(logp: Floats, delta: float) -> tuple[Floats, Floats]:
        from bandtheory.bounds import log_bounds

        lower, upper = log_bounds(logp=logp, divergence=divergence, delta=delta)
        return lower, upper

    return bounds


def in_bounds(name: str, kind: str, divergence: str, mutation: Mutation, wrong: str, why: str) -> Fault:
    """A fault of the bounds of a divergence of the catalogue."""
    plant = lambda: Trial(divergence, mutation(library(divergence)))  # noqa: E731
    return Fault(f"{divergence}: {name}", kind, divergence, wrong, why, plant)


def in_generator(name: str, kind: str, expression: str, wrong: str, why: str) -> Fault:
    """A fault of a generator's text."""
    return Fault(f"generator: {name}", kind, expression, wrong, why, lambda: Trial(expression))


def in_derivation(
    name: str,
    divergence: str,
    change: Callable[[Derivation], dict[str, Any]],
    wrong: str,
    why: str,
    kind: str = "wrong derivation",
) -> Fault:
    """A fault of what was derived: `change` returns the fields that are replaced."""
    from dataclasses import replace

    plant = lambda: Trial(divergence, derivation=lambda derived: replace(derived, **change(derived)))  # noqa: E731
    return Fault(f"derived {divergence}: {name}", kind, divergence, wrong, why, plant)
